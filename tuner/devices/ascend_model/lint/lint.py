"""Lint one config: compile it with its source lines, and report what its code does that costs time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from tilewise.errors import Unavailable
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.devices.ascend_model.clock.machine import cores_for
from tilewise.tuner.devices.ascend_model.lint.buffers import lost_double_buffers, masked_refills, overflow
from tilewise.tuner.devices.ascend_model.lint.code import Code
from tilewise.tuner.devices.ascend_model.lint.costs import Costs
from tilewise.tuner.devices.ascend_model.lint.element_loops import element_loops, row_loops
from tilewise.tuner.devices.ascend_model.lint.finding import RULES, Finding
from tilewise.tuner.devices.ascend_model.lint.products import added_masks
from tilewise.tuner.devices.ascend_model.lint.programs import idle_cores, program_starts
from tilewise.tuner.devices.ascend_model.lint.transfers import far_rows, inner_strides
from tilewise.tuner.devices.ascend_model.report.analysis import Analysis, LaunchCourse
from tilewise.tuner.devices.ascend_model.report.located_launch import LocatedLaunch, located_launches

__all__ = ["MIN_SHARE", "Lint", "lint"]

MIN_SHARE = 0.02
"""Share of the modelled time from which something with a cost is a finding."""


@dataclass(frozen=True, slots=True)
class Lint:
    """The findings about one config, those that cost most first, then those whose cost is unknown.

    `time_us` is its modelled time; without it, `not_modelled` says why no cost is known.
    """

    findings: Sequence[Finding]
    time_us: float | None
    not_modelled: str = ""

    @property
    def clean(self) -> bool:
        return not self.findings


def lint(
    spec: KernelSpec,
    problem: Problem,
    config: Config,
    target: Target,
    folder: Path,
    analysis: Analysis | str,
    floor_us: float,
    *,
    min_share: float = MIN_SHARE,
) -> Lint:
    """Lint a config that follows the kernel's own rules.

    `analysis` has its modelled times, or says why there are none; `floor_us` is the least time that its memory traffic
    takes. Findings that cost less than `min_share` of the time are left out.

    Raises `Unavailable` if the config does not compile for another reason than its size.
    """
    try:
        launches = list(located_launches(spec, problem, config, target, folder))
    except ValueError as error:
        raise Unavailable(f"cannot lint {spec.name}: {error}") from error
    courses = [] if isinstance(analysis, str) else analysis.launches
    longest = max(_times_us(courses), default=0.0)
    found: list[Finding] = []
    for launch, course in zip_longest(launches, courses):
        if launch.compiled.refusal and not launch.compiled.overflowed:
            raise Unavailable(f"cannot lint {spec.name}: {launch.compiled.refusal}")
        found.extend(_code(launch, course, target))
        if course and course.time.time_us == longest:  # what a short launch combines may not divide
            spare_us = max(0.0, sum(_times_us(courses)) - floor_us)
            found.extend(_programs(launch, course, target, spare_us=spare_us))
    time_us = None if isinstance(analysis, str) else analysis.time_us
    least = min_share * (time_us or 0.0)
    kept = [each for each in _merged(found) if each.cost_us is None or 0 < each.cost_us >= least]
    return Lint(sorted(kept, key=_rank), time_us, analysis if isinstance(analysis, str) else "")


def _merged(findings: Sequence[Finding]) -> Sequence[Finding]:
    """Join findings that say the same of one line, as a function that is launched twice gives them."""
    joined: dict[tuple[str, str, str], Finding] = {}
    for each in findings:
        key = (each.rule.id, str(each.place), each.message)
        before = joined.get(key)
        cost = None if each.cost_us is None else each.cost_us + ((before and before.cost_us) or 0.0)
        joined[key] = replace(each, cost_us=cost)
    return list(joined.values())


def _times_us(courses: Sequence[LaunchCourse]) -> list[float]:
    return [course.time.time_us for course in courses]


def _code(launch: LocatedLaunch, course: LaunchCourse | None, target: Target) -> Iterator[Finding]:
    yield from overflow(launch)
    halves = [Code(located, launch) for located in launch.functions]
    costs = Costs(course)
    for code in halves:
        yield from added_masks(code, halves)
        yield from element_loops(code, costs)
        yield from row_loops(code, costs)
        yield from inner_strides(code, costs, halves)
        yield from far_rows(code, costs)
        yield from masked_refills(code, costs)
        yield from lost_double_buffers(code, costs, launch, target)


def _programs(launch: LocatedLaunch, course: LaunchCourse, target: Target, *, spare_us: float) -> Iterator[Finding]:
    cores = cores_for(launch.functions[0].function, target)
    yield from idle_cores(launch, course, cores, spare_us)
    yield from program_starts(launch, course, cores)


def _rank(finding: Finding) -> tuple[float, int]:
    return -(finding.cost_us or 0.0), list(RULES).index(finding.rule.id)
