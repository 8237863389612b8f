"""Progress lines of a tuning, and the table at its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from tilewise.cli.formatting import counts_line, found_text, metrics_text, output, time_text, verdict_text
from tilewise.db.exchange.foreign.caches.triton_module import config_source
from tilewise.db.records import Clock, Config, Result, Status, Trial, shape_text
from tilewise.tuner.samplers.model_ranking import agreement
from tilewise.tuner.space.problem_checks import config_text
from tilewise.tuner.tuning.loop import Plan, Watcher
from tilewise.tuner.tuning.rebenchmark import CONTEST
from tilewise.tuner.tuning.unmodelled import unmodelled_text

__all__ = ["LaneProgress", "Progress", "show_result", "show_rungs", "working"]

_PLAIN_EVERY = 10
_RUNNERS_UP = 3
_MEANINGFUL = 100
"""Multiple of the memory floor beyond which a kernel is bound by its launch, and the floor says nothing."""


class Progress(Watcher):
    """Progress on stderr: a live bar on a terminal, elsewhere a line for each new best and every tenth trial.

    `place` is the tuning's among several, as in `rung 3 of 18`.
    """

    def __init__(self, place: str = "") -> None:
        self._place = f"{place}: " if place else ""
        self._console: Console | _Prefixed = output(stderr=True)
        self._bar: Bar | None = None
        self._task = TaskID(0)
        self._count = 0
        self._began = time.monotonic()
        self._best: Trial | None = None
        self.plan: Plan | None = None

    def started(self, plan: Plan) -> None:
        self.plan, self._count = plan, plan.resumed
        scope = plan.scope
        shape = f"{shape_text(scope.shape)} " if scope.dims else ""
        name = f"{self._place}[bold]{scope.kernel}[/]"
        self._console.print(f"{name} {shape}{scope.dtype} on {plan.device_id} ({scope.clock} times)")
        resumed = f", {plan.resumed} of them stored already" if plan.resumed else ""
        self._console.print(f"{plan.search} search, {plan.trials} trials of {plan.space} configs{resumed}")
        if isinstance(self._console, Console) and self._console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Bar(*columns, TextColumn("{task.fields[best]}"), console=self._console, transient=True)
            self._task = self._bar.add_task("trying", total=plan.trials, completed=plan.resumed, best="")
            self._bar.start()

    def verifying(self, config: Config) -> None:
        if self._bar:
            self._bar.update(self._task, description="checking the result")

    def noticed(self, text: str) -> None:
        self._console.print(text, style="yellow")

    def comparing(self, trials: Sequence[Trial]) -> None:
        self._console.print(f"timing the {len(trials)} fastest configs in turns")

    def tried(self, trial: Trial, best: Trial | None) -> None:
        self._count += trial.ordinal is not None
        improved = best is not None and best != self._best
        self._best = best
        if self._bar:
            self._bar.update(self._task, completed=self._count, description="trying", best=self._best_line())
        elif improved or (trial.ordinal is not None and self._count % _PLAIN_EVERY == 0):
            assert self.plan is not None
            elapsed = time.monotonic() - self._began
            self._console.print(
                f"trial {self._count}/{self.plan.trials}, {elapsed:.0f} s: {self._best_line()}{self._config()}"
            )

    def finished(self) -> None:
        if self._bar:
            self._bar.stop()

    def ended(self, result: Result) -> None:
        """Print the result in one line, for a tuning whose table comes later."""
        assert result.winner is not None, "a tuning without a winner raises"
        gain = f", {result.speed_up:.2f}x the speed of the default" if result.speed_up else ""
        self._console.print(f"{time_text(result.winner.time_us, result.scope.clock)}{gain}; {counts_line(result)}")

    def _best_line(self) -> str:
        if self._best is None or self._best.time_us is None or self.plan is None:
            return "no correct config yet"
        if objective := self.plan.scope.problem.objective:
            return f"best {self._best.cost:.4g} {objective}, {self._best.time_us:.2f} us"
        return f"best {self._best.time_us:.2f} us{self._above_the_floor(self._best.time_us)}"

    def _above_the_floor(self, time_us: float) -> str:
        if self.plan and self.plan.arithmetic:
            return f", {self.plan.arithmetic.text(time_us)}"
        floor = self.plan.floor_us if self.plan else None
        return f", {time_us / floor:.2f}x the memory floor" if floor and time_us < _MEANINGFUL * floor else ""

    def _config(self) -> str:
        return f" ({config_text(self._best.config)})" if self._best else ""


class LaneProgress(Progress):
    """Progress of one of several tunings at once: lines, each with its place. Raises `KeyboardInterrupt` in a trial
    after `stopping` was set."""

    def __init__(self, place: str, stopping: threading.Event) -> None:
        super().__init__(place)
        self._console, self._stopping = _Prefixed(output(stderr=True), self._place), stopping
        self._place = ""

    def tried(self, trial: Trial, best: Trial | None) -> None:
        super().tried(trial, best)
        if self._stopping.is_set():
            raise KeyboardInterrupt


class _Prefixed:
    """A console that begins each line with a text."""

    def __init__(self, console: Console, prefix: str) -> None:
        self._console, self._prefix = console, prefix

    def print(self, text: str, **options: Any) -> None:
        self._console.print(f"{self._prefix}{text}", **options)


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Show progress on stderr: one changing line on a terminal, elsewhere one line per step."""
    console = output(stderr=True)
    if not console.is_terminal:
        yield lambda text: console.print(f"{what} {text}")
        return
    with console.status(what) as status:
        yield lambda text: status.update(f"{what} {text}")


