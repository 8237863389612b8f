"""`tilewise bench search`, `tilewise bench judge` and `tilewise bench inferred`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tilewise.cli.formatting import output
from tilewise.cli.options import common, database, give, write_json

__all__ = ["inferred", "judge", "search"]


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--budget", type=click.IntRange(1), default=200, show_default=True, help="Evaluations per search.")
@click.option(
    "--seeds", type=click.IntRange(1), default=12, show_default=True, help="Repetitions, with seeds 0, 1, ..."
)
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True, help="The first of the seeds.")
@click.option(
    "--search",
    "searches",
    multiple=True,
    help="Searches to replay: guided, guided-without-prior, guided-with-neighbours, tpe, random, random-calculated, "
    "exhaustive, forest, botorch, optuna-gp, optuna-cmaes, smac, kt:STRATEGY  "
    "[default: guided with and without prior, tpe, random, random-calculated]",
)
@click.option(
    "--at",
    multiple=True,
    type=click.IntRange(1),
    help="Evaluations after which the best is shown.  [default: 8, 10, 16, 20, 50, 100, 200]",
)
@click.option(
    "--noise",
    is_flag=True,
    help="Show searches times drawn from the recorded repetitions; score them by the recorded times.",
)
@click.option("--plot", metavar="STEM", help="Also draw STEM.png and STEM.svg.")
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(dir_okay=False),
    help="Also write the JSON there, after each landscape anew.",
)
@database
@common
def search(
    files: tuple[str, ...],
    budget: int,
    seeds: int,
    first_seed: int,
    searches: tuple[str, ...],
    at: tuple[int, ...],
    noise: bool,
    plot: str | None,
    file: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Replay searches on recorded landscapes: T4 files and Kernel Tuner caches, plain or gzipped."""
    from rich.progress import Progress

    from tilewise.benchmarks.search.plot import plot_search
    from tilewise.benchmarks.search.search import COLUMNS, bench_search, check_searches, replays
    from tilewise.settings import read_settings

    check_searches(searches)
    console = output(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("replaying", total=replays(files, seeds, searches))
        body = bench_search(
            files,
            budget=budget,
            seeds=seeds,
            first_seed=first_seed,
            searches=searches,
            at=at or COLUMNS,
            noise=noise,
            jobs=read_settings().jobs,
            done=lambda: progress.advance(task),
            keep=lambda so_far: write_json(so_far, file),
        )
    give(body, as_json, None, _show_search)
    if plot:
        plot_search(body, Path(plot))


def _show_search(body: dict[str, Any]) -> None:
    from rich.table import Table

    console = output()
    for row in body["landscapes"]:
        title = f"{row['file']}: {row['configs']} configs, {row['feasible']} feasible, optimum {row['optimum']:.2f} us"
        table = Table(title=f"{title}; {body['seeds']} seeds", title_justify="left")
        _search_columns(table, next(iter(row["searches"].values())))
        for name, summary in row["searches"].items():
            table.add_row(name, *_search_cells(summary))
        console.print(table)
    if len(body["landscapes"]) > 1:
        table = Table(title=f"mean of {len(body['landscapes'])} landscapes", title_justify="left")
        _search_columns(table, next(iter(body["mean"].values())))
        for name, mean in body["mean"].items():
            table.add_row(name, *_search_cells(mean))
        console.print(table)


def _search_columns(table: Any, summary: dict[str, Any]) -> None:
    table.add_column("search")
    for n in summary["fraction"]:
        table.add_column(f"at {n}", justify="right")
    margins = ("to 10%", "to 5%", "to 2%") if "evaluations_to" in summary else ()
    for heading in (*margins, "score", "over time", "ms each"):
        table.add_column(heading, justify="right")


def _search_cells(summary: dict[str, Any]) -> list[str]:
    widths = summary.get("fraction_ci95", {})
    cells = [f"{value:.3f}" + (f" ±{widths[n]:.3f}" if n in widths else "") for n, value in summary["fraction"].items()]
    if "evaluations_to" in summary:
        cells += [_count(summary["evaluations_to"].get(margin)) for margin in ("10%", "5%", "2%")]
    over_time, own = summary.get("score_over_time"), summary.get("seconds_per_evaluation")
    cells += [f"{summary['score']:.3f}", "-" if over_time is None else f"{over_time:.3f}"]
    return [*cells, "-" if own is None else f"{own * 1e3:.1f}"]


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


@click.command()
@click.argument("named", nargs=-1, metavar="[FILE_OR_FOLDER]...", type=click.Path(exists=True))
@click.option("--seeds", type=click.IntRange(1), default=12, show_default=True, help="Tunings, with seeds 0, 1, ...")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def judge(named: tuple[str, ...], seeds: int, file: str | None, as_json: bool) -> None:
    """Run the default search on landscapes that decided nothing about it.

    The default are those that landscapes/README.md calls judged. `-o docs/results/judged.json` keeps the result, with
    its date, as the last time that they were looked at.
    """
    from tilewise.benchmarks.search.judge import bench_judge, landscape_files
    from tilewise.settings import read_settings

    body = bench_judge(landscape_files(named), seeds=seeds, jobs=read_settings().jobs)
    give(body, as_json, file, _show_judgement)


def _show_judgement(body: dict[str, Any]) -> None:
    from rich.table import Table

    from tilewise.benchmarks.search.search_table import reached

    table = Table(
        title=f"{body['seeds']} tunings each, limit {body['trials']} trials; median / 95th percentile",
        title_justify="left",
    )
    table.add_column("landscape")
    for heading in ("configs", "to 5%", "to 2%", "trials", "behind the best", "worst", "last looked at"):
        table.add_column(heading, justify="right")
    for row in body["landscapes"]:
        ended = row["ended"]
        left = (f"{ended[key]:.1%}" for key in ("left_median", "left_worst"))
        cells = (
            str(row["configs"]),
            reached(row, "5%"),
            reached(row, "2%"),
            f"{ended['trials']:g}",
            *left,
            row["last_looked_at"] or "never",
        )
        table.add_row(row["file"].split(".")[0], *cells)
    output().print(table)


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--seeds", type=click.IntRange(1), default=12, show_default=True, help="Searches, with seeds 0, 1, ...")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def inferred(files: tuple[str, ...], seeds: int, file: str | None, as_json: bool) -> None:
    """Search recorded landscapes with inferred tilings and with those written by hand.

    The project's own kernels are captured as a user's would be. Shows the evaluations to within 2% of the best.
    """
    from tilewise.benchmarks.search.inferred_tilings import bench_inferred
    from tilewise.settings import read_settings

    body = bench_inferred(files, seeds=seeds, jobs=read_settings().jobs)
    give(body, as_json, file, _show_inferred)


def _show_inferred(body: dict[str, Any]) -> None:
    for row in body["landscapes"]:
        about = row.get("reason") or f"{row['by_hand']:g} by hand, {row['inferred']:g} inferred"
        click.echo(f"{row['file'].split('.')[0]}: {about}")
    click.echo(
        f"{body['sum']['by_hand']:g} evaluations by hand, {body['sum']['inferred']:g} inferred: {body['ratio']}x"
    )
