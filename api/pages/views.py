"""The data of the templates: stored results and trials in the words and figures of a page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tilewise.api.pages import charts
from tilewise.api.pages.roofline import Roofline, roofline
from tilewise.db.exchange.foreign.caches.triton_module import config_source
from tilewise.db.records import Result, Scope, Status, Trial, shape_text
from tilewise.kernels.spec import KernelSpec
from tilewise.tuner.space.problem_checks import config_text
from tilewise.tuner.tuning.evidence import PIPE_NAMES

__all__ = ["Failure", "Improvement", "Pipe", "ProblemView", "Row", "problem_view", "row"]

_RUNNERS_UP = 20
"""Trials in the table of the fastest; all are in the export."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the list of problems."""

    key: str
    kernel: str
    sizes: str
    dtype: str
    device: str
    clock: str
    time_us: float
    speed_up: float | None
    trials: int
    tuned: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Trials that failed for one reason, with one of their configs."""

    status: str
    reason: str
    count: int
    config: str


@dataclass(frozen=True, slots=True)
class Improvement:
    """A trial that was faster than all before it."""

    ordinal: int | None
    time_us: float
    config: str


@dataclass(frozen=True, slots=True)
class Pipe:
    """The busy time of a pipe of a modelled core, and its share of the whole time in percent."""

    name: str
    busy_us: float
    percent: float


@dataclass(frozen=True, slots=True)
class ProblemView:
    """Everything on a problem's page."""

    result: Result
    sizes: str
    speed_up: float | None
    fastest: Sequence[Trial]
    failures: Sequence[Failure]
    improvements: Sequence[Improvement]
    pipes: Sequence[Pipe]
    roofline: Roofline | None
    triton_config: str
    curl: str
    export: str
    heat_map: charts.HeatMap | None
    parameters: Sequence[str]
    drawn: Mapping[str, Any]

    @property
    def scope(self) -> Scope:
        return self.result.scope


def row(result: Result) -> Row:
    scope, winner = result.scope, result.winner
    assert winner is not None and winner.time_us is not None, "only results with a winner are listed"
    return Row(
        key=scope.key,
        kernel=scope.kernel,
        sizes=shape_text(scope.shape),
        dtype=scope.dtype,
        device=scope.device,
        clock=str(scope.clock),
        time_us=winner.time_us,
        speed_up=result.speed_up,
        trials=sum(result.counts.values()),
        tuned=f"{winner.created:%Y-%m-%d %H:%M}",
    )


def problem_view(
    result: Result, trials: Sequence[Trial], spec: KernelSpec | None, base_url: str, axes: tuple[str, str] | None
) -> ProblemView:
    """Collect everything on a problem's page. `base_url` is the server's own address. `axes` are the heat map's
    parameters; the default is the two whose values change the times most. Raises `KeyError` for unknown `axes`."""
    timed = sorted((t for t in trials if t.status is Status.CORRECT and t.time_us), key=lambda t: t.time_us or 0)
    names = charts.parameters(trials)
    spreads = charts.spreads(trials)
    if axes is None:
        axes = _widest(spreads)
    return ProblemView(
        result=result,
        sizes=shape_text(result.scope.shape),
        speed_up=result.speed_up,
        fastest=timed[:_RUNNERS_UP],
        failures=_failures(trials),
        improvements=_improvements(trials),
        pipes=_pipes(result.winner),
        roofline=roofline(result, spec),
        triton_config=config_source(result.winner.config) if result.winner else "",
        curl=_curl(result.scope, base_url),
        export=_export(result.scope),
        heat_map=charts.heat_map(trials, *axes) if axes else None,
        parameters=names,
        drawn={"spreads": [_plain(spread) for spread in spreads], "course": _plain(charts.course(trials))},
    )


def _failures(trials: Sequence[Trial]) -> list[Failure]:
    """Count failures by reason. Reasons that differ only in numbers count as one, shown as in the first such trial."""
    failed = [trial for trial in trials if trial.status is not Status.CORRECT]
    kinds = [(str(trial.status), re.sub(r"\d+", "0", trial.reason)) for trial in failed]
    first = dict(zip(reversed(kinds), reversed(failed), strict=True))
    return [
        Failure(kind[0], first[kind].reason, count, config_text(first[kind].config))
        for kind, count in Counter(kinds).most_common()
    ]


def _improvements(trials: Sequence[Trial]) -> list[Improvement]:
    found: list[Improvement] = []
    for trial in trials:
        if trial.verified and trial.time_us and (not found or trial.time_us < found[-1].time_us):
            found.append(Improvement(trial.ordinal, trial.time_us, config_text(trial.config)))
    return found


def _pipes(winner: Trial | None) -> list[Pipe]:
    if winner is None or not winner.time_us:
        return []
    busy: Mapping[str, float] = winner.facts.get("pipes_us", {})
    return [Pipe(PIPE_NAMES.get(name, name), us, 100 * us / winner.time_us) for name, us in busy.items()]


def _widest(spreads: Sequence[charts.Spread]) -> tuple[str, str] | None:
    """Return the two parameters with the largest ratios between the best times of their values."""
    ranked = sorted(spreads, key=lambda spread: max(spread.best_us) / min(spread.best_us), reverse=True)
    return (ranked[0].name, ranked[1].name) if len(ranked) > 1 else None


def _plain(drawn: charts.Spread | charts.Course) -> dict[str, Any]:
    return {name: getattr(drawn, name) for name in drawn.__slots__}


def _curl(scope: Scope, base_url: str) -> str:
    query = urlencode({**scope.shape, "dtype": scope.dtype, "device": scope.device})
    return f"curl '{base_url.rstrip('/')}/v1/configs/{scope.kernel}?{query}'"


def _export(scope: Scope) -> str:
    chosen = f"--kernel {scope.kernel} --device '{scope.device}' -s {shape_text(scope.shape)} --dtype {scope.dtype}"
    return f"tilewise export --format json {chosen} -o {scope.kernel}.json"
