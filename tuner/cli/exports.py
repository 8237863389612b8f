"""`tilewise export`."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import click

from tilewise.db.records import Scope
from tilewise.db.store import Store
from tilewise.errors import BadImport, NotFound
from tilewise.tuner.cli.options import common, database, open_existing, print_json

__all__ = ["export"]


@click.command()
@click.option("--format", "kind", type=click.Choice(["json", "t4"]), default="json", show_default=True)
@click.option("-o", "--output", required=True, metavar="FILE", help="Where to write; - is stdout, .gz is compressed.")
@click.option("--kernel", help="Only this kernel.")
@click.option("--device", help="Only this device name.")
@click.option("-s", "--shape", metavar="M=1000,N=8192", help="Only this shape.")
@click.option("--dtype", help="Only this dtype.")
@database
@common
def export(
    kind: str,
    output: str,
    kernel: str | None,
    device: str | None,
    shape: str | None,
    dtype: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Write what is stored to a file that others can use offline.

    json: every best with its evidence, for `tilewise import` and the decorator. t4: all trials of one problem as a
    landscape in the T4 format, for `tilewise bench search` and Kernel Tuner's tools.
    """
    from tilewise.db.exchange.files import write_file
    from tilewise.db.exchange.native import encode, export_native
    from tilewise.db.exchange.t4 import export_t4
    from tilewise.tuner.problem import parse_dims

    dims = parse_dims(shape) if shape else None
    with open_existing(url) as opened, opened.snapshot() as store:
        wanted = [
            s for s in store.scopes(kernel, device) if (not dims or s.dims == dims) and (not dtype or s.dtype == dtype)
        ]
        if not wanted:
            raise NotFound("nothing that is stored fits; see what is there without the filters")
        if kind == "json":
            document = export_native(store, wanted)
            data, count = encode(document), len(document["entries"])
        else:
            data, count = json.dumps(export_t4(store, _only(store, wanted))).encode(), 1
    if output.endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    if output == "-":
        sys.stdout.buffer.write(data)
        return
    write_file(Path(output), data)
    if as_json:
        print_json({"file": output, "format": kind, "entries": count})
    else:
        click.echo(f"{output}: {count} {'problem' if count == 1 else 'problems'} as {kind}, {len(data) / 1024:.1f} KiB")


def _only(store: Store, scopes: list[Scope]) -> Scope:
    if len(scopes) > 1:
        names = "; ".join(
            sorted({f"{s.kernel} {dict(s.dims)} {s.dtype} on {s.device} ({s.clock})" for s in scopes})[:4]
        )
        raise BadImport(
            f"a t4 file holds one problem, and {len(scopes)} fit: {names}; choose with --kernel, --device, -s, --dtype"
        )
    return scopes[0]
