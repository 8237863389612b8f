"""`tilewise bench`: measurements of the project itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tilewise.tuner.cli.bench_runtime import runtime, shapes
from tilewise.tuner.cli.execution import execute, mutations
from tilewise.tuner.cli.faults import faults
from tilewise.tuner.cli.options import Group, common, database, give, print_json
from tilewise.tuner.cli.service import serve, soak
from tilewise.tuner.cli.text import output
from tilewise.tuner.cli.timing import repeatability, timing
from tilewise.tuner.problem import sizes_text

__all__ = ["bench"]


@click.group(cls=Group)
def bench() -> None:
    """Run the project's own benchmarks."""


bench.add_command(execute)
bench.add_command(faults)
bench.add_command(mutations)
bench.add_command(timing)
bench.add_command(repeatability)
bench.add_command(serve)
bench.add_command(soak)
bench.add_command(runtime)
bench.add_command(shapes)


@bench.command()
@database
@common
def model(url: str | None, as_json: bool) -> None:
    """Compare modelled times with published ones of a real Ascend part."""
    from rich.table import Table

    from tilewise.tuner.bench.model import bench_model

    body = bench_model()
    if as_json:
        print_json(body)
        return
    table = Table(title=f"{body['part']}, published (measured by others) against modelled", title_justify="left")
    for heading in ("case", "config"):
        table.add_column(heading)
    for heading in ("published us", "modelled us", "interval", "published ratio", "modelled ratio", "ratio error"):
        table.add_column(heading, justify="right")
    table.add_column("note")
    for row in body["cases"]:
        table.add_row(*_model_row(row))
    console = output()
    console.print(table)
    for name, value in body["summary"].items():
        console.print(f"{name.replace('_', ' ')}: {_summed(value)}")


