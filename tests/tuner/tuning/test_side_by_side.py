"""Several problems at once: each once, on the device that is free, and none lost with a device."""

from __future__ import annotations

import threading

import pytest

from tilewise.errors import StoreError, Unavailable
from tilewise.tuner.tuning import side_by_side
from tilewise.tuner.tuning.side_by_side import SideBySide
from tilewise.tuner.tuning.tune import tune


@pytest.fixture
def devices(bowl):
    made = [bowl.FormulaDevice() for _ in range(3)]
    for number, device in enumerate(made):
        device.id = f"npu:{number}"
    return made


def lanes(work, lost=lambda device, error: None):
    return SideBySide(work, stopping=threading.Event(), lost=lost)


def test_each_problem_is_tuned_once_and_the_results_are_those_of_one_after_the_other(bowl, devices, store):
    sizes = [{"M": 64 * factor} for factor in range(1, 8)]

    def work(number, dims, device):
        return number, tune(bowl.SPEC, dims, device=device, search="exhaustive", db=store).winner.config

    assert lanes(work).run(sizes, devices) == [(number, bowl.BEST) for number in range(7)]
    stored = [len(store.trials(scope)) for scope in store.scopes()]
    assert len(stored) == 7
    assert sum(stored) == sum(len(d.evaluated) for d in devices)


def test_all_devices_work_at_once(devices):
    together = threading.Barrier(3, timeout=60)
    assert lanes(lambda number, item, device: together.wait() >= 0).run("abc", devices) == [True] * 3


def test_what_a_lost_device_had_is_done_by_another_even_if_that_one_had_finished(devices):
    told, finished, ran = [], threading.Event(), []

    def work(number, item, device):
        ran.append((item, device.id))
        if device.id == "npu:0":
            finished.wait(60)
            raise Unavailable("it fell off the bus")
        finished.set()
        return item

    found = lanes(work, lambda device, error: told.append((device.id, str(error)))).run("ab", devices[:2])
    assert found == ["a", "b"]
    assert told == [("npu:0", "it fell off the bus")]
    assert sorted(ran) == [("a", "npu:0"), ("a", "npu:1"), ("b", "npu:1")]


def test_when_every_device_is_lost_the_error_is_raised(devices):
    def work(number, item, device):
        raise Unavailable(f"{device.id} is gone")

    with pytest.raises(Unavailable, match="npu:2 is gone"):
        lanes(work).run("abcd", devices)


def test_an_error_ends_the_whole_and_is_raised(devices):
    began = threading.Event()
    stopping, ran = threading.Event(), []

    def work(number, item, device):
        ran.append(item)
        if item == "a":
            began.wait(60)
            raise StoreError("the disk is gone")
        began.set()
        assert stopping.wait(60)

    with pytest.raises(StoreError, match="the disk is gone"):
        SideBySide(work, stopping=stopping, lost=print).run("abcdefgh", devices[:2])
    assert sorted(ran) == ["a", "b"]


def test_an_interruption_closes_the_devices_and_tells_those_that_work(devices, monkeypatch):
    stopping, seen = threading.Event(), []
    join = threading.Thread.join

    def interrupted(thread, timeout=None):
        if timeout is None:
            raise KeyboardInterrupt
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        SideBySide(lambda *given: seen.append(stopping.wait(60)), stopping=stopping, lost=print).run("abcd", devices)
    assert seen == [True] * 3
    assert all(device.closed for device in devices)


def test_an_interruption_stops_all_lanes_and_closes_the_devices(devices, monkeypatch):
    stopping, join, calls = threading.Event(), threading.Thread.join, []

    def interrupted(thread, timeout=None):
        calls.append(timeout)
        if len(calls) == 1:
            raise KeyboardInterrupt
        join(thread, timeout)

    made = SideBySide(lambda number, item, device: stopping.wait(60), stopping=stopping, lost=lambda *about: None)
    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.run("abc", devices)
    assert stopping.is_set() and all(device.closed for device in devices)
    assert calls == [None, *[side_by_side._STOP_SECONDS] * 3]
