"""The data of the templates: stored results and trials in the words and figures of a page."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from tilewise.api.pages.problem.charts import HeatMap, heat_map
from tilewise.api.pages.problem.comparison import PipePair, penalties_of, pipe_pairs
from tilewise.api.pages.problem.explanation import stored_facts
from tilewise.api.pages.problem.importance import Importance
from tilewise.api.pages.problem.landscape import Landscape
from tilewise.api.pages.problem.landscapes import Stored
from tilewise.api.pages.problem.roofline import Roofline, roofline
from tilewise.api.pages.problem.roofline_chart import Chart, chart
from tilewise.api.pages.problem.trial_table import TrialQuery, TrialTable, trial_table
from tilewise.db.exchange.foreign.caches.triton_module import config_source
from tilewise.db.records import Config, Result, Scope, Status, shape_text
from tilewise.kernels.spec import KernelSpec
from tilewise.tuner.space.problem_checks import config_text

__all__ = ["Failure", "Improvement", "ProblemView", "Unverified", "problem_view"]


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
class Unverified:
    """The fastest trial of a problem without a verified one."""

    time_us: float | None
    config: Config


@dataclass(frozen=True, slots=True)
class ProblemView:
    """Everything on a problem's page. `unverified` is the fastest trial if none is verified."""

    result: Result
    unverified: Unverified | None
    sizes: str
    speed_up: float | None
    table: TrialTable
    importances: Sequence[Importance]
    failures: Sequence[Failure]
    improvements: Sequence[Improvement]
    pipes: Sequence[PipePair]
    penalties: Mapping[str, float]
    facts: Mapping[str, str]
    roofline: Roofline | None
    roofline_chart: Chart | None
    triton_config: str
    curl: str
    export: str
    heat_map: HeatMap | None
    parameters: Sequence[str]

    @property
    def scope(self) -> Scope:
        return self.result.scope


def problem_view(
    stored: Stored, spec: KernelSpec | None, base_url: str, axes: tuple[str, str] | None, query: TrialQuery
) -> ProblemView:
    """Collect everything on a problem's page. `base_url` is the server's own address. `axes` are the heat map's
    parameters; the default is the two that matter most.

    Raises `KeyError` for unknown `axes`, and `UsageError` for a `query` that names an unknown parameter.
    """
    result, landscape = stored.result, stored.landscape
    fastest = stored.reference if result.winner is None else None
    ranked = stored.importances
    shown = roofline(result, spec, (time_us for _, time_us in landscape.timed()))
    if axes is None and len(ranked) > 1:
        axes = ranked[0].name, ranked[1].name
    return ProblemView(
        result=result,
        unverified=None if fastest is None else Unverified(landscape.times_us[fastest], landscape.config(fastest)),
        sizes=shape_text(result.scope.shape),
        speed_up=result.speed_up,
        table=trial_table(landscape, query),
        importances=ranked,
        failures=_failures(landscape),
        improvements=_improvements(landscape),
        pipes=pipe_pairs(result.winner, result.default),
        penalties=penalties_of(result.scope, spec, result.winner) if result.winner else {},
        facts=stored_facts(result.winner.facts) if result.winner else {},
        roofline=shown,
        roofline_chart=chart(shown) if shown else None,
        triton_config=config_source(result.winner.config) if result.winner else "",
        curl=_curl(result.scope, base_url),
        export=_export(result.scope),
        heat_map=heat_map(landscape, *axes) if axes else None,
        parameters=[each.name for each in landscape.varied],
    )


def _failures(landscape: Landscape) -> list[Failure]:
    """Count failures by reason. Reasons that differ only in numbers count as one, shown as in the first such trial."""
    first: dict[tuple[str, str], int] = {}
    counts: Counter[tuple[str, str]] = Counter()
    kind_of: dict[tuple[str, str], tuple[str, str]] = {}
    for trial, exact in enumerate(zip(landscape.statuses, landscape.reasons, strict=True)):
        if exact[0] == Status.CORRECT:
            continue
        kind = kind_of.get(exact)
        if kind is None:
            kind = kind_of[exact] = exact[0], re.sub(r"\d+", "0", exact[1])
        first.setdefault(kind, trial)
        counts[kind] += 1
    return [
        Failure(kind[0], landscape.reasons[first[kind]], count, config_text(landscape.config(first[kind])))
        for kind, count in counts.most_common()
    ]


def _improvements(landscape: Landscape) -> list[Improvement]:
    found: list[Improvement] = []
    for trial, time_us in landscape.timed():
        if landscape.verified[trial] and (not found or time_us < found[-1].time_us):
            found.append(Improvement(landscape.ordinals[trial], time_us, config_text(landscape.config(trial))))
    return found


def _curl(scope: Scope, base_url: str) -> str:
    query = urlencode({**scope.shape, "dtype": scope.dtype, "device": scope.device})
    return shlex.join(["curl", f"{base_url.rstrip('/')}/v1/configs/{quote(scope.kernel, safe='')}?{query}"])


def _export(scope: Scope) -> str:
    shape = ["-s", shape_text(scope.shape)] if scope.shape else []
    chosen = [f"--kernel={scope.kernel}", f"--device={scope.device}", *shape, f"--dtype={scope.dtype}"]
    file = re.sub(r"[^\w.-]", "_", scope.kernel)
    return shlex.join(["tilewise", "export", "--format", "json", *chosen, "-o", f"{file}.json"])
