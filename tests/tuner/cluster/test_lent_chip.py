"""A device that another process uses: what it is told to be, shares that end others, and what it may be asked."""

from __future__ import annotations

import math
import socket

import pytest

from tilewise.kernels.spec import Problem
from tilewise.tuner.cluster import lent_chip
from tilewise.tuner.cluster.lent_chip import LentChip

PROBLEM = Problem("bowl", {"M": 64}, "float32")


@pytest.fixture
def lent(bowl, monkeypatch):
    """A lent chip; `told` of its device lists the times to beat, config by config."""
    monkeypatch.setitem(lent_chip._specs, "bowl's place", bowl.SPEC)

    class Told(bowl.FormulaDevice):
        told = ()

        def evaluate(self, spec, problem, configs, *, to_beat_us):
            for outcome in super().evaluate(spec, problem, configs):
                self.told = (*self.told, to_beat_us())
                yield outcome

    chip = LentChip(Told())
    chip.device = chip._device
    return chip


def times(outcomes):
    return [outcome.timing.time_us for outcome in outcomes]


def test_a_lent_chip_is_described_as_the_device_that_it_is(lent):
    found, device = lent.describe(), lent.device
    assert (found.id, found.host) == (device.id, socket.gethostname())
    for name in ("clock", "target", "toolchain", "batch", "noisy", "settle_seconds", "serial", "measures_energy"):
        assert getattr(found, name) == getattr(device, name), name
    assert (found.notes, found.memory_bytes) == (tuple(device.notes), 2**20)


def test_a_later_share_ends_those_before_it_and_not_itself(lent, bowl):
    configs = [bowl.BEST, bowl.DEFAULT, bowl.BEST]
    first = lent.evaluate(1, "bowl's place", PROBLEM, configs)
    assert times([next(first)]) == [10.0]
    second = lent.evaluate(2, "bowl's place", PROBLEM, configs)
    assert times([next(second)]) == [10.0]
    assert list(first) == [] and list(lent.evaluate(1, "bowl's place", PROBLEM, configs)) == []
    assert times(second) == [bowl.time_us(bowl.DEFAULT), 10.0]
    third = lent.evaluate(3, "bowl's place", PROBLEM, configs)
    next(third)
    lent.beat(2, 5.0)
    next(third)
    lent.beat(4, 5.0)
    assert list(third) == []


def test_a_device_knows_the_time_to_beat_as_it_was_told_last(lent, bowl):
    outcomes = lent.evaluate(1, "bowl's place", PROBLEM, [bowl.BEST] * 3)
    for best_us in (None, 12.5, None):
        lent.beat(1, best_us)
        next(outcomes)
    assert lent.device.told == (None, 12.5, None) and math.isinf(lent._best_us)


def test_a_device_is_asked_only_what_a_tuning_asks(lent, bowl):
    assert lent.ask("verify", "bowl's place", PROBLEM, bowl.BEST).agreed and lent.device.verified == [bowl.BEST]
    with pytest.raises(ValueError, match=r"close is none of .*verify"):
        lent.ask("close", "bowl's place", PROBLEM)
    assert not lent.device.closed
    lent.close()
    assert lent.device.closed
