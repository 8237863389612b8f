"""Tests of killed migrations: after any statement, the database is at a whole revision and keeps its content."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import create_engine

from tilewise.db.check import check
from tilewise.db.sql import migrations
from tilewise.db.sql.schema import HEAD
from tilewise.db.sql.sql_store import open_store

UPGRADE_KILLED_AT_EVERY_STATEMENT = """
import os, signal, sys
from sqlalchemy import Engine, event
from tilewise.db import check
from tilewise.db.sql import migrations  # all imports done before the forks
from tilewise.db.sql.sql_store import open_store

url, last = sys.argv[1], False
open_store("sqlite://").close()

def upgrade(allowed):
    def count(*_):
        nonlocal allowed
        if allowed == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        allowed -= 1
    event.listen(Engine, "before_cursor_execute", count)
    event.listen(Engine, "commit", count)  # between the last statement and the commit
    open_store(url).close()

for allowed in range(200):
    child = os.fork()
    if child == 0:
        upgrade(allowed)
        os._exit(0)
    _, ended = os.waitpid(child, 0)
    if ended == 0:
        print("done", allowed)
        break
    assert os.WTERMSIG(ended) == signal.SIGKILL
    health = check.check(url)
    assert health.checks[0].faults == (), health
    print(health.revision, flush=True)
"""

FIRST_SCOPE = """
INSERT INTO scopes (key, question_key, kernel, source_hash, dims, dtype, device, clock, toolchain, cores, first_seen)
VALUES ('{key}', '{question}', 'row_reduce', 'a1', '{{"M":1000,"N":8192}}', 'float32', 'Ascend910B4', 'modelled',
    'triton-ascend 3.2.0', 40, '2026-11-01 00:00:00')
"""

FIRST_TRIAL = """
INSERT INTO trials (scope_id, current, config, config_key, status, reason, time_us, samples, verified, is_default,
    search, facts, why, seconds, created)
VALUES (1, {yes}, '{config}', '{key}', 'correct', '', 47.5, 1, {yes}, {no}, 'guided', '{{}}', '', 0.5,
    '2026-11-01 00:00:00')
"""
"""A trial of the first revision; later revisions keep its rows."""


@pytest.fixture(params=["file_url", "postgres_url"])
def url(request):
    return request.getfixturevalue(request.param)


def at_first_revision(url: str, scope, trial) -> None:
    """Create a database of the first revision, with a scope and a trial."""
    engine = create_engine(url)
    logic = ("true", "false") if engine.dialect.name == "postgresql" else ("1", "0")
    scope_row = FIRST_SCOPE.format(key=scope.key, question=scope.question.key)
    config = json.dumps(dict(trial.config))
    trial_row = FIRST_TRIAL.format(yes=logic[0], no=logic[1], config=config, key=trial.config_key)
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")
        migrations.upgrade(connection, "0001")
        for statement in (scope_row, trial_row):
            connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.mark.in_part(1)
def test_a_first_migration_killed_at_any_statement_leaves_an_empty_database_or_a_whole_one(url, python):
    out, err = python(UPGRADE_KILLED_AT_EVERY_STATEMENT, url).communicate(timeout=120)
    *revisions, done = out.splitlines()
    assert done.startswith("done"), err
    assert len(revisions) > 10
    assert set(revisions) <= {"None", HEAD}
    assert check(url).whole


@pytest.mark.in_part(1)
def test_an_upgrade_killed_at_any_statement_keeps_what_was_stored(url, python, make_scope, make_trial):
    scope, trial = make_scope(), make_trial(47.5)
    at_first_revision(url, scope, trial)
    out, err = python(UPGRADE_KILLED_AT_EVERY_STATEMENT, url).communicate(timeout=120)
    *revisions, done = out.splitlines()
    assert done.startswith("done"), err
    assert set(revisions) <= {"0001", HEAD}
    assert check(url).whole
    with open_store(url) as store:
        [kept] = store.trials(scope)
        assert (kept.config, kept.time_us, kept.verified) == (trial.config, 47.5, True)
        assert store.lookup(scope.question).winner == kept
