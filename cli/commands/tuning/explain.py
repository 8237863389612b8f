"""`tilewise explain`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewise.cli.commands.tuning.lint import finding_lines
from tilewise.cli.options import common, database, open_existing, print_json
from tilewise.db.records import shape_text
from tilewise.errors import NotFound, UsageError
from tilewise.tuner.space.problem_checks import config_text
from tilewise.tuner.tuning.evidence import ROW_NAMES

if TYPE_CHECKING:
    from tilewise.db.records import Scope, Trial
    from tilewise.kernels.spec import Config, KernelSpec, Problem
    from tilewise.tuner.devices.base import Device

__all__ = ["explain"]

_LINES, _LINE_MIN_SHARE = 8, 0.002
"""Source lines shown, and the least share of the time that a pipe must be busy on one; the JSON has all lines."""

_SERVER_SECONDS = 120.0
"""Time for a server's answer: it compiles one winner at a time, which takes seconds."""

_STEPS = 8
"""Steps of the critical path shown."""

_TRAFFIC_MIN_RATIO = 1.1
"""Ratio to the least traffic above which the reasons are shown."""


def _ending(*suffixes: str) -> Callable[[click.Context, click.Parameter, Path | None], Path | None]:
    """Return a callback that checks a file's suffix before any work is done."""

    def check(context: click.Context, parameter: click.Parameter, file: Path | None) -> Path | None:
        if file is not None and file.suffix not in suffixes:
            raise click.BadParameter(f"{file.name!r} does not end in {' or '.join(suffixes)}")
        return file

    return check


