"""`tilewise bench model`, `cube`, `clock`, `variants`, `accuracy`, `execute`, `mutations` and `mutants`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tilewise.cli.formatting import output
from tilewise.cli.options import common, give, print_json
from tilewise.tuner.space.problem_checks import config_text

__all__ = ["accuracy", "clock", "cube", "execute", "model", "mutants", "mutations"]


@click.command()
@click.option(
    "--look",
    type=click.Choice(["first", "second", "third"]),
    help="Only a list that was made before the model knew it.",
)
@common
def model(look: str | None, as_json: bool) -> None:
    """Compare modelled times with published ones, each kernel left out of the fit that times it."""
    from rich.table import Table

    from tilewise.benchmarks.model.model import bench_model
    from tilewise.cli.progress import working

    with working("timing" if look else "fitting") as progress:
        body = bench_model(only=look, progress=progress)
    if as_json:
        print_json(body)
        return
    if look:
        _show_look(body)
        return
    table = Table(title="published (measured by others) against modelled, kernel left out", title_justify="left")
    for heading in ("case", "config", "L2"):
        table.add_column(heading)
    for heading in ("published us", "modelled us", "interval", "error", "published ratio", "modelled ratio"):
        table.add_column(heading, justify="right")
    for row in body["rows"]:
        table.add_row(*_model_row(row))
    console = output()
    console.print(table)
    for name, value in body["summary"].items():
        console.print(f"{name.replace('_', ' ')}: {_summed(value)}")


def _show_look(body: dict[str, Any]) -> None:
    for row in body["rows"] + body["partly"]:
        apart = (
            f"; holds {row['more']} too" if "more" in row else f" {row['modelled_us'] / row['published_us'] - 1:+.1%}"
        )
        click.echo(f"{row['id']:22} {row['published_us']:9.2f} us {row['modelled_us']:9.2f} us{apart}")
    for row in body["untimed"]:
        click.echo(f"{row['id']:22} {row['published_us']:9.2f} us not timed: {'; '.join(row['reasons'])}")
    for name, found in body["summary"].items():
        click.echo(f"{name}: {_summed(found)}")


@click.command()
@common
def cube(as_json: bool) -> None:
    """Compare modelled times of matrix products with published ones; the one fitted figure is left out where it was
    fitted."""
    from tilewise.benchmarks.model.judge.cube_judgement import bench_cube
    from tilewise.cli.progress import working

    with working("compiling") as progress:
        body = bench_cube(progress=progress)
    if as_json:
        print_json(body)
        return
    for row in body["rows"]:
        error = f"{row['modelled_us'] / row['published_us'] - 1:+.1%}"
        times = f"{row['published_us']:9.2f} us {row['modelled_us']:9.2f} us {error:>8}"
        click.echo(f"{row['name']:28} {row['kind']:16} {times}")
    for kind, found in body["summary"].items():
        click.echo(f"{kind}: mean error {found['mean_ln_error']:.3f} of {found['timings']}")


@click.command()
@click.option("--count", type=click.IntRange(1), default=20, show_default=True, help="Configs per kernel.")
@click.option("--part", default="Ascend910B4", show_default=True, help="The modelled part.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random configs.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def clock(count: int, part: str, seed: int, file: str | None, as_json: bool) -> None:
    """Measure the processor time that compiling and timing a config takes, with an empty cache."""
    from tilewise.benchmarks.model.clock_speed import bench_clock
    from tilewise.cli.progress import working

    with working("compiling") as progress:
        body = bench_clock(part, count=count, seed=seed, progress=progress)
    give(body, as_json, file, _show_clock)


def _show_clock(body: dict[str, Any]) -> None:
    for row in body["rows"]:
        aim = f" (aim {row['aim_s']:g} s)" if "aim_s" in row else ""
        click.echo(f"{row['problem']}: {row['median_s']:.2f} s a config, median of {row['configs']}{aim}")


def _summed(value: Any) -> str:
    return ", ".join(f"{name} {each}" for name, each in value.items()) if isinstance(value, dict) else str(value)


def _model_row(row: dict[str, Any]) -> list[str]:
    config = row["config"]
    shown = config if isinstance(config, str) else ", ".join(map(str, config.values()))
    ratios = [f"{row[f'{which}_ratio']:.2f}" if f"{which}_ratio" in row else "-" for which in ("published", "left_out")]
    times = [f"{row['published_us']:.2f}", f"{row['left_out_us']:.2f}", f"{row['low_us']:.1f}-{row['high_us']:.1f}"]
    return [row["id"], shown, row["l2"], *times, f"{row['left_out_us'] / row['published_us'] - 1:+.1%}", *ratios]


@click.command()
@click.option("--device", default="auto", show_default=True, help="auto, npu, cuda or model:PART.")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")
@common
def accuracy(device: str, file: str | None, as_json: bool) -> None:
    """Compare normalisations far from zero, the GELUs, and torch's own kernels with float64."""
    from tilewise.benchmarks.model.accuracy import bench_accuracy
    from tilewise.cli.progress import working
    from tilewise.tuner.devices.registry import choose, open_device

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


_PART = click.option("--part", default="Ascend910B4", show_default=True, help="The modelled part.")


_SEED = click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random configs or changes.")


_FILE = click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")


