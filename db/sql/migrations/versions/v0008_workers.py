"""Workers, where each job runs, and what a job may ask for: a toolchain, new trials, a deadline."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "workers",
        sa.Column("id", _ID, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("lanes", sa.Text, nullable=False),
        sa.Column("kernels", sa.Text, nullable=False),
        sa.Column("beats", sa.BigInteger, nullable=False),
        sa.Column("draining", sa.Boolean, nullable=False),
        sa.Column("started", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    for name in ("host", "lane", "toolchain"):
        op.add_column("jobs", sa.Column(name, sa.Text, nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("fresh", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("jobs", sa.Column("mark", sa.BigInteger))
    op.add_column("jobs", sa.Column("deadline", sa.DateTime(timezone=True)))
    op.add_column("jobs", sa.Column("token", sa.BigInteger))
