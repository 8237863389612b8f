"""The store in SQL, for SQLite and PostgreSQL."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError

from tilewise.db.evidence import outranks, refuse_flaws, winner
from tilewise.db.records import Config, Question, Result, Scope, Status, Suggestion, Trial, digest
from tilewise.db.sql import models, queries, schema
from tilewise.db.sql.changes import Changes, touch
from tilewise.db.sql.database import Database, connect
from tilewise.db.sql.encoded_result import FORMAT, encode_row
from tilewise.db.sql.rows import (
    SCOPE_COLUMNS,
    read_result,
    read_scope,
    read_suggestion,
    read_trial,
    scope_values,
    suggestion_values,
    trial_values,
)
from tilewise.db.store import START, Change, Listed, MergeReport, Place, Store, Wanted, Written
from tilewise.errors import NotFound, StoreError

__all__ = ["SqlStore", "open_store"]


def open_store(url: str, *, create: bool = True, read_only: bool = False) -> SqlStore:
    """Open the database at a SQLAlchemy URL, and upgrade its schema if it is behind.

    With `create`, a missing SQLite file and its folder are created. With `read_only`, nothing is ever written; a file
    that cannot be written is always opened that way. `?timeout=SECONDS` in an SQLite URL says how long to wait for
    another writer (default 30). Raises `StoreError`.
    """
    database = connect(url, create=create, read_only=read_only)
    try:
        schema.bring_up(database)
    except BaseException:
        database.close()
        raise
    return SqlStore(database)


class SqlStore(Store):
    """A `Store` in an SQL database. Calls may come from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def name(self) -> str:
        """The database file, or the URL without its password."""
        return self._database.name

    @property
    def database(self) -> Database:
        """The database itself, which also holds tokens and jobs."""
        return self._database

    @property
    def is_file(self) -> bool:
        """True if the database is a local file, which answers in microseconds."""
        return self._database.is_file

    def record(self, scope: Scope, trials: Sequence[Trial]) -> None:
        refuse_flaws(trials)
        if trials:
            with self._database.write() as connection:
                scope_id, _ = _find_or_add(connection, scope)
                _add(connection, scope_id, trials)
                touch(connection, [scope_id])

    def merge(
        self, evidence: Iterable[tuple[Scope, Sequence[Trial]]], *, most_changes: int | None = None
    ) -> MergeReport:
        scope_ids, changes = list[int | None](), list[Change]()
        totals, scopes, changed = (0, 0, 0), 0, 0
        with self._database.write() as connection:
            for scope, trials in evidence:
                scopes += 1
                refuse_flaws(trials)
                if not trials:
                    continue
                scope_id, counts, change = _merge(connection, scope, trials)
                scope_ids.append(scope_id)
                totals = totals[0] + counts[0], totals[1] + counts[1], totals[2] + counts[2]
                if change.before != change.after:
                    changed += 1
                    changes += [change] if most_changes is None or len(changes) < most_changes else []
            touch(connection, scope_ids)
        return MergeReport(scopes, *totals, changes=tuple(changes), changed=changed)

    def suggest(self, suggestions: Sequence[Suggestion]) -> int:
        new = {suggestion.key: suggestion for suggestion in suggestions}
        with self._database.write() as connection:
            return sum(_add_suggestion(connection, suggestion) for suggestion in new.values())

    def suggestions(self, kernel: str) -> list[Suggestion]:
        return [read_suggestion(row) for row in self._database.fetch(queries.SUGGESTIONS, kernel=kernel)]

    @contextmanager
    def snapshot(self) -> Iterator[SqlStore]:
        with self._database.snapshot() as frozen:
            yield SqlStore(frozen)

    def verify(
        self,
        scope: Scope,
        config: Config,
        *,
        agreed: bool,
        reason: str = "",
        status: Status = Status.CORRECTNESS,
    ) -> None:
        failed = {"verified": False, "status": status.value, "reason": reason}
        with self._database.write() as connection:
            scope_id = _find(connection, scope)
            change = _change_current(scope_id).where(_TRIAL.config_key == digest(dict(config)))
            if connection.execute(change.values({"verified": True} if agreed else failed)).rowcount == 0:
                raise NotFound(f"no trial of {dict(config)} is stored for {scope.question}")
            touch(connection, [scope_id])

    def mark(self) -> int:
        newest = self._database.fetch_value(queries.NEWEST)
        return newest or 0

    def revision(self) -> int:
        number = self._database.fetch_value(queries.REVISION)
        return int(number)

    def written(self, since: int) -> list[Scope]:
        return [read_scope(row) for row in self._database.fetch(queries.WRITTEN, since=since)]

    def retire(self, scope: Scope, mark: int) -> int:
        with self._database.write() as connection:
            scope_id = _find(connection, scope)
            change = _change_current(scope_id).where(_TRIAL.id <= mark)
            retired = connection.execute(change.values(current=False)).rowcount
            touch(connection, [scope_id] if retired else [])
            return retired

    def trials(self, scope: Scope, *, since: int = 0) -> list[Trial]:
        return [read_trial(row) for row in self._database.fetch(queries.TRIALS, key=scope.key, since=since)]

    def figures(self, key: str) -> Sequence[Sequence[Any]]:
        """Return the `FIGURE_COLUMNS` of a scope's current trials, in recorded order, each config as its JSON text."""
        return self._database.fetch(queries.FIGURES, key=key)

    def trial(self, scope: Scope, config: Config) -> Trial | None:
        """Return the current trial of a config, or None."""
        rows = self._database.fetch(queries.TRIAL, key=scope.key, config_key=digest(dict(config)))
        return read_trial(rows[0]) if rows else None

    def written_at(self, key: str) -> int | None:
        """Return the revision of the last write to a scope's trials, or None if there is no such scope."""
        return next((int(revision) for (revision,) in self._database.fetch(queries.WRITTEN_AT, key=key)), None)

    def result(self, scope: Scope) -> Result:
        rows = self._database.fetch(queries.RESULT, key=scope.key)
        return read_result(rows[0]) if rows else Result(scope, None, None, {}, 0.0)

    def lookup(self, question: Question, *, source_hash: str | None = None) -> Result | None:
        if source_hash is None:
            rows = self._database.fetch(queries.LOOKUP, key=question.key)
        else:
            rows = self._database.fetch(queries.LOOKUP_OF_SOURCE, key=question.key, source_hash=source_hash)
        return read_result(rows[0]) if rows else None

    def encoded_result(self, question_key: str, *, source_hash: str | None = None) -> bytes | None:
        """Return the JSON of what `lookup` returns for the question with that key.

        It is read as it is stored where one scope answers and its stored answer is current, which takes a fifth of the
        time; else it is encoded from the trials.
        """
        if source_hash is None:
            stored = self._database.fetch(queries.ANSWER, key=question_key, format=FORMAT)
        else:
            stored = self._database.fetch(
                queries.ANSWER_OF_SOURCE, key=question_key, source_hash=source_hash, format=FORMAT
            )
        if not stored:
            return None
        body: str | None = stored[0][0]
        if body is not None and len(stored) == 1:
            return body.encode()
        if source_hash is None:
            rows = self._database.fetch(queries.ENCODED, key=question_key)
        else:
            rows = self._database.fetch(queries.ENCODED_OF_SOURCE, key=question_key, source_hash=source_hash)
        return encode_row(rows[0]) if rows else None

    def answers(self, question: Question, *, source_hash: str | None = None) -> list[Result]:
        found = map(read_result, self._database.fetch(queries.ANSWERS, key=question.key))
        return [result for result in found if source_hash in (None, result.scope.source_hash)]

    def shape_pages(
        self, kernel: str, dtype: str, device: str, *, last: int = 0
    ) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield pages by id, which grows as scopes are committed.

        On PostgreSQL two processes may commit in another order than they began, so that a late scope is missed.
        """
        while rows := self._database.fetch(queries.SIZES, kernel=kernel, dtype=dtype, device=device, last=last):
            last = max(scope_id for scope_id, _, _ in rows)
            yield last, {source_hash: f"[{dims}]" for _, source_hash, dims in rows}

    def draw(self, kernel: str, dtype: str, device: str, source_hash: str | None, *, most: int) -> list[Scope]:
        family = {"kernel": kernel, "dtype": dtype, "device": device}
        drawn: list[Scope] = []
        for source, clock, toolchain, cores in self._database.fetch(queries.GROUPS, **family):
            if source_hash in (None, source):
                shared = {"source_hash": source, "clock": clock, "toolchain": toolchain, "cores": cores}
                drawn += map(read_scope, self._database.fetch(queries.DRAWN, **family, **shared, most=most))
        return drawn

    def families(self) -> Iterator[tuple[str, str, str]]:
        kernel = dtype = device = ""
        while rows := self._database.fetch(queries.NEXT_FAMILY, kernel=kernel, dtype=dtype, device=device):
            [[kernel, dtype, device]] = rows
            yield kernel, dtype, device

    def devices(self) -> list[str]:
        return [device for (device,) in self._database.fetch(queries.DEVICES)]

    def scopes(self, kernel: str | None = None, device: str | None = None) -> Iterator[Scope]:
        """Yield scopes, read in pages: no lock is held while the caller works, and scopes added meanwhile come last."""
        chosen = {name: value for name, value in (("kernel", kernel), ("device", device)) if value is not None}
        statement, last = queries.PAGES[frozenset(chosen)], 0
        while rows := self._database.fetch(statement, last=last, **chosen):
            yield from (read_scope(row[1:]) for row in rows)
            last = rows[-1][0]

    def scope(self, key: str) -> Scope | None:
        rows = self._database.fetch(queries.SCOPE, key=key)
        return read_scope(rows[0]) if rows else None

    def kernels(self) -> list[str]:
        return [kernel for (kernel,) in self._database.fetch(queries.KERNELS)]

    def results(self, wanted: Wanted, *, before: Written | None = None, most: int = 50) -> list[tuple[Written, Result]]:
        chosen, dims = _filters(wanted)
        of_filters: dict[str, str | int] = {**chosen, **dims, "before": before.revision if before else _LAST}
        rows: list[Any] = []
        if before:
            page = queries.page_of_results(frozenset(chosen), len(dims), at_once=True)
            rows += self._database.fetch(page, scope=before.scope, most=most, **of_filters)
        if len(rows) < most:
            page = queries.page_of_results(frozenset(chosen), len(dims))
            rows += self._database.fetch(page, most=most - len(rows), **of_filters)
        return [(Written(*row[-2:]), read_result(row[:-2])) for row in rows]

    def count(self, wanted: Wanted, *, most: int) -> int:
        """Return the number of scopes that match, counted up to `most`."""
        chosen, dims = _filters(wanted)
        statement = queries.count_of_scopes(frozenset(chosen), len(dims))
        return int(self._database.fetch_value(statement, most=most, **chosen, **dims))

    def trial_page(
        self, wanted: Wanted, *, status: Status | None = None, after: Place = START, most: int = 100
    ) -> tuple[list[Listed], Place | None]:
        chosen, dims = _filters(wanted)
        statement = queries.page_of_scopes(frozenset(chosen), len(dims))
        scopes = self._database.fetch(statement, first=after.scope, most=_SCOPES_PER_PAGE, **chosen, **dims)
        of_status = {"status": status.value} if status else {}
        query = queries.TRIALS_OF_STATUS if status else queries.TRIALS_OF
        listed: list[Listed] = []
        for scope_id, *row in scopes:
            seen = after.trial if scope_id == after.scope else 0
            found = self._database.fetch(query, scope=scope_id, after=seen, most=most - len(listed), **of_status)
            scope = read_scope(row)
            listed += [Listed(Place(scope_id, rest[0]), scope, read_trial(rest[2:]), rest[1]) for rest in found]
            if len(listed) >= most:
                return listed, listed[-1].place
        return listed, Place(scopes[-1][0] + 1, 0) if len(scopes) == _SCOPES_PER_PAGE else None

    def history(self, question: Question) -> list[tuple[Scope, Trial]]:
        rows = self._database.fetch(queries.VERIFIED, key=question.key)
        width = len(SCOPE_COLUMNS)
        found = [(read_scope(row[:width]), read_trial(row[width:])) for row in rows]
        best: dict[str, float] = {}
        return [(scope, trial) for scope, trial in found if _improves(best, scope.key, trial)]

    def check_schema(self) -> None:
        """Raise `StoreError` if the database does not answer or its schema is not the one needed."""
        version = schema.revision(self._database)
        if version != schema.HEAD:
            raise StoreError(f"{self.name} has schema {version}; expected {schema.HEAD}")

    def changes(self) -> Changes:
        """Return the changes made from now on, by any process."""
        return Changes(self._database)

    def close(self) -> None:
        self._database.close()


_LAST = 2**63 - 1
_SCOPES_PER_PAGE = 500

_TRIAL = models.trials.c


def _filters(wanted: Wanted) -> tuple[dict[str, str], dict[str, str]]:
    """Return the filters of a listing: columns by name, and patterns for dims as `page_of_results` takes them."""
    columns = {"kernel": wanted.kernel, "dtype": wanted.dtype, "device": wanted.device}
    chosen = {name: value for name, value in columns.items() if value is not None}
    return chosen, {f"dim_{index}": _like(*dim) for index, dim in enumerate(wanted.dims.items())}


def _improves(best: dict[str, float], scope: str, trial: Trial) -> bool:
    """Return whether the trial is faster than all before it in its scope, and update that scope's time in `best`."""
    if trial.time_us is None or trial.time_us >= best.get(scope, math.inf):
        return False
    best[scope] = trial.time_us
    return True


