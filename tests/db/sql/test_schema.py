"""Tests that migrations lead to the models, and of the constraints in the tables."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect, text

from tilewise.db.records import Status
from tilewise.db.sql import migrations, queries, schema
from tilewise.db.sql.models import BEST_VIEW, metadata
from tilewise.db.sql.prepared_query import Query
from tilewise.db.sql.sql_store import open_store


def definitions(engine) -> dict[str, str]:
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'alembic%'"))
        return {name: re.sub(r"[\s\"]+", " ", sql) for name, sql in rows if sql}


def test_migrations_lead_to_the_models(file_url):
    open_store(file_url).close()
    migrated, modelled = create_engine(file_url), create_engine("sqlite://")
    metadata.create_all(modelled)
    with modelled.begin() as connection:
        connection.execute(text(BEST_VIEW))
    assert definitions(migrated).keys() == definitions(modelled).keys()
    for name, sql in definitions(modelled).items():  # CHECKs may be in another order
        assert sorted(re.split(r",|\(|\)", definitions(migrated)[name])) == sorted(re.split(r",|\(|\)", sql)), name
    with migrated.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    migrated.dispose()


def test_migrations_lead_to_the_models_on_postgresql(postgres_url):
    open_store(postgres_url).close()
    engine = create_engine(postgres_url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        conditions = {
            index["name"]: index["dialect_options"].get("postgresql_where")
            for index in inspect(connection).get_indexes("trials")
        }
    for index in metadata.tables["trials"].indexes:  # the models hold SQLite's conditions only
        modelled = str(index.dialect_options["sqlite"]["where"])
        assert re.sub(r"[()]", "", str(conditions[index.name])) == modelled
    engine.dispose()


def test_trials_of_an_older_schema_keep_their_place(file_url, make_scope, make_trial):
    slow, fast = make_trial(60), make_trial(50)
    with open_store(file_url) as store:
        store.record(make_scope(), [slow, fast])
    engine = create_engine(file_url)
    with engine.begin() as connection:  # back to the tables as they were before times had intervals
        for name in (
            "answers",
            "suggestions",
            "tokens",
            "jobs",
            "workers",
            "signed_kernels",
            "helion_records",
            "artefacts",
            "compilations",
        ):
            connection.execute(text(f"DROP TABLE {name}"))
        connection.execute(text("DROP VIEW best"))
        connection.execute(text("DROP INDEX ix_trials_fastest"))
        for name in ("low_us", "high_us", "dropped", "method", "l2", "settled_us", "standing_us"):
            connection.execute(text(f"ALTER TABLE trials DROP COLUMN {name}"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0002'"))
        connection.execute(text("CREATE INDEX ix_trials_fastest ON trials (scope_id, time_us)"))
        connection.execute(text("CREATE VIEW best AS SELECT * FROM trials"))
    engine.dispose()
    with open_store(file_url) as store:
        assert store.trials(make_scope()) == [slow, fast]
        assert store.result(make_scope()).winner == fast


def test_the_newest_revision_is_the_one_that_the_program_needs():
    script = ScriptDirectory.from_config(migrations.alembic_config())
    assert script.get_heads() == [schema.HEAD]
    assert [revision.revision for revision in script.walk_revisions()][::-1] == [
        f"{number:04}" for number in range(1, int(schema.HEAD) + 1)
    ]


def test_migration_scripts_are_packages_that_a_wheel_includes():
    folder = Path(migrations.__file__).parent
    assert all((script.parent / "__init__.py").exists() for script in folder.rglob("*.py"))
    assert {path.suffix for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts} <= {
        ".py",
        ".mako",  # package data by pyproject.toml
    }


def test_a_migration_that_fails_leaves_nothing_behind(tmp_path, file_url, monkeypatch):
    monkeypatch.setattr(schema, "HEAD", "9999")  # a revision that does not exist
    with pytest.raises(Exception, match="9999"):
        open_store(file_url)
    monkeypatch.undo()
    with closing(sqlite3.connect(tmp_path / "tilewise.db")) as database:
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == []
    with open_store(file_url) as store:
        assert store.devices() == []


def test_an_older_schema_is_not_touched_when_read_only(file_url, monkeypatch):
    open_store(file_url).close()
    monkeypatch.setattr(schema, "HEAD", "9999")
    with pytest.raises(schema.StoreError, match=r"has schema [0-9]+, older than 9999, and is opened read-only"):
        open_store(file_url, read_only=True)


@pytest.mark.parametrize(
    "change",
    [
        "status = 'won'",
        "time_us = NULL",
        "time_us = 0",
        "status = 'runtime'",  # it is verified
        "scope_id = 99",
        "config_key = (SELECT max(config_key) FROM trials)",
    ],
)
def test_the_tables_refuse_impossible_trials(tmp_path, file_url, make_scope, make_trial, change):
    with open_store(file_url) as store:
        store.record(make_scope(), [make_trial(), make_trial()])
    with closing(sqlite3.connect(tmp_path / "tilewise.db")) as database:
        database.execute("PRAGMA foreign_keys=ON")
        with pytest.raises(sqlite3.IntegrityError):
            database.execute(f"UPDATE trials SET {change}")


def test_history_is_kept_but_not_current(tmp_path, file_url, make_scope, make_trial):
    with open_store(file_url) as store:
        first = make_trial(10)
        store.record(make_scope(), [first])
        store.record(make_scope(), [make_trial(20, config=first.config)])
    with closing(sqlite3.connect(tmp_path / "tilewise.db")) as database:
        rows = database.execute("SELECT time_us, current FROM trials ORDER BY id").fetchall()
        assert rows == [(10.0, 0), (20.0, 1)]
        assert database.execute("SELECT time_us FROM best").fetchall() == [(20.0,)]


def test_the_best_view_has_one_row_per_scope_with_a_winner(tmp_path, file_url, make_scope, make_trial):
    with open_store(file_url) as store:
        store.record(make_scope(), [make_trial(20), make_trial(10), make_trial(10)])
        store.record(make_scope(dtype="float16"), [make_trial(None, status=Status.COMPILE)])
    with closing(sqlite3.connect(tmp_path / "tilewise.db")) as database:
        assert database.execute("SELECT scope_id, time_us, ordinal FROM best").fetchall() == [(1, 10.0, 2)]


def test_a_query_returns_the_same_rows_as_sqlalchemy(file_url, make_scope, make_trial):
    """`Query` bypasses `Connection.execute`; both must read the same values."""
    with open_store(file_url) as store:
        store.record(make_scope(), [make_trial(is_default=True), make_trial(None, status=Status.RUNTIME)])
    engine = create_engine(file_url)
    parameters = {"key": make_scope().question.key}
    with engine.connect() as connection:
        expected = [list(row) for row in connection.execute(queries.LOOKUP, parameters)]
    with closing(engine.raw_connection()) as connection:
        assert Query(queries.LOOKUP, engine.dialect).run(connection, parameters) == expected
    engine.dispose()


@pytest.mark.parametrize(
    ("code", "kept_out"),
    [
        ("import tilewise.db, tilewise.db.store, tilewise.db.records", ["sqlalchemy"]),
        (
            "import tilewise.db.exchange.native.export_file; import tilewise.db.exchange.foreign.landscapes.t4",
            ["sqlalchemy"],
        ),
        (
            "import sys; from tilewise.db.sql.sql_store import open_store as o; o(sys.argv[1], create=False).devices()",
            ["sqlalchemy.orm", "sqlalchemy.dialects.postgresql", "alembic"],
        ),
    ],
)
def test_start_up_imports_only_what_it_needs(file_url, code, kept_out):
    open_store(file_url).close()
    check = f"{code}\nimport sys\nprint([name for name in {kept_out} + ['torch', 'triton'] if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", check, file_url], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
