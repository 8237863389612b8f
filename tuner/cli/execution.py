"""`tilewise bench execute` and `bench mutations`: how far the execution of compiled programs can be trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tilewise.tuner.cli.options import common, print_json
from tilewise.tuner.cli.text import config_text, output

__all__ = ["execute", "mutations"]

_PART = click.option("--part", default="Ascend910B4", show_default=True, help="The modelled part.")
_SEED = click.option("--seed", type=int, default=0, show_default=True, help="Of the configs or changes drawn.")
_FILE = click.option("-o", "--output", "file", type=click.Path(dir_okay=False), help="Also write the JSON there.")


@click.command()
@click.argument("kernels", nargs=-1)
@click.option("--count", type=click.IntRange(1), default=20, show_default=True, help="Configs a kernel, of two dtypes.")
@_PART
@_SEED
@_FILE
@common
def execute(kernels: tuple[str, ...], count: int, part: str, seed: int, file: str | None, as_json: bool) -> None:
    """Execute compiled configs of the kernels (default: all) and compare with float64 and Triton's interpreter."""
    from tilewise.kernels import registry
    from tilewise.settings import read_settings
    from tilewise.tuner.bench.execution import bench_execute, execution_body, headline

    for name in kernels:
        registry.load(name)
    rows, folder = [], read_settings().cache_folder
    for row in bench_execute(part, folder, count=count, seed=seed, kernels=kernels):
        rows.append(row)
        if not as_json and row.fault:
            output().print(f"{row.kernel} {row.dtype} {config_text(row.config)}: {row.fault}", markup=False)
    _give(execution_body(rows, part, seed, headline(part, folder)), file, as_json)


@click.command()
@click.option("--count", type=click.IntRange(1), default=200, show_default=True, help="Changes to make.")
@_PART
@_SEED
@_FILE
@common
def mutations(count: int, part: str, seed: int, file: str | None, as_json: bool) -> None:
    """Change compiled programs at random and see whether execution reports it."""
    from tilewise.settings import read_settings
    from tilewise.tuner.bench.execution import bench_mutations, mutations_body

    findings = []
    for finding in bench_mutations(part, read_settings().cache_folder, count=count, seed=seed):
        findings.append(finding)
        if not as_json and finding.counts and not finding.report:
            output().print(f"not reported: {finding.kernel}, {finding.change}", markup=False)
    _give(mutations_body(findings, part, seed), file, as_json)


def _give(body: dict[str, Any], file: str | None, as_json: bool) -> None:
    """The whole as JSON, or its summary; and the whole in a file where one is asked for."""
    from tilewise.db.exchange.files import write_file

    if as_json:
        print_json(body)
    else:
        for name, value in body["summary"].items():
            output().print(f"{name.replace('_', ' ')}: {value}", markup=False)
    if file:
        write_file(Path(file), (json.dumps(body, indent=1) + "\n").encode())
