"""`tilewise bench timing` and `tilewise bench repeatability`: how far times can be trusted."""

from __future__ import annotations

from typing import Any

import click

from tilewise.tuner.cli.options import common, give
from tilewise.tuner.cli.text import output
from tilewise.tuner.problem import sizes_text

__all__ = ["repeatability", "timing"]


@click.command()
@click.option("--processes", type=click.IntRange(2), default=10, show_default=True, help="Fresh processes, in turn.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def timing(processes: int, file: str | None, as_json: bool) -> None:
    """Compare ways to time a kernel on an NVIDIA GPU, triton.testing's among them."""
    from tilewise.tuner.bench.timing import bench_timing
    from tilewise.tuner.cli.progress import working

    _require_gpu()
    with working("timing in") as progress:
        body = bench_timing(processes, progress)
    give(body, as_json, file, _show_timing)


def _show_timing(body: dict[str, Any]) -> None:
    from rich.table import Table

    title = f"{body['device']}: medians of {len(body['processes'])} processes"
    table = Table(title=title, title_justify="left")
    for heading in ("size", "method"):
        table.add_column(heading)
    for heading in ("median us", "largest by smallest", "seconds a measurement"):
        table.add_column(heading, justify="right")
    for row in body["rows"]:
        cells = (
            (row["error"], "", "")
            if "error" in row
            else (f"{row['median_us']:.3f}", f"{row['spread']:+.2%}", f"{row['seconds']:.3f}")
        )
        table.add_row(row["size"], row["method"], *cells)
    output().print(table)


@click.command()
@click.argument("kernel", default="row_reduce")
@click.option("-s", "--shape", default="M=1000,N=8192", show_default=True, metavar="M=1000,N=8192")
@click.option("--dtype", default="float32", show_default=True)
@click.option("--tunings", type=click.IntRange(2), default=10, show_default=True, help="Tunings from nothing.")
@click.option("--trials", type=click.IntRange(2), default=60, show_default=True, help="Trials of each.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=600.0, show_default=True, help="Seconds.")
@click.option("--rounds", type=click.IntRange(20), default=500, show_default=True, help="Of the winners' true times.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def repeatability(
    kernel: str,
    shape: str,
    dtype: str,
    tunings: int,
    trials: int,
    timeout: float,
    rounds: int,
    file: str | None,
    as_json: bool,
) -> None:
    """Tune one problem several times on an NVIDIA GPU: whether the answers agree, and what timing costs."""
    from tilewise.kernels import registry
    from tilewise.tuner.bench.repeatability import bench_repeatability
    from tilewise.tuner.cli.progress import working
    from tilewise.tuner.problem import make_problem, parse_dims

    spec = registry.load(kernel)
    problem = make_problem(spec, parse_dims(shape), dtype)
    _require_gpu()
    with working("repeatability:") as progress:
        body = bench_repeatability(
            spec, problem, tunings=tunings, trials=trials, rounds=rounds, seconds=timeout, progress=progress
        )
    give(body, as_json, file, _show_repeatability)


def _show_repeatability(body: dict[str, Any]) -> None:
    from rich.table import Table

    title = f"{body['kernel']} {sizes_text(body['dims'])} on {body['device']}, tuned {len(body['tunings'])} times"
    table = Table(title=title, title_justify="left")
    for heading in ("seed", "true us", "us", "verdict", "compared", "dropped", "timing s"):
        table.add_column(heading, justify="right")
    order, timing = body["order"], body["timing"]
    for name, run in (
        *((str(r["seed"]), r) for r in body["tunings"]),
        *((n, order[n]) for n in ("forward", "reversed")),
    ):
        verdict = "tie" if run["tie"] else f"{run['probability'] or 0:.1%}"
        table.add_row(
            name,
            f"{run['true_us']:.3f}",
            f"{run['time_us']:.3f}",
            verdict,
            str(run["compared"]),
            f"{run['dropped']}/{run['trials']}",
            f"{run['timing_s']:.2f}",
        )
    console = output()
    console.print(table)
    console.print(f"True times of the winners differ by {body['true_us_largest_by_smallest']:.2%}.")
    for row in body["one_config_in_processes"]:
        shown = f"{row['median_us']:.2f} us, processes differ by {row['largest_by_smallest']:.2%}"
        console.print(f"One config of row_reduce {row['shape']}: {shown}.")
    agreed = "the same winner or a tie" if order["same_or_tie"] else "another winner"
    console.print(f"The order reversed gives {agreed}.")
    ratio, loss = timing["ratio"], timing["winner_true_us"] / timing["do_bench_winner_true_us"] - 1
    console.print(f"do_bench takes {ratio:.1f} times as long to time; our winner is {loss:+.2%} of its winner's time.")


def _require_gpu() -> None:
    from tilewise.errors import Unavailable
    from tilewise.tuner.devices import cuda

    if (why_not := cuda.available()) is not None:
        raise Unavailable(f"no device cuda: {why_not}")
