"""The live workers on a database, which of their devices can run a job, and why a job waits."""

from __future__ import annotations

from collections.abc import Sequence

from tilewise.api.jobs.liveness import Liveness
from tilewise.db.jobs import Job
from tilewise.db.workers import Lane, Worker, Workers

__all__ = ["Fleet", "runnable_on", "why_it_waits"]


class Fleet:
    """The workers that this process believes to be alive. One seen for the first time is believed for a minute."""

    def __init__(self, workers: Workers) -> None:
        self._workers, self._liveness = workers, Liveness()

    def live(self) -> list[Worker]:
        return [worker for worker in self._workers.all() if not self._is_lost(worker)]

    def known(self) -> list[Worker]:
        """Return all workers that are registered, the lost ones too until they are removed."""
        return self._workers.all()

    def sweep(self) -> list[Worker]:
        """Remove the workers that are lost, and return them."""
        lost = [worker for worker in self._workers.all() if self._is_lost(worker)]
        for worker in lost:
            self._workers.forget(worker)
            self._liveness.drop(worker.id)
        return lost

    def _is_lost(self, worker: Worker) -> bool:
        return self._liveness.is_lost(worker.id, worker.owner, worker.beats)


def runnable_on(job: Job, live: Sequence[Worker]) -> list[str]:
    """Return the devices of live workers that can run a job, as `host lane`."""
    return [f"{worker.host} {lane.id}" for worker, lane in _lanes(job, live) if not worker.draining]


def why_it_waits(job: Job, live: Sequence[Worker], running: Sequence[Job], *, starting: bool = False) -> str:
    """Return in one line why a queued job does not run, as far as the workers tell.

    `starting` says that this server runs jobs too, which registers as a worker seconds after its start.
    """
    known = [worker for worker in live if job.kernel in worker.kernels]
    lanes = list(_lanes(job, live))
    if not live and starting:
        return "it is about to start: this server is registering its devices"
    if not live:
        return "no worker is alive: start tilewise worker, or a server with jobs, on this database"
    if not known:
        return f"none of {len(live)} live workers knows the kernel {job.kernel}: name it with --kernel there"
    if not lanes:
        return _nothing_fits(job, known)
    if all(worker.draining for worker, _ in lanes):
        return "the workers that could run it are being stopped"
    busy = {(one.host, one.lane) for one in running}
    if all((worker.host, lane.id) in busy for worker, lane in lanes if not worker.draining):
        return f"all of {len(lanes)} devices that could run it are busy"
    return "it is about to start, or another program holds the device"


def _nothing_fits(job: Job, known: Sequence[Worker]) -> str:
    lanes = [lane for worker in known for lane in worker.lanes]
    named = sorted({lane.toolchain or "an unknown toolchain" for lane in lanes if job.device in lane.requests})
    if named:
        return f"no live worker has {job.device} with the toolchain {job.toolchain!r}; they have {'; '.join(named)}"
    return f"no live worker has {job.device}; they have {', '.join(sorted({lane.id for lane in lanes})) or 'no device'}"


def _lanes(job: Job, live: Sequence[Worker]) -> list[tuple[Worker, Lane]]:
    return [
        (worker, lane)
        for worker in live
        if job.kernel in worker.kernels
        for lane in worker.lanes
        if lane.takes(job.device, job.toolchain)
    ]
