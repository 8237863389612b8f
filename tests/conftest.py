"""A PostgreSQL server of the tests' own, one a test process, started when a test first asks for it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, create_engine, make_url, text

_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "listen_addresses": ""}


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[URL]:
    """A database of a superuser: that of `TILEWISE_TEST_POSTGRES`, or one on a server started here.

    Where there is no PostgreSQL the test is skipped; with `CI` set it fails, so that no check is left out there.
    """
    if given := os.environ.get("TILEWISE_TEST_POSTGRES"):
        yield make_url(given)
        return
    programs = _programs()
    if programs is None:
        leave_out = pytest.fail if os.environ.get("CI") else pytest.skip
        leave_out("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    user = "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name  # it refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="tilewise-postgres-"))
    if os.getuid() == 0:
        shutil.chown(folder, user, user)
    run = _runner(programs, user, folder)
    run("initdb", "--pgdata=data", f"--username={user}", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
    options = " ".join([f"-k {folder}", *(f"-c {name}='{value}'" for name, value in _SETTINGS.items())])
    run("pg_ctl", "start", "--pgdata=data", "--wait", "--log=log", f"--options={options}")
    try:
        yield URL.create("postgresql+psycopg", user, database="postgres", query={"host": str(folder)})
    finally:
        run("pg_ctl", "stop", "--pgdata=data", "--mode=immediate")
        shutil.rmtree(folder)


def _programs() -> Path | None:
    """The folder of the newest `initdb`; Debian keeps it out of the path."""
    found = [*Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if found:
        return max(found, key=lambda path: float(path.parts[-3])).parent
    path = shutil.which("initdb")
    return Path(path).parent if path else None


def _runner(programs: Path, user: str, folder: Path) -> Any:
    """Runs one of PostgreSQL's programs as `user`, in `folder`; its output goes to the error that a failure raises."""
    change: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if os.getuid() == 0 else {}

    def run(program: str, *arguments: str) -> None:
        with (folder / "out").open("w+") as out:  # no pipe: the server would hold it open
            done = subprocess.run([programs / program, *arguments], cwd=folder, stdout=out, stderr=out, **change)
            out.seek(0)
            assert done.returncode == 0, out.read()

    return run


@pytest.fixture(scope="session")
def postgres_schema(postgres_server: URL) -> Callable[[], AbstractContextManager[str]]:
    """Makes a URL with an empty schema of its own, which is dropped when the context ends."""

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
