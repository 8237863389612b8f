"""`tilewise kernels` and `tilewise devices`."""

from __future__ import annotations

from typing import Any

import click

from tilewise.tuner.cli.options import common, database, print_json

__all__ = ["devices", "kernels"]


@click.command()
@database
@common
def kernels(url: str | None, as_json: bool) -> None:
    """List the kernels that can be tuned; one of your own is named path/to/file.py:SPEC."""
    from tilewise.kernels import registry

    specs = [registry.load(name) for name in registry.names()]
    if as_json:
        keys = ("name", "summary", "dims", "dtypes", "parameters")
        rows = [(s.name, s.summary, list(s.dims), list(s.dtypes), [p.name for p in s.parameters]) for s in specs]
        print_json({"kernels": [dict(zip(keys, row, strict=True)) for row in rows]})
        return
    for spec in specs:
        click.echo(f"{spec.name}  {spec.summary}")
        click.echo(f"  dimensions  {', '.join(spec.dims)}")
        click.echo(f"  dtypes      {', '.join(spec.dtypes)}")
        click.echo(f"  parameters  {', '.join(p.name for p in spec.parameters)}")


@click.command()
@database
@common
def devices(url: str | None, as_json: bool) -> None:
    """List the devices that can be tuned for, and what the missing ones lack."""
    from tilewise.tuner.devices.catalogue import rows

    listed = rows()
    if as_json:
        body: list[dict[str, Any]] = []
        for row in listed:
            entry = {"id": row.id, "name": row.name, "clock": str(row.clock), "cores": row.cores}
            entry |= {"available": row.available, "why_not": row.why_not or None}
            body.append({key: value for key, value in entry.items() if value is not None})
        print_json({"devices": body})
        return
    width = max(len(row.id) for row in listed)
    for row in listed:
        cores = f"{row.cores} cores" if row.cores else ""
        state = "available" if row.available else row.why_not
        click.echo(f"{row.id:{width}}  {row.clock:8}  {cores:9}  {state}")
    click.echo(f"{'replay:FILE':{width}}  as recorded         a landscape in a T4 file or a Kernel Tuner cache")
