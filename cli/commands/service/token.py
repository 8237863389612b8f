"""`tilewise token create|list|revoke`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from tilewise.cli.options import Group, common, database, print_json

if TYPE_CHECKING:
    from tilewise.db.tokens import Tokens

__all__ = ["token"]


@click.group(cls=Group)
def token() -> None:
    """Create, list and revoke the tokens of a service."""


@token.command()
@click.argument("name")
@click.option(
    "--right",
    type=click.Choice(["read", "submit", "admin", "work"]),
    default="read",
    show_default=True,
    help="read: look-ups on a server with closed reads; submit: also jobs; admin: also imports; work: tilewise worker.",
)
@database
@common
def create(name: str, right: str, url: str | None, as_json: bool) -> None:
    """Create a token called NAME, such as its user's name. It is shown once and cannot be recovered."""
    from tilewise.db.tokens import Right

    with _tokens(url) as tokens:
        text = tokens.create(name, Right(right))
    if as_json:
        print_json({"token": text, "name": name, "right": right})
    else:
        click.echo(text)


@token.command("list")
@database
@common
def list_(url: str | None, as_json: bool) -> None:
    """List the tokens; their secrets are not stored."""
    with _tokens(url) as tokens:
        found = tokens.list()
    if as_json:
        rows = [
            {
                "id": one.id,
                "name": one.name,
                "right": str(one.right),
                "created": one.created.isoformat(),
                "revoked": one.revoked.isoformat() if one.revoked else None,
            }
            for one in found
        ]
        print_json({"tokens": rows})
        return
    for one in found:
        state = f"revoked {one.revoked:%Y-%m-%d}" if one.revoked else "valid"
        click.echo(f"{one.id:>4}  {one.right:<6}  {one.created:%Y-%m-%d}  {state:<18}  {one.name}")


@token.command()
@click.argument("number", type=click.IntRange(1))
@database
@common
def revoke(number: int, url: str | None, as_json: bool) -> None:
    """Revoke the token with this NUMBER; it is refused from now on."""
    with _tokens(url) as tokens:
        tokens.revoke(number)
    if as_json:
        print_json({"revoked": number})
    else:
        click.echo(f"token {number} is revoked")


@contextmanager
def _tokens(url: str | None) -> Iterator[Tokens]:
    from tilewise.db.sql.sql_store import open_store
    from tilewise.db.tokens import Tokens
    from tilewise.settings import read_settings

    with open_store(url or read_settings().database_url) as store:
        yield Tokens(store.database)
