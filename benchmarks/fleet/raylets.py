"""A Ray cluster in one machine: a head, a node for each few chips, and `tilewise fleet up` on it.

Each node has a session and a cache folder of its own, as a host has. A process that ends is started again, as an
operator's service manager would.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tilewise.api.jobs import processes
from tilewise.benchmarks.fleet.members import Member, tilewise
from tilewise.errors import Unavailable
from tilewise.tuner.cluster.ray_engine import OBJECT_STORE_BYTES, SETTINGS, import_ray

__all__ = ["RayCluster", "RayNode"]

_START_SECONDS = 120.0
_HOST = "127.0.0.1"
_RAY = (sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--block")
_SMALL = (f"--node-ip-address={_HOST}", "--disable-usage-stats", f"--object-store-memory={OBJECT_STORE_BYTES}")


class RayNode(Member):
    """A node with all processes that Ray starts there."""

    def __init__(
        self, name: str, words: Sequence[str], folder: Path, environment: Mapping[str, str], lanes: Sequence[str] = ()
    ) -> None:
        self.lanes = tuple(lanes)
        self._given = (*_RAY, *_SMALL, *words)
        self._scratch = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # short, as it holds sockets
        super().__init__(name, (), folder, f"{name}-cache", environment)

    def start(self) -> None:
        """Start the node in a new folder: in one that nodes share or have left behind, they take each other's names."""
        self._words = [*self._given, f"--temp-dir={tempfile.mkdtemp(dir=self._scratch)}"]
        super().start()

    def end(self) -> None:
        """Kill all processes of the node, which has nothing to keep."""
        self.signal(signal.SIGKILL)
        super().end()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def clear(self) -> None:
        """Kill what is left of Ray's processes. Those of jobs go on."""
        for pid, _, _ in _session(self.pid):
            _signal(pid, signal.SIGKILL)

    def kill(self) -> None:
        """Kill the raylet only; the node's other processes notice."""
        self._signal_those("raylet", signal.SIGKILL)

    def kill_actor(self) -> None:
        """Kill one of the node's actors, if any is there."""
        for pid in self._processes(_ACTOR)[:1]:
            _signal(pid, signal.SIGKILL)

    def serves_since(self, moment: float) -> bool:
        """Return whether all lanes have actors that began after a time since boot; only a live head starts one."""
        return len(self._processes(_ACTOR, since=moment)) >= len(self.lanes)

    def signal(self, number: int) -> None:
        """Send a signal to all processes of the node, and to those of its jobs."""
        self._signal_those("", number)
        for pid in _jobs(self.environment["TILEWISE_CACHE"]):
            _signal(pid, number)

    def _signal_those(self, name: str, number: int) -> None:
        for pid in self._processes(name):
            _signal(pid, number)

    def _processes(self, name: str, *, since: float = 0.0) -> list[int]:
        """Return the processes of the node whose name starts so, and that began at this time since boot or later."""
        found = _session(self.pid)
        return [pid for pid, command, began in found if command.startswith(name[:_NAME_LENGTH]) and began >= since]


class _Head(RayNode):
    """The head, without chips, at the same address after each start. Its state is lost when it ends."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        with socket.create_server((_HOST, 0)) as free:
            self._port = free.getsockname()[1]
        self.address = f"{_HOST}:{self._port}"
        words = ("--head", f"--port={self._port}", "--include-dashboard=false", "--num-cpus=0")
        super().__init__("head", words, folder, environment)

    def kill(self) -> None:
        """Kill all processes of the head's host."""
        self.signal(signal.SIGKILL)

    def wait(self) -> None:
        give_up = time.monotonic() + _START_SECONDS
        while True:
            with suppress(OSError), socket.create_connection((_HOST, self._port), 1.0):
                return
            if time.monotonic() > give_up or self.has_ended:
                raise Unavailable(f"Ray's head did not start: {self.log()[-500:]}")
            time.sleep(0.1)


class RayCluster:
    """A head, nodes with some lanes each, and the supervisor of their actors on the database at `url`.

    `farm_nodes` nodes without lanes have a processor each for compile tasks; the others have none then. Each node's
    `COMPILING_HOST` is its name.
    """

    def __init__(
        self,
        url: str,
        folder: Path,
        shares: Sequence[Sequence[str]],
        *,
        farm_nodes: int = 0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        import_ray()
        secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}
        self.environment = environment = {**SETTINGS, **secret, **(environment or {})}
        self.head = _Head(folder, environment)
        all_shares = [*shares, *([()] * farm_nodes)]
        self.nodes = [
            _node(f"node{number}", self.head.address, lanes, folder, environment, cpus=0 if farm_nodes and lanes else 1)
            for number, lanes in enumerate(all_shares)
        ]
        self._folder = folder
        words = ("fleet", "up", "--address", self.head.address, "--db", url)
        self.up = Member("up", tilewise(words), folder, "up-cache", environment)

    @property
    def members(self) -> list[Member]:
        """All members, those first that others need."""
        return [self.head, *self.nodes, self.up]

    def start(self) -> None:
        self.head.start()
        self.head.wait()
        for member in self.members[1:]:
            member.start()

    def mend(self) -> None:
        """Start the members again that have ended."""
        for member in self.members:
            if member.has_ended:
                member.clear()
                member.start()

    def end(self) -> None:
        for member in reversed(self.members):
            member.end()

    def status(self) -> dict[str, Any]:
        """Return what `tilewise fleet status` says."""
        words = ("fleet", "status", "--address", self.head.address, "--json")
        status: dict[str, Any] = json.loads(
            Member("status", tilewise(words), self._folder, "status-cache", self.environment).output()
        )
        return status


def _node(
    name: str, address: str, lanes: Sequence[str], folder: Path, environment: Mapping[str, str], *, cpus: int
) -> RayNode:
    """Return a node that offers lanes, which it notes first."""
    words = [f"--address={address}", f"--num-cpus={cpus}"]
    if lanes:
        noting = Member(name, tilewise(["fleet", "offer", "--devices", ",".join(lanes)]), folder, f"{name}-cache")
        words.append(f"--resources={json.dumps(json.loads(noting.output()))}")
    return RayNode(name, words, folder, {**environment, "COMPILING_HOST": name}, lanes)


_ACTOR = "ray::LaneActor"
_JOB = processes.__name__.encode()
_NAME_LENGTH = 15
"""The length to which Linux cuts the names of processes."""
_TICKS = os.sysconf("SC_CLK_TCK")


def _session(leader: int | None) -> Iterator[tuple[int, str, float]]:
    """Yield the processes of a session, with their names and the seconds from boot to their start."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
            head, _, rest = stat.read_text().rpartition(")")
            pid, _, name = head.partition(" (")
            fields = rest.split()
            if int(fields[3]) == leader:
                yield int(pid), name, int(fields[19]) / _TICKS


def _jobs(cache: str) -> Iterator[int]:
    """Yield the processes of jobs that have this cache folder: they have sessions of their own."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if _JOB in words and f"TILEWISE_CACHE={cache}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
