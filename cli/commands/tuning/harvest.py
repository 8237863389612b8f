"""`tilewise harvest`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewise.cli.formatting import show_ending
from tilewise.cli.options import common, database, print_json, program_arguments
from tilewise.errors import UsageError

if TYPE_CHECKING:
    from tilewise.tuner.ingest.autotune_listener import Harvest

__all__ = ["harvest"]


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@database
@common
@click.argument("script", type=click.Path())
@program_arguments
def harvest(script: str, arguments: tuple[str, ...], url: str | None, as_json: bool) -> int:
    """Run the Python program SCRIPT with ARGUMENTS and store what triton.autotune finds in it.

    Options of tilewise go before SCRIPT. Exits with the program's exit code. Needs triton 3.8 or later.
    """
    from tilewise.db.sql.sql_store import open_store
    from tilewise.settings import read_settings
    from tilewise.tuner.ingest.autotune_listener import harvesting

    if not Path(script).is_file():
        raise UsageError(f"no file {script}; expected a Python program")
    with open_store(url or read_settings().database_url) as store, harvesting(store) as found:
        output = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
        with output:
            code = _run(script, arguments)
    if as_json:
        print_json(_json(script, found))
    else:
        _print(found)
    for reason in found.missed:
        click.echo(f"tilewise: not stored: {reason}", err=True)
    return code or (1 if found.missed else 0)


def _run(script: str, arguments: tuple[str, ...]) -> int:
    from tilewise.tuner.capture.program import Program, run_program

    return show_ending(run_program(Program(script), arguments))


def _json(script: str, found: Harvest) -> dict[str, Any]:
    kept = [
        {"kernel": s.kernel, "dims": dict(s.dims), "dtype": s.dtype, "device": s.device, "trials": count}
        for s, count in found.kept.values()
    ]
    return {"script": script, "kept": kept, "missed": found.missed}


def _print(found: Harvest) -> None:

    for scope, count in found.kept.values():
        click.echo(f"{scope.question}: {count} configs stored")
    total = sum(count for _, count in found.kept.values())
    click.echo(f"{total} times of {len(found.kept)} problems stored, none of them verified")