def _like(name: str, size: int | bool | str) -> str:
    """Return a LIKE pattern for one size or flag in dims as `page_of_results` compares them: `{"M":1000,"N":8192,`."""
    pattern = json.dumps(name, ensure_ascii=False) + f":{json.dumps(size, ensure_ascii=False)},"
    for special in "\\%_":
        pattern = pattern.replace(special, "\\" + special)
    return f"%{pattern}%"


def _find(connection: Connection, scope: Scope) -> int | None:
    """Return the scope's id, locked for this transaction (SQLite's writers lock the whole file anyway)."""
    found = select(models.scopes.c.id).where(models.scopes.c.key == scope.key).with_for_update()
    return connection.execute(found).scalar()


def _find_or_add(connection: Connection, scope: Scope) -> tuple[int, bool]:
    """Return the scope's id, and whether it is new."""
    if (known := _find(connection, scope)) is not None:
        return known, False
    values = scope_values(scope) | {"first_seen": datetime.now(UTC)}
    try:
        with connection.begin_nested():
            return connection.execute(_ADD_SCOPE, values).scalar_one(), True
    except IntegrityError:  # on PostgreSQL another process may have added it just now
        pass
    added = _find(connection, scope)
    if added is None:
        raise StoreError(f"the database did not store the scope of {scope.question}")
    return added, False


