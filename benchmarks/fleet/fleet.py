"""A fleet under kills: a server, workers on replayed chips, and a queue of tunings, each of one problem.

The same problems are tuned before without kills. The checked promises: every job ends once; no trial is lost, doubled
or of the wrong device; the winner's true time is within `MOST_LOSS` of that without kills; an owner that was stopped
for two leases writes nothing afterwards; what ran before the server, the database or its connections went runs again
within `RETURN_SECONDS`; a chip with another toolchain gets nothing.

Each kill waits for its share of the jobs to end, so that there is always work to disturb, however slow the machine.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import make_url, text

from tilewise.api.jobs.liveness import LEASE_SECONDS
from tilewise.api.jobs.processes import pid_of
from tilewise.benchmarks.common.header import database_name, service_header
from tilewise.benchmarks.fleet.chips import DTYPE, KERNEL, NAMES, TOOLCHAIN, Chip, chips, problems
from tilewise.benchmarks.fleet.members import Server, Worker
from tilewise.benchmarks.fleet.postgresql import PostgresqlServer
from tilewise.benchmarks.fleet.promises import Pause, Seen, check, job_faults
from tilewise.benchmarks.fleet.raylets import RayCluster, RayNode
from tilewise.client import Client
from tilewise.db.activity import last_trial
from tilewise.db.jobs import Job, Jobs, State
from tilewise.db.sql.sql_store import SqlStore, open_store
from tilewise.db.tokens import Right, Tokens
from tilewise.errors import TilewiseError, Unavailable

__all__ = ["RETURN_SECONDS", "bench_fleet"]

RETURN_SECONDS = 60.0
_CHIPS_A_WORKER = 2
_ON_ONE_HOST = 2
"""Workers that share a cache folder, as on one host. The others learn of an end by the lease alone."""
_PAUSE_SECONDS = 2 * LEASE_SECONDS + 10
_RESTART_SECONDS = 2.0
_SIGN_SECONDS = 3.0
_NOTICED_SECONDS = 120.0
"""Time for nodes to notice that their head is lost; their actors run on meanwhile."""
_STUCK_SECONDS = 900.0
_LAST_KILL = 0.95
_MORE_KINDS = {"sqlite": (), "postgresql": ("connections", "pause owner", "pause worker")}
"""On SQLite, a process that is paused in the middle of a write keeps all others from writing."""
_END_CONNECTIONS = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = :name")


def bench_fleet(
    *,
    count: int,
    devices: int,
    kills: int,
    trials: int,
    seconds: float,
    noise: float,
    url: str | None,
    engine: str = "workers",
    seed: int,
    say: Callable[[str], None],
    own_postgresql: bool = False,
) -> dict[str, Any]:
    """Run the study and return its figures and `faults`, which are empty if every promise was kept.

    `url` is a new database; None makes a temporary one. With `own_postgresql`, that is one on a PostgreSQL server of
    the study's own, which is killed too. Each of `devices` chips takes `seconds` for a trial. With the engine `ray`,
    actors of a Ray cluster run the jobs; `workers` do without kills.
    """
    with ExitStack() as opened:
        database = opened.enter_context(PostgresqlServer()) if own_postgresql else None
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tilewise-fleet-")))
        made = chips(folder, devices, noise=noise, seconds=seconds, seed=seed)
        given = " --own-postgresql" if database else " --db URL" if url else ""
        given += f" --engine {engine}" if engine != "workers" else ""
        url = database.url if database else url
        calm = opened.enter_context(open_store(f"sqlite:///{folder / 'calm.db'}", create=True))
        calm_url = f"sqlite:///{folder / 'calm.db'}"
        began = time.monotonic()
        with _Fleet(calm_url, calm, folder, made[:-1], "calm", seed) as fleet:
            fleet.submit(count, trials, shapes_a_job=-(-count // devices))
            fleet.finish(0, lambda line: say(f"without kills: {line}"))
        calm_seconds = time.monotonic() - began
        url = url or f"sqlite:///{folder / 'tiles.db'}"
        store = opened.enter_context(open_store(url, create=True))
        began = time.monotonic()
        with _FLEETS[engine](url, store, folder, made, "killed", seed, database) as fleet:
            fleet.submit(count, trials, shapes_a_job=1)
            fleet.finish(kills, say)
        killed_seconds = time.monotonic() - began
        found = check(store, calm, made, fleet.seen, trials=trials, problems=count)
        command = (
            f"tilewise bench fleet --problems {count} --devices {devices} --kills {kills} --trials {trials} "
            f"--seconds {seconds:g} --noise {noise:g} --seed {seed}{given}"
        )
        return {
            **service_header(command),
            "database": database_name(store),
            "problems": count,
            "devices": [{"name": one.planted.name, "slowness": one.planted.slowness} for one in made[:-1]],
            "seconds": {"without_kills": round(calm_seconds), "with_kills": round(killed_seconds)},
            "kills": dict(sorted(fleet.kills.items())),
            **found,
            "seconds_to_return": {kind: [round(one, 1) for one in all_] for kind, all_ in fleet.returns.items()},
            "faults": [*fleet.faults, *job_faults(Jobs(store.database)), *found["faults"]],
        }


class _Fleet:
    """The processes on one database, what is done to them, and what is seen of their jobs."""

    _are_mended = False
    """Whether workers that end are started again: Ray's nodes give up if they take half a minute to start."""

    def __init__(
        self,
        url: str,
        store: SqlStore,
        folder: Path,
        made: Sequence[Chip],
        name: str,
        seed: int,
        database: PostgresqlServer | None = None,
    ) -> None:
        self._store, self._jobs = store, Jobs(store.database)
        self._kind = store.database.engine.dialect.name
        place = folder / name
        place.mkdir()
        self._name = f"tilewise-{uuid.uuid4().hex[:12]}"
        url = url if self._kind == "sqlite" else _named(url, self._name)
        self._server = Server(url, place)
        self._set_up(url, place, made)
        self._database, self._database_is_up = database, threading.Lock()
        if database is not None:
            self._kinds.append("database")
        self._drawn = random.Random(seed)
        self._end, self._threads = threading.Event(), list[threading.Thread]()
        self._held: set[str] = set()
        self.seen = Seen(self._jobs, store.database)
        self.kills: Counter[str] = Counter()
        self.returns: dict[str, list[float]] = {}
        self.faults: list[str] = []

    def _set_up(self, url: str, place: Path, made: Sequence[Chip]) -> None:
        self._workers: Sequence[Worker | RayNode] = _workers(url, place, made, one_host=self._kind == "sqlite")
        self._registered = len(self._workers)
        self._kinds = ["worker", "job", "server", *_MORE_KINDS[self._kind]]

    def __enter__(self) -> _Fleet:
        with ExitStack() as opened:
            opened.callback(self._close)
            self._server.start()
            self._start_workers()
            self._until(lambda: self._live() >= self._registered, "the workers did not start")
            opened.pop_all()
        return self

    def _start_workers(self) -> None:
        for worker in self._workers:
            worker.start()

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()
        for member in (self._server, *self._workers):
            member.signal(signal.SIGCONT)
        for member in (self._server, *self._workers):
            member.end()

    def submit(self, count: int, trials: int, *, shapes_a_job: int) -> None:
        """Submit a job for each problem, or for so many of a kind together."""
        token = Tokens(self._store.database).create("fleet", Right.SUBMIT)
        with Client(self._server.address, token=token) as client:
            for name in NAMES:
                shapes = [dims for kind, dims in problems(count) if kind == name]
                for first in range(0, len(shapes), shapes_a_job):
                    client.submit(
                        KERNEL,
                        shapes[first : first + shapes_a_job],
                        name,
                        dtype=DTYPE,
                        trials=trials,
                        search="random",
                        toolchain=TOOLCHAIN,
                    )

    def finish(self, kills: int, say: Callable[[str], None]) -> None:
        """Wait until all jobs have ended, and kill something each time that a share of them has."""
        total = len(self._jobs.page(most=10**6))
        done, told = 0, ""
        while self.seen.ended < total:
            self.seen.look()
            if done < kills and self.seen.ended >= _LAST_KILL * total * done / kills:
                self._kill(self._kinds[done % len(self._kinds)])
                done += 1
            if (line := f"{self.seen.ended} of {total} jobs ended, {done} of {kills} kills") != told:
                say(told := line)
            if self.seen.quiet_seconds > _STUCK_SECONDS:
                self.faults.append(f"no job ended for {_STUCK_SECONDS:g} s")
                return
            time.sleep(0.3)
        for thread in self._threads:
            thread.join()

    # Kills ------------------------------------------------------------------------------------------------------------

    def _kill(self, kind: str) -> None:
        self._note_kill(kind)
        match kind:
            case "worker":
                self._kill_worker(self._drawn.choice(self._free_workers()))
            case "job":
                self._signal_owner(self._a_running_job(), signal.SIGKILL)
            case "pause owner":
                self._start(self._pause_owner)
            case "pause worker":
                self._start(self._pause_worker)
            case "server":
                with self._returning(kind):
                    self._server.kill()
                    self._server.start()
            case "database" if self._database:
                with self._returning(kind), self._database_is_up:
                    self._database.restart()
            case "connections":
                with self._returning(kind), self._store.database.write() as connection:
                    connection.execute(_END_CONNECTIONS, {"name": self._name})

    def _note_kill(self, kind: str) -> None:
        self.kills[kind] += 1
        self.seen.note_trials()

    def _kill_worker(self, worker: Worker | RayNode) -> None:
        worker.kill()
        time.sleep(_RESTART_SECONDS)
        worker.start()

    def _pause_owner(self) -> None:
        """Stop the process of a job for two leases."""
        if (job := self._a_running_job()) is None:
            return
        self._held.add(job.owner)
        self._signal_owner(job, signal.SIGSTOP)
        self._end.wait(_PAUSE_SECONDS)
        with self._database_is_up:
            self._note_pauses([job])
        self._signal_owner(job, signal.SIGCONT)

    def _pause_worker(self) -> None:
        """Stop a worker and the processes of its jobs for two leases."""
        job = self._a_running_job()
        worker = next((one for one in self._free_workers() if job and job.lane in one.lanes), None)
        if worker is None:
            return
        self._held.add(worker.name)
        worker.signal(signal.SIGSTOP)
        stopped = [job for job in self._running() if job.lane in worker.lanes]
        self._held.update(job.owner for job in stopped)
        self._end.wait(_PAUSE_SECONDS)
        with self._database_is_up:
            self._note_pauses(stopped)
        worker.signal(signal.SIGCONT)
        self._held.discard(worker.name)

    def _note_pauses(self, jobs: Sequence[Job]) -> None:
        last = last_trial(self._store.database)
        for job in jobs:
            now = self._jobs.get(job.id)
            taken = now.attempts > job.attempts or now.state is State.QUEUED
            self.seen.pauses.append(Pause(job.id, pid_of(job.owner), last, taken))
            # Where Ray's head was lost meanwhile, nobody was there to take it. Then the process gives it back.
            if not taken and not now.state.is_final and not self._are_mended:
                self.faults.append(f"job {job.id}, whose owner was stopped, was not taken over")

    @contextmanager
    def _returning(self, kind: str) -> Iterator[None]:
        """Measure how long after the block the jobs that ran before it, with signs of life, run again."""
        earlier = {job.id: job for job in self._running()}
        time.sleep(_SIGN_SECONDS)
        before = [job for job in self._running() if job.id in earlier and job.beats > earlier[job.id].beats]
        yield
        began = time.monotonic()
        left = {job.id: job for job in before if job.owner not in self._held}
        while left and time.monotonic() < began + 2 * RETURN_SECONDS:
            left = {number: job for number, job in left.items() if not self._runs_again(job)}
            time.sleep(0.2)
        self._note_return(kind, time.monotonic() - began, sorted(left))

    def _note_return(self, kind: str, took: float, left: Sequence[int]) -> None:
        self.returns.setdefault(kind, []).append(took)
        if took > RETURN_SECONDS:
            self.faults.append(f"after the {kind} was gone and back, jobs {left} did not run for {took:.0f} s")

    def _runs_again(self, before: Job) -> bool:
        now = self._jobs.get(before.id)
        signs = (now.attempts, now.beats), (before.attempts, before.beats)
        return now.state.is_final or before.owner in self._held or (bool(now.owner) and signs[0] > signs[1])

    def _start(self, action: Callable[[], None]) -> None:
        thread = threading.Thread(target=action)
        thread.start()
        self._threads.append(thread)

    def _free_workers(self) -> list[Worker | RayNode]:
        return [worker for worker in self._workers if worker.name not in self._held]

    def _running(self) -> list[Job]:
        return self._jobs.running()

    def _a_running_job(self) -> Job | None:
        free = [job for job in self._running() if job.owner not in self._held]
        return self._drawn.choice(free) if free else None

    def _signal_owner(self, job: Job | None, number: int) -> None:
        if job is not None:
            with suppress(ProcessLookupError):
                os.kill(pid_of(job.owner), number)

    def _live(self) -> int:
        with Client(self._server.address) as client, suppress(TilewiseError):
            return len(client.workers())
        return 0

    def _until(self, condition: Callable[[], bool], otherwise: str) -> None:
        give_up = time.monotonic() + _STUCK_SECONDS
        while not condition():
            is_over = not self._are_mended and any(worker.has_ended for worker in self._workers)
            if time.monotonic() > give_up or is_over:
                raise Unavailable(f"{otherwise}: {''.join(worker.log()[-300:] for worker in self._workers)}")
            time.sleep(0.2)