def _summed(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {each}" for name, each in value.items())
    return ", ".join(value) or "none" if isinstance(value, list) else str(value)


def _model_row(row: dict[str, Any]) -> list[str]:
    config = ", ".join(f"{value}" for value in row["config"].values())
    cells = [row["id"], config, f"{row['published_us']:.2f}" if "published_us" in row else "-"]
    if "modelled_us" not in row:
        return [*cells, "-", "-", "-", "-", "-", row.get("reason", "")]
    interval = f"{row['low_us']:.1f}-{row['high_us']:.1f}"
    notes = (["used for fitting"] if row["used_for_fitting"] else []) + (
        [] if row["double_buffered"] else ["single buffer"]
    )
    if "published_failure" in row:
        ratios, notes = ["-", "-", "-"], [f"published: {row['published_failure']}", *notes]
    else:
        error = row["modelled_ratio"] / row["published_ratio"] - 1
        ratios = [f"{row['published_ratio']:.2f}", f"{row['modelled_ratio']:.2f}", f"{error:+.1%}"]
    return [*cells, f"{row['modelled_us']:.2f}", interval, *ratios, ", ".join(notes)]


@bench.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--budget", type=click.IntRange(1), default=200, show_default=True, help="Evaluations a search may make.")
@click.option(
    "--seeds", type=click.IntRange(1), default=12, show_default=True, help="Repetitions, with seeds 0, 1, ..."
)
@click.option(
    "--search",
    "searches",
    multiple=True,
    help="Searches to replay: guided, guided-without-prior, guided-with-neighbours, tpe, random, random-calculated, "
    "exhaustive, forest, kt:STRATEGY  [default: guided with and without prior, tpe, random, random-calculated]",
)
@click.option(
    "--noise",
    is_flag=True,
    help="Searches see times drawn anew from the recorded repetitions; judged by the recorded ones.",
)
@click.option("--plot", metavar="STEM", help="Also draw STEM.png and STEM.svg.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@database
@common
def search(
    files: tuple[str, ...],
    budget: int,
    seeds: int,
    searches: tuple[str, ...],
    noise: bool,
    plot: str | None,
    file: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Replay searches on recorded landscapes: T4 files and Kernel Tuner caches, plain or gzipped."""
    from rich.progress import Progress

    from tilewise.settings import read_settings
    from tilewise.tuner.bench.plot import plot_search
    from tilewise.tuner.bench.search import bench_search, check_searches, replays

    check_searches(searches)
    console = output(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("replaying", total=replays(files, seeds, searches))
        body = bench_search(
            files,
            budget=budget,
            seeds=seeds,
            searches=searches,
            noise=noise,
            jobs=read_settings().jobs,
            done=lambda: progress.advance(task),
        )
    give(body, as_json, file, _show_search)
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


@bench.command()
@click.option("--device", default="auto", show_default=True, help="auto, npu, cuda or model:PART.")
@click.option("--trials", type=click.IntRange(1), default=24, show_default=True, help="Trials each side may have.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def variants(device: str, trials: int, file: str | None, as_json: bool) -> None:
    """Tune both sides of what the seed documents compare: loads, passes, parts, fused or not."""
    from tilewise.tuner.bench.variants import bench_variants
    from tilewise.tuner.cli.progress import working
    from tilewise.tuner.devices.catalogue import choose, open_device

    with open_device(choose(device)) as opened, working("tuning") as progress:
        body = bench_variants(opened, trials=trials, progress=progress)
    give(body, as_json, file, _show_variants)


def _show_variants(body: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(title=f"{body['device']} ({body['clock']}), us", title_justify="left")
    for heading in ("kernel", "shape", "sides, best of each", "fastest"):
        table.add_column(heading)
    for heading in ("ratio", "documents"):
        table.add_column(heading, justify="right")
    for row in body["rows"]:
        sides = ", ".join(f"{name} {side['time_us']:.1f}" for name, side in row["sides"].items())
        ratio, published = (f"{row[key]:.2f}" if key in row else "-" for key in ("ratio", "published_ratio"))
        table.add_row(row["kernel"], sizes_text(row["dims"]), sides, row["fastest"] or "-", ratio, published)
    output().print(table)


@bench.command()
@click.option("--device", default="auto", show_default=True, help="auto, npu, cuda or model:PART.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def accuracy(device: str, file: str | None, as_json: bool) -> None:
    """Compare normalisations far from zero, and the GELUs, with float64, beside torch's own kernels."""
    from tilewise.tuner.bench.accuracy import bench_accuracy
    from tilewise.tuner.cli.progress import working
    from tilewise.tuner.devices.catalogue import choose, open_device

    with open_device(choose(device)) as opened, working("running") as progress:
        body = bench_accuracy(opened, progress=progress)
    give(body, as_json, file, _show_accuracy)


def _show_accuracy(body: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(
        title=f"{body['device']}, run by {body['run_by']}: largest deviation from float64", title_justify="left"
    )
    for heading in ("kernel", "variant", "data", "output"):
        table.add_column(heading)
    for heading in ("error", "torch"):
        table.add_column(heading, justify="right")
    for row in body["rows"]:
        for name, error in row["error"].items():
            cells = (f"{error:.1e}", f"{row['torch_error'][name]:.1e}")
            table.add_row(row["kernel"], row["variant"], row["data"], name, *cells)
    output().print(table)


@bench.command()
@click.argument("kernel")
@click.option("-s", "--shape", required=True, metavar="M=16384,N=1024", help="The shape; an exhaustive run is stored.")
@click.option("--dtype", default="float32", show_default=True)
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Repetitions of each search.")
@click.option("--sample", type=click.IntRange(1), default=40, show_default=True, help="Configs for triton.autotune.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@database
@common
def wall(
    kernel: str, shape: str, dtype: str, seeds: int, sample: int, file: str | None, url: str | None, as_json: bool
) -> None:
    """Wall clock on an NVIDIA GPU from nothing to within 3% of the best, beside triton.autotune and random search."""
    from tilewise.kernels import registry
    from tilewise.tuner.bench.wall import bench_wall
    from tilewise.tuner.cli.options import open_existing
    from tilewise.tuner.problem import make_problem, parse_dims

    spec = registry.load(kernel)
    problem = make_problem(spec, parse_dims(shape), dtype)
    with open_existing(url) as store:
        body = bench_wall(spec, problem, store, seeds=seeds, sample=sample)
    give(body, as_json, file, _show_wall)


def _show_wall(body: dict[str, Any]) -> None:
    from rich.table import Table

    title = f"{body['kernel']} {sizes_text(body['dims'])} on {body['device']}: {body['configs']} configs"
    table = Table(title=f"{title}, best {body['exhaustive_best_us']:.2f} us", title_justify="left")
    table.add_column("search")
    for heading in ("seed", "evaluations", "seconds", "best us"):
        table.add_column(heading, justify="right")
    for name, runs in body["searches"].items():
        for run in runs:
            reached = "" if run["reached"] else " (not within 3%)"
            cells = (f"{run['seconds']:.1f}", f"{run['best_us']:.2f}{reached}")
            table.add_row(name, str(run["seed"]), str(run["evaluations"]), *cells)
    auto = body["autotune"]
    table.add_row("triton.autotune", "-", str(auto["configs"]), f"{auto['seconds']:.1f}", "")
    table.add_row("triton.autotune, scaled", "-", str(body["configs"]), f"{auto['scaled_seconds']:.0f}", "")
    output().print(table)


@bench.command()
@click.argument("names", nargs=-1)
@click.option(
    "-s", "--shape", "shapes", multiple=True, metavar="M=1000,N=8192", help="Shapes (default: the benchmark's own)."
)
@click.option("--dtype", default="float32", show_default=True)
@click.option("--device", default="auto", show_default=True, help="auto, npu, cuda or model:PART.")
@click.option("--trials", type=click.IntRange(1), help="Trials a shape may have when it is tuned first.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@database
@common
def kernels(
    names: tuple[str, ...],
    shapes: tuple[str, ...],
    dtype: str,
    device: str,
    trials: int | None,
    file: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Tune kernels and show them beside their defaults and the memory rate.

    On an NVIDIA GPU all are timed again in turns, by one timer, beside eager PyTorch and torch.compile.
    """
    from tilewise.db.sql_store import open_store
    from tilewise.kernels import registry
    from tilewise.settings import read_settings
    from tilewise.tuner.bench import cases as known
    from tilewise.tuner.bench.kernels import bench
    from tilewise.tuner.cli.progress import Progress
    from tilewise.tuner.devices.catalogue import choose, open_device
    from tilewise.tuner.problem import make_problem, parse_dims
    from tilewise.tuner.search import DEFAULT_TRIALS, Budget

    specs = [registry.load(name) for name in (names or registry.names())]
    given = [parse_dims(shape) for shape in shapes]
    problems = [(spec, make_problem(spec, dims, dtype)) for spec in specs for dims in given or known.shapes(spec.name)]
    with open_store(url or read_settings().database_url) as store, open_device(choose(device)) as opened:
        body = bench(opened, store, problems, budget=Budget(trials or DEFAULT_TRIALS), watcher=Progress)
    give(body, as_json, file, _show_kernels)


def _show_kernels(body: dict[str, Any]) -> None:
    from rich.table import Table

    rate = f", memory rate {body['read_rate_tb_s']:.2f} TB/s" if "read_rate_tb_s" in body else ""
    table = Table(title=f"{body['device']}{rate} ({body['clock']})", title_justify="left")
    times = ("tuned_us", "default_us", "eager_us", "compile_us", "max_autotune_us")
    shown = [key for key in times if any(key in row for row in body["rows"])]
    for heading in ("kernel", "shape", "dtype"):
        table.add_column(heading)
    for key in (*shown, "share_of_rate"):
        table.add_column(key.replace("_", " "), justify="right")
    for row in body["rows"]:
        cells = [f"{row[key]:.2f}" if key in row else "-" for key in shown]
        share = f"{row['share_of_rate']:.1%}" if "share_of_rate" in row else "-"
        table.add_row(row["kernel"], sizes_text(row["dims"]), row["dtype"], *cells, share)
    output().print(table)
