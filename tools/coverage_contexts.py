"""Records which test runs which line, also in the processes that a test starts.

It is a plugin of pytest, which names the test that runs, and a plugin of coverage. Processes that a test starts read
the test's name from `TEST` in their environment. Workers are killed rather than ended, so they save what they have
recorded before each answer. A process that several tests share is recorded as the first one's.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from functools import wraps
from multiprocessing.connection import Connection
from typing import Any

import coverage
import pytest

TEST = "MUTATION_TEST"
"""Variable with the id of the test that runs; the coverage settings take the context from it."""

OUTCOMES = "MUTATION_OUTCOMES"
"""Variable with the file to which a run appends a line of JSON per phase of a test."""

BEFORE = "MUTATION_BEFORE"
"""Variable with such a file of an interrupted run, whose tests are left out."""


def coverage_init(registry: Any, options: Any) -> None:
    """Make a worker process save before it answers; coverage calls this in each process that it measures."""
    send = Connection.send

    @wraps(send)
    def save_and_send(self: Connection, message: Any) -> None:
        main = sys.modules["__main__"]
        current = coverage.Coverage.current()
        if current is not None and getattr(main.__spec__, "name", "") == "tilewise.tuner.workers.worker":
            current.save()
        send(self, message)

    Connection.send = save_and_send  # type: ignore[assignment, method-assign]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out tests of which an interrupted run has noted two phases: the last of them is the tear-down."""
    if BEFORE in os.environ:
        with open(os.environ[BEFORE]) as file:
            phases = Counter(json.loads(line)[0] for line in file)
        items[:] = [item for item in items if phases[item.nodeid] < 2]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Name the test to this process, to its forks and to the processes that it starts."""
    current = coverage.Coverage.current()
    os.environ[TEST] = item.nodeid
    _note(item.nodeid, "began", 0.0)
    if current is not None:
        current.switch_context(item.nodeid)
        current.config.context = item.nodeid  # a fork starts anew with these settings
    try:
        return (yield)
    finally:
        os.environ.pop(TEST, None)
        if current is not None:
            current.switch_context("")
            current.config.context = None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the outcome and the seconds of a test's set-up, call and tear-down."""
    _note(report.nodeid, report.outcome, report.duration)


def _note(*row: object) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        with open(os.environ[OUTCOMES], "a") as file:
            file.write(json.dumps(row) + "\n")


def pytest_sessionfinish() -> None:
    """Save what the test process has recorded; pytest-xdist may end it without clean-up."""
    if (current := coverage.Coverage.current()) is not None:
        current.save()
