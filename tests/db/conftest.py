"""Fixtures: stores of every kind, factories of records, and Python processes to kill."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from empty_database import place_empty_database
from scopes import changed
from served import ServedStore, empty

from tilewise.api.jobs.remote import Link, Server
from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.db.store import Store
from tilewise.db.tokens import Right, Tokens

MakeScope = Callable[..., Scope]
MakeTrial = Callable[..., Trial]


@pytest.fixture
def make_scope() -> MakeScope:
    problem = Problem("row_reduce", {"M": 1000, "N": 8192}, "float32")
    scope = Scope(problem, "a1", "Ascend910B4", Clock.MODELLED, "triton-ascend 3.2.0", 40)

    def make(**changes: Any) -> Scope:
        return changed(scope, **changes)

    return make


@pytest.fixture
def make_trial() -> MakeTrial:
    """Return a factory of trials, by default correct and verified, each with its own config and second."""
    count = 0

    def make(time_us: float | None = 50.0, **changes: Any) -> Trial:
        nonlocal count
        count += 1
        fields: dict[str, Any] = {
            "config": {"BLOCK_SIZE_M": count, "multibuffer": True},
            "status": Status.CORRECT,
            "time_us": time_us,
            "samples": 1,
            "verified": changes.get("status", Status.CORRECT) is Status.CORRECT,
            "ordinal": count,
            "created": datetime(2026, 11, 1, tzinfo=UTC) + timedelta(seconds=count),
        }
        return Trial(**fields | changes)

    return make


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tilewise.db'}"


@pytest.fixture(scope="session")
def work_server(tmp_path_factory: pytest.TempPathFactory, servers: Any, address: Any) -> Iterator[tuple[str, Server]]:
    """The database of a server process, and the server as a worker knows it."""
    url = f"sqlite:///{tmp_path_factory.mktemp('served') / 'tilewise.db'}"
    place_empty_database(url)
    with open_store(url) as store:
        token = Tokens(store.database).create("worker", Right.WORK)
    with servers(url) as serve:
        yield url, Server(address(serve("--no-jobs", "--log-level", "error")), token)


@pytest.fixture
def served_store(work_server: tuple[str, Server]) -> Iterator[ServedStore]:
    url, server = work_server
    with open_store(url) as store:
        empty(store)
    with open_store(url) as store, ServedStore(store.database, Link(server)) as served:
        yield served


@pytest.fixture(scope="session")
def emptied_postgres_url(postgres_schema: Callable[[], AbstractContextManager[str]]) -> Iterator[str]:
    """A schema that is brought up once, for tests that empty it."""
    with postgres_schema() as url:
        yield url


@pytest.fixture(params=["sqlite-file", "sqlite-memory", "postgresql", "server"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Yield an empty store of each kind."""
    if request.param == "server":
        yield request.getfixturevalue("served_store")
        return
    if request.param == "postgresql":
        url: str = request.getfixturevalue("emptied_postgres_url")
        with open_store(url) as used:
            empty(used, "tokens")
    else:
        url = request.getfixturevalue("file_url") if request.param == "sqlite-file" else "sqlite://"
        place_empty_database(url)
    with open_store(url) as opened:
        yield opened


RunPython = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def python() -> Iterator[RunPython]:
    """Start `python -c script arguments...` with its output on a pipe, and kill it afterwards if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def start(script: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", script, *arguments]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, **pipes | options))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
