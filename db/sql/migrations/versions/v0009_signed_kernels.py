"""Kernels of users that travel in the database, each with an operator's signature."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "signed_kernels",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("file", sa.Text, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("signature", sa.Text, nullable=False),
        sa.Column("signed", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
