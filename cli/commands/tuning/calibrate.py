"""`tilewise calibrate`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from tilewise.cli.options import common, print_json

__all__ = ["calibrate"]


@click.command()
@click.option("--device", default="npu", show_default=True, help="The chip to time: npu.")
@click.option("--forget", metavar="PART", help="Restore the shipped figures of a part instead.")
@common
def calibrate(device: str, forget: str | None, as_json: bool) -> None:
    """Fit the modelled part's figures to this machine's chip.

    Times micro-kernels on the chip, compiles them for the model too, and fits launch, bandwidth and operation costs.
    On this machine the fitted figures then replace the shipped ones, for `model:PART` and for ranking.
    """
    body = _forget(forget) if forget else _calibrate(device)
    if as_json:
        print_json(body)
    else:
        click.echo("\n".join(_lines(body)))


def _forget(part: str) -> dict[str, Any]:
    from tilewise.errors import NotFound
    from tilewise.tuner.hardware.ascend_parts import part as part_named
    from tilewise.tuner.hardware.calibrated_costs import calibration_file, forget

    if not forget(part_named(part).name):
        raise NotFound(f"{part} was not calibrated here: no {calibration_file(part)}")
    return {"part": part, "forgotten": True}


def _calibrate(text: str) -> dict[str, Any]:
    from rich.progress import Progress

    from tilewise.cli.formatting import output
    from tilewise.db.records import Clock
    from tilewise.errors import UsageError
    from tilewise.tuner.devices.registry import choose, open_device
    from tilewise.tuner.diagnostics.fit_model import fit, parameters, time_probes
    from tilewise.tuner.hardware.calibrated_costs import Calibration, keep

    with open_device(choose(text)) as device:
        if device.clock is not Clock.MEASURED or device.target.family != "ascend":
            raise UsageError(f"calibrate needs an Ascend chip, and {device.id} is not one; try --device npu")
        from tilewise.tuner.diagnostics.micro_kernels import probes

        selected = probes(device.target.cores)
        console = output(stderr=True)
        with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
            task = progress.add_task("timing", total=len(selected))
            timed, failed = time_probes(device, selected, lambda name: progress.advance(task))
        created = f"{datetime.now(UTC):%Y-%m-%d}"
        found = fit(timed, parameters(), f"fitted to {device.target.name} on {created}")
        made = Calibration(device.target.name, device.id, device.toolchain, created, found.figures)
    return {"part": made.part, "device": made.device, "file": str(keep(made)), **found.to_json(), "failed": failed}


def _lines(body: dict[str, Any]) -> Iterator[str]:
    if "forgotten" in body:
        yield f"{body['part']} has its shipped figures again"
        return
    error = body["mean_error"]
    change = f"{error['shipped']:.1%} with the shipped figures, {error['fitted']:.1%} with these"
    yield f"{body['part']} on {body['device']}: mean error of {len(body['probes'])} probes {change}"
    yield f"  {'probe':28} {'measured':>10} {'shipped':>10} {'fitted':>10}  us"
    for row in body["probes"]:
        yield f"  {row['name']:28} {row['measured_us']:10.2f} {row['shipped_us']:10.2f} {row['fitted_us']:10.2f}"
    for row in body["failed"]:
        yield f"  {row['name']:28} failed: {row['reason']}"
    yield f"  {'figure':28} {'shipped':>10} {'fitted':>10}"
    for row in body["figures"]:
        note = "" if row["determined"] else "  (not determined by these probes)"
        yield f"  {row['name']:28} {row['shipped']:10.4g} {row['fitted']:10.4g} {row['unit']}{note}"
    yield f"stored in {body['file']}"
