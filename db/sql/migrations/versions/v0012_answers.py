"""Encoded answers to exact look-ups. `tilewise db upgrade` fills them; until then they are encoded when asked for."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "answers",
        sa.Column("scope_id", _ID, autoincrement=False, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("format", sa.Integer, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("scope_id"),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_answers_scope_id"),
    )
