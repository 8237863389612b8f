"""Fixtures of all tests: one PostgreSQL server per test process, started when a test first needs it, and scripts that
run with Triton's interpreter."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from faults import Mount, mounted
from hermetic import isolate
from places import HELPERS, ROOT
from sqlalchemy import URL, create_engine, make_url, text
from sqlalchemy.exc import OperationalError
from warm_python import WarmPython, subprocess_of_supervisors

pytest_plugins = ["run_record", "skips", "thinning", "tuning_fixtures", "npu_fixtures", "service_fixtures"]

_FOLDER = isolate(os.environ)
"""This run's own folders, from before anything imports tilewise. Child processes inherit them."""

# Some tests fork this process. OpenBLAS ends its threads before a fork and may deadlock when it restarts them; with one
# thread it has none to restart. Test processes inherit the setting from the one that starts them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Tests run in parallel already. A compile process per core and test would only take the cores from one another.
os.environ["TILEWISE_JOBS"] = "1"

# Tests that are started in the background may have SIGINT ignored, and their child processes would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "listen_addresses": ""}


def pytest_collection_finish(session: pytest.Session) -> None:
    if named := [item.nodeid for item in session.items if str(ROOT) in item.nodeid]:
        raise pytest.UsageError(f"{named[0]}: its name is another one in each checkout; give the case an id")
    gc.collect()
    gc.set_threshold(50_000, 20, 20)  # collections took a twentieth of the processor time
    gc.freeze()  # thousands of tests and torch's modules stay: a collection need not look at them


def pytest_unconfigure() -> None:
    if _FOLDER is not None:
        shutil.rmtree(_FOLDER, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def warm_python() -> Iterator[WarmPython]:
    """A process that has imported torch and Triton; supervisors of workers are forks of it."""
    from tilewise.tuner.workers import supervisor

    with pytest.MonkeyPatch.context() as patch:
        warm = WarmPython()
        patch.setattr(supervisor, "subprocess", subprocess_of_supervisors(warm))
        yield warm
        warm.close()


@pytest.fixture
def fresh_supervisors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start supervisors as users do: as fresh interpreters, and as children of this process."""
    monkeypatch.setattr("tilewise.tuner.workers.supervisor.subprocess", subprocess)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[URL]:
    """A superuser's database: that of `TILEWISE_TEST_POSTGRES`, or one on a server started here.

    Without PostgreSQL the test is skipped.
    """
    if given := os.environ.get("TILEWISE_TEST_POSTGRES"):
        yield make_url(given)
        return
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    user = "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name  # it refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="tilewise-postgres-"))
    if os.getuid() == 0:
        shutil.chown(folder, user, user)
    as_user: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if os.getuid() == 0 else {}
    initdb = [
        programs / "initdb",
        "--pgdata=data",
        f"--username={user}",
        "--auth=trust",
        "--encoding=UTF8",
        "--no-locale",
    ]
    done = subprocess.run([*initdb, "--no-sync"], cwd=folder, capture_output=True, text=True, check=False, **as_user)
    assert done.returncode == 0, done.stderr
    settings = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
    command = [programs / "postgres", "-D", "data", "-k", folder, *settings]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, preexec_fn=_die_with_parent, **as_user)
    try:
        url = URL.create("postgresql+psycopg", user, database="postgres", query={"host": str(folder)})
        _wait_for(url, server, folder / "log")
        yield url
    finally:
        server.send_signal(signal.SIGQUIT)  # at once, without tidying up
        server.wait(timeout=30)
        shutil.rmtree(folder)


def _die_with_parent() -> None:
    """End the server when the test process is killed."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGQUIT)


def _wait_for(url: URL, server: subprocess.Popen[bytes], log: Path) -> None:
    engine, give_up = create_engine(url), time.monotonic() + 60
    while True:
        try:
            engine.connect().close()
            break
        except OperationalError:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < give_up, log.read_text()
            time.sleep(0.05)
    engine.dispose()


def _programs() -> Path | None:
    """Return the folder of the newest `initdb`, which Debian keeps out of the path."""
    found = [*Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if found:
        return max(found, key=lambda path: float(path.parts[-3])).parent
    path = shutil.which("initdb")
    return Path(path).parent if path else None


@pytest.fixture(scope="session")
def postgres_schema(postgres_server: URL) -> Callable[[], AbstractContextManager[str]]:
    """A function that makes a URL with its own empty schema, which is dropped when the context ends."""

    @contextmanager
    def make() -> Iterator[str]:
        name = f"tilewise_test_{uuid.uuid4().hex}"
        engine = create_engine(postgres_server, pool_pre_ping=True)  # tests may break connections
        with engine.begin() as connection:
            connection.execute(text(f"CREATE SCHEMA {name}"))
        yield postgres_server.update_query_dict({"options": f"-csearch_path={name}"}).render_as_string(False)
        with engine.begin() as connection:
            connection.execute(text(f"DROP SCHEMA {name} CASCADE"))
        engine.dispose()

    return make


@pytest.fixture
def postgres_url(postgres_schema: Callable[[], AbstractContextManager[str]]) -> Iterator[str]:
    with postgres_schema() as url:
        yield url


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, Mount]]:
    """A file system of 1 MiB, and a function that remounts it with other options."""
    folder = tmp_path / "disk"
    with mounted(folder, "1m") as remount:
        yield folder, remount


@pytest.fixture(scope="session")
def interpreted() -> Iterator[Callable[..., Any]]:
    """A function that runs a script with Triton's interpreter in another process and returns the JSON it prints."""
    from tilewise.tuner.workers.worker import Worker

    path = os.pathsep.join([str(HELPERS), *sys.path])
    settings = {"TRITON_INTERPRET": "1", "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
    worker = Worker("scripts:run", env=settings, imports=("torch", "triton"))

    def run(script: str, *arguments: str) -> Any:
        code, out, err = worker.call(script, *arguments, timeout=60)
        assert code == 0, err[-2000:]
        return json.loads(out)

    yield run
    worker.close()
