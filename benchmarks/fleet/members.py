"""The processes of a fleet, each with a log and a cache folder: a server, and workers with their chips."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tilewise.client import Client
from tilewise.errors import Unavailable

__all__ = ["Member", "Server", "Worker", "tilewise"]

_START_SECONDS = 180.0
_END_SECONDS = 60.0


class Member:
    """A process that can be killed, paused and started again. Processes that share a `cache` see each other end."""

    def __init__(
        self, name: str, words: Sequence[str], folder: Path, cache: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name, self._words = name, list(words)
        self._log = folder / f"{name}.log"
        (folder / cache).mkdir(exist_ok=True)
        self.environment = {**os.environ, **(environment or {}), "TILEWISE_CACHE": str(folder / cache)}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The id of the process that was started last."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._words, stdout=log, stderr=log, env=self.environment, start_new_session=True
            )

    def kill(self) -> None:
        """Kill the process, but not its children: they notice by themselves."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def signal(self, number: int) -> None:
        """Send a signal to the process and all its children."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def clear(self) -> None:
        """Kill what is left of a process that has ended, as a service manager would before it starts it again."""
        self.signal(signal.SIGKILL)

    def end(self) -> None:
        """End the process as its operator would, and kill whatever is left of it."""
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        self.signal(signal.SIGKILL)
        self._process.wait()

    def output(self) -> str:
        """Run the process to its end, and return what it prints on stdout."""
        done = subprocess.run(self._words, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"{self.name}: {done.stderr[-500:]}")
        return done.stdout

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    @property
    def code(self) -> int | None:
        """The exit status of the process that was started last; None while it runs."""
        return None if self._process is None else self._process.poll()

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""


class Server(Member):
    """A server without jobs of its own, at the same address after each start."""

    def __init__(self, url: str, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        words = ["serve", "--port", str(port), "--db", url, "--no-jobs", "--writes-a-minute", "1000000"]
        super().__init__("server", tilewise(words), folder, "server-cache")

    def start(self) -> None:
        super().start()
        give_up = time.monotonic() + _START_SECONDS
        with Client(self.address) as client:
            while not client.ready():
                if time.monotonic() > give_up or self.has_ended:
                    raise Unavailable(f"the server did not start: {self.log()[-500:]}")
                time.sleep(0.05)


class Worker(Member):
    """A worker on some chips."""

    def __init__(self, name: str, url: str, lanes: Sequence[str], folder: Path, cache: str) -> None:
        self.lanes = tuple(lanes)
        words = ["worker", "--devices", ",".join(lanes), "--db", url]
        super().__init__(name, tilewise(words), folder, cache)


def tilewise(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "tilewise.cli", *words]
