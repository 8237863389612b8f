"""The right to work on jobs through a server, and the number of a lease's last write, so that none counts twice."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_RIGHTS = "scope IN ('read', 'submit', 'admin', 'work')"
_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("written", sa.BigInteger, nullable=False, server_default="0"))
    if op.get_bind().dialect.name == "sqlite":
        _rebuild()
        return
    op.drop_constraint(op.f("ck_tokens_scope"), "tokens", type_="check")
    op.create_check_constraint(op.f("ck_tokens_scope"), "tokens", _RIGHTS)


def _rebuild() -> None:
    """Copy the tokens to a new table, as SQLite cannot change a constraint."""
    copied = op.create_table(
        "new_tokens",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id"),
        sa.CheckConstraint(_RIGHTS, name=op.f("ck_tokens_scope")),
    )
    names = ", ".join(column.name for column in copied.columns)
    op.execute(f"INSERT INTO new_tokens ({names}) SELECT {names} FROM tokens")
    op.drop_table("tokens")
    op.rename_table("new_tokens", "tokens")
