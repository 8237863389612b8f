"""Records of Helion's autotuner, kept for its remote cache."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "helion_records",
        sa.Column("id", _ID, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("kernel", sa.Text, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("search_us", sa.Double),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("stored", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_helion_records_key", "helion_records", ["key"], unique=True)
