"""The method and confidence interval of each time, and the trial that the final comparison declared the winner."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

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
    op.execute("DROP VIEW best")
    op.drop_index("ix_trials_fastest", "trials")
    for column in (
        sa.Column("low_us", sa.Double),
        sa.Column("high_us", sa.Double),
        sa.Column("dropped", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("method", sa.Text, nullable=False, server_default=""),
        sa.Column("l2", sa.Text, nullable=False, server_default=""),
        sa.Column("settled_us", sa.Double),
        sa.Column("standing_us", sa.Double),
    ):
        op.add_column("trials", column)
    op.execute("UPDATE trials SET standing_us = time_us")
    verified = sa.text("current AND verified")
    op.create_index(
        "ix_trials_fastest",
        "trials",
        ["scope_id", "standing_us", "ordinal"],
        sqlite_where=verified,
        postgresql_where=verified,
    )
    op.execute(_BEST)
