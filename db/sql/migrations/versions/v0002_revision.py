"""A write counter, so that caches can follow changes; an index of each scope's trials in recorded order."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    counter = op.create_table(
        "revision",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.CheckConstraint("id = 1", name=op.f("ck_revision_single")),
    )
    op.bulk_insert(counter, [{"id": 1, "number": 0}])
    op.add_column("scopes", sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"))
    op.create_index("ix_scopes_revision", "scopes", ["revision"])
    op.create_index("ix_trials_scope", "trials", ["scope_id", "id"])
