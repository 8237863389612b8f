from __future__ import annotations

import os
import sqlite3
import subprocess
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from empty_database import place_empty_database
from scopes import changed
from starlette.testclient import TestClient
from warm_python import READ_BY_IMPORTS, WarmCommand, WarmPython

from tilewise.api.app import create_app
from tilewise.api.service import service
from tilewise.api.service.service import Options
from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.db.tokens import Right, Tokens
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.tuner.workers.supervisor import Supervisor

SCOPE = Scope(
    Problem("row_reduce", {"M": 1000, "N": 8192}, "float32"),
    source_hash=source_hash(registry.load("row_reduce")),
    device="Ascend910B4",
    clock=Clock.MODELLED,
    toolchain="model-1",
    cores=40,
)
CONFIG = {"BLOCK_SIZE_M": 25, "SUB_BLOCK_SIZE_M": 25, "BLOCK_SIZE_N": 256, "multibuffer": True}
WINNER = Trial(
    config=CONFIG,
    status=Status.CORRECT,
    time_us=31.5,
    samples=1,
    verified=True,
    ordinal=3,
    search="guided",
    seed=0,
    why="40 programs on 40 cores, no tail rows",
    seconds=1.25,
    created=datetime(2026, 11, 20, 12, tzinfo=UTC),
)
DEFAULT = replace(
    WINNER, config=CONFIG | {"BLOCK_SIZE_M": 32}, time_us=52.0, verified=False, is_default=True, ordinal=None
)
REFUSED = replace(
    WINNER, config=CONFIG | {"BLOCK_SIZE_N": 512}, status=Status.COMPILE, time_us=None, samples=0, verified=False
)

Tune = Callable[..., None]
Process = subprocess.Popen[str] | WarmCommand
Serve = Callable[..., Process]

TILEWISE = str(Path(sysconfig.get_path("scripts")) / "tilewise")
READY = "tilewise serves on "


class _SharedSupervisor(Supervisor):
    """Outlives the applications that use it."""

    def close(self, *, for_good: bool = False) -> None:
        """Leave the process to the next application."""

    def end(self) -> None:
        super().close(for_good=True)


@pytest.fixture(scope="session", autouse=True)
def shared_supervisor(warm_python: WarmPython) -> Iterator[None]:
    """The process whose forks answer slow look-ups, one for all applications of a test process: it imports once."""
    shared = list[_SharedSupervisor]()

    def supervisor(entry: str, *, env: Mapping[str, str]) -> Supervisor:
        if not shared:
            shared.append(_SharedSupervisor(entry, env=env))
        return shared[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "Supervisor", supervisor)
        yield
    for one in shared:
        one.end()


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tilewise.db'}"


@pytest.fixture(scope="session")
def tune_into() -> Tune:
    """A function that records a finished tuning and more trials in the store at a URL; keywords change its scope."""

    def record(url: str, *, trials: Sequence[Trial] = (), **changes: Any) -> None:
        place_empty_database(url)
        with open_store(url) as store:
            store.record(changed(SCOPE, **changes), [WINNER, DEFAULT, REFUSED, *trials])

    return record


@pytest.fixture(scope="session")
def records() -> tuple[Trial, Trial]:
    """A finished tuning's winner, and a trial that did not compile."""
    return WINNER, REFUSED


@pytest.fixture
def tune(tune_into: Tune, store_url: str) -> Tune:
    return partial(tune_into, store_url)


@pytest.fixture
def client(store_url: str) -> Iterator[TestClient]:
    """A client of the application; it answers 500 as a server would, instead of raising the error."""
    place_empty_database(store_url)
    with TestClient(create_app(store_url, Options(run_jobs=False)), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def token_of(client: TestClient) -> Callable[[str], dict[str, str]]:
    """A function that returns the header of a new token with that right."""

    def make(right: str) -> dict[str, str]:
        text = Tokens(client.app.state.service.writer.database).create("test", Right(right))
        return {"authorization": f"Bearer {text}"}

    return make


@pytest.fixture
def admin(token_of: Callable[[str], dict[str, str]]) -> dict[str, str]:
    return token_of("admin")


@pytest.fixture
def break_database(tmp_path: Path) -> Callable[[], None]:
    """A function that drops every table under the running service."""

    def drop_all() -> None:
        with closing(sqlite3.connect(tmp_path / "tilewise.db")) as connection, connection:
            made = connection.execute("SELECT type, name FROM sqlite_master WHERE type IN ('view', 'table')").fetchall()
            for kind, name in made:
                if not name.startswith("sqlite_"):
                    connection.execute(f"DROP {kind} {name}")

    return drop_all


@pytest.fixture
def problem_of() -> Callable[..., dict[str, Any]]:
    """A function that checks that a response is a problem document of that status, and returns it."""

    def check(response: Any, status: int) -> dict[str, Any]:
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/problem+json"
        body: dict[str, Any] = response.json()
        assert body.keys() >= {"type", "title", "status", "detail", "instance"}
        assert body["status"] == status
        assert body["title"]
        assert body["detail"]
        assert "\n" not in body["detail"]
        assert body["instance"] == response.request.url.raw_path.decode()
        return body

    return check


@contextmanager
def _servers(warm: WarmPython, store_url: str) -> Iterator[Serve]:
    started: list[Process] = []

    def start(*arguments: str, files: int | None = None) -> Process:
        words = ["serve", "--port", "0", "--db", store_url, *arguments]
        if files or any(map(os.environ.get, READ_BY_IMPORTS)):
            limit = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"] if files else []
            piped: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            started.append(subprocess.Popen([*limit, TILEWISE, *words], **piped))
        else:
            started.append(warm.command(*words))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def serve(warm_python: WarmPython, store_url: str) -> Iterator[Serve]:
    """A function that starts `tilewise serve` on a free port of the loopback interface, with so many open `files`."""
    with _servers(warm_python, store_url) as start:
        yield start


@pytest.fixture(scope="session")
def servers(warm_python: WarmPython) -> Callable[[str], AbstractContextManager[Serve]]:
    """A function that returns, for a database, a context with what `serve` is: for the tests of a module to share."""
    return partial(_servers, warm_python)


@pytest.fixture(scope="session")
def address() -> Callable[[Process], str]:
    """A function that reads a server's address from the line that it prints when it is ready."""

    def read(process: Process) -> str:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith(READY), line
        return line.removeprefix(READY).strip()

    return read
