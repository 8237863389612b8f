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
@click.option("--forget", is_flag=True, help="Remove them from the list.")
@common
def misses(kernel: str | None, forget: bool, as_json: bool) -> None:
    """List shapes that programs launched without a tuned config, those of most processes first.

    `tilewise tune KERNEL --misses` tunes them. They are stored in the file that TILEWISE_MISSES names, and sent only to
    the server that TILEWISE_MISSES_SERVER names.
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
        question = miss.question
        shape = shape_text(question.shape)
        table.add_row(question.kernel, shape, question.dtype, question.device, miss.match, str(miss.processes))
    output().print(table)


def kept_misses() -> UntunedShapes:
    """Return the file of untuned shapes. Raises `UsageError` if they are not recorded."""
    from tilewise.errors import UsageError
    from tilewise.settings import read_settings
    from tilewise.tuner.runtime.untuned_shapes import UntunedShapes

    file = read_settings().misses_file
    if file is None:
        raise UsageError("untuned shapes are not recorded: TILEWISE_MISSES is off; unset it")
    return UntunedShapes(file)
