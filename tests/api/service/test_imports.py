"""Imports in a process of their own: what is told of one that ends, and when it is replaced."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future
from contextlib import asynccontextmanager

import pytest

from tilewise.api.service import imports as module
from tilewise.api.service.imports import Imports
from tilewise.errors import BadImport, Unavailable
from tilewise.tuner.workers.worker import WorkerDied, WorkerFailed


class Pool:
    """Answers calls with given outcomes; `calls` are those made, with `restart` and `turn` between."""

    def __init__(self, *outcomes):
        self.calls, self._outcomes = [], iter(outcomes)

    def submit(self, url, own, task, path, *, timeout):
        assert (url, timeout) == ("sqlite://", 3600.0)
        self.calls.append(task)
        future, outcome = Future(), next(self._outcomes)
        is_raised = isinstance(outcome, WorkerDied | WorkerFailed)
        future.set_exception(outcome) if is_raised else future.set_result(outcome)
        return future

    def restart(self):
        self.calls.append("restart")


def merge(monkeypatch, path, pool):
    @asynccontextmanager
    async def turn():
        pool.calls.append("turn")
        yield

    async def run():
        return await Imports("sqlite://", None).merge(str(path), turn())

    monkeypatch.setattr(module, "WorkerPool", lambda supervisor, size: pool)
    return asyncio.run(run())


@pytest.mark.parametrize(("size", "after"), [(16 << 20, []), ((16 << 20) + 1, ["restart"])])
def test_an_import_is_checked_before_its_turn_and_a_large_one_replaces_the_process(tmp_path, monkeypatch, size, after):
    with (tmp_path / "file").open("wb") as file:
        file.truncate(size)
    pool = Pool(None, {"merged": 3})
    assert merge(monkeypatch, tmp_path / "file", pool) == {"merged": 3}
    assert pool.calls == ["check", "turn", "merge", *after]


@pytest.mark.parametrize(
    ("outcome", "raised", "logged"),
    [
        (WorkerDied("it was killed"), Unavailable, ["the process of an import: it was killed"]),
        (WorkerFailed("KeyError", "x"), WorkerFailed, []),
        (BadImport("not a file of ours"), BadImport, []),
    ],
)
def test_an_import_that_fails_takes_no_turn(tmp_path, monkeypatch, outcome, raised, logged, caplog):
    (tmp_path / "file").touch()
    pool = Pool(outcome)
    with caplog.at_level(logging.ERROR), pytest.raises(raised):
        merge(monkeypatch, tmp_path / "file", pool)
    assert (pool.calls, caplog.messages) == (["check"], logged)
