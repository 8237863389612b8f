"""`tilewise import`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tilewise.db.exchange.reading import Reading
from tilewise.db.records import Trial
from tilewise.db.store import Change, MergeReport, Store
from tilewise.errors import BadImport
from tilewise.tuner.cli.options import common, database, print_json

__all__ = ["import_"]

_MOST_SHOWN = 20


@click.command("import")
@click.argument("file", type=click.Path())
@database
@common
def import_(file: str, url: str | None, as_json: bool) -> int:
    """Merge an exported FILE into the database; what is there and better known stays.

    What cannot be is refused, each with its reason, and the rest is taken; the exit code is 1 then.
    """
    from tilewise.db.exchange.native import read_native
    from tilewise.db.sql_store import open_store
    from tilewise.settings import read_settings

    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise BadImport(f"cannot read {file}: {error.strerror}") from error
    reading = read_native(data)
    with open_store(url or read_settings().database_url) as store:
        report, suggested = _keep(store, reading)
    if as_json:
        print_json(_json(file, reading, report, suggested))
    else:
        _print(file, report, suggested)
    for refusal in reading.refusals:
        click.echo(f"tilewise: {refusal.place} is refused: {refusal.reason}", err=True)
    return 1 if reading.refusals else 0


def _keep(store: Store, reading: Reading) -> tuple[MergeReport, int]:
    report = store.merge([(offer.scope, offer.trials) for offer in reading.offers])
    return report, store.suggest(reading.suggestions) if reading.suggestions else 0


def _json(file: str, reading: Reading, report: MergeReport, suggested: int) -> dict[str, Any]:
    return {
        "file": file,
        "added": report.added,
        "updated": report.updated,
        "unchanged": report.unchanged,
        "suggested": suggested,
        "changes": [_change_json(change) for change in report.changes],
        "refused": [{"place": refusal.place, "reason": refusal.reason} for refusal in reading.refusals],
    }


def _change_json(change: Change) -> dict[str, Any]:
    scope = change.scope
    named = {"kernel": scope.kernel, "dims": dict(scope.dims), "dtype": scope.dtype, "device": scope.device}
    rest = {"clock": str(scope.clock), "toolchain": scope.toolchain}
    return named | rest | {"before": _winner_json(change.before), "after": _winner_json(change.after)}


def _winner_json(trial: Trial | None) -> dict[str, Any] | None:
    return None if trial is None else {"config": dict(trial.config), "time_us": trial.time_us}


def _print(file: str, report: MergeReport, suggested: int) -> None:
    counts = {"added": report.added, "updated": report.updated, "unchanged": report.unchanged}
    told = ", ".join(f"{count} trials {what}" for what, count in counts.items())
    click.echo(f"{file}: {told}" + (f", {suggested} suggestions added" if suggested else ""))
    for change in report.changes[:_MOST_SHOWN]:
        click.echo(f"  {_change_line(change)}")
    if (more := len(report.changes) - _MOST_SHOWN) > 0:
        click.echo(f"  and {more} more bests changed")


def _change_line(change: Change) -> str:
    from tilewise.tuner.cli.text import config_text, time_text
    from tilewise.tuner.problem import sizes_text

    scope = change.scope
    problem = f"{scope.kernel} {sizes_text(scope.dims)} {scope.dtype} on {scope.device}"

    def told(trial: Trial | None) -> str:
        return "none" if trial is None else f"{config_text(trial.config)} at {time_text(trial.time_us, scope.clock)}"

    return f"{problem}: {told(change.before)} -> {told(change.after)}"
