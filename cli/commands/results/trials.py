"""`tilewise trials`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tilewise.cli.options import common, database, open_existing, print_json, problem_options

if TYPE_CHECKING:
    from tilewise.db.records import Scope, Trial

__all__ = ["trials"]

_STATUSES = ("correct", "constraints", "compile", "correctness", "runtime", "timeout", "unmodelled")


@click.command()
@click.argument("kernel")
@problem_options(required=False)
@click.option("--device", help="Only this device name.")
@click.option("--status", type=click.Choice(_STATUSES), help="Only trials that ended so.")
@click.option(
    "--by",
    type=click.Choice(["cost", "time", "order"]),
    default="cost",
    show_default=True,
    help="How to sort; the cost is the time, or the spec's objective.",
)
@click.option("--most", type=click.IntRange(1), default=20, show_default=True, help="Trials shown for each shape.")
@database
@common
def trials(
    kernel: str,
    shapes: tuple[str, ...],
    dtype: str,
    device: str | None,
    status: str | None,
    by: str,
    most: int,
    url: str | None,
    as_json: bool,
) -> int:
    """Show the configs that were tried for KERNEL, with their times or why they failed. Exits with 4 if there are none.

    Without -s, those of every shape.
    """
    from tilewise.db.exchange.trials import trial_to_json
    from tilewise.errors import NotFound
    from tilewise.kernels import registry
    from tilewise.tuner.space.problem_checks import parse_dims

    name = registry.load(kernel).name if ":" in kernel else kernel
    wanted = [parse_dims(shape) for shape in shapes]
    shown: list[tuple[Scope, Sequence[Trial], int]] = []
    with open_existing(url) as opened, opened.snapshot() as store:
        for scope in store.scopes(name, device):
            if scope.dtype != dtype or (wanted and dict(scope.shape) not in wanted):
                continue
            found = [trial for trial in store.trials(scope) if status in (None, str(trial.status))]
            if by != "order":
                found.sort(key=lambda trial: getattr(trial, "cost" if by == "cost" else "time_us") or math.inf)
            if found:
                shown.append((scope, found[:most], len(found)))
    if not shown:
        raise NotFound(f"no trial of {name} in {dtype} matches; leave out -s, --device or --status to see more")
    if as_json:
        bodies = [{**scope.to_json(), "trials": [trial_to_json(t) for t in listed]} for scope, listed, _ in shown]
        print_json({"scopes": bodies})
        return 0
    for scope, rows, count in shown:
        _show(scope, rows, count)
    return 0


def _show(scope: Scope, found: Sequence[Trial], count: int) -> None:
    from tilewise.cli.formatting import PROOFS, metrics_text
    from tilewise.tuner.space.problem_checks import config_text

    more = f", the first {len(found)}" if len(found) < count else ""
    click.echo(f"{scope.question}, {scope.clock} times, {scope.toolchain}: {count} trials{more}")
    for trial in found:
        time = "-" if trial.time_us is None else f"{trial.time_us:.2f} us"
        ending = trial.reason or str(trial.status)
        if trial.verified:
            ending = f"verified against {PROOFS[trial.verified_by]}"
        default = ", the default" if trial.is_default else ""
        metrics = f" ({metrics_text(trial.metrics)})" if trial.metrics else ""
        click.echo(f"  {time:>12}{metrics}  {config_text(trial.config)}: {ending}{default}")
