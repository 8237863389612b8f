"""The thread that starts jobs survives what it meets."""

import logging

import pytest

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