@click.command()
@click.argument("kernel")
@click.option("-s", "--shape", required=True, metavar="M=1000,N=8192", help="Dimension sizes.")
@click.option(
    "-c",
    "--config",
    "given",
    metavar="BLOCK_SIZE_M=25,...",
    help="The config (default: the stored best, else the spec's).",
)
@click.option("--dtype", default="float32", show_default=True, help="Type of the kernel's inputs.")
@click.option(
    "--device", default="auto", show_default=True, help="auto, npu, cuda or model:PART; a device's name with --server."
)
@click.option("--server", metavar="URL", help="Have this server explain the best config that it knows.")
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    callback=_ending(".json", ".svg"),
    help="Write the timeline: .json for Perfetto, or .svg.",
)
@click.option(
    "--roofline",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    callback=_ending(".png", ".svg"),
    help="Plot the config under its roofline: .png or .svg.",
)
@database
@common
def explain(
    kernel: str,
    shape: str,
    given: str | None,
    dtype: str,
    device: str,
    server: str | None,
    trace: Path | None,
    roofline: Path | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Show one config of KERNEL: whether it can run, its on-chip memory, waves, tails, and time by pipe.

    On a modelled part, also show the time by source line, the effect of compile options, and faster configs. Compile
    options left out of the config keep their defaults.
    """
    if server:
        _refuse_with_server({"--config": given, "--trace": trace, "--roofline": roofline, "--db": url}, device)
        body = _ask_server(server, kernel, shape, dtype, device)
    else:
        body = _explained_here(kernel, shape, given, dtype, device, trace, roofline, url)
    if as_json:
        print_json(body)
    else:
        click.echo("\n".join(_lines(body)))


def _refuse_with_server(local: Mapping[str, object], device: str) -> None:
    if given := [name for name, value in local.items() if value]:
        raise UsageError(f"{given[0]} and --server exclude each other: a server explains the best of its own database")
    if device == "auto":
        raise UsageError("--server needs --device: the name of the device that will run it, such as Ascend910B4")


def _ask_server(server: str, kernel: str, shape: str, dtype: str, device: str) -> dict[str, Any]:
    from tilewise.client import Client
    from tilewise.settings import read_settings
    from tilewise.tuner.lookup.resolve import device_name
    from tilewise.tuner.space.problem_checks import parse_dims

    with Client(server, token=read_settings().token, timeout=_SERVER_SECONDS) as client:
        return dict(client.explain(kernel, parse_dims(shape), device_name(device), dtype=dtype))


def _explained_here(
    kernel: str,
    shape: str,
    given: str | None,
    dtype: str,
    device: str,
    trace: Path | None,
    roofline: Path | None,
    url: str | None,
) -> dict[str, Any]:
    from tilewise.kernels import registry
    from tilewise.tuner.devices.registry import choose, open_device
    from tilewise.tuner.explain.explain import explain as explained
    from tilewise.tuner.space.problem_checks import make_problem, parse_config, parse_dims

    spec = registry.load(kernel)
    problem = make_problem(spec, parse_dims(shape), dtype)
    config = parse_config(given) if given else {}
    with open_device(choose(device)) as opened:
        opened.check_memory(spec, problem)
        default = spec.default(problem, opened.target)
        trials = _stored(url, opened.scope(spec, problem))
        missing = {name: value for name, value in default.items() if name in spec.options() - config.keys()}
        full = {**config, **missing} if given else _best(trials) or default
        body = explained(opened, spec, problem, full, trials)
        if trace:
            _write_trace(trace, opened, spec, problem, full, body)
        if roofline:
            _write_roofline(roofline, opened, spec, problem, body)
    return body


def _best(trials: Sequence[Trial]) -> Config | None:
    verified = [trial for trial in trials if trial.verified and trial.time_us]
    return min(verified, key=lambda trial: trial.time_us or 0.0).config if verified else None


def _stored(url: str | None, scope: Scope) -> list[Trial]:
    """Return the stored trials of a scope; an empty list without a database."""
    try:
        with open_existing(url) as store:
            return store.trials(scope)
    except NotFound:
        return []


def _write_trace(
    file: Path, device: Device, spec: KernelSpec, problem: Problem, config: Config, body: dict[str, Any]
) -> None:
    import json

    from tilewise.tuner.devices.ascend_model.report.drawing import drawing
    from tilewise.tuner.devices.ascend_model.report.trace import trace_events
    from tilewise.tuner.explain.explain import course

    if not body["feasible"]:
        raise UsageError(f"cannot draw a timeline: the config does not run: {body['reason']}")
    if (found := course(device, spec, problem, config)) is None:
        raise UsageError(f"--trace needs a modelled part, such as --device model:Ascend910B4, not {device.id}")
    file.write_text(drawing(found) if file.suffix == ".svg" else json.dumps(trace_events(found)))


def _write_roofline(file: Path, device: Device, spec: KernelSpec, problem: Problem, body: dict[str, Any]) -> None:
    from tilewise.tuner.explain.roofline import draw

    if "time_us" not in body:
        raise UsageError(f"cannot plot a roofline: the config does not run: {body['reason']}")
    draw(file, device, spec, problem, body)


def _lines(body: dict[str, Any]) -> Iterator[str]:
    yield f"{body['kernel']} {shape_text(body['dims'])} {body['dtype']} on {body['device']} ({body['clock']} times)"
    yield f"  config      {config_text(body['config'])}"
    yield f"  feasible    {'yes' if body['feasible'] else 'no: ' + body['reason']}"
    yield from _on_chip(body)
    yield from _grid(body)
    if "time_us" in body:
        yield f"  time        {body['time_us']:.2f} us ({_clock(body)}){_above_the_floor(body)}"
    yield from _where_time_goes(body)
    yield from _traffic(body)
    for finding in body.get("findings", []):
        first, *rest = finding_lines(finding)
        yield f"  finding     {first}"
        yield from (f"  {line}" for line in rest)
    yield from _what_else(body)
    yield f"  prior       score {body['prior_score']:.3f} (1 means no penalty)"
    for name, factor in sorted(body["penalties"].items(), key=lambda row: -row[1]):
        if round(factor, 3) != 1:
            yield f"    {name:18} x{factor:.3f}"
    if "why" in body:
        yield f"  why         {body['why']}"


def _grid(body: dict[str, Any]) -> Iterator[str]:
    """Yield the programs and waves, if the spec's tiling tells them."""
    if "waves" not in body:
        yield "  grid        unknown: the spec's tiling has no axes"
        return
    waves = f"{body['waves']} wave{'s' * (body['waves'] != 1)}"
    tails = "no tail rows" if not (rows := body["tail_rows"]) else f"{rows} tail row{'s' * (rows != 1)} a program"
    yield f"  grid        {body['programs']} programs on {body['cores']} cores in {waves}, {tails}"


def _above_the_floor(body: dict[str, Any]) -> str:
    if "tflop_s" in body:
        share = body["arithmetic_us"] / body["time_us"]
        return f", {body['tflop_s']:.1f} TFLOP/s, {share:.1%} of the peak of {body['peak_tflop_s']:.4g}"
    return f", {body['time_us'] / body['floor_us']:.2f}x the memory floor" if "floor_us" in body else ""


def _clock(body: dict[str, Any]) -> str:
    if body["clock"] == "modelled" and "modelled_between_us" in body:
        return "modelled; probably {:.1f} to {:.1f}".format(*body["modelled_between_us"])
    return str(body["clock"])


def _on_chip(body: dict[str, Any]) -> Iterator[str]:
    bits = body.get("on_chip_bits", {})
    if "required" in bits:
        share = bits["required"] / bits["available"]
        yield f"  on chip     {bits['required'] / 8192:.1f} of {bits['available'] / 8192:.0f} KiB ({share:.0%})"
    if "effective_options" in body:
        yield f"  effective   {', '.join(f'{k}={v}' for k, v in body['effective_options'].items())}"


def _what_else(body: dict[str, Any]) -> Iterator[str]:
    """Yield the times of other options, variants and neighbours of the config."""
    for option in body.get("options", []):
        yield f"  option      {_option(option)}"
    for variants in body.get("variants", []):
        yield f"  variants    {variants['says']}"
    for suggestion in body.get("suggestions", []):
        yield f"  suggestion  {_suggestion(suggestion)}"


def _where_time_goes(body: dict[str, Any]) -> Iterator[str]:
    """Yield the parts of the time; each pipe's row also has its whole busy time, overlapped or not."""
    if "not_modelled" in body:
        yield f"  modelled    no: {body['not_modelled']}"
    if body["clock"] == "measured" and "modelled_us" in body:
        yield f"  modelled    {body['modelled_us']:.2f} us, made up of"
    busy = body.get("pipes_us", {})
    for name, time in body.get("rows_us", busy).items():
        if not time and name not in busy:
            continue
        share = time / body.get("modelled_us", body["time_us"])
        beside = f" (busy {busy[name]:.2f})" if name in busy and "rows_us" in body else ""
        bound = "  <- bound by" if name == body.get("bound_by") else ""
        yield f"    {ROW_NAMES[name]:18} {time:9.2f} us  {'#' * round(30 * share):30} {share:4.0%}{beside}{bound}"
    if steps := body.get("critical_path"):
        shown = " > ".join(f"{step['pipe']} {step['us']:.2f}" for step in steps[:_STEPS])
        rest = f" > ... ({len(steps)} steps)" if len(steps) > _STEPS else ""
        yield f"  path        {shown}{rest}"
    least = _LINE_MIN_SHARE * body.get("time_us", 0)
    for line in [line for line in body.get("lines", []) if max(line["pipes_us"].values(), default=0) >= least][:_LINES]:
        pipes = ", ".join(f"{pipe} {time:.2f}" for pipe, time in line["pipes_us"].items() if time >= 0.005)
        yield f"  {line['path_us']:9.2f} us  {line['line']:20} {line['source']}" + (f"  [{pipes}]" if pipes else "")


def _traffic(body: dict[str, Any]) -> Iterator[str]:
    if "traffic" not in body:
        return
    moved = body["traffic"]
    yield f"  traffic     {moved['bytes'] / 1e6:.2f} MB, {moved['ratio']:.2f}x the minimum"
    if moved["ratio"] > _TRAFFIC_MIN_RATIO:
        for reason in moved["reasons"]:
            yield f"    {reason}"


def _option(option: dict[str, Any]) -> str:
    setting = f"{option['option']}={option['value']}"
    if "other_us" not in option:
        return f"{setting}; with {option['other']} it fails: {option['reason']}"
    return f"{setting}; with {option['other']} {option['other_us']:.2f} us ({option['ratio'] - 1:+.0%})"


def _suggestion(suggestion: dict[str, Any]) -> str:
    change = f"{suggestion['parameter']}={suggestion['value']} instead of {suggestion['instead_of']}"
    gain = f" ({suggestion['ratio'] - 1:+.0%})" if "ratio" in suggestion else ""
    cures = f"{suggestion['cures']}; " if "cures" in suggestion else ""
    return f"{change}: {suggestion['time_us']:.2f} us{gain}; {cures}{suggestion['why']}"
