"""Scopes, trials, and the view of the best."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")

_BEST = """
CREATE VIEW best AS
SELECT winner.id, scopes.id AS scope_id, winner.current, winner.config, winner.config_key, winner.status, winner.reason,
    winner.time_us, winner.p20_us, winner.p80_us, winner.samples, winner.verified, winner.is_default, winner.ordinal,
    winner.search, winner.seed, winner.facts, winner.why, winner.seconds, winner.created
FROM scopes JOIN trials AS winner ON winner.id = (
    SELECT trial.id FROM trials AS trial
    WHERE trial.scope_id = scopes.id AND trial.current AND trial.verified
    ORDER BY trial.time_us, trial.ordinal IS NULL, trial.ordinal, trial.id
    LIMIT 1
)
"""


def upgrade() -> None:
    _create_scopes()
    _create_trials()
    op.execute(_BEST)


def _create_scopes() -> None:
    op.create_table(
        "scopes",
        sa.Column("id", _ID, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("question_key", sa.Text, nullable=False),
        sa.Column("kernel", sa.Text, nullable=False),
        sa.Column("source_hash", sa.Text, nullable=False),
        sa.Column("dims", sa.Text, nullable=False),
        sa.Column("dtype", sa.Text, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("clock", sa.Text, nullable=False),
        sa.Column("toolchain", sa.Text, nullable=False),
        sa.Column("cores", sa.BigInteger, nullable=False),
        sa.Column("first_seen", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.CheckConstraint("clock IN ('measured', 'modelled')", name=op.f("ck_scopes_clock")),
    )
    op.create_index("ix_scopes_key", "scopes", ["key"], unique=True)
    op.create_index("ix_scopes_question_key", "scopes", ["question_key"])
    op.create_index("ix_scopes_neighbours", "scopes", ["kernel", "dtype", "device"])
    op.create_index("ix_scopes_device", "scopes", ["device"])


def _create_trials() -> None:
    op.create_table(
        "trials",
        sa.Column("id", _ID, nullable=False),
        sa.Column("scope_id", _ID, nullable=False),
        sa.Column("current", sa.Boolean, nullable=False),
        sa.Column("config", sa.Text, nullable=False),
        sa.Column("config_key", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("time_us", sa.Double),
        sa.Column("p20_us", sa.Double),
        sa.Column("p80_us", sa.Double),
        sa.Column("samples", sa.BigInteger, nullable=False),
        sa.Column("verified", sa.Boolean, nullable=False),
        sa.Column("is_default", sa.Boolean, nullable=False),
        sa.Column("ordinal", sa.BigInteger),
        sa.Column("search", sa.Text, nullable=False),
        sa.Column("seed", sa.BigInteger),
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_trials_scope_id"),
        sa.CheckConstraint(
            "status IN ('correct', 'constraints', 'compile', 'correctness', 'runtime', 'timeout')",
            name=op.f("ck_trials_status"),
        ),
        sa.CheckConstraint("status <> 'correct' OR time_us IS NOT NULL", name=op.f("ck_trials_timed")),
        sa.CheckConstraint("status = 'correct' OR NOT verified", name=op.f("ck_trials_verified")),
        sa.CheckConstraint("time_us > 0", name=op.f("ck_trials_time")),
    )
    _create_partial_index("ix_trials_current", ["scope_id", "config_key"], where="current", unique=True)
    _create_partial_index("ix_trials_fastest", ["scope_id", "time_us", "ordinal"], where="current AND verified")
    _create_partial_index("ix_trials_default", ["scope_id"], where="current AND is_default")
    _create_partial_index("ix_trials_tally", ["scope_id", "status", "seconds"], where="current")


def _create_partial_index(name: str, columns: list[str], *, where: str, unique: bool = False) -> None:
    condition = sa.text(where)
    op.create_index(name, "trials", columns, unique=unique, sqlite_where=condition, postgresql_where=condition)
