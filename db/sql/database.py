"""A database: its engine, its name in messages, and its read and write transactions."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from tilewise.db.sql import sqlite
from tilewise.db.sql.faults import fault, read_only_fault
from tilewise.db.sql.prepared_query import Query, Statement
from tilewise.errors import StoreError

__all__ = ["Database", "connect", "connect_untouched", "shown", "waiting"]

_BEGIN_SNAPSHOT = {
    "sqlite": ["BEGIN"],
    "postgresql": [
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
        "SET LOCAL idle_in_transaction_session_timeout = 0",  # its reader may be slow, and holds nobody up
    ],
}
_EXPECTED = "expected sqlite:///path/to/file.db or postgresql+psycopg://user@host/name"


class Database:
    """A database. `name` is its file, or its URL without the password. `fence` begins every write transaction."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        *,
        writable: bool,
        is_file: bool,
        fence: Callable[[Connection], None] | None = None,
    ) -> None:
        self.name = name
        self.engine = engine
        self.writable = writable
        self.is_file = is_file
        self._writer = engine.execution_options(writing=True)
        self._fence = fence
        self._errors = (engine.dialect.loaded_dbapi.Error, SQLAlchemyError)
        self._closed = False
        self._queries: dict[Statement, Query] = {}
        self._held: Any = None
        self._idle: list[Any] = []
        """The connection of the last SELECT, if the pool can do without it: at most one, but for races of threads."""

    def fetch(self, statement: Statement, **parameters: str | int) -> Sequence[Sequence[Any]]:
        """Return all rows of a SELECT, by position. Statements are module constants, and are compiled once."""
        if (query := self._queries.get(statement)) is None:
            query = self._queries[statement] = Query(statement, self.engine.dialect)
        self._refuse_if_closed()
        try:  # not `translated`: a context manager would cost as much as the rest
            if self._held is not None:
                return query.run(self._held, parameters)
            connection = self._connection()
            try:
                rows = query.run(connection, parameters)
            except BaseException:
                connection.close()
                raise
            self._put_back(connection)
            return rows
        except self._errors as error:
            raise fault(self.name, error) from error

    def fetch_value(self, statement: Statement, **parameters: str | int) -> Any:
        """Return the value of a SELECT of one row and column."""
        ((value,),) = self.fetch(statement, **parameters)
        return value

    @contextmanager
    def snapshot(self) -> Iterator[Database]:
        """Yield this database in one read transaction; an in-memory one as it is, since it has only one connection."""
        self._refuse_if_closed()
        kind = self.engine.dialect.name
        if kind == "sqlite" and not self.is_file:
            yield self
            return
        frozen = Database(self.name, self.engine, writable=False, is_file=self.is_file)
        frozen._queries = self._queries
        with self.translated(), closing(self.engine.raw_connection()) as connection:
            frozen._held = connection
            for statement in (*_BEGIN_SNAPSHOT[kind], "SELECT version_num FROM alembic_version"):
                connection.cursor().execute(statement)  # the first SELECT fixes what the transaction sees
            try:
                yield frozen
            finally:
                frozen._closed = True
                connection.rollback()

    def fenced(self, fence: Callable[[Connection], None]) -> Database:
        """Return this database with a function that begins every write transaction; what it raises ends that one."""
        other = Database(self.name, self.engine, writable=self.writable, is_file=self.is_file, fence=fence)
        other._queries, other._idle = self._queries, self._idle
        return other

    def _connection(self) -> Any:
        """Return a connection of the driver for one SELECT."""
        try:
            return self._idle.pop()
        except IndexError:
            return self.engine.raw_connection()

    def _put_back(self, connection: Any) -> None:
        """Keep a file's connection for the next SELECT: with the pool's checks, a look-up takes 12 us more.

        Others go back to the pool, which ends PostgreSQL's transaction, and are opened anew on a read-only mount.
        """
        if not (self.is_file and self.writable) or self._idle:
            connection.close()
            return
        self._idle.append(connection)
        if self._closed:  # meanwhile, by another thread
            self._close_idle()

    def _close_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a transaction that is committed when the block ends, and rolled back when it raises."""
        self._refuse_if_closed()
        if not self.writable:
            raise read_only_fault(self.name)
        with self.translated(), self._writer.begin() as connection:
            if self._fence is not None:
                self._fence(connection)
            yield connection

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise the database's errors as `StoreError`."""
        try:
            yield
        except self._errors as error:
            raise fault(self.name, error) from error

    def close(self) -> None:
        self._closed = True
        self._close_idle()
        self.engine.dispose()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreError(f"the store of {self.name} is closed; open it again")


