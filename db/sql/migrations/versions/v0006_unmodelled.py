"""The status of configs that a model cannot judge."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_STATUSES = "status IN ('correct', 'constraints', 'compile', 'correctness', 'runtime', 'timeout', 'unmodelled')"
_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")

_BEST = """
CREATE VIEW best AS
SELECT winner.id, scopes.id AS scope_id, winner.current, winner.config, winner.config_key, winner.status, winner.reason,
    winner.time_us, winner.p20_us, winner.p80_us, winner.samples, winner.low_us, winner.high_us, winner.dropped,
    winner.method, winner.l2, winner.settled_us, winner.standing_us, winner.verified, winner.is_default, winner.ordinal,
    winner.search, winner.seed, winner.facts, winner.why, winner.seconds, winner.created
FROM scopes JOIN trials AS winner ON winner.id = (
    SELECT trial.id FROM trials AS trial
    WHERE trial.scope_id = scopes.id AND trial.current AND trial.verified
    ORDER BY trial.standing_us, trial.settled_us IS NULL, trial.ordinal IS NULL, trial.ordinal, trial.id
    LIMIT 1
)
"""


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _rebuild()
        return
    op.drop_constraint(op.f("ck_trials_status"), "trials", type_="check")
    op.create_check_constraint(op.f("ck_trials_status"), "trials", _STATUSES)


def _rebuild() -> None:
    """Copy the trials to a new table, as SQLite cannot change a constraint; the view goes first, since it names it."""
    op.execute("DROP VIEW best")
    copied = _create("new_trials")
    names = ", ".join(column.name for column in copied.columns)
    op.execute(f"INSERT INTO new_trials ({names}) SELECT {names} FROM trials")
    op.drop_table("trials")
    op.rename_table("new_trials", "trials")
    _index("ix_trials_current", ["scope_id", "config_key"], where="current", unique=True)
    _index("ix_trials_fastest", ["scope_id", "standing_us", "ordinal"], where="current AND verified")
    _index("ix_trials_default", ["scope_id"], where="current AND is_default")
    _index("ix_trials_tally", ["scope_id", "status", "seconds"], where="current")
    op.create_index("ix_trials_scope", "trials", ["scope_id", "id"])
    op.execute(_BEST)


def _create(name: str) -> sa.Table:
    return op.create_table(
        name,
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
        sa.Column("low_us", sa.Double),
        sa.Column("high_us", sa.Double),
        sa.Column("dropped", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("method", sa.Text, nullable=False, server_default=""),
        sa.Column("l2", sa.Text, nullable=False, server_default=""),
        sa.Column("settled_us", sa.Double),
        sa.Column("standing_us", sa.Double),
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
        sa.CheckConstraint(_STATUSES, name=op.f("ck_trials_status")),
        sa.CheckConstraint("status <> 'correct' OR time_us IS NOT NULL", name=op.f("ck_trials_timed")),
        sa.CheckConstraint("status = 'correct' OR NOT verified", name=op.f("ck_trials_verified")),
        sa.CheckConstraint("time_us > 0", name=op.f("ck_trials_time")),
    )


def _index(name: str, columns: list[str], *, where: str, unique: bool = False) -> None:
    op.create_index(name, "trials", columns, unique=unique, sqlite_where=sa.text(where))