def show_result(result: Result, trials: Sequence[Trial], progress: Progress) -> None:
    """Print the table of winner, default and runners-up, then the speed-up, the winner's metrics and why it wins."""
    console = output()
    scope, winner = result.scope, result.winner
    assert winner is not None and winner.time_us is not None, "a tuning without a winner raises"
    if told := unmodelled_text(trials):
        console.print(f"{told[0].upper()}{told[1:]}.", style="yellow", markup=False)
    names = list(winner.config)
    table = Table(title=f"{result.scope.question}, {scope.clock} times", title_justify="left", title_style="bold")
    for heading in ("", *(name.replace("_", " ") for name in names)):
        table.add_column(heading, justify="right" if heading else "left")
    measured, objective = scope.clock is Clock.MEASURED, scope.problem.objective
    spread, ranked = ["p20 - p80"] if measured else [], [objective] if objective else []
    for heading in (f"us, {scope.clock}", *spread, *ranked, "to best"):
        table.add_column(heading, justify="right")
    for label, trial in _rows(result, trials):
        shown = _figures(trial, winner, measured=measured, ranked=bool(objective))
        table.add_row(label, *(str(trial.config.get(name, "")) for name in names), *shown)
    console.print(table)
    gain = result.speed_up
    console.print(
        f"[bold]{time_text(winner.time_us, scope.clock)}[/]"
        + (f", {gain:.2f}x the speed of the default" if gain else "")
    )
    if winner.metrics:
        console.print(metrics_text(winner.metrics), markup=False)
    console.print(f"Config: {config_text(winner.config)}")
    console.print(f"To paste: {config_source(winner.config)}", soft_wrap=True, markup=False)
    if winner.why:
        console.print(f"Why: {winner.why}.")
    if progress.plan and (bound := _against_the_floor(progress.plan, winner.time_us)):
        console.print(bound)
    if (order := agreement(trials)) is not None:
        console.print(order.text())
    console.print(f"{counts_line(result)}; {found_text(winner)}; {verdict_text(result)}; {result.seconds:.1f} s.")


def _figures(trial: Trial, winner: Trial, *, measured: bool, ranked: bool) -> list[str]:
    """Return a row's time, its spread if it was measured, its objective if it has one, and its cost to the best's."""
    time = f"{trial.time_us:.2f}" if trial.time_us else str(trial.status)
    cost = f"{trial.cost:.4g}" if trial.cost else ""
    ratio = f"{trial.cost / winner.cost:.3f}" if trial.cost and winner.cost else ""
    return [time, *([_spread(trial)] if measured else []), *([cost] if ranked else []), ratio]