_ADD_SCOPE = insert(models.scopes).returning(models.scopes.c.id)


def _change_current(scope_id: int | None) -> Any:
    """Return an UPDATE of the scope's current trials, which matches none if the scope is unknown."""
    return update(models.trials).where(_TRIAL.scope_id == scope_id, queries.CURRENT)


_SUPERSEDE = (
    update(models.trials)
    .where(_TRIAL.scope_id == bindparam("scope"), queries.CURRENT, _TRIAL.config_key == bindparam("superseded"))
    .values(current=False)
)


def _add(connection: Connection, scope_id: int, trials: Sequence[Trial], *, supersede: bool = True) -> None:
    rows = [trial_values(trial) | {"scope_id": scope_id} for trial in trials]
    latest = {row["config_key"]: row for row in rows}  # if a config comes twice, the later is current
    for row in rows:
        row["current"] = latest[row["config_key"]] is row
    if supersede:
        connection.execute(_SUPERSEDE, [{"scope": scope_id, "superseded": key} for key in latest])
    connection.execute(insert(models.trials), rows)


def _add_suggestion(connection: Connection, suggestion: Suggestion) -> bool:
    """Add a suggestion, and return False if it was already known."""
    try:
        with connection.begin_nested():
            connection.execute(insert(models.suggestions).values(suggestion_values(suggestion)))
    except IntegrityError:
        return False
    return True


def _current(connection: Connection, scope: Scope) -> list[Trial]:
    return [read_trial(row) for row in connection.execute(queries.TRIALS, {"key": scope.key, "since": 0})]


def _merge(connection: Connection, scope: Scope, trials: Sequence[Trial]) -> tuple[int, tuple[int, int, int], Change]:
    """Store the trials that outrank the current ones.

    Returns the scope's id, how many trials were added, updated and left unchanged, and the change of winner.
    """
    scope_id, new = _find_or_add(connection, scope)
    stored = [] if new else _current(connection, scope)
    known = {trial.config_key: trial for trial in stored}
    better: dict[str, Trial] = {}
    for trial in trials:
        rival = better.get(trial.config_key) or known.get(trial.config_key)
        if rival is None or outranks(trial, rival):
            better[trial.config_key] = trial
    if better:
        _add(connection, scope_id, list(better.values()), supersede=not new)
    updated = len(better.keys() & known.keys())
    current = list(better.values()) if new else _current(connection, scope) if better else stored
    counts = (len(better) - updated, updated, len(trials) - len(better))
    return scope_id, counts, Change(scope, winner(stored), winner(current))
