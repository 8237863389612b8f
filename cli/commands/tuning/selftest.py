"""`tilewise selftest`."""

from __future__ import annotations

import click

from tilewise.cli.formatting import VERDICT_MARKS, about
from tilewise.cli.options import common, print_json

__all__ = ["selftest"]


@click.command()
@click.option("--device", default="auto", show_default=True, help="auto, npu, cuda, model:PART or replay:FILE.")
@common
def selftest(device: str, as_json: bool) -> int:
    """Check on this machine every step that tuning relies on: compile, launch, compare, time.

    Exits with 1 if a step failed or the device is not here. To report a problem, send the output or that of --json.
    """
    from tilewise.tuner.devices.registry import choose, open_device
    from tilewise.tuner.diagnostics.selftest import Verdict
    from tilewise.tuner.diagnostics.selftest import selftest as steps

    chosen = choose(device)
    if not as_json:
        click.echo(f"{chosen}: {about()}")
    found = []
    for step in steps(lambda: open_device(chosen)):
        found.append(step)
        if not as_json:
            click.echo(f"{VERDICT_MARKS[step.verdict]}  {step.name}: {step.detail}")
    good = all(step.verdict is Verdict.OK for step in found)
    if as_json:
        rows = [step.to_json() for step in found]
        print_json({"device": chosen, "about": about(), "good": good, "steps": rows})
    elif not good:
        click.echo("To report this, send all of the above, or the output of the same command with --json.")
    return 0 if good else 1
