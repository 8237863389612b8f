"""`tilewise bench programs`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tilewise.cli.formatting import output
from tilewise.cli.options import common, give

__all__ = ["programs"]


@click.command()
@click.argument("names", nargs=-1)
@click.option(
    "--tutorials",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder python/tutorials of Triton's sources.",
)
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def programs(names: tuple[str, ...], tutorials: Path | None, file: str | None, as_json: bool) -> None:
    """Tune kernels of other people's libraries, as their users would, on the modelled part.

    NAMES are beginnings of calls, such as fla or fla/rms; without them, all of libraries that are installed.
    """
    from tilewise.benchmarks.programs.foreign import bench_programs
    from tilewise.cli.progress import working
    from tilewise.db.exchange.files import write_file

    body: dict[str, Any] = {}
    with working("tuning") as progress:
        for body in bench_programs(names, progress=progress, tutorials=tutorials):
            if file:
                write_file(Path(file), (json.dumps(body, indent=1) + "\n").encode())
    give(body, as_json, file, _show)


def _show(body: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(title="kernels of other people's libraries, modelled", title_justify="left")
    for heading in ("call", "kernel", "outcome", "s", "message"):
        table.add_column(heading, overflow="fold")
    for row in body["rows"]:
        table.add_row(row["call"], row["kernel"], row["outcome"], f"{row['seconds']:g}", row["message"])
    output().print(table)
    output().print(", ".join(f"{count} {name}" for name, count in body["summary"].items()))
    if body["not_installed"]:
        output().print(f"not installed: {', '.join(body['not_installed'])}")
