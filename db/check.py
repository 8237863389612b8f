"""Integrity checks of a database: its pages, its schema, and impossible rows. They only read, and upgrade nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

from sqlalchemy import Table, Text, bindparam, func, inspect, select, text, type_coerce

from tilewise.db.evidence import flaw
from tilewise.db.records import Trial
from tilewise.db.sql import schema
from tilewise.db.sql.database import Database, connect
from tilewise.db.sql.models import UtcDateTime, best, metadata, scopes, suggestions, trials
from tilewise.db.sql.rows import (
    SCOPE_COLUMNS,
    SUGGESTION_COLUMNS,
    TRIAL_COLUMNS,
    read_scope,
    read_suggestion,
    read_trial,
    scope_values,
    suggestion_values,
    trial_values,
)
from tilewise.db.sql.stored_answers import stale
from tilewise.errors import StoreError

__all__ = ["Check", "Health", "check"]

MOST_FAULTS = 20
"""Limit of faults listed per check, since one damaged page causes thousands."""

_ANSWERS = "answers"
_PAGE_LENGTH = 1000
_CLOCK_TOLERANCE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `faults` are lines for a person; `left_out` says why the check was skipped, and is empty if it ran."""

    name: str
    faults: tuple[str, ...] = ()
    left_out: str = ""

    @property
    def passed(self) -> bool:
        return not self.faults and not self.left_out


@dataclass(frozen=True, slots=True)
class Health:
    """A database's checks. `revision` is its schema's, None if empty; `rows` counts the rows of each table, if read."""

    database: str
    revision: str | None
    rows: dict[str, int]
    checks: tuple[Check, ...]

    @property
    def whole(self) -> bool:
        return not any(check.faults for check in self.checks)


def check(url: str) -> Health:
    """Check everything stored, at about 50 us per trial. Raises `StoreError` if no database can be read."""
    database = connect(url, create=False, read_only=True)
    try:
        integrity = _integrity(database)
        if integrity.faults:  # rows read from damaged pages prove nothing
            rest = [Check(name, left_out="the file is damaged") for name in ("schema", *_OF_ROWS, _ANSWERS)]
            return Health(database.name, None, {}, (integrity, *rest))
        revision = schema.revision(database)
        found = _schema(database, revision)
        if found.faults:
            rest = [
                Check(name, left_out="only tables of the current schema can be checked")
                for name in (*_OF_ROWS, _ANSWERS)
            ]
            return Health(database.name, revision, {}, (integrity, found, *rest))
        rows = [Check(name, _listed(faults(database))) for name, faults in _OF_ROWS.items()]
        if any(part.faults for part in rows):  # trials that cannot be read encode to nothing
            rows.append(Check(_ANSWERS, left_out="the rows that they are made from are not sound"))
        else:
            rows.append(Check(_ANSWERS, _listed(stale(database))))
        return Health(database.name, revision, _counts(database), (integrity, found, *rows))
    finally:
        database.close()


def _integrity(database: Database) -> Check:
    if database.engine.dialect.name != "sqlite":
        return Check("integrity", left_out="check PostgreSQL's files with pg_amcheck")
    try:
        with database.translated(), database.engine.connect() as connection:
            lines = connection.execute(text(f"PRAGMA integrity_check({MOST_FAULTS})")).scalars().all()
    except StoreError as error:
        return Check("integrity", (str(error),))
    return Check("integrity", tuple(" ".join(line.split()) for line in lines if line != "ok"))


def _schema(database: Database, revision: str | None) -> Check:
    if revision != schema.HEAD:
        current = f"its schema is {revision}" if revision else "it is empty"
        return Check("schema", (f"{current}; expected schema {schema.HEAD}: run tilewise db upgrade",))
    with database.translated(), database.engine.connect() as connection:
        return Check("schema", tuple(_missing(inspect(connection))))


def _missing(there: Any) -> Iterator[str]:
    if best.name not in there.get_view_names():
        yield f"the view {best.name} is missing"
    tables = there.get_table_names()
    for table in metadata.sorted_tables:
        if table.name not in tables:
            yield f"the table {table.name} is missing"
            continue
        columns = {column["name"] for column in there.get_columns(table.name)}
        yield from (f"the column {column} is missing" for column in table.c if column.name not in columns)
        indexes = {index["name"] for index in there.get_indexes(table.name)}
        yield from (f"the index {index.name} is missing" for index in table.indexes if index.name not in indexes)


