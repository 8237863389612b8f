"""`tilewise bench verifying` and `right`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tilewise.cli.formatting import output
from tilewise.cli.options import common, give

__all__ = ["right", "verifying"]

_PART = click.option("--part", default="Ascend910B4", show_default=True, help="The modelled part.")
_JOURNAL = click.option(
    "--journal",
    type=click.Path(dir_okay=False),
    help="File of the outcomes so far; with the same file a run goes on.  [default: in the cache folder]",
)
_FILE = click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")


@click.command()
@click.argument("kernels", nargs=-1)
@_PART
@_JOURNAL
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Compile processes at once.")
@_FILE
@common
def verifying(
    kernels: tuple[str, ...], part: str, journal: str | None, jobs: int, file: str | None, as_json: bool
) -> None:
    """Tune kernels on a modelled part, and measure verification's share of the time."""
    from tilewise.benchmarks.model.verification.share import bench_share, share_body
    from tilewise.cli.progress import working

    place = _place(journal, "verifying")
    with working("tuning") as progress:
        rows = list(bench_share(part, place, kernels=kernels, jobs=jobs, progress=progress))
    command = " ".join(["tilewise bench verifying", *kernels, f"--part {part} --jobs {jobs}"])
    give(share_body(rows, command, part), as_json, file, _show_share)


def _show_share(body: dict[str, Any]) -> None:
    for row in body["rows"]:
        seconds = f"{row['verifying_processor_s']:.1f} of {row['processor_s']:.1f} s of processor time"
        click.echo(f"{row['kernel']}: {row['processor_share']:.1%} ({seconds}), {row['wall_share']:.1%} of wall time")
    _show_summary(body)


@click.command()
@click.argument("kernels", nargs=-1)
@_PART
@_JOURNAL
@_FILE
@common
def right(kernels: tuple[str, ...], part: str, journal: str | None, file: str | None, as_json: bool) -> None:
    """Verify the kernels as they are at odd shapes, and count those that are refused."""
    from tilewise.benchmarks.model.verification.right import bench_right, right_body
    from tilewise.settings import read_settings

    rows = []
    for row in bench_right(part, read_settings().cache_folder, _place(journal, "right"), kernels):
        rows.append(row)
        if not as_json and row["outcome"] not in ("accepted", "not compiled"):
            config = {**row["dims"], **row["config"]}
            output().print(f"{row['outcome']}: {row['kernel']} {row['dtype']} {config}: {row['reason']}", markup=False)
    command = " ".join(["tilewise bench right", *kernels, f"--part {part}"])
    give(right_body(rows, command, part), as_json, file, _show_summary)


def _place(journal: str | None, name: str) -> Path:
    from tilewise.settings import read_settings

    return Path(journal) if journal else read_settings().cache_folder / f"{name}.jsonl"


def _show_summary(body: dict[str, Any]) -> None:
    for name, value in body["summary"].items():
        click.echo(f"{name.replace('_', ' ')}: {value}")
