"""`tilewise explain`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from tilewise.tuner.cli.options import common, database, print_json
from tilewise.tuner.cli.text import config_text
from tilewise.tuner.problem import sizes_text
from tilewise.tuner.why import PIPE_NAMES

__all__ = ["explain"]


@click.command()
@click.argument("kernel")
@click.option("-s", "--shape", required=True, metavar="M=1000,N=8192", help="Dimension sizes.")
@click.option("-c", "--config", "given", required=True, metavar="BLOCK_SIZE_M=25,...", help="The config to explain.")
@click.option("--dtype", default="float32", show_default=True, help="Type of the kernel's inputs.")
@click.option("--device", default="auto", show_default=True, help="auto, npu, cuda or model:PART.")
@database
@common
def explain(kernel: str, shape: str, given: str, dtype: str, device: str, url: str | None, as_json: bool) -> None:
    """Show one config of KERNEL: whether it can run, on-chip memory, waves, tails, and its time by pipe.

    Compile options left out of the config keep their defaults.
    """
    from tilewise.kernels import registry
    from tilewise.tuner.devices.catalogue import choose, open_device
    from tilewise.tuner.explain import explain as explained
    from tilewise.tuner.problem import check_memory, make_problem, parse_config, parse_dims

    spec = registry.load(kernel)
    problem = make_problem(spec, parse_dims(shape), dtype)
    config = parse_config(given)
    with open_device(choose(device)) as opened:
        check_memory(spec, problem, opened)
        default = spec.default(problem, opened.target)
        options = {name: default[name] for name in spec.options() if name in default}
        body = explained(opened, spec, problem, {**options, **config})
    if as_json:
        print_json(body)
    else:
        click.echo("\n".join(_lines(body)))


def _lines(body: dict[str, Any]) -> Iterator[str]:
    yield f"{body['kernel']} {sizes_text(body['dims'])} {body['dtype']} on {body['device']} ({body['clock']} times)"
    yield f"  config      {config_text(body['config'])}"
    yield f"  feasible    {'yes' if body['feasible'] else 'no: ' + body['reason']}"
    if "on_chip_bits" in body:
        bits = body["on_chip_bits"]
        if "required" in bits:
            share = bits["required"] / bits["available"]
            yield f"  on chip     {bits['required'] / 8192:.1f} of {bits['available'] / 8192:.0f} KiB ({share:.0%})"
    if "effective_options" in body:
        yield f"  effective   {', '.join(f'{k}={v}' for k, v in body['effective_options'].items())}"
    waves = f"{body['waves']} wave{'s' * (body['waves'] != 1)}"
    tails = "no tail rows" if body["tail_rows"] == 0 else f"{body['tail_rows']} tail rows a program"
    yield f"  grid        {body['programs']} programs on {body['cores']} cores in {waves}, {tails}"
    if "time_us" in body:
        floor = f", {body['time_us'] / body['floor_us']:.2f}x the memory floor" if "floor_us" in body else ""
        yield f"  time        {body['time_us']:.2f} us ({body['clock']}){floor}"
    for pipe, busy in body.get("pipes_us", {}).items():
        share = busy / body["time_us"]
        bound = "  <- bound by" if pipe == body["bound_by"] else ""
        yield f"    {PIPE_NAMES[pipe]:18} {busy:9.2f} us  {'#' * round(30 * share):30} {share:4.0%}{bound}"
    yield f"  prior       score {body['prior_score']:.3f} (1 is a config without a flaw), from penalties:"
    for name, factor in body["penalties"].items():
        yield f"    {name:18} x{factor:.3f}"
    if "why" in body:
        yield f"  why         {body['why']}"
