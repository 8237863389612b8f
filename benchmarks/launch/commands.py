"""`tilewise bench runtime` and `tilewise bench shapes`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from tilewise.cli.formatting import output
from tilewise.cli.options import common, database, give

__all__ = ["runtime", "shapes"]

_KERNELS = ("row_reduce", "softmax", "sum_rows")


@click.command()
@click.option("--entries", type=click.IntRange(1), multiple=True, help="Shapes in the cache; repeatable.")
@click.option("--calls", type=click.IntRange(100), default=20_000, show_default=True, help="Calls per implementation.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def runtime(entries: tuple[int, ...], calls: int, file: str | None, as_json: bool) -> None:
    """Time what a look-up adds to a launch with constants, against triton.autotune and FlagGems with warm caches.

    On an NVIDIA GPU the launches are real; elsewhere they do nothing. FlagGems is included if flag_gems is installed
    and finds a chip. An implementation that did not run is listed with the reason.
    """
    from tilewise.benchmarks.launch.launch_overhead import ENTRIES, bench_runtime
    from tilewise.cli.progress import working

    with working("timing") as progress:
        body = bench_runtime(entries=entries or ENTRIES, calls=calls, progress=progress)
    command = " ".join(["tilewise bench runtime", *(f"--entries {count}" for count in entries), f"--calls {calls}"])
    give({"command": command, **body}, as_json, file, _show_runtime)


def _show_runtime(body: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(title=f"us per launch ({body['launch']}), median and p99", title_justify="left")
    table.add_column("entries", justify="right")
    names = ("constants", "tilewise", "tilewise run", "triton.autotune", "flag_gems.libtuner")
    for heading in (*names, "tilewise adds", "load s", "load MB", "first call"):
        table.add_column(heading, justify="right")
    for row in body["rows"]:
        times = [f"{row[n]['median_us']:.2f} {row[n]['p99_us']:.2f}" if n in row else "-" for n in names]
        added, load = row["tilewise"]["added_median_us"], row["load"]
        first = row["first_call_us"]["exact_median"]
        cells = (f"{added:.2f}", f"{load['seconds']:.3f}", f"{load['mb']:.1f}", f"{first:.0f}")
        table.add_row(str(row["entries"]), *times, *cells)
    output().print(table)
    for row in body["rows"]:
        for name, reason in row.get("not_run", {}).items():
            output().print(f"{name} with {row['entries']} shapes did not run: {reason}", markup=False)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--dtype", default="float32", show_default=True)
@click.option("--device", default="auto", show_default=True, help="auto, npu, cuda or model:PART.")
@click.option("--shapes", "count", type=click.IntRange(3), default=200, show_default=True, help="Shapes to call.")
@click.option("--tuned", type=click.IntRange(2), default=20, show_default=True, help="Shapes to tune first.")
@click.option("--held-out", type=click.IntRange(1), default=15, show_default=True, help="Untuned shapes to evaluate.")
@click.option("--trials", type=click.IntRange(1), default=16, show_default=True, help="Trials per tuned shape.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--seconds", type=click.FloatRange(1), help="Stop evaluating a kernel's shapes after this time.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@database
@common
def shapes(
    names: tuple[str, ...],
    dtype: str,
    device: str,
    count: int,
    tuned: int,
    held_out: int,
    trials: int,
    seed: int,
    seconds: float | None,
    file: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Call kernels at many shapes, of which few are tuned; exit with 1 if an output is wrong."""
    from tilewise.benchmarks.common.header import header
    from tilewise.benchmarks.launch.untuned_shapes import bench_shapes
    from tilewise.cli.progress import working
    from tilewise.db.exchange.files import write_file
    from tilewise.db.sql.sql_store import open_store
    from tilewise.kernels import registry
    from tilewise.settings import read_settings
    from tilewise.tuner.devices.registry import choose, open_device

    options = (
        f"--device {device} --shapes {count} --tuned {tuned} --held-out {held_out} --trials {trials} --seed {seed}"
    )
    limit = "" if seconds is None else f" --seconds {seconds:g}"
    command = f"tilewise bench shapes {' '.join(names or _KERNELS)} --dtype {dtype} {options}{limit}"
    specs = [registry.load(name) for name in names or _KERNELS]
    store, opened = open_store(url or read_settings().database_url), open_device(choose(device))
    with store, opened, working("shapes") as progress:
        body: dict[str, Any] = {
            **header(command, str(opened.clock), opened.target.name),
            "toolchain": opened.toolchain,
            "seed": seed,
            "kernels": [],
        }
        for spec in specs:
            found = bench_shapes(
                opened,
                store,
                spec,
                dtype=dtype,
                shapes=count,
                tuned=tuned,
                held_out=held_out,
                trials=trials,
                seed=seed,
                seconds=seconds or math.inf,
                progress=progress,
            )
            body["kernels"].append(found)
            if file:  # keep finished kernels in case a later one fails
                write_file(Path(file), (json.dumps(body, indent=1) + "\n").encode())
    give(body, as_json, None, _show_shapes)
    return 1 if any(row["calls"].get("wrong") for row in body["kernels"]) else 0


def _show_shapes(body: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(title=f"{body['device']} ({body['clock']}): time over the best, mean (worst)", title_justify="left")
    for heading in ("kernel", "shapes", "tuned", "configs", "calls wrong"):
        table.add_column(heading)
    for heading in ("evaluated", "chosen", "tuned", "default"):
        table.add_column(heading, justify="right")
    for row in body["kernels"]:
        held = row["held_out"]
        wrong = f"{len(row['calls']['wrong'])} of {row['calls']['calls']}" if "wrong" in row["calls"] else "not run"
        costs = [f"{held[n]['mean']:.3f} ({held[n]['worst']:.2f})" for n in ("chosen", "tuned", "default") if n in held]
        cells = (str(row["shapes"]), str(row["tuned"]), str(row["portfolio"]["configs"]), wrong, str(held["shapes"]))
        table.add_row(row["kernel"], *cells, *costs)
    output().print(table)
