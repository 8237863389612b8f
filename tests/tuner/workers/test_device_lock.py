"""The lock on a device: who waits for how long, and what is said of the holder."""

import json
import os
import re
import sys
from types import SimpleNamespace

import pytest

from tilewise.errors import Unavailable
from tilewise.tuner.workers import device_lock
from tilewise.tuner.workers.device_lock import DeviceLock


@pytest.fixture
def clock(monkeypatch):
    """A clock that only waiting moves; `slept` lists the waits, and `then` is called after each."""
    now = SimpleNamespace(seconds=50.0, slept=[], then=lambda: None)

    def sleep(seconds):
        now.seconds += seconds
        now.slept.append(seconds)
        now.then()

    monkeypatch.setattr(device_lock, "time", SimpleNamespace(monotonic=lambda: now.seconds, sleep=sleep))
    return now


@pytest.fixture
def held(tmp_path):
    lock = DeviceLock("npu", "npu 0/A", tmp_path)
    lock.acquire()
    yield lock
    lock.release()


def test_a_held_device_is_refused_at_once_if_nobody_wants_to_wait(held, clock, tmp_path):
    with pytest.raises(Unavailable, match=rf"^npu is in use by process {os.getpid()} \(.*\) since \d\d:\d\d:\d\d UTC"):
        DeviceLock("npu", "npu 0/A", tmp_path).acquire(0.0)
    assert clock.slept == []


@pytest.mark.parametrize("wait", [0.35, 2.0])
def test_it_is_waited_for_as_long_as_was_allowed_and_said_once(held, clock, tmp_path, wait):
    told = []
    with pytest.raises(Unavailable, match="try again later, or wait with --wait"):
        DeviceLock("npu", "npu 0/A", tmp_path).acquire(wait, told.append)
    assert wait <= sum(clock.slept) < wait + 0.2
    (line,) = told
    assert re.fullmatch(r"npu is in use by process .*; waiting for it", line)


def test_without_a_limit_it_is_waited_for_until_it_is_free(held, clock, tmp_path):
    told = []
    clock.then = lambda: held.release() if len(clock.slept) == 40 else None
    lock = DeviceLock("npu", "npu 0/A", tmp_path)
    lock.acquire(None, told.append)
    assert (len(clock.slept), len(told)) == (40, 1)
    with pytest.raises(Unavailable):
        DeviceLock("npu", "npu 0/A", tmp_path).acquire(0.0)
    lock.release()


def test_a_free_device_is_taken_without_a_word_and_released_twice_without_harm(clock, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/tilewise", "tune", "x" * 200])
    told = []
    lock = DeviceLock("npu", "npu 0/A", tmp_path)
    lock.acquire(5.0, told.append)
    note = tmp_path / "npu_0_A.holder"
    assert json.loads(note.read_text())["command"] == f"tilewise tune {'x' * 106}"
    lock.release()
    lock.release()
    assert (told, clock.slept, note.exists()) == ([], [], False)


@pytest.mark.parametrize("text", ["", "{}", '{"pid": 999999999, "command": "x", "since": "y"}'])
def test_a_holder_that_left_no_note_or_has_ended_is_another_process(held, clock, tmp_path, text):
    (tmp_path / "npu_0_A.holder").write_text(text)
    with pytest.raises(Unavailable, match=r"^npu is in use by another process; "):
        DeviceLock("npu", "npu 0/A", tmp_path).acquire(0.0)


def test_other_devices_are_not_locked(held, clock, tmp_path):
    other = DeviceLock("npu:1", "npu 1/A", tmp_path)
    other.acquire(0.0)
    other.release()


def test_waiting_is_told_on_stderr(held, clock, tmp_path, capsys):
    with pytest.raises(Unavailable):
        DeviceLock("npu", "npu 0/A", tmp_path).acquire(0.1)
    assert re.fullmatch(r"tilewise: npu is in use by .*; waiting for it\n", capsys.readouterr().err)