def _orphans(database: Database) -> Iterator[str]:
    """Yield rows whose foreign key refers to no row. SQLite prevents them only on connections that ask for it."""
    for table in metadata.sorted_tables:
        for key in table.foreign_keys:
            parent = key.column.table.alias("parent")
            known = select(parent.c[key.column.name]).where(parent.c[key.column.name] == key.parent)
            lost = select(*table.primary_key).where(key.parent.is_not(None), ~known.exists()).limit(MOST_FAULTS + 1)
            for row in database.fetch(lost):
                yield f"{table.name} {row[0]}: its {key.parent.name} is not in {key.column.table.name}"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A table's kind of row: how to read one, what is wrong with one, and which columns are derived from the others."""

    table: Table
    columns: tuple[str, ...]
    derived: tuple[str, ...]
    read: Callable[[Sequence[Any]], Any]
    values: Callable[[Any], dict[str, Any]]
    flaw: Callable[[Any], str | None] = lambda _: None


def _impossible(database: Database, kind: _Kind) -> Iterator[str]:
    table, split = kind.table, len(kind.derived)
    # Times are parsed here, so that an invalid one fails its row and not the whole page.
    raw = [type_coerce(c, Text) if isinstance(c.type, UtcDateTime) else c for c in (table.c[n] for n in kind.columns)]
    for row_id, *row in _rows(database, select(table.c.id, *(table.c[name] for name in kind.derived), *raw)):
        try:
            record = kind.read(row[split:])
            found, values = kind.flaw(record), kind.values(record)
        except (TypeError, ValueError) as error:
            yield f"{table.name} {row_id}: it cannot be read: {error}"
            continue
        for name, stored in zip(kind.derived, row[:split], strict=True):
            found = found or (None if values[name] == stored else f"its {name} does not match its other columns")
        if found:
            yield f"{table.name} {row_id}: {found}"


def _read_trial(row: Sequence[Any]) -> Trial:
    """Read a row whose time is a datetime (PostgreSQL) or a text in UTC (SQLite)."""
    *rest, created = row
    if not isinstance(created, datetime):
        created = datetime.fromisoformat(created).replace(tzinfo=UTC)
    return read_trial([*rest, created])


def _flaw_of_trial(trial: Trial) -> str | None:
    if trial.created > datetime.now(UTC) + _CLOCK_TOLERANCE:
        return f"created {trial.created:%Y-%m-%d %H:%M} UTC, in the future: a clock was wrong"
    return flaw(trial)


_KINDS = (
    _Kind(scopes, SCOPE_COLUMNS, ("key", "question_key"), read_scope, scope_values),
    _Kind(trials, TRIAL_COLUMNS, ("config_key", "standing_us"), _read_trial, trial_values, _flaw_of_trial),
    _Kind(suggestions, SUGGESTION_COLUMNS, ("key",), read_suggestion, suggestion_values),
)

_OF_ROWS: dict[str, Callable[[Database], Iterator[str]]] = {
    "references": _orphans,
    **{kind.table.name: partial(_impossible, kind=kind) for kind in _KINDS},
}


def _rows(database: Database, statement: Any) -> Iterator[Sequence[Any]]:
    """Yield the rows of a SELECT whose first column is the id, in pages: no lock is held, and memory stays flat."""
    row_id = next(iter(statement.selected_columns))
    page = statement.where(row_id > bindparam("last")).order_by(row_id).limit(_PAGE_LENGTH)
    last = 0
    while rows := database.fetch(page, last=last):
        yield from rows
        last = rows[-1][0]


def _listed(faults: Iterator[str]) -> tuple[str, ...]:
    lines = list(islice(faults, MOST_FAULTS + 1))
    return (*lines[:MOST_FAULTS], "and more") if len(lines) > MOST_FAULTS else tuple(lines)


def _counts(database: Database) -> dict[str, int]:
    counted = {table.name: select(func.count()).select_from(table) for table in metadata.sorted_tables}
    return {name: database.fetch_value(statement) for name, statement in counted.items()}
