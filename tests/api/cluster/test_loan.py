"""Loans of an actor's chip: one at a time, none beside a job, and none for a borrower that is gone."""

from __future__ import annotations

import pytest

from tilewise.api.cluster import loan as module
from tilewise.api.cluster.loan import Loans
from tilewise.errors import InUse, Unavailable
from tilewise.tuner.cluster.borrowed_chip import LOAN_SECONDS


class Runner:
    def __init__(self):
        self.free = True

    def reserve(self, lane):
        was_free, self.free = self.free, False
        return was_free

    def release(self, lane):
        self.free = True


class Device:
    closed = 0

    def close(self):
        Device.closed += 1


@pytest.fixture
def loans(monkeypatch):
    Device.closed = 0
    monkeypatch.setattr(module, "open_device", lambda lane, wait: Device())
    now = [0.0]
    made = Loans(Runner(), "cuda:1", clock=lambda: now[0])
    made.now = now
    return made


def test_a_chip_with_a_job_is_not_lent(loans):
    loans._runner.free = False
    with pytest.raises(InUse, match="cuda:1 has a job"):
        loans.lend("mine")


def test_a_chip_that_does_not_open_has_jobs_again(loans, monkeypatch):
    def fail(lane, wait):
        raise Unavailable("no GPU")

    monkeypatch.setattr(module, "open_device", fail)
    with pytest.raises(Unavailable, match="no GPU"):
        loans.lend("mine")
    assert loans._runner.free


def test_a_borrower_that_is_silent_for_too_long_loses_the_chip(loans):
    loans.lend("mine")
    loans.now[0] = LOAN_SECONDS
    loans.end_silent()
    assert loans.lent("mine") is not None
    loans.now[0] += LOAN_SECONDS + 1
    loans.end_silent()
    assert (Device.closed, loans._runner.free) == (1, True)
    with pytest.raises(Unavailable, match="the loan of cuda:1 has ended"):
        loans.lent("mine")


def test_only_its_own_borrower_ends_a_loan(loans):
    loans.lend("mine")
    loans.end("another's")
    assert not loans._runner.free
    loans.end("mine")
    loans.end("mine")
    assert (Device.closed, loans._runner.free) == (1, True)
    loans.lend("another's")
    loans.close()
    assert (Device.closed, loans._runner.free) == (2, True)
