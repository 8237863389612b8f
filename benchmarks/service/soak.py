"""A service under mixed load, with look-ups, writes, jobs and exports, while its processes are killed at random.

The checked promises: an acknowledged write is kept; every answer was written before; no request gets a 5xx while the
server is up; every job ends, and ends once; memory does not grow. A request during the start of a server waits for it,
and counts among the slowest answers.

Kills end after three quarters of the time, so that the last server lives long enough to show growth of its memory. The
median over the last third of its life must be at most `_MOST_GROWTH` times that over the middle third; the first third
is for warming up. A life of less than `_LEAST_SAMPLES` seconds is not checked.
"""

from __future__ import annotations

import math
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.header import database_name, service_header
from tilewise.client import Client
from tilewise.db.exchange.native.export_file import encode, export_native
from tilewise.db.jobs import Jobs, State
from tilewise.db.records import Clock, Question, Scope, Status, Trial, Value
from tilewise.db.sql.sql_store import SqlStore, open_store
from tilewise.db.tokens import Right, Tokens
from tilewise.errors import Busy, NotFound, Unavailable
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.kernels.spec import Problem
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.space.search_space import enumerate_space

__all__ = ["soak"]

_KERNEL, _DEVICE, _MODEL = "vector_add", "Ascend910B4", "model:Ascend910B4"
_PROMISED = {"look_up", "write", "submit"}
"""Requests without an answer to each of which a run would prove nothing: on a busy machine a short one goes on."""

_START_SECONDS = 60.0
_SETTLE_SECONDS = 600.0
_CORES = 40
_SIZES = range(1_000_000, 1_000_256)
_EXAMPLES = 20
"""Faults that are recorded in words; all are counted."""

_KILLING = 0.75
_LEAST_SAMPLES = 60
_MOST_GROWTH = 1.1


