"""`tilewise helion list|export|remove`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewise.cli.options import Group, common, database, existing_url, print_json
from tilewise.errors import NotFound

if TYPE_CHECKING:
    from tilewise.db.helion_records import HelionRecord, HelionRecords

__all__ = ["helion"]

_ALL = 1_000_000


@click.group(cls=Group)
def helion() -> None:
    """List, export and remove the records of Helion's autotuner, which Helion alone reads."""


@helion.command("list")
@database
@common
def list_(url: str | None, as_json: bool) -> None:
    """List the records, the newest first. Their times are Helion's own."""
    with _records(url) as stored:
        found = stored.page(most=_ALL)
    if as_json:
        print_json({"records": [_json(record) for record in found]})
        return
    for record in found:
        time = f"{record.search_us:.4g} us in Helion's search" if record.search_us else "no time"
        click.echo(
            f"{record.key[:12]}  {record.kernel or '-'}  {record.device}  {time}  {record.stored:%Y-%m-%d %H:%M}"
        )


@helion.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@database
@common
def export(folder: Path, url: str | None, as_json: bool) -> None:
    """Write every record to FOLDER, as HELION_CACHE_DIR holds them."""
    from tilewise.db.exchange.files import write_file

    with _records(url) as stored:
        found = stored.page(most=_ALL)
    if not found:
        raise NotFound("no record of Helion's is stored")
    folder.mkdir(parents=True, exist_ok=True)
    for record in found:
        write_file(folder / f"{record.key}.best_config", record.text.encode())
    if as_json:
        print_json({"folder": str(folder), "records": len(found)})
    else:
        click.echo(f"wrote {len(found)} records to {folder}")


@helion.command()
@click.argument("key")
@database
@common
def remove(key: str, url: str | None, as_json: bool) -> None:
    """Remove the record whose key is KEY or, of all, the only one to start with it."""
    with _records(url) as stored:
        removed = stored.remove(key)
    if as_json:
        print_json({"removed": removed})
    else:
        click.echo(f"{removed} is removed")


def _json(record: HelionRecord) -> dict[str, Any]:
    about = {"key": record.key, "kernel": record.kernel, "device": record.device, "search_us": record.search_us}
    return {**about, "stored": record.stored.isoformat(), "record": json.loads(record.text)}


@contextmanager
def _records(url: str | None) -> Iterator[HelionRecords]:
    from tilewise.db.helion_records import HelionRecords
    from tilewise.db.sql.sql_store import open_store

    with open_store(existing_url(url), create=True) as store:
        yield HelionRecords(store.database)