@click.command()
@click.argument("kernels", nargs=-1)
@click.option(
    "--count", type=click.IntRange(1), default=20, show_default=True, help="Configs per kernel, over two dtypes."
)
@click.option(
    "--matrix", is_flag=True, help="Matrix kernels instead, COUNT configs per dtype; an interrupted run goes on."
)
@click.option("--minutes", type=click.FloatRange(0), help="With --matrix: begin no further config after this time.")
@_PART
@_SEED
@_FILE
@common
def execute(
    kernels: tuple[str, ...],
    count: int,
    matrix: bool,
    minutes: float | None,
    part: str,
    seed: int,
    file: str | None,
    as_json: bool,
) -> None:
    """Execute compiled configs of kernels (default: all); compare with float64 and Triton's interpreter."""
    from tilewise.benchmarks.model.execution import bench_execute, execution_body, headline
    from tilewise.kernels import registry
    from tilewise.settings import read_settings

    for name in kernels:
        registry.load(name)
    if matrix:
        _give(_execute_matrix(kernels, count, part, seed, minutes, quiet=as_json), file, as_json)
        return
    if minutes is not None:
        raise click.UsageError("--minutes needs --matrix")
    rows, folder = [], read_settings().cache_folder
    for row in bench_execute(part, folder, count=count, seed=seed, kernels=kernels):
        rows.append(row)
        if not as_json and row.fault:
            output().print(f"{row.kernel} {row.dtype} {config_text(row.config)}: {row.fault}", markup=False)
    _give(execution_body(rows, part, seed, headline(part, folder)), file, as_json)


def _execute_matrix(
    kernels: tuple[str, ...], count: int, part: str, seed: int, minutes: float | None, *, quiet: bool
) -> dict[str, Any]:
    from tilewise.benchmarks.model.matrix_execution import CASES, bench_matrix, matrix_body
    from tilewise.settings import read_settings

    if unknown := set(kernels) - {case.kernel for case in CASES}:
        raise click.UsageError(f"--matrix does not know {', '.join(sorted(unknown))}")
    folder = read_settings().cache_folder
    rows, cases = [], [case for case in CASES if not kernels or case.kernel in kernels]
    journal = folder / "matrix-execution.jsonl"
    for row in bench_matrix(part, folder, journal, count=count, seed=seed, cases=cases, minutes=minutes):
        rows.append(row)
        if not quiet and row.get("verdict", {}).get("reason"):
            text = (
                f"{row['kernel']} {row['dtype']} {row['dims']} {config_text(row['config'])}: {row['verdict']['reason']}"
            )
            output().print(text, markup=False)
    return matrix_body(rows, part, seed, count, cases, minutes)


@click.command()
@click.option("--count", type=click.IntRange(1), default=200, show_default=True, help="Changes to make.")
@_PART
@_SEED
@_FILE
@common
def mutations(count: int, part: str, seed: int, file: str | None, as_json: bool) -> None:
    """Change compiled programs at random and count the changes that are detected."""
    from tilewise.benchmarks.model.execution import bench_mutations, mutations_body
    from tilewise.settings import read_settings

    findings = []
    for finding in bench_mutations(part, read_settings().cache_folder, count=count, seed=seed):
        findings.append(finding)
        if not as_json and finding.counts and not finding.report:
            output().print(f"not reported: {finding.kernel}, {finding.change}", markup=False)
    _give(mutations_body(findings, part, seed), file, as_json)


@click.command()
@click.option("--count", type=click.IntRange(1), default=400, show_default=True, help="Mistakes to make.")
@click.option("--device", default="model:Ascend910B4", show_default=True, help="model:PART or cuda.")
@click.option(
    "--journal",
    type=click.Path(dir_okay=False),
    help="File of the outcomes so far; with the same file a run goes on.  [default: in the cache folder]",
)
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes at once.")
@_SEED
@_FILE
@common
def mutants(
    count: int, device: str, journal: str | None, jobs: int, seed: int, file: str | None, as_json: bool
) -> None:
    """Make single mistakes in the kernels' source, and count those that verification refuses."""
    from tilewise.benchmarks.gpu.commands import require_gpu
    from tilewise.benchmarks.model.mutants.study import mutants_body, try_mutants
    from tilewise.settings import read_settings
    from tilewise.tuner.devices.registry import choose
    from tilewise.tuner.devices.registry import rows as devices

    device = choose(device)  # a name that is none would be said of each mutant
    if not device.startswith(("cuda", "model:")):
        raise click.UsageError(f"mutants run on model:PART or cuda, not on {device}")
    if device.startswith("cuda"):
        require_gpu()
    folder = read_settings().cache_folder
    rows: dict[str, Any] = {}
    place = Path(journal) if journal else folder / "mutants.jsonl"
    for row in try_mutants(count, seed, device, folder, place, jobs):
        rows[row["name"]] = row
        if not as_json:
            text = f"{len(rows)}: {row['outcome']}, {row['module']}.py:{row['line']} {row['change']}"
            output().print(text, markup=False)
    command = f"tilewise bench mutants --count {count} --seed {seed} --device {device}"
    name = next((row.name for row in devices() if row.id == device and device.startswith("cuda")), device)
    _give(mutants_body(list(rows.values()), command, name, seed), file, as_json)


def _give(body: dict[str, Any], file: str | None, as_json: bool) -> None:
    """Print all as JSON, or the summary; also write all to `file` if one is given."""
    from tilewise.db.exchange.files import write_file

    if as_json:
        print_json(body)
    else:
        for name, value in body["summary"].items():
            output().print(f"{name.replace('_', ' ')}: {value}", markup=False)
    if file:
        write_file(Path(file), (json.dumps(body, indent=1) + "\n").encode())
