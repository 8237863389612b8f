"""Tests of query plans: with many problems stored, databases answer the store's queries by seeking in indexes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, Select, TextualSelect, create_engine, insert, literal_column, select, text

from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.db.sql import queries
from tilewise.db.sql.models import metadata
from tilewise.db.sql.prepared_query import Statement
from tilewise.db.sql.sql_store import open_store

PROBLEMS = 20_000
KERNELS = 25

STATEMENTS: dict[str, Statement] = {
    **{name: found for name in queries.__all__ if isinstance(found := getattr(queries, name), Select | TextualSelect)},
    **{f"page of scopes by {sorted(names)}": page for names, page in queries.PAGES.items()},
    **{
        f"page of results by {sorted(names)}": queries.page_of_results(frozenset(names), 1)
        for names in ((), ("kernel",), ("device", "dtype"), ("device", "dtype", "kernel"))
    },
}
"""Every SELECT of `queries`, including new ones."""

WORDS = {
    "kernel": "kernel 7",
    "dtype": "float32",
    "device": "Ascend910B4",
    "source_hash": "a1",
    "clock": "modelled",
    "toolchain": "t",
    "status": "correct",
    "config_key": "k",
    "dim_0": '%"M":1000,%',
}
NUMBERS = {
    "scope": 77,
    "after": 0,
    "first": PROBLEMS // 2,
    "seen": PROBLEMS - 10,
    "most": 50,
    "cores": 40,
    "last": PROBLEMS // 2,
    "before": PROBLEMS // 2,
    "since": 0,
    "format": 1,
}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def many(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, str]]:
    """Yield a database of many problems of some kernels, with two trials each, and the key of one scope."""
    with ExitStack() as opened:
        if request.param == "postgresql":
            url = opened.enter_context(request.getfixturevalue("postgres_schema")())
        else:
            url = f"sqlite:///{tmp_path_factory.mktemp('plans')}/tiles.db"
        scope = Scope(
            Problem("row_reduce", {"M": 1000, "N": 8192}, "float32"), "a1", "Ascend910B4", Clock.MODELLED, "t", 40
        )
        with open_store(url) as store:
            store.record(scope, [Trial({"B": n}, Status.CORRECT, time_us=n, verified=True, ordinal=n) for n in (1, 2)])
        engine = create_engine(url)
        with engine.begin() as connection:
            multiply(connection)
            if request.param == "postgresql":  # PostgreSQL updates row counts only later; SQLite plans without them
                connection.execute(text("ANALYZE"))
        yield engine, f"{scope.key}-77"
        engine.dispose()


def multiply(connection: Connection) -> None:
    """Copy the first scope and its trials, with new ids and keys."""
    scopes, trials, answers = (metadata.tables[name] for name in ("scopes", "trials", "answers"))
    number = literal_column("numbers.n")
    connection.execute(text("CREATE TABLE numbers (n INTEGER)"))
    series = "WITH RECURSIVE s (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM s WHERE n < :most) SELECT n FROM s"
    connection.execute(text(f"INSERT INTO numbers {series}"), {"most": PROBLEMS})
    changed: dict[str, dict[str, Any]] = {
        "scopes": {
            "id": number,
            "key": literal_column("scopes.key || '-' || numbers.n"),
            "question_key": literal_column("scopes.question_key || '-' || numbers.n"),
            "kernel": literal_column(f"'kernel ' || (numbers.n % {KERNELS})"),
            "revision": number,
        },
        "trials": {"id": literal_column("2 * numbers.n + trials.id"), "scope_id": number},
        "answers": {"scope_id": number, "revision": number},
    }
    for table in (scopes, trials, answers):
        columns = [changed[table.name].get(column.name, column).label(column.name) for column in table.c]
        copied = select(*columns).select_from(table).join(text("numbers"), literal_column("1") == 1)
        connection.execute(insert(table).from_select([column.name for column in table.c], copied))
    connection.execute(text("DROP TABLE numbers"))
    assert connection.execute(text("SELECT count(*) FROM best")).scalar() == PROBLEMS


def plan_of(many: tuple[Engine, str], name: str) -> list[str]:
    engine, key = many
    compiled = STATEMENTS[name].compile(dialect=engine.dialect)
    values = {**compiled.params, **{n: v for n, v in {**WORDS, **NUMBERS, "key": key}.items() if n in compiled.params}}
    assert None not in values.values(), "a parameter without a value"
    parameters = tuple(values[n] for n in compiled.positiontup) if compiled.positiontup else values
    explain = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"
    with engine.connect() as connection:
        return [str(row[-1]) for row in connection.exec_driver_sql(f"{explain} {compiled}", parameters)]


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_query_reads_a_whole_table(many: tuple[Engine, str], name: str):
    """This keeps look-up times flat from 10^3 to 10^6 problems."""
    plan = plan_of(many, name)
    scans = [
        step for step in plan if re.search(r"^SCAN (?!seen|revision|page)|Seq Scan on (scopes|trials|answers)", step)
    ]
    assert scans == [], "\n".join(plan)


@pytest.mark.parametrize("many", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", ["LOOKUP", "LOOKUP_OF_SOURCE", "ENCODED", "ENCODED_OF_SOURCE", "ANSWERS", "RESULT"])
def test_totals_over_the_trials_of_a_problem_are_read_from_one_index(many: tuple[Engine, str], name: str):
    """Of hundreds of trials, only those in the result are read."""
    plan = plan_of(many, name)
    tallies = [step for step in plan if "tally" in step]
    assert tallies and all("ix_trials_tally" in step for step in tallies), "\n".join(plan)
