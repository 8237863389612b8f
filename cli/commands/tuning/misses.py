"""`tilewise misses`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tilewise.cli.options import common, print_json

if TYPE_CHECKING:
    from tilewise.tuner.runtime.untuned_shapes import UntunedShapes

__all__ = ["kept_misses", "misses"]


@click.command()
@click.argument("kernel", required=False)
@click.option("--forget", is_flag=True, help="Strike them off the list.")
@common
def misses(kernel: str | None, forget: bool, as_json: bool) -> None:
    """List shapes that programs launched without a tuned config, those of most processes first.

    `tilewise tune KERNEL --misses` tunes them. They are kept in the file that TILEWISE_MISSES names; only the server
    that TILEWISE_MISSES_SERVER names is told of them.
    """
    from tilewise.cli.formatting import output
    from tilewise.db.records import shape_text

    file = kept_misses()
    found = [miss for miss in file.all() if kernel in (None, miss.question.kernel, miss.origin)]
    for miss in found if forget else ():
        file.forget(miss.question)
    if as_json:
        print_json({"file": str(file.path), "misses": [miss.to_json() for miss in found]})
        return
    if not found:
        click.echo("no shape was launched untuned")
        return
    from rich.table import Table

    table = Table(title=f"launched untuned ({file.path})", title_justify="left")
    for heading in ("kernel", "shape", "dtype", "device", "launched with"):
        table.add_column(heading)
    table.add_column("processes", justify="right")
    for miss in found:
        asked = miss.question
        cells = (asked.kernel, shape_text(asked.shape), asked.dtype, asked.device, miss.match, str(miss.processes))
        table.add_row(*cells)
    output().print(table)


def kept_misses() -> UntunedShapes:
    """The file in which they are kept; raises `UsageError` where they are not."""
    from tilewise.errors import UsageError
    from tilewise.settings import read_settings
    from tilewise.tuner.runtime.untuned_shapes import UntunedShapes

    file = read_settings().misses_file
    if file is None:
        raise UsageError("untuned shapes are not kept: TILEWISE_MISSES is off; unset it")
    return UntunedShapes(file)