def connect(text: str, *, create: bool, read_only: bool) -> Database:
    """Return the database at a SQLAlchemy URL. Raises `StoreError` if there is none or its driver is missing."""
    url = _parse(text)
    if url.get_backend_name() == "postgresql":
        return Database(shown(text), _engine(url), writable=not read_only, is_file=False)
    path = sqlite.database_path(url)
    name = str(path or (url.database or "").removeprefix(":memory:") or "the database in memory")
    if path is not None:
        sqlite.make_place(path, create=create and not read_only)
        read_only = read_only or not sqlite.is_writable(path)
    try:
        engine = sqlite.create_sqlite_engine(url, path, read_only=read_only)
    except sqlite3.Error as error:
        raise fault(name, error) from error
    return Database(name, engine, writable=not read_only, is_file=path is not None)


def connect_untouched(text: str, seconds: float) -> Database:
    """Return the database at a URL for a few SELECTs. They leave no file behind, as SQLite's read-only mode may.

    Waits up to `seconds` for a server. Raises `StoreError` as `connect` does.
    """
    url = _parse(text)
    if url.get_backend_name() == "postgresql":
        limited = url.update_query_dict({"connect_timeout": f"{seconds:g}", **url.query})
        return Database(shown(text), _engine(limited), writable=False, is_file=False)
    path = sqlite.database_path(url)
    if path is None:
        raise StoreError(f"{shown(text)} can only be read by opening it for writing; name a file: sqlite:///tiles.db")
    sqlite.make_place(path, create=False)
    return Database(str(path), sqlite.create_untouched_engine(path), writable=False, is_file=True)


def shown(text: str) -> str:
    """Return the URL without its password, wherever it stands. Raises `StoreError` for an invalid URL."""
    url = _parse(text)
    secret = [name for name in url.query if "password" in name.lower()]
    return url.update_query_dict(dict.fromkeys(secret, "...")).render_as_string()


def waiting(text: str, seconds: float) -> str:
    """Return the URL with this `timeout` for other writers if it is SQLite's and sets none itself."""
    url = _parse(text)
    if url.get_backend_name() != "sqlite" or "timeout" in url.query:
        return text
    return url.update_query_dict({"timeout": f"{seconds:g}"}).render_as_string(hide_password=False)


def _parse(text: str) -> URL:
    try:
        url = make_url(text)
        sqlite.busy_seconds(url)
    except (ArgumentError, ValueError) as error:  # ValueError: a port or timeout that is not a number
        hidden = re.sub(r":[^:@/]*@", ":***@", text)
        raise StoreError(f"{hidden!r} is not a database URL; {_EXPECTED}") from error
    try:
        dialect = url.get_dialect()
    except NoSuchModuleError as error:
        raise StoreError(f"unknown database driver {url.drivername!r}; {_EXPECTED}") from error
    if dialect.name not in ("sqlite", "postgresql") or dialect.is_async:  # the others lack partial indexes
        raise StoreError(f"the database driver {url.drivername!r} is not supported; {_EXPECTED}")
    return url


def _engine(url: URL) -> Engine:
    """Return PostgreSQL's engine. Connections that a restart of the server broke are replaced before use."""
    try:
        engine = create_engine(url, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        package = "tilewise[postgres]" if error.name == "psycopg" else error.name
        raise StoreError(f"the driver of {url.drivername!r} is not installed: pip install '{package}'") from error
    event.listen(engine, "connect", _limit_waiting)
    return engine


def _limit_waiting(connection: Any, _: object) -> None:
    """Limit the wait for a lock, and the time that a paused process holds one, instead of waiting forever.

    The limit is SQLite's for other writers, unless the URL or the server sets one.
    """
    for name in ("lock_timeout", "idle_in_transaction_session_timeout"):
        limit = f"set_config('{name}', '{sqlite.BUSY_SECONDS}s', false)"
        connection.cursor().execute(f"SELECT {limit} WHERE current_setting('{name}') = '0'")
    connection.commit()
