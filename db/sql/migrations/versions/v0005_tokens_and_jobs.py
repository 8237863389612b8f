"""The service's tokens and jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_STATES = "state IN ('queued', 'running', 'done', 'failed', 'cancelled')"
_REUSABLE = "state IN ('queued', 'running', 'done')"


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id"),
        sa.CheckConstraint("scope IN ('read', 'submit', 'admin')", name=op.f("ck_tokens_scope")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", _ID, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("kernel", sa.Text, nullable=False),
        sa.Column("shapes", sa.Text, nullable=False),
        sa.Column("dtype", sa.Text, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("trials", sa.BigInteger),
        sa.Column("seconds", sa.Double),
        sa.Column("search", sa.Text, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("priority", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("progress", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("beats", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.BigInteger, nullable=False),
        sa.Column("cancelling", sa.Boolean, nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started", sa.DateTime(timezone=True)),
        sa.Column("finished", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id"),
        sa.CheckConstraint(_STATES, name=op.f("ck_jobs_state")),
    )
    condition = sa.text(_REUSABLE)
    op.create_index("ix_jobs_key", "jobs", ["key"], unique=True, sqlite_where=condition, postgresql_where=condition)
    op.create_index("ix_jobs_state", "jobs", ["state", "device"])