class _RayFleet(_Fleet):
    """The same on a Ray cluster, whose nodes hold the chips. Ended processes of it are started again."""

    _are_mended = True

    def _set_up(self, url: str, place: Path, made: Sequence[Chip]) -> None:
        self._cluster = RayCluster(url, place, _shares(made))
        self._workers = self._cluster.nodes
        self._registered = len(made)  # each actor is a worker
        self._kinds = ["worker", "head", "actor", "job", "up", "server", *_MORE_KINDS[self._kind]]
        self._mending = threading.Thread(target=self._mend)

    def _start_workers(self) -> None:
        self._cluster.start()
        self._mending.start()

    def _mend(self) -> None:
        while not self._end.wait(_RESTART_SECONDS):
            self._cluster.mend()

    def _kill(self, kind: str) -> None:
        match kind:
            case "head":
                self._note_kill(kind)
                self._kill_head()
            case "up":
                self._note_kill(kind)
                self._cluster.up.kill()
            case "actor":
                self._note_kill(kind)
                self._drawn.choice(self._cluster.nodes).kill_actor()
            case _:
                super()._kill(kind)

    def _kill_worker(self, worker: Worker | RayNode) -> None:
        worker.kill()

    def _kill_head(self) -> None:
        """Kill the head, and measure how long the jobs do not run that its nodes ran when they ended in turn.

        A node that was just starting, because its raylet was killed before, may join the next head and never end.
        """
        left = {node.name: node for node in self._cluster.nodes if node.name not in self._held}
        pids = {name: node.pid for name, node in left.items()}
        interrupted, running = dict[int, tuple[Job, float]](), self._running()
        killed = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._cluster.head.kill()
        began = time.monotonic()
        longest = 0.0
        while (left or interrupted) and time.monotonic() < began + _NOTICED_SECONDS + 2 * RETURN_SECONDS:
            now = time.monotonic()
            for name, node in list(left.items()):
                if node.has_ended or node.pid != pids[name]:
                    del left[name]
                    interrupted |= {job.id: (job, now) for job in running if job.lane in node.lanes}
                elif node.serves_since(killed):
                    del left[name]
            running = self._running()
            longest = max([longest, *(now - since for _, since in interrupted.values())])
            interrupted = {number: each for number, each in interrupted.items() if not self._runs_again(each[0])}
            time.sleep(0.2)
        self.faults += [f"{name} did not notice that the head was lost" for name in left]
        self._note_return("head", longest, sorted(interrupted))

    def _close(self) -> None:
        self._end.set()
        if self._mending.ident is not None:
            self._mending.join()
        self._cluster.up.end()
        super()._close()
        self._cluster.end()


_FLEETS = {"workers": _Fleet, "ray": _RayFleet}


def _workers(url: str, place: Path, made: Sequence[Chip], *, one_host: bool) -> list[Worker]:
    return [
        Worker(f"worker{number}", url, lanes, place, "host" if one_host or number < _ON_ONE_HOST else f"host{number}")
        for number, lanes in enumerate(_shares(made))
    ]


def _shares(made: Sequence[Chip]) -> list[list[str]]:
    """Return a few chips for each worker; a chip with another toolchain has one of its own."""
    fresh = [chip.id for chip in made if chip.planted.toolchain == TOOLCHAIN]
    stale = [[chip.id] for chip in made if chip.planted.toolchain != TOOLCHAIN]
    return [*(fresh[first : first + _CHIPS_A_WORKER] for first in range(0, len(fresh), _CHIPS_A_WORKER)), *stale]


def _named(url: str, name: str) -> str:
    """Return a PostgreSQL URL whose connections have this name."""
    return make_url(url).update_query_dict({"application_name": name}).render_as_string(hide_password=False)
