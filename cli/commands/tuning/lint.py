"""`tilewise lint`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewise.cli.options import common, print_json, problem_options
from tilewise.cli.sarif import sarif
from tilewise.db.records import shape_text
from tilewise.errors import UsageError
from tilewise.tuner.space.problem_checks import config_text

if TYPE_CHECKING:
    from tilewise.kernels.spec import KernelSpec, Problem
    from tilewise.tuner.devices.ascend_model.device import ModelDevice
    from tilewise.tuner.devices.base import Device

__all__ = ["finding_lines", "lint"]

_DEVICE = "model:Ascend910B4"


@click.command()
@click.argument("kernel")
@problem_options(required=False)
@click.option(
    "-c", "--config", "given", metavar="BLOCK_SIZE_M=25,...", help="The config (default: the spec's own for the shape)."
)
@click.option("--device", default=_DEVICE, show_default=True, help="model:PART, or npu for the model of this chip.")
@click.option(
    "--min-share",
    type=click.FloatRange(0, 100),
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    help="Leave out what costs less of the modelled time.",
)
@click.option(
    "--sarif",
    "sarif_file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Also write the findings as SARIF 2.1.0, which code hosts show beside the lines.",
)
@common
def lint(
    kernel: str,
    shapes: tuple[str, ...],
    dtype: str,
    given: str | None,
    device: str,
    min_share: float,
    sarif_file: Path | None,
    as_json: bool,
) -> int:
    """Report what the compiled code of KERNEL does that costs time on Ascend: source line, modelled cost, remedy.

    KERNEL is a name that `tilewise kernels` lists, or path/to/file.py:SPEC for a kernel of your own (path/to/file.py if
    it holds one spec). No device is needed. Findings that cost most come first; those in code that cannot be modelled
    have no cost. Exits with 1 if anything is found.
    """
    from tilewise.kernels import registry
    from tilewise.tuner.devices.registry import choose, open_device
    from tilewise.tuner.space.problem_checks import make_problem, parse_dims

    spec = registry.load(kernel)
    if not shapes:
        example = ",".join(f"{name}=1024" for name in spec.dims)
        raise UsageError(f"{spec.name} is compiled for a shape; give one with -s, such as -s {example}")
    problems = [make_problem(spec, parse_dims(shape), dtype) for shape in shapes]
    with open_device(choose(device)) as opened:
        model = _model(opened)
        results = [_linted(model, spec, problem, given, min_share / 100) for problem in problems]
    if sarif_file:
        import json

        sarif_file.write_text(json.dumps(sarif(results, Path.cwd()), indent=2) + "\n")
    if as_json:
        print_json({"results": results})
    else:
        click.echo("\n".join(line for result in results for line in _lines(result)))
    return 1 if any(result["findings"] for result in results) else 0


def _model(device: Device) -> ModelDevice:
    from tilewise.tuner.explain.explain import model_of

    model = model_of(device)
    if model is None:
        raise UsageError(f"lint reads code compiled for Ascend; give --device model:PART, not {device.id}")
    return model


def _linted(
    model: ModelDevice, spec: KernelSpec, problem: Problem, given: str | None, min_share: float
) -> dict[str, Any]:
    from tilewise.tuner.space.problem_checks import parse_config
    from tilewise.tuner.space.search_space import check_config

    default = spec.default(problem, model.target)
    config = parse_config(given) if given else {}
    missing = {name: value for name, value in default.items() if name in spec.options() - config.keys()}
    full = {**config, **missing} if given else default
    if broken := check_config(spec, problem, model.target, full):
        raise UsageError(f"{config_text(full)} breaks the rule of {spec.name}: {broken}; give another config with -c")
    found = model.lint(spec, problem, full, min_share=min_share)
    body: dict[str, Any] = {**problem.to_json(), "device": model.target.name, "config": dict(full)}
    if found.time_us is None:
        body["not_modelled"] = found.not_modelled
    else:
        body["modelled_us"] = round(found.time_us, 4)
    return {**body, "findings": [each.to_json(found.time_us) for each in found.findings]}


def _lines(body: dict[str, Any]) -> Iterator[str]:
    yield f"{body['kernel']} {shape_text(body['dims'])} {body['dtype']} on {body['device']}"
    yield f"  config {config_text(body['config'])}"
    for finding in body["findings"]:
        yield from finding_lines(finding)
    count = len(body["findings"])
    summary = f"{count} finding{'s' * (count != 1)}" if count else "no findings"
    if "modelled_us" in body:
        yield f"{summary} in {body['modelled_us']:.2f} us (modelled)"
    else:
        yield f"{summary}, without costs: {body['not_modelled']}"


def finding_lines(finding: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of one finding, as its JSON object holds it."""
    where = f"{finding['line']}: " if "line" in finding else ""
    yield f"{where}{finding['level']}: {finding['rule']}{_cost(finding)}"
    if finding.get("source"):
        yield f"    {finding['source']}"
    yield f"  {finding['message']}"
    if "cause" in finding:
        yield f"  see {finding['cause']}: {finding['cause_source']}"
    yield f"  remedy: {finding['remedy']}"


def _cost(finding: dict[str, Any]) -> str:
    if "modelled_cost_us" not in finding:
        return ""
    return f", costs up to {finding['modelled_cost_us']:.2f} us (modelled), {finding['share']:.0%} of the time"
