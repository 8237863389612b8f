"""The actor of one device: on its node it takes a lane that the host offers, and runs jobs there as a worker does."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from tilewise.api.cluster.loan import Loans
from tilewise.api.jobs.processes import ProcessExecutor, is_gone, pid_of
from tilewise.api.jobs.runner import Runner
from tilewise.db.jobs import Jobs
from tilewise.db.sql.sql_store import open_store
from tilewise.db.workers import Lane, Workers
from tilewise.errors import TilewiseError, Unavailable
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, Problem
from tilewise.tuner.cluster.farm import fetched
from tilewise.tuner.cluster.farm_socket import FarmSocket
from tilewise.tuner.cluster.lent_chip import Description
from tilewise.tuner.cluster.offer import lock_file, taken
from tilewise.tuner.measure.outcome import Outcome
from tilewise.tuner.workers.farm import VARIABLE

__all__ = ["LaneActor", "Report"]

_REST_SECONDS = 2.0
_LOOK_SECONDS = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """Where an actor runs. `lane` is the device that it has, or empty, and then `why` says what it waits for.

    `compiles_here` says why the farm did not make the last artefact that it was asked for, so that it was compiled on
    this host; it is empty otherwise.
    """

    host: str
    process: int
    lane: str = ""
    why: str = ""
    compiles_here: str = ""


class LaneActor:
    """Runs jobs of the database at `url` on a lane of `resource`, from its start until it is drained or killed.

    It begins at once, in a thread. Where no lane is free or the database is away, it tries again until there is. Its
    jobs have the actor `farm` compile for them, if there is one.

    A job outlives the actor: it goes on while Ray's head or this node's part of Ray starts again, and the next actor of
    the lane starts no other one before it ends.
    """

    def __init__(self, url: str, resource: str, kernels: Sequence[str], farm: Any = None) -> None:
        for kernel in kernels:
            registry.register(kernel)
        self._url, self._resource, self._farm = url, resource, farm
        self._socket: FarmSocket | None = None
        self._loans: Loans | None = None
        self._runner: Runner | None = None
        self._lane, self._why = "", "it is starting"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True, name="lane")
        self._thread.start()

    def report(self) -> Report:
        compiles_here = self._socket.why if self._socket else ""
        if self._socket and self._runner and self._runner.has_heirloom(self._lane):
            compiles_here = compiles_here or "its job began under an actor that has ended"
        return Report(socket.gethostname(), os.getpid(), self._lane, self._why, compiles_here)

    def drain(self) -> None:
        """Finish the trial that runs, give the job back to the queue, and take no more."""
        self._stopping.set()
        self._thread.join()

    # Loans, of which a borrower calls the methods -------------------------------------------------------------------

    def lend(self, loan: str) -> Description:
        """Lend the lane to a tuning elsewhere. Raises `InUse` if it has a job, and `Unavailable`."""
        if self._loans is None:
            raise Unavailable(self._why or "it has no lane")
        return self._loans.lend(loan).describe()

    def keep_lent(self, loan: str) -> None:
        self._open_loans().lent(loan)

    def evaluate_lent(
        self, loan: str, share: int, origin: str, problem: Problem, configs: Sequence[Config]
    ) -> Iterator[Outcome]:
        yield from self._open_loans().lent(loan).evaluate(share, origin, problem, configs)

    def beat_lent(self, loan: str, share: int, best_us: float | None) -> None:
        self._open_loans().lent(loan).beat(share, best_us)

    def ask_lent(self, loan: str, method: str, origin: str, problem: Problem, *arguments: Any) -> Any:
        return self._open_loans().lent(loan).ask(method, origin, problem, *arguments)

    def give_back(self, loan: str) -> None:
        self._open_loans().end(loan)

    def _open_loans(self) -> Loans:
        if self._loans is None:
            raise Unavailable("the loan has ended")
        return self._loans

    # The thread -------------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while not self._stopping.is_set():
            try:
                self._run()
            except TilewiseError as error:
                self._lane, self._why = "", str(error)
            except Exception as error:
                _log.exception("%s", self._resource)
                self._lane, self._why = "", f"internal error: {type(error).__name__}: {error}"
            self._stopping.wait(_REST_SECONDS)

    def _run(self) -> None:
        with taken(self._resource) as lane, open_store(self._url, create=True) as store, self._farm_for_jobs():
            database = store.database
            jobs, executor = Jobs(database), ProcessExecutor(heir=lock_file(lane))
            self._runner = runner = Runner(self._url, jobs, lambda: [lane], executor, Workers(database))
            runner.start()
            self._loans = loans = Loans(runner, lane.id)
            self._lane, self._why = lane.id, ""
            while not self._stopping.wait(_LOOK_SECONDS):
                loans.end_silent()
            self._loans = None
            loans.close()
            runner.drain()
            _end_heirlooms(jobs, lane)
            runner.stop()

    @contextmanager
    def _farm_for_jobs(self) -> Iterator[None]:
        """Answer what the compile processes of this actor's jobs order of the farm, until the block ends."""
        if self._farm is None:
            yield
            return
        with FarmSocket(partial(fetched, self._farm)) as self._socket:
            os.environ[VARIABLE] = self._socket.address  # the jobs inherit it
            yield


def _end_heirlooms(jobs: Jobs, lane: Lane) -> None:
    """Have the jobs that earlier actors started on the lane finish their trials, and give their leases back."""
    for job in jobs.running():
        if job.lane == lane.id and is_gone(job.owner) is False:
            with suppress(ProcessLookupError):
                os.kill(pid_of(job.owner), signal.SIGTERM)
