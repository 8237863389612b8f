"""`tilewise bench attention`, `energy`, `kernels`, `matrix`, `faults`, `several`, `timing` and `repeatability`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tilewise.cli.formatting import output
from tilewise.cli.options import common, database, give, print_json, write_json
from tilewise.db.records import shape_text

__all__ = ["attention", "energy", "faults", "kernels", "matrix", "repeatability", "require_gpu", "several", "timing"]


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=40, show_default=True, help="Runs of each contender.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def attention(rounds: int, file: str | None, as_json: bool) -> None:
    """Time attention on an NVIDIA GPU against PyTorch's and the memory rate."""
    require_gpu()
    from tilewise.benchmarks.gpu.attention import bench_attention
    from tilewise.cli.progress import working

    with working("attention:") as progress:
        body = bench_attention(rounds, progress=progress)
    give(body, as_json, file, _show_attention)


def _show_attention(body: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(title=f"{body['device']}: attention in bfloat16", title_justify="left")
    for heading in ("shape", "contender"):
        table.add_column(heading)
    for heading in ("us", "rate", "of PyTorch's best"):
        table.add_column(heading, justify="right")
    for row in body["rows"]:
        shape = shape_text(row["dims"]) + (", causal" if row.get("causal") else "")
        rate = f"{row['tflop_s']:.0f} TFLOP/s" if "tflop_s" in row else f"{row['tb_s']:.2f} TB/s"
        table.add_row(shape, row["contender"], f"{row['median_us']:.1f}", rate, f"{row['of_theirs']:.3f}")
    output().print(table)


@click.command()
@click.option("--trials", type=click.IntRange(1), default=60, show_default=True, help="Trials per tuning.")
@click.option("--rounds", type=click.IntRange(2), default=10, show_default=True, help="Measurements of each winner.")
@click.option(
    "-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there, after each kernel."
)
@common
def energy(trials: int, rounds: int, file: str | None, as_json: bool) -> None:
    """Tune for the least energy and for the least time on an NVIDIA GPU, and measure the winners in turns."""
    require_gpu()
    from tilewise.benchmarks.gpu.energy import bench_energy
    from tilewise.cli.progress import working

    with working("energy:") as progress:
        body = bench_energy(trials, rounds, progress, keep=lambda body: write_json(body, file))
    give(body, as_json, file, _show_energy)


def _show_energy(body: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(title=f"{body['device']}: energy of a launch, measured", title_justify="left")
    for heading in ("kernel", "config"):
        table.add_column(heading)
    for heading in ("us", "uJ", "lowest", "highest"):
        table.add_column(heading, justify="right")
    for row in body["rows"]:
        for part in row["in_turns"]:
            figures = (part["time_us"], part["energy_uj"], part["lowest_uj"], part["highest_uj"])
            table.add_row(row["kernel"], part["config"], *(f"{figure:.1f}" for figure in figures))
    output().print(table)


@click.command()
@click.argument("names", nargs=-1)
@click.option(
    "-s", "--shape", "shapes", multiple=True, metavar="M=1000,N=8192", help="Shapes (default: the benchmark's own)."
)
@click.option("--dtype", default="float32", show_default=True)
@click.option("--device", default="auto", show_default=True, help="auto, npu, cuda or model:PART.")
@click.option("--trials", type=click.IntRange(1), help="Trials per shape.")
@click.option(
    "--beside",
    type=click.Choice(("eager", "compile", "max_autotune")),
    multiple=True,
    help="How PyTorch runs beside (default: all three, which takes minutes per shape).",
)
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@database
@common
def kernels(
    names: tuple[str, ...],
    shapes: tuple[str, ...],
    dtype: str,
    device: str,
    trials: int | None,
    beside: tuple[str, ...],
    file: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Tune kernels and compare them with their defaults and the memory rate.

    On an NVIDIA GPU one timer times them again, in turns with eager PyTorch and torch.compile.
    """
    from tilewise.benchmarks.common import cases as known
    from tilewise.benchmarks.gpu.kernels import BESIDE, bench
    from tilewise.cli.progress import Progress
    from tilewise.db.sql.sql_store import open_store
    from tilewise.kernels import registry
    from tilewise.settings import read_settings
    from tilewise.tuner.devices.registry import choose, open_device
    from tilewise.tuner.space.problem_checks import make_problem, parse_dims
    from tilewise.tuner.tuning.loop import DEFAULT_TRIALS, Budget

    specs = [registry.load(name) for name in (names or registry.vector_names())]
    given = [parse_dims(shape) for shape in shapes]
    problems = [(spec, make_problem(spec, dims, dtype)) for spec in specs for dims in given or known.shapes(spec.name)]
    with open_store(url or read_settings().database_url) as store, open_device(choose(device)) as opened:
        body = bench(
            opened, store, problems, budget=Budget(trials or DEFAULT_TRIALS), beside=beside or BESIDE, watcher=Progress
        )
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
        table.add_row(row["kernel"], shape_text(row["dims"]), row["dtype"], *cells, share)
    output().print(table)


@click.command()
@click.argument("kernel", default="gemm", type=click.Choice(["gemm", "block_fp8_gemm"]))
@click.option("-s", "--shape", "shapes", multiple=True, metavar="M=4096,N=4096,K=4096", help="Default: four or six.")
@click.option("--dtype", default="bfloat16", show_default=True, help="Of the given shapes.")
@click.option("--trials", type=click.IntRange(1), help="Trials per shape.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), help="Seconds per shape.")
@click.option("--rounds", type=click.IntRange(1), default=200, show_default=True, help="Runs of each contender.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@database
@common
def matrix(
    kernel: str,
    shapes: tuple[str, ...],
    dtype: str,
    trials: int | None,
    timeout: float | None,
    rounds: int,
    file: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Tune matrix products and time them in turns with PyTorch's, with a cold L2 cache, on an NVIDIA GPU."""
    from tilewise.benchmarks.gpu.matrix import CASES, bench_matrix
    from tilewise.cli.progress import Progress
    from tilewise.db.sql.sql_store import open_store
    from tilewise.kernels import registry
    from tilewise.settings import read_settings
    from tilewise.tuner.devices.cuda.device import CudaDevice
    from tilewise.tuner.space.problem_checks import make_problem, parse_dims
    from tilewise.tuner.tuning.loop import DEFAULT_TRIALS, Budget

    spec = registry.load(kernel)
    cases = [(parse_dims(shape), dtype) for shape in shapes] or CASES[kernel]
    problems = [make_problem(spec, shape, kind) for shape, kind in cases]
    require_gpu()
    with open_store(url or read_settings().database_url) as store, CudaDevice() as device:
        budget = Budget(trials or DEFAULT_TRIALS, timeout)
        body = bench_matrix(device, store, spec, problems, budget=budget, rounds=rounds, watcher=Progress)
    give(body, as_json, file, _show_matrix)


def _show_matrix(body: dict[str, Any]) -> None:
    from rich.table import Table

    from tilewise.tuner.space.problem_checks import config_text

    table = Table(title=f"{body['device']}, cold L2", title_justify="left")
    for heading in ("shape", "dtype"):
        table.add_column(heading)
    for heading in ("tuned us", "default us", "torch us", "torch / tuned", "TFLOP/s", "of the peak", "trials"):
        table.add_column(heading, justify="right")
    for row in body["rows"]:
        known = "torch_us" in row and "tuned_us" in row
        times = [f"{row[key]:.2f}" if key in row else "-" for key in ("tuned_us", "default_us", "torch_us")]
        ratio = f"{row['torch_us'] / row['tuned_us']:.1%}" if known else "-"
        rate = [f"{row['tflop_s']:.0f}", f"{row['share_of_peak']:.1%}"] if "tflop_s" in row else ["-", "-"]
        table.add_row(shape_text(row["dims"]), row["dtype"], *times, ratio, *rate, str(row.get("trials", "-")))
    console = output()
    console.print(table)
    for row in body["rows"]:
        wrong = "" if row.get("verified", True) else ", WRONG"
        config = config_text(row["config"]) if "config" in row else "-"
        console.print(
            f"{shape_text(row['dims'])} {row['dtype']}: {config}{wrong} {row.get('failed', '')}", markup=False
        )


@click.command()
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def faults(file: str | None, as_json: bool) -> int:
    """Tune a space in which some configs crash, hang or compute wrongly, on an NVIDIA GPU.

    Exit with 1 if a sound config has no time, a faulty one lacks its own reason, or anything is left behind.
    """
    from tilewise.benchmarks.gpu.faults import bench_faults
    from tilewise.cli.progress import working

    with working("faults:") as progress:
        body = {"command": "tilewise bench faults", **bench_faults(progress=progress)}
    if file:
        Path(file).write_text(json.dumps(body, indent=2) + "\n")
    if as_json:
        print_json(body)
    else:
        _show_faults(body)
    sound = body["innocent"]["timed"] == body["configs"]["sound"]
    expected = body["as_expected"] == body["configs"]["faulty"]
    return 0 if sound and expected and not any(body["left_behind"].values()) else 1


def _show_faults(body: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(title=f"{body['device']}: faults among sound configs", title_justify="left")
    for heading in ("fault", "stored as", "reason", "as expected"):
        table.add_column(heading)
    for row in body["faults"]:
        table.add_row(row["fault"], row["status"], row["reason"], "yes" if row["as_expected"] else "NO")
    console = output()
    console.print(table)
    innocent, configs = body["innocent"], body["configs"]
    console.print(
        f"{innocent['timed']} of {configs['sound']} sound configs timed; ratios of their times to those of a clean run:"
    )
    for name in ("clean_again", "among_faults"):
        low, median, high = (innocent[name][key] for key in ("lowest", "median", "highest"))
        console.print(f"  {name.replace('_', ' ')}: {low:.3f} to {high:.3f}, median {median:.3f}")
    left = {what: names for what, names in body["left_behind"].items() if names}
    console.print(f"left behind: {left or 'nothing'}")


@click.command()
@click.option("--trials", type=click.IntRange(1), default=200, show_default=True, help="Trials per shape.")
@click.option("--shapes", "count", type=click.IntRange(2), default=16, show_default=True, help="Shapes of row_reduce.")
@click.option("--rounds", type=click.IntRange(1), default=100, show_default=True, help="Runs of each sound config.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def several(trials: int, count: int, rounds: int, file: str | None, as_json: bool) -> int:
    """Tune several shapes on one GPU and on all of a host, and time one GPU beside the faults of another.

    Exit with 1 if all are less than 1.8 times as fast as one, or if a time changes by more than 1.5% beside faults.
    """
    from tilewise.benchmarks.gpu.several import bench_several
    from tilewise.cli.progress import working
    from tilewise.kernels import registry
    from tilewise.tuner.space.problem_checks import make_problem

    require_gpu()
    spec = registry.load("row_reduce")
    problems = [make_problem(spec, {"M": 1000 + 64 * step, "N": 8192}, "float32") for step in range(count)]
    with working("several:") as progress:
        body = bench_several(spec, problems, trials=trials, rounds=rounds, progress=progress)
    give(body, as_json, file, _show_several)
    changes = body["beside_faults"]["beside_faults"]
    return 0 if body["speed_up"] >= 1.8 and max(changes["highest"] - 1, 1 - changes["lowest"]) <= 0.015 else 1


def _show_several(body: dict[str, Any]) -> None:
    console = output()
    one, all_of_them = body["seconds"]["one"], body["seconds"]["several"]
    console.print(
        f"{len(body['shapes'])} shapes of {body['kernel']}, {body['trials']} trials each: {one} s on one "
        f"{body['device']}, {all_of_them} s on {body['gpus']}: {body['speed_up']:.2f}x"
    )
    beside = body["beside_faults"]
    console.print(f"{beside['configs']} sound configs on one GPU beside {beside['faults']} faults on another:")
    for name in ("alone_again", "beside_faults"):
        low, median, high = (beside[name][key] for key in ("lowest", "median", "highest"))
        console.print(f"  {name.replace('_', ' ')}: {low:.4f} to {high:.4f}, median {median:.4f}")


@click.command()
@click.option("--processes", type=click.IntRange(2), default=10, show_default=True, help="Fresh processes, in turn.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def timing(processes: int, file: str | None, as_json: bool) -> None:
    """Compare ways to time a kernel on an NVIDIA GPU, including triton.testing's."""
    from tilewise.benchmarks.gpu.timing import bench_timing
    from tilewise.cli.progress import working

    require_gpu()
    with working("timing in") as progress:
        body = bench_timing(processes, progress)
    give(body, as_json, file, _show_timing)


def _show_timing(body: dict[str, Any]) -> None:
    from rich.table import Table

    title = f"{body['device']}: medians of {len(body['processes'])} processes"
    table = Table(title=title, title_justify="left")
    for heading in ("size", "method"):
        table.add_column(heading)
    for heading in ("median us", "largest / smallest", "seconds per measurement"):
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
@click.option("--trials", type=click.IntRange(2), default=200, show_default=True, help="Limit on trials per tuning.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=600.0, show_default=True, help="Seconds.")
@click.option("--rounds", type=click.IntRange(20), default=500, show_default=True, help="For the winners' true times.")
@click.option("--winners-only", is_flag=True, help="Only compare the winners: a third of the time.")
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
    winners_only: bool,
    file: str | None,
    as_json: bool,
) -> None:
    """Tune one problem several times on an NVIDIA GPU; compare the winners, and the cost of timing."""
    from tilewise.benchmarks.gpu.repeatability import bench_repeatability
    from tilewise.cli.progress import working
    from tilewise.kernels import registry
    from tilewise.tuner.space.problem_checks import make_problem, parse_dims

    spec = registry.load(kernel)
    problem = make_problem(spec, parse_dims(shape), dtype)
    require_gpu()
    with working("repeatability:") as progress:
        body = bench_repeatability(
            spec,
            problem,
            tunings=tunings,
            trials=trials,
            rounds=rounds,
            seconds=timeout,
            progress=progress,
            winners_only=winners_only,
        )
    give(body, as_json, file, _show_repeatability)


def _show_repeatability(body: dict[str, Any]) -> None:
    from rich.table import Table

    title = f"{body['kernel']} {shape_text(body['dims'])} on {body['device']}, tuned {len(body['tunings'])} times"
    table = Table(title=title, title_justify="left")
    for heading in ("seed", "true us", "us", "verdict", "compared", "dropped", "timing s"):
        table.add_column(heading, justify="right")
    order = body.get("order", {})
    for name, run in (
        *((str(r["seed"]), r) for r in body["tunings"]),
        *((n, order[n]) for n in ("forward", "reversed") if n in order),
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
    if not order:
        return
    timing = body["timing"]
    for row in body["one_config_in_processes"]:
        shown = f"{row['median_us']:.2f} us, processes differ by {row['largest_by_smallest']:.2%}"
        console.print(f"One config of row_reduce {row['shape']}: {shown}.")
    agreed = "the same winner or a tie" if order["same_or_tie"] else "another winner"
    console.print(f"The reversed order gives {agreed}.")
    ratio, loss = timing["ratio"], timing["winner_true_us"] / timing["do_bench_winner_true_us"] - 1
    console.print(f"do_bench takes {ratio:.1f} times as long to time; our winner is {loss:+.2%} of its winner's time.")


def require_gpu() -> None:
    """Raise `Unavailable` if this process can use no NVIDIA GPU."""
    from tilewise.errors import Unavailable
    from tilewise.tuner.devices.cuda import device as cuda

    if (reason := cuda.unavailable_reason()) is not None:
        raise Unavailable(f"no device cuda: {reason}")
