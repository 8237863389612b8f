"""`tilewise import`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from tilewise.cli.options import common, database, print_json
from tilewise.db.exchange.import_file import About, ImportFile
from tilewise.db.exchange.registry import READABLE, read
from tilewise.db.records import Trial
from tilewise.db.store import Change, MergeReport, Store
from tilewise.errors import BadImport
from tilewise.kernels.spec import KernelSpec

__all__ = ["import_"]

_MAX_SHOWN = 20


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option("--format", "kind", type=click.Choice(READABLE), help="Format of all FILES (default: detected of each).")
@click.option("--kernel", default="", help="Kernel, if a file does not name it; path/to/file.py:SPEC for your own.")
@click.option("--device", default="", help="Device name, if a file does not name it.")
@click.option(
    "--cores", default=0, type=click.IntRange(min=0), help="Core count of the device, if no result of it is stored."
)
@click.option("-s", "--shape", metavar="M=1000,N=8192", help="Dimension sizes that a file does not give.")
@click.option("--dtype", default="", help="Dtype, if a file does not name it.")
@click.option(
    "--key",
    default="",
    metavar="M,N",
    help="triton, dejavu, fla: names of the values in the autotuner's key, in order.",
)
@click.option("--rung", default="M", show_default=True, help="vllm, sglang: the dimension that indexes a table.")
@database
@common
def import_(
    files: tuple[str, ...],
    kind: str | None,
    kernel: str,
    device: str,
    cores: int,
    shape: str | None,
    dtype: str,
    key: str,
    rung: str,
    url: str | None,
    as_json: bool,
) -> int:
    """Merge FILES into the database; a stored trial with stronger evidence stays.

    A file is an export (json, t4), a cache of Kernel Tuner, of triton's autotuner (<function>.autotune.json) or of
    triton-dejavu (cache.json), or a table of vLLM, SGLang or FLA, whose configs become starting points of searches.
    Impossible parts are refused, each with a reason, and the rest is imported; the exit code is then 1. If a file
    cannot be used at all, none is imported.
    """
    from tilewise.db.sql.sql_store import open_store
    from tilewise.settings import read_settings
    from tilewise.tuner.ingest.import_checks import checked_import
    from tilewise.tuner.space.problem_checks import parse_dims

    own = _own(kernel)
    about = About(
        kernel=own.name if own else kernel,
        device=device,
        dtype=dtype,
        dims=parse_dims(shape) if shape else {},
        key=tuple(name.strip() for name in key.split(",") if name.strip()),
        rung=rung,
        cores=cores,
    )
    with open_store(url or read_settings().database_url) as store:
        about = about if cores else replace(about, cores=_stored_cores(store, device))
        read_one = partial(_read, about=about, kind=kind or "", alone=len(files) == 1)
        reading = checked_import(_joined([read_one(file) for file in files]), {own.name: own} if own else {})
        report, suggested = _keep(store, reading)
    if as_json:
        print_json(_json(files, reading, report, suggested))
    else:
        _print(files, report, suggested)
    for refusal in reading.refusals:
        click.echo(f"tilewise: {refusal.place} is refused: {refusal.reason}", err=True)
    return 1 if reading.refusals else 0


def _read(file: str, *, about: About, kind: str, alone: bool) -> ImportFile:
    """Read a file. Among several, its name stands before the places in it, and before what makes it unusable."""
    data, written = _bytes(file)
    try:
        found = read(data, Path(file).name, about, written=written, kind=kind)
    except BadImport as error:
        raise error if alone else BadImport(f"{file}: {error}") from error
    if alone:
        return found
    offers = (replace(offer, place=f"{file}: {offer.place}") for offer in found.offers)
    refusals = (replace(refusal, place=f"{file}: {refusal.place}") for refusal in found.refusals)
    return replace(found, offers=tuple(offers), refusals=tuple(refusals))


def _joined(found: Sequence[ImportFile]) -> ImportFile:
    """Return the content of all files as one, which is stored in one transaction."""
    return ImportFile(
        tuple(offer for one in found for offer in one.offers),
        tuple(refusal for one in found for refusal in one.refusals),
        tuple(suggestion for one in found for suggestion in one.suggestions),
    )


def _bytes(file: str) -> tuple[bytes, datetime]:
    """Return the file's content and the time of its last change."""
    try:
        return Path(file).read_bytes(), datetime.fromtimestamp(Path(file).stat().st_mtime, UTC)
    except OSError as error:
        raise BadImport(f"cannot read {file}: {error.strerror}") from error


def _own(kernel: str) -> KernelSpec | None:
    """Return the spec of a user's file, named as `path/to/file.py:SPEC`; None for other kernels."""
    from tilewise.kernels import registry

    return registry.load(kernel) if ".py" in kernel else None


def _stored_cores(store: Store, device: str) -> int:
    """Return the core count with which results of a device are stored; 0 if there are none."""
    scope = next(store.scopes(device=device), None) if device else None
    return scope.cores if scope else 0


def _keep(store: Store, reading: ImportFile) -> tuple[MergeReport, int]:
    report = store.merge([(offer.scope, offer.trials) for offer in reading.offers])
    return report, store.suggest(reading.suggestions) if reading.suggestions else 0


def _json(files: Sequence[str], reading: ImportFile, report: MergeReport, suggested: int) -> dict[str, Any]:
    return {
        **({"file": files[0]} if len(files) == 1 else {"files": list(files)}),
        "added": report.added,
        "updated": report.updated,
        "unchanged": report.unchanged,
        "suggested": suggested,
        "changes": [_change_json(change) for change in report.changes],
        "refused": [{"place": refusal.place, "reason": refusal.reason} for refusal in reading.refusals],
    }


def _change_json(change: Change) -> dict[str, Any]:
    scope = change.scope
    question = {"kernel": scope.kernel, "dims": dict(scope.shape), "dtype": scope.dtype, "device": scope.device}
    rest = {"clock": str(scope.clock), "toolchain": scope.toolchain}
    return question | rest | {"before": _winner_json(change.before), "after": _winner_json(change.after)}


def _winner_json(trial: Trial | None) -> dict[str, Any] | None:
    return None if trial is None else {"config": dict(trial.config), "time_us": trial.time_us}


def _print(files: Sequence[str], report: MergeReport, suggested: int) -> None:
    counts = {"added": report.added, "updated": report.updated, "unchanged": report.unchanged}
    summary = ", ".join(f"{count} trials {kind}" for kind, count in counts.items())
    click.echo(
        f"{files[0] if len(files) == 1 else f'{len(files)} files'}: {summary}"
        + (f", {suggested} suggestions added" if suggested else "")
    )
    for change in report.changes[:_MAX_SHOWN]:
        click.echo(f"  {_change_line(change)}")
    if (more := len(report.changes) - _MAX_SHOWN) > 0:
        click.echo(f"  and {more} more best configs changed")


def _change_line(change: Change) -> str:
    from tilewise.cli.formatting import time_text
    from tilewise.tuner.space.problem_checks import config_text

    scope = change.scope
    problem = str(scope.question)

    def winner(trial: Trial | None) -> str:
        return "none" if trial is None else f"{config_text(trial.config)} at {time_text(trial.time_us, scope.clock)}"

    return f"{problem}: {winner(change.before)} -> {winner(change.after)}"
