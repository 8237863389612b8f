"""Prices of recorded programs: the modelled times of all cases at given figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewise.benchmarks.model.judge.cases import Case
from tilewise.benchmarks.model.judge.programs import Program, record
from tilewise.tuner.hardware.ascend_costs import Costs

__all__ = ["Timed", "recorded", "timed_us"]


@dataclass(frozen=True, slots=True)
class Timed:
    """A published time and the programs that it is the time of: one, or several of which it is the fastest's."""

    case: Case
    index: int
    us: float
    programs: Sequence[Program]

    @property
    def best(self) -> bool:
        return self.case.best_us is not None


def recorded(cases: Iterable[Case], folder: Path) -> tuple[list[Timed], list[tuple[Case, int, str]]]:
    """Compile all cases, or read what was compiled before. Return the published times whose programs compile, and the
    rows where this compiler and the published one disagree on whether the config compiles, with the reason."""
    timed: list[Timed] = []
    disagreements: list[tuple[Case, int, str]] = []
    for case in cases:
        programs = [record(case, row.config, folder) for row in case.rows]
        runs = [program for program in programs if not program.refusal]
        if case.best_us is not None:
            timed += [Timed(case, 0, case.best_us, runs)] if runs else []
            continue
        for index, (row, program) in enumerate(zip(case.rows, programs, strict=True)):
            if row.us is not None and not program.refusal:
                timed.append(Timed(case, index, row.us, [program]))
            elif bool(row.failure) != bool(program.refusal):
                disagreements.append((case, index, program.refusal or f"compiles; published: {row.failure}"))
    return timed, disagreements


def timed_us(row: Timed, costs: Costs) -> float:
    """Return the modelled time: the fastest of the programs."""
    return min(program.time(costs).time_us for program in row.programs)
