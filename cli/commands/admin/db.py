"""`tilewise db`: check, upgrade and back up the database."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from tilewise.cli.options import Group, common, database, existing_url, print_json

__all__ = ["db"]


@click.group(cls=Group)
def db() -> None:
    """Check, upgrade or back up the database."""


@db.command()
@database
@common
def check(url: str | None, as_json: bool) -> int:
    """Check the file's pages, the schema, and the rows for impossible values.

    Changes nothing, and may run while others write. Exits with 1 if anything is wrong.
    """
    from tilewise.db.check import check as look
    from tilewise.db.sql.schema import HEAD

    health = look(existing_url(url))
    if as_json:
        print_json(dataclasses.asdict(health) | {"head": HEAD, "whole": health.whole})
    else:
        rows = ", ".join(f"{count} {table}" for table, count in health.rows.items())
        click.echo(f"{health.database}: schema {health.revision or 'none'}{rows and ', ' + rows}")
        for part in health.checks:
            state = "ok" if part.passed else "FAILED" if part.faults else "not run"
            click.echo(f"  {part.name:12} {state}{part.left_out and ': ' + part.left_out}")
            for fault in part.faults:
                click.echo(f"    {fault}")
    return 0 if health.whole else 1


@db.command()
@database
@common
def upgrade(url: str | None, as_json: bool) -> None:
    """Bring the schema up to date, as every writing command does, and list the steps.

    The upgrade is one transaction. Then answers to look-ups are encoded where an earlier version stored none, 500 at a
    time, while others may read and write. Back up first: older versions of tilewise refuse an upgraded database.
    """
    from tilewise.db.sql import stored_answers
    from tilewise.db.sql.database import connect
    from tilewise.db.sql.schema import HEAD, bring_up, steps

    opened = connect(existing_url(url), create=False, read_only=False)
    try:
        before = bring_up(opened)
        encoded = stored_answers.complete(opened)
    finally:
        opened.close()
    done = steps(before)
    if as_json:
        print_json({"database": opened.name, "before": before, "after": HEAD, "steps": done, "encoded": encoded})
    else:
        click.echo(f"{opened.name}: schema {HEAD}, " + (f"was {before or 'empty'}" if done else "up to date already"))
        for step in done:
            click.echo(f"  {step}")
        if encoded:
            click.echo(f"  the answers of {encoded} problems are encoded")


@db.command()
@click.option(
    "-o", "--output", required=True, metavar="FILE", type=click.Path(path_type=Path), help="File for the copy."
)
@database
@common
def backup(output: Path, url: str | None, as_json: bool) -> None:
    """Copy an SQLite database, which may be in use, to FILE and verify the copy.

    The copy is a consistent snapshot, and replaces an older FILE as a whole. To restore it, see docs/operations.md. For
    PostgreSQL, this names the command to run instead.
    """
    from tilewise.db.backup import back_up

    made = back_up(existing_url(url), output)
    if as_json:
        print_json(dataclasses.asdict(made))
    else:
        click.echo(f"{made.file}: a copy of {made.database}, {made.bytes / 1024:.0f} KiB, verified")