def _against_the_floor(plan: Plan, time_us: float) -> str:
    """Return what arithmetic or memory alone would take; an empty text if neither says much about the time."""
    floor = plan.floor_us
    if bound := plan.arithmetic:
        return f"Arithmetic alone would take {bound.floor_us:.2f} us: the winner does {bound.text(time_us)}."
    if floor and time_us < _MEANINGFUL * floor:
        return f"Memory alone would take {floor:.2f} us: the winner is at {time_us / floor:.2f}x that floor."
    return ""


def show_rungs(dim: str, results: Sequence[Mapping[str, Any]]) -> None:
    """Print the results of a table's rungs, as JSON objects of any order: one table per shape beside the rung `dim`."""
    tables: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        shape = {name: value for name, value in result["dims"].items() if name != dim}
        about = " ".join(filter(None, (result["kernel"], shape_text(shape), result["dtype"])))
        tables.setdefault(f"{about} on {result['device']}, {result['clock']} times", []).append(result)
    for title, rungs in tables.items():
        _show_table(title, dim, sorted(rungs, key=lambda rung: rung["dims"][dim]))


def _show_table(title: str, dim: str, rungs: Sequence[Mapping[str, Any]]) -> None:
    console = output()
    table = Table(title=title, title_justify="left", title_style="bold")
    names = list(dict.fromkeys(name for rung in rungs for name in rung["config"] or ()))
    for heading in (dim, *(name.replace("_", " ") for name in names), f"us, {rungs[0]['clock']}", "default", "trials"):
        table.add_column(heading, justify="right")
    for rung in rungs:
        config = rung["config"] or {}
        time_us = f"{rung['time_us']:.2f}" if config else "no config"
        trials = str(rung["trials"]["total"]) if config else ""
        table.add_row(
            str(rung["dims"][dim]), *(str(config.get(name, "")) for name in names), time_us, _gain(rung), trials
        )
    console.print(table)
    tuned = [rung for rung in rungs if rung["config"]]
    behind = [f"{dim}={rung['dims'][dim]}" for rung in tuned if (_speed_up(rung) or 1.0) < 1.0]
    against = f"slower than the default: {', '.join(behind)}" if behind else "none slower than the default"
    console.print(f"{len(tuned)} of {len(rungs)} rungs tuned, {against}.")


def _speed_up(rung: Mapping[str, Any]) -> float | None:
    """Return the default's time over the rung's; None if the default has none."""
    time_us = (rung["default"] or {}).get("time_us")
    return None if time_us is None else float(time_us) / float(rung["time_us"])


def _gain(rung: Mapping[str, Any]) -> str:
    if not rung["config"]:
        return ""
    if rung["default"] is None:
        return "none"
    gain = _speed_up(rung)
    return "failed" if gain is None else f"{gain:.2f}x"


def _rows(result: Result, trials: Sequence[Trial]) -> list[tuple[str, Trial]]:
    assert result.winner is not None
    taken = {result.winner.config_key} | ({result.default.config_key} if result.default else set())
    others = sorted(
        (t for t in trials if t.status is Status.CORRECT and t.time_us and t.config_key not in taken),
        key=lambda t: t.cost or 0,
    )
    rows = [("winner", result.winner), *((_label(t), t) for t in others[:_RUNNERS_UP])]
    if result.default and result.default.config_key != result.winner.config_key:
        rows.append(("default", result.default))
    return rows


def _label(trial: Trial) -> str:
    """Return a trial's label. A rule decides between tied trials, so a tied one may be as fast as the winner."""
    return "tied" if trial.facts.get(CONTEST, {}).get("tied") else "runner-up"


def _spread(trial: Trial) -> str:
    known = trial.p20_us is not None and trial.p80_us is not None
    return f"{trial.p20_us:.2f} - {trial.p80_us:.2f}" if known else ""
