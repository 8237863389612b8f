"""The thread that starts jobs survives what it meets."""

import logging
from types import SimpleNamespace

import pytest

from tilewise.api.jobs.processes import identity
from tilewise.api.jobs.runner import Runner
from tilewise.errors import StoreError


@pytest.mark.parametrize(
    ("error", "line"), [(StoreError("it is locked"), "job runner: it is locked"), (KeyError("x"), "job runner")]
)
def test_an_error_of_a_turn_is_logged_and_ends_nothing(error, line, caplog):
    def turn():
        raise error

    runner = Runner("sqlite://", None, lambda: (), None)
    with caplog.at_level(logging.ERROR):
        runner._attempt(turn)
    [record] = caplog.records
    assert record.getMessage() == line
    assert (record.exc_info is None) == isinstance(error, StoreError)


@pytest.mark.parametrize(
    ("beats", "moments", "lost"),
    [
        ([3, 3], [0.0, 60.0], False),
        ([3, 3], [0.0, 60.1], True),
        ([3, 4], [0.0, 100.0], False),  # a sign of life meanwhile
        ([3, 4, 4], [0.0, 100.0, 160.0], False),
        ([3, 4, 4], [0.0, 100.0, 160.5], True),
        ([0], [1000.0], False),  # the first look tells nothing
    ],
)
def test_a_job_of_another_machine_is_lost_after_a_minute_without_a_heartbeat(beats, moments, lost, monkeypatch):
    runner, clock = Runner("sqlite://", None, lambda: (), None), iter(moments)
    monkeypatch.setattr("tilewise.api.jobs.runner.time", SimpleNamespace(monotonic=lambda: at))
    found = None
    for beat in beats:
        at = next(clock)
        found = runner._is_lost(SimpleNamespace(id=7, owner="elsewhere/boot/12/345", beats=beat))
    assert found is lost


def test_a_job_of_this_machine_is_lost_as_soon_as_its_process_has_ended():
    runner = Runner("sqlite://", None, lambda: (), None)
    host, _, started = identity().rpartition("/")
    assert not runner._is_lost(SimpleNamespace(id=7, owner=identity(), beats=0))
    assert runner._is_lost(SimpleNamespace(id=7, owner=f"{host}/{int(started) + 1}", beats=0))