def soak(
    *, seconds: float, clients: int, kills: int, jobs: int, url: str | None, seed: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Run the benchmark and return its figures, the number of broken promises, and the first of them as `faults`.

    `url` is a new database; None makes a temporary one. Half of the kills hit the server, half a process that runs a
    job.
    """
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tilewise-soak-")))
        given = " --db URL" if url else ""
        url = url or f"sqlite:///{folder / 'tiles.db'}"
        store = opened.enter_context(open_store(url))
        server = opened.enter_context(_Server(url, folder))
        run = _Soak(store, server, opened.enter_context(open_store("sqlite://")), seed)
        run.go(seconds, clients, kills, jobs, say)
        command = f"tilewise bench soak --minutes {seconds / 60:g} --clients {clients} --kills {kills} --jobs {jobs}"
        return {
            **service_header(f"{command} --seed {seed}{given}"),
            "database": database_name(store),
            "seconds": round(seconds),
            **run.figures(),
        }


class _Server:
    """A server process that restarts at the same address after each kill."""

    def __init__(self, url: str, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self._port}"
        self._url, self._log = url, folder / "server.log"
        self.is_up = threading.Event()
        self.lives = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> _Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        command = [sys.executable, "-m", "tilewise.cli", "serve", "--port", str(self._port), "--db", self._url]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*command, "--writes-a-minute", "1000000"], stdout=log, stderr=log)
        give_up = time.monotonic() + _START_SECONDS
        with Client(self.address) as client:
            while not client.ready():
                if time.monotonic() > give_up or self._process.poll() is not None:
                    raise Unavailable(f"the server did not start: {self._log.read_text()[-500:]}")
                time.sleep(0.05)
        self.lives += 1
        self.is_up.set()

    def kill(self) -> None:
        self.is_up.clear()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def resident_mb(self) -> float:
        assert self._process is not None
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def log(self) -> str:
        return self._log.read_text(errors="replace")


class _Soak:
    def __init__(self, store: SqlStore, server: _Server, own: SqlStore, seed: int) -> None:
        """Prepare a run; in `own` the clients make the exports that they import."""
        self._store, self._server, self._own = store, server, own
        self._drawn = random.Random(seed)
        self._jobs = Jobs(store.database)
        self._token = Tokens(store.database).create("soak", Right.ADMIN)
        self._hash = source_hash(registry.load(_KERNEL))
        self._config = _config()
        self._began = datetime.now(UTC)
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._counting = threading.Lock()  # a fault may be found under the other lock
        self._writes = 0
        self._offered: dict[int, set[float]] = defaultdict(set)
        self._acknowledged: dict[int, float] = {}
        self._submitted: set[int] = set()
        self._finished: dict[int, str] = {}
        self._done: Counter[str] = Counter()
        self._memory: dict[int, list[float]] = defaultdict(list)
        self._kills: Counter[str] = Counter()
        self._faults: list[str] = []
        self._fault_count = 0
        self._put_off = 0
        self._slowest: defaultdict[str, float] = defaultdict(float)

    def go(self, seconds: float, clients: int, kills: int, jobs: int, say: Callable[[str], None]) -> None:
        began = time.monotonic()

        def due() -> float:
            """Return the number of jobs that may be submitted by now, spread so that there are always some to kill."""
            return jobs * min(1.0, 0.1 + (time.monotonic() - began) / (seconds * _KILLING))

        threads = [threading.Thread(target=self._client, args=(client, due)) for client in range(clients)]
        threads.append(threading.Thread(target=self._watch))
        try:
            for thread in threads:
                thread.start()
            moments = sorted(self._drawn.uniform(0, seconds * _KILLING) for _ in range(kills))
            for count, moment in enumerate(moments, 1):
                time.sleep(max(0.0, began + moment - time.monotonic()))
                say(f"kill {count} of {kills}; {self._fault_count} faults")
                self._kill()
            time.sleep(max(0.0, began + seconds - time.monotonic()))
            give_up = time.monotonic() + _START_SECONDS
            while not self._done.keys() >= _PROMISED and time.monotonic() < give_up:
                time.sleep(0.1)
        finally:
            self._end.set()
            for thread in threads:
                thread.join()
        say("waiting for every job to end")
        self._settle()
        self._check()

    def figures(self) -> dict[str, Any]:
        last = self._memory[self._server.lives]
        return {
            "kills": dict(self._kills),
            "requests": dict(self._done),
            "exports_put_off": self._put_off,
            "jobs_done": len(self._submitted),
            "slowest_answer_s": {name: round(seconds, 3) for name, seconds in self._slowest.items()},
            "server_memory_mb": {
                "largest": round(max(mb for life in self._memory.values() for mb in life)),
                "growth_of_last_life": _growth(last),
                "seconds_of_last_life": len(last),
                "rule": f"growth of last life (median of its last third by that of its middle third) <= {_MOST_GROWTH}",
            },
            "fault_count": self._fault_count,
            "faults": self._faults,
        }

    # Clients --------------------------------------------------------------------------------------------------------

    def _client(self, seed: int, due: Callable[[], float]) -> None:
        drawn = random.Random(seed)
        actions = [self._look_up] * 12 + [self._write] * 4 + [self._export, self._list]
        with Client(self._server.address, token=self._token, timeout=60.0) as client:
            self._act(self._write, client, drawn)
            while not self._end.is_set():
                asks = (not self._submitted or drawn.random() < 0.05) and len(self._submitted) < due()
                self._act(self._submit if asks else drawn.choice(actions), client, drawn)

    def _act(self, action: Callable[[Client, random.Random], None], client: Client, drawn: random.Random) -> None:
        began = time.perf_counter()
        try:
            action(client, drawn)
        except Unavailable as error:
            if "cannot reach" not in str(error) or "timed out" in str(
                error
            ):  # the server is up, but answered with a 5xx or hangs
                self._fault(f"{action.__name__}: {error}")
            self._server.is_up.wait(_START_SECONDS)
        except Exception as error:
            self._fault(f"{action.__name__}: {type(error).__name__}: {error}")
        else:
            name = action.__name__.strip("_")
            self._done[name] += 1
            self._slowest[name] = max(self._slowest[name], time.perf_counter() - began)

    def _look_up(self, client: Client, drawn: random.Random) -> None:
        size = drawn.choice(_SIZES)
        known = self._acknowledged.get(size)
        try:
            time_us = client.lookup(_KERNEL, {"N": size}, device=_DEVICE).get("time_us", math.inf)
        except NotFound:
            if known is not None:
                self._fault(f"N={size} was written but is not found")
            return
        if known is not None and time_us > known:
            self._fault(f"N={size} is answered with {time_us} us, although {known} us was acknowledged before")
        if time_us not in self._offered[size]:
            self._fault(f"N={size} is answered with {time_us} us, which was never written")

    def _write(self, client: Client, drawn: random.Random) -> None:
        """Import a result that is newer and faster than all before, so that acknowledged times only fall."""
        size = drawn.choice(_SIZES)
        with self._lock:
            time_us, data = self._result(size)
        answer = client.import_results(data)
        if answer["refused"]:
            self._fault(f"a write was refused: {answer['refused']}")
            return
        with self._lock:
            self._acknowledged[size] = min(time_us, self._acknowledged.get(size, math.inf))

    def _result(self, size: int) -> tuple[float, bytes]:
        """Return the time of the next result, and an export of it."""
        self._writes += 1
        time_us = 9000.0 - self._writes / 256
        self._offered[size].add(time_us)
        trial = Trial(
            config=self._config,
            status=Status.CORRECT,
            time_us=time_us,
            samples=1,
            verified=True,
            ordinal=1,
            created=self._began + timedelta(milliseconds=self._writes),
        )
        scope = Scope(Problem(_KERNEL, {"N": size}, "float32"), self._hash, _DEVICE, Clock.MODELLED, "soak", _CORES)
        self._own.record(scope, [trial])
        return time_us, encode(export_native(self._own, [scope]))

    def _submit(self, client: Client, drawn: random.Random) -> None:
        shapes = [{"N": drawn.randrange(200_000, 900_000)}]
        job = client.submit(_KERNEL, shapes, device=_MODEL, trials=2, search="random")
        with self._lock:
            self._submitted.add(job["id"])
        same = client.submit(_KERNEL, shapes, device=_MODEL, trials=2, search="random")
        if same["id"] != job["id"]:
            self._fault(f"one request became the jobs {job['id']} and {same['id']}")

    def _export(self, client: Client, drawn: random.Random) -> None:
        """Export all; an address that has too many exports under way is told to wait, which is no fault."""
        try:
            client.export(kernel=_KERNEL, device=_DEVICE)
        except Busy as error:
            self._put_off += 1
            self._end.wait(error.retry_seconds)

    def _list(self, client: Client, drawn: random.Random) -> None:
        for job in client.jobs(limit=50):
            self._note_end(job["id"], job.get("finished", ""))
        next(client.trials(kernel=_KERNEL, limit=20), None)

    # Kills and checks -------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Record the server's memory once per second."""
        while not self._end.wait(1.0):
            with suppress(OSError):  # the server may be dying
                self._memory[self._server.lives].append(self._server.resident_mb())

    def _kill(self) -> None:
        running = self._jobs.running()
        if running and self._drawn.random() < 0.5:
            self._kills["job"] += 1
            with suppress(ProcessLookupError):
                os.kill(int(running[0].owner.split("/")[-2]), signal.SIGKILL)
            return
        self._kills["server"] += 1
        self._server.kill()
        self._server.start()

    def _settle(self) -> None:
        give_up = time.monotonic() + _SETTLE_SECONDS
        while time.monotonic() < give_up:
            states = [self._jobs.get(job).state for job in self._submitted]
            if all(state.is_final for state in states):
                return
            time.sleep(0.5)
        self._fault(f"jobs did not end within {_SETTLE_SECONDS:g} s")

    def _check(self) -> None:
        grown = _growth(self._memory[self._server.lives])
        if grown is not None and grown > _MOST_GROWTH:
            self._fault(f"the server's memory grew: its last third takes {grown} times its middle third")
        for size, known in self._acknowledged.items():
            found = self._store.lookup(Question(Problem(_KERNEL, {"N": size}, "float32"), _DEVICE))
            if found is None or found.winner is None or (found.winner.time_us or math.inf) > known:
                self._fault(f"the acknowledged {known} us of N={size} is lost")
        for number in self._submitted:
            job = self._jobs.get(number)
            if job.state is not State.DONE:
                self._fault(f"job {number} is {job.state}: {job.reason}")
            self._note_end(number, job.finished.isoformat() if job.finished else "")
        if "Traceback" in self._server.log():
            self._fault(f"the server's log holds a traceback: {self._server.log().partition('Traceback')[2][:500]}")

    def _note_end(self, number: int, finished: str) -> None:
        with self._lock:
            if finished and self._finished.setdefault(number, finished) != finished:
                self._fault(f"job {number} ended twice: {self._finished[number]} and {finished}")

    def _fault(self, text: str) -> None:
        with self._counting:
            self._fault_count += 1
            if len(self._faults) < _EXAMPLES:
                self._faults.append(text)


def _growth(samples: Sequence[float]) -> float | None:
    """Return the median memory of a life's last third over that of its middle third, or None if it was too short."""
    if len(samples) < _LEAST_SAMPLES:
        return None
    third = len(samples) // 3
    return round(statistics.median(samples[-third:]) / statistics.median(samples[third:-third]), 3)


def _config() -> dict[str, Value]:
    """Return a config that is valid for all of `_SIZES`."""
    spec = registry.load(_KERNEL)
    problem = Problem(_KERNEL, {"N": _SIZES[0]}, "float32")
    target = known_target(_DEVICE, _CORES)
    assert target is not None
    return dict(enumerate_space(spec, problem, target).configs[0])
