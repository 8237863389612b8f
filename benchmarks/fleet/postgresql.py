"""A PostgreSQL server of a study's own, which it may kill and start again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import create_engine
from sqlalchemy.engine import URL
from sqlalchemy.exc import OperationalError

from tilewise.errors import Unavailable

__all__ = ["PostgresqlServer"]

_SECONDS = 120.0


class PostgresqlServer:
    """A server with an empty cluster, on a socket in a temporary folder, which goes with it. What is committed is on
    the disk, as by default. Raises `Unavailable` without PostgreSQL."""

    def __init__(self) -> None:
        self._programs = _programs()
        as_root = os.getuid() == 0  # PostgreSQL refuses to run as root
        user = "postgres" if as_root else pwd.getpwuid(os.getuid()).pw_name
        self._as_user: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if as_root else {}
        self._folder = Path(tempfile.mkdtemp(prefix="tilewise-postgresql-"))
        if as_root:
            shutil.chown(self._folder, user, user)
        self.url = URL.create(
            "postgresql+psycopg", user, database="postgres", query={"host": str(self._folder)}
        ).render_as_string()
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        words = ["initdb", "--pgdata=data", "--auth=trust", "--encoding=UTF8", "--no-locale"]
        done = self._run(*words)
        if done.wait(_SECONDS):
            raise Unavailable(f"initdb failed: {self._log()}")
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def restart(self) -> None:
        """Kill the server as a crash would: it tidies nothing up, and recovers from its log when it is back."""
        self._kill()
        self._start()

    def _start(self) -> None:
        self._server = self._run("postgres", "-D", "data", "-k", str(self._folder), "-c", "listen_addresses=")
        engine, give_up = create_engine(self.url), time.monotonic() + _SECONDS
        while True:
            try:
                engine.connect().close()
                break
            except OperationalError as error:
                if self._server.poll() is not None or time.monotonic() > give_up:
                    raise Unavailable(f"PostgreSQL does not start: {self._log()}") from error
                time.sleep(0.1)
        engine.dispose()

    def _kill(self) -> None:
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait(_SECONDS)

    def _end(self) -> None:
        self._kill()
        shutil.rmtree(self._folder)

    def _run(self, program: str, *words: str) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            command = [str(self._programs / program), *words]
            server: subprocess.Popen[bytes] = subprocess.Popen(
                command, cwd=self._folder, stdout=log, stderr=log, **self._as_user
            )
        return server

    def _log(self) -> str:
        return " ".join((self._folder / "log").read_text(errors="replace").split())[-300:]


def _programs() -> Path:
    """Return the folder of the newest `initdb`, which Debian keeps out of the path."""
    found = [*Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if found:
        return max(found, key=lambda path: float(path.parts[-3])).parent
    if path := shutil.which("initdb"):
        return Path(path).parent
    raise Unavailable("PostgreSQL's own server is not installed; on Debian: apt-get install postgresql")
