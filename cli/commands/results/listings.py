"""`tilewise devices`."""

from __future__ import annotations

import click

from tilewise.cli.options import common, database, print_json

__all__ = ["devices"]


@click.command()
@database
@common
def devices(url: str | None, as_json: bool) -> None:
    """List the devices that can be tuned for, and why others are not available."""
    from tilewise.tuner.devices.registry import rows

    listed = rows()
    if as_json:
        print_json({"devices": [row.to_json() for row in listed]})
        return
    width = max(len(row.id) for row in listed)
    for row in listed:
        cores = f"{row.cores} cores" if row.cores else ""
        state = "available" if row.available else row.unavailable_reason
        click.echo(f"{row.id:{width}}  {row.clock:8}  {cores:9}  {state}")
    click.echo(f"{'replay:FILE':{width}}  as recorded         a landscape in a T4 file or a Kernel Tuner cache")
