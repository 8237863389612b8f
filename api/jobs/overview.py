"""The fleet at a glance: what each chip does, how many jobs wait for which device, and how long they will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewise.api.jobs.fleet import Fleet
from tilewise.db.jobs import Job, Jobs, State
from tilewise.db.workers import Lane, Worker

__all__ = ["STATES", "USUAL_TRIALS", "Chip", "Overview", "overview", "trials_left"]

STATES = ("busy", "idle", "drained", "lost")
"""States of a chip. A drained one takes no more jobs; the worker of a lost one gives no sign of life."""

USUAL_TRIALS = 200
"""The limit of a search that sets none. The search itself would take a second to import."""

_MOST = 1000
"""Jobs of a state that are looked at for the trials that are left."""


@dataclass(frozen=True, slots=True)
class Chip:
    """A device of a worker; `job` is the one that runs on it."""

    host: str
    id: str
    name: str
    toolchain: str
    state: str
    job: int | None


@dataclass(frozen=True, slots=True)
class Overview:
    """`jobs` counts by state, `queue` those that wait by the device that they ask for."""

    chips: Sequence[Chip]
    jobs: Mapping[str, int]
    queue: Mapping[str, int]

    @property
    def by_state(self) -> Mapping[str, int]:
        """The number of chips in each of `STATES`."""
        counted = Counter(chip.state for chip in self.chips)
        return {state: counted[state] for state in STATES}


def overview(jobs: Jobs, fleet: Fleet) -> Overview:
    running = {(job.host, job.lane): job.id for job in jobs.running()}
    live = {worker.id for worker in fleet.live()}
    chips = [
        _chip(worker, lane, running.get((worker.host, lane.id)), is_live=worker.id in live)
        for worker in fleet.known()
        for lane in worker.lanes
    ]
    by_state, queue = Counter[str]({str(state): 0 for state in State}), Counter[str]()
    for state, device, count in jobs.counts():
        by_state[state] += count
        queue.update({device: count} if state == State.QUEUED else {})
    return Overview(chips, dict(by_state), dict(queue))


def _chip(worker: Worker, lane: Lane, job: int | None, *, is_live: bool) -> Chip:
    state = "lost" if not is_live else "drained" if worker.draining else "idle" if job is None else "busy"
    return Chip(worker.host, lane.id, lane.name, lane.toolchain, state, job)


def trials_left(jobs: Jobs) -> int:
    """Return how many trials the jobs that wait or run may still take; many searches end before their limit."""
    unfinished = [job for state in (State.QUEUED, State.RUNNING) for job in jobs.page(state=str(state), most=_MOST)]
    return sum(map(_left, unfinished))


def _left(job: Job) -> int:
    each: int = job.progress.get("of") or job.trials or USUAL_TRIALS
    shapes: int = job.progress.get("shapes", len(job.shapes)) - job.progress.get("shapes_done", 0)
    made: int = job.progress.get("trials", 0)
    return max(0, each * shapes - made) if shapes else 0
