"""Text forms of results, shared by all verbs."""

from __future__ import annotations

import math
import platform
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from tilewise.db.records import Clock, Result, Status, Trial
from tilewise.tuner.space.problem_checks import config_text

if TYPE_CHECKING:
    from rich.console import Console

    from tilewise.tuner.capture.program import Ending

__all__ = [
    "VERDICT_MARKS",
    "about",
    "counts_line",
    "found_text",
    "output",
    "result_lines",
    "show_ending",
    "time_text",
    "verdict_text",
]


_FILE_WIDTH = 140

VERDICT_MARKS = {"ok": "ok      ", "failed": "FAILED  ", "not here": "not here"}
"""How `selftest` and `doctor` begin the line of a step, by its verdict."""


def about() -> str:
    """Return the versions of tilewise and Python, and the system, in one line."""
    import tilewise

    return f"tilewise {tilewise.__version__}, Python {platform.python_version()}, {platform.platform()}"


def output(*, stderr: bool = False) -> Console:
    """Return a console as wide as the terminal, or wide enough for any table if the output is a file or a pipe."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    return console


def time_text(time_us: float | None, clock: Clock) -> str:
    """Format a time with its clock, so that a modelled time is never taken for a measured one."""
    if time_us is None:
        return "no time"
    shown = f"{time_us:.2f} us" if time_us < 1000 else f"{time_us / 1000:.3f} ms"
    return f"{shown} ({clock})"


_ENDINGS = {
    Status.CORRECT: "correct",
    Status.CONSTRAINTS: "violated the kernel's constraints",
    Status.COMPILE: "did not compile",
    Status.CORRECTNESS: "gave wrong results",
    Status.RUNTIME: "failed to run",
    Status.TIMEOUT: "timed out",
    Status.UNMODELLED: "could not be modelled",
}


PROOFS: Mapping[str | None, str] = {
    "reference": "the float64 reference",
    "self": "its own default config, as it has no reference",
}
"""What a verified output agreed with, by `Trial.verified_by`."""


def verdict_text(result: Result) -> str:
    """Describe how the winner's output was verified."""
    if result.winner is None or not result.winner.verified:
        return "not verified"
    recorded = result.scope.toolchain.startswith("replay of ")
    return "correct as recorded, not run here" if recorded else f"verified against {PROOFS[result.winner.verified_by]}"


def metrics_text(metrics: Mapping[str, float]) -> str:
    """Return `TFLOP/s: 12.5, energy_uj: 4003`."""
    return ", ".join(f"{name}: {value:.4g}" for name, value in metrics.items())


def counts_line(result: Result) -> str:
    """Format the trial counts, such as "61 trials: 58 correct, 3 did not compile"."""
    total = sum(result.counts.values())
    kinds = ", ".join(f"{result.counts[s]} {_ENDINGS[s]}" for s in Status if result.counts.get(s))
    return f"{total} trial{'s' * (total != 1)}: {kinds}"


def found_text(winner: Trial) -> str:
    """Describe how a winner was found: at which evaluation of its search, or without a search."""
    if winner.ordinal is not None:
        return f"best at evaluation {winner.ordinal}"
    return "best is the spec's default" if winner.is_default else "best not found by a search"


def result_lines(result: Result) -> Sequence[str]:
    """Format a result with its evidence."""
    winner, scope = result.winner, result.scope
    assert winner is not None, "a look-up answers with winners only"
    if winner.time_us is None:
        return _untimed_lines(result, winner)
    return [
        f"{result.scope.question}: {time_text(winner.time_us, scope.clock)}",
        f"  config     {config_text(winner.config)}",
        *([f"  metrics    {metrics_text(winner.metrics)}"] if winner.metrics else []),
        f"  why        {winner.why}",
        f"  verified   {f'output agreed with {PROOFS[winner.verified_by]}' if winner.verified else 'no'}",
        f"  evidence   {counts_line(result)}; {found_text(winner)}; {_versus(result)}",
        f"  toolchain  {scope.toolchain}",
        f"  tuned at   {winner.created:%Y-%m-%d %H:%M} UTC, match {result.match}",
    ]


def _untimed_lines(result: Result, winner: Trial) -> Sequence[str]:
    """Format an answer that was not tried for the requested shape."""
    away = "" if result.distance is None else f", {math.exp(result.distance):.2f}x away from a tuned shape"
    return [
        f"{result.scope.question}: not timed",
        f"  config     {config_text(winner.config)}",
        f"  match      {result.match}{away}",
        f"  why        {winner.why}",
        f"  toolchain  {result.scope.toolchain} ({result.scope.clock})",
    ]


def _versus(result: Result) -> str:
    speed_up = result.speed_up
    return "default not timed" if speed_up is None else f"{speed_up:.2f}x the speed of the default"


def show_ending(ending: Ending) -> int:
    """Print a program's own error as Python prints it, or the text that it exited with; return its exit code."""
    if ending.error is not None:
        traceback.print_exception(ending.error)
    elif ending.text:
        click.echo(ending.text, err=True)
    return ending.code
