"""A fleet's promises of its jobs and trials, checked from outside: by what is seen on the way, and at the end."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select

from tilewise.benchmarks.fleet.chips import STALE, Chip, true_us
from tilewise.db.jobs import Jobs, State
from tilewise.db.records import Scope, Trial, canonical_json, shape_text
from tilewise.db.sql import models
from tilewise.db.sql.database import Database
from tilewise.db.sql.sql_store import SqlStore

__all__ = ["MOST_LOSS", "Pause", "Seen", "check", "job_faults"]

MOST_LOSS = 0.01
"""How much slower a winner may be than that of the run without kills, both without noise."""

_MOST_FAULTS = 20
_T, _S = models.trials.c, models.scopes.c
_IDS = select(_T.id).order_by(_T.id)
_ROWS = select(_T.id, _T.scope_id, _T.config_key, _T.facts).order_by(_T.id)
_STALE = select(func.count()).select_from(models.scopes).where(_S.toolchain == STALE)


@dataclass(frozen=True, slots=True)
class Pause:
    """A job's process that was stopped and goes on now: `last` is the last trial stored before. `taken` says whether
    the job had been taken back by then."""

    job: int
    process: int
    last: int
    taken: bool


class Seen:
    """The jobs and trials as they are seen while they run."""

    def __init__(self, jobs: Jobs, database: Database) -> None:
        self._jobs, self._database = jobs, database
        self._finished: dict[int, tuple[State, datetime | None]] = {}
        self._changed = time.monotonic()
        self._trials = set[int]()
        self.lanes = set[str]()
        self.pauses = list[Pause]()
        self.faults = list[str]()

    @property
    def ended(self) -> int:
        return len(self._finished)

    @property
    def quiet_seconds(self) -> float:
        """The time since a job ended."""
        return time.monotonic() - self._changed

    def look(self) -> None:
        for job in self._jobs.page(most=10**6):
            now = job.state, job.finished
            if job.lane:
                self.lanes.add(job.lane)
            if job.state.is_final and job.id not in self._finished:
                self._finished[job.id], self._changed = now, time.monotonic()
            if self._finished.get(job.id, now) != now:
                self.faults.append(f"job {job.id} ended as {self._finished[job.id]} and again as {now}")
                self._finished[job.id] = now

    def note_trials(self) -> None:
        """Note the trials that are stored now, none of which may be lost."""
        self._trials.update(number for (number,) in self._database.fetch(_IDS))

    def lost_trials(self) -> int:
        return len(self._trials - {number for (number,) in self._database.fetch(_IDS)})


def check(
    store: SqlStore, calm: SqlStore, chips: Sequence[Chip], seen: Seen, *, trials: int, problems: int
) -> dict[str, Any]:
    """Return figures of the run and `faults`: promises that `store` breaks, where `calm` is the run without kills."""
    faults = list(seen.faults)
    names = {chip.id: chip.planted.name for chip in chips[:-1]}
    winners, losses, mixed = {_key(scope): scope for scope in calm.scopes()}, list[float](), 0
    found = list(store.scopes())
    if (len(found), len(winners)) != (problems, problems):
        faults.append(f"{len(found)} problems have trials, and {len(winners)} without kills, of {problems}")
    for scope in found:
        kept = store.trials(scope)
        faults += [f"{shape_text(scope.problem.shape)}: {fault}" for fault in _faults(scope, kept, names, trials)]
        mixed += len({trial.facts.get("chip") for trial in kept}) > 1
        loss = _loss(store, scope, calm, winners.get(_key(scope)))
        if loss is None or loss > MOST_LOSS:
            faults.append(f"{shape_text(scope.problem.shape)}: the winner's loss is {loss}, against without kills")
        losses += [] if loss is None else [loss]
    late = late_rows(store.database, seen.pauses)
    stale = int(store.database.fetch(_STALE)[0][0]) + (chips[-1].id in seen.lanes)
    faults += [f"{late} rows were written by owners that had been stopped"] if late else []
    faults += [f"the chip with another toolchain got {stale} jobs"] if stale else []
    faults += [f"{lost} stored trials are lost"] if (lost := seen.lost_trials()) else []
    return {
        "trials": sum(len(store.trials(scope)) for scope in found),
        "problems_on_several_chips": mixed,
        "loss": {"largest": round(max(losses, default=0.0), 4), "other_winner": sum(loss != 0 for loss in losses)},
        "owners_stopped": {"all": len(seen.pauses), "taken_over": sum(one.taken for one in seen.pauses), "rows": late},
        "jobs_on_another_toolchain": stale,
        "faults": faults[:_MOST_FAULTS],
    }


def job_faults(jobs: Jobs) -> list[str]:
    """Return the jobs that did not end well."""
    return [f"job {job.id} is {job.state}: {job.reason}" for job in jobs.page(most=10**6) if job.state != State.DONE]


def _faults(scope: Scope, trials: Sequence[Trial], names: dict[str, str], wanted: int) -> list[str]:
    """Return a problem's trials that are missing, doubled or timed on a chip of another kind."""
    drawn = Counter(trial.ordinal for trial in trials if trial.ordinal is not None)
    faults = [f"trial {number} is missing" for number in range(1, wanted + 1) if number not in drawn]
    faults += [f"trial {number} is stored {count} times" for number, count in drawn.items() if count > 1]
    faults += [f"trial {number} is one too many" for number in drawn if number > wanted]
    chips = {str(trial.facts.get("chip")) for trial in trials}
    return faults + [f"a trial is of {chip}" for chip in chips if names.get(chip) != scope.device]


def _loss(store: SqlStore, scope: Scope, calm: SqlStore, without: Scope | None) -> float | None:
    """Return how much slower the winner truly is than that of the run without kills; None if either is missing."""
    winner = store.result(scope).winner
    expected = None if without is None else calm.result(without).winner
    if winner is None or expected is None:
        return None
    took, least = (true_us(scope.device, scope.problem, trial.config) for trial in (winner, expected))
    return took / least - 1


def late_rows(database: Database, pauses: Sequence[Pause]) -> int:
    """Return the number of trials that paused processes stored after they went on.

    Another process may store a trial of theirs again, with the times of the final comparison: that is none of them.
    """
    stored, count = defaultdict[tuple[int, int, str], list[int]](list), 0
    for number, scope, config, facts in database.fetch(_ROWS):
        stored[json.loads(facts).get("process"), scope, config].append(number)
    for pause in pauses:
        mine = [numbers for (process, _, _), numbers in stored.items() if process == pause.process]
        count += sum(min(numbers) > pause.last for numbers in mine)
    return count


def _key(scope: Scope) -> tuple[str, str]:
    return scope.device, canonical_json(dict(scope.problem.shape))
