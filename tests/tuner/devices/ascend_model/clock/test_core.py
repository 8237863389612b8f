"""One core's clocks, flags and counters, step by step."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tilewise.tuner.devices.ascend_model.clock.core import (
    CUBE_PIPES,
    FIX,
    MTE2,
    MTE3,
    VECTOR_PIPES,
    Core,
    M,
    ProgramTime,
    S,
    V,
    core_name,
    pipe_number,
    pipes_of,
)
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation

CUBE, VECTOR = SimpleNamespace(core="cube"), SimpleNamespace(core="vector")


def test_each_kind_of_core_has_its_pipes():
    assert (pipes_of(CUBE), pipes_of(VECTOR)) == (CUBE_PIPES, VECTOR_PIPES)
    assert [pipe_number(f"PIPE_{name}", CUBE) for name in ("S", "M", "FIX")] == [S, M, FIX]
    for name, function in (("PIPE_V", CUBE), ("PIPE_FIX", VECTOR)):
        with pytest.raises(UnknownOperation, match=f"does not know the pipe {name} of a {function.core} core"):
            pipe_number(name, function)
    assert [core_name(core) for core in range(3)] == ["cube core", "vector core 0", "vector core 1"]


def test_a_pipe_begins_when_it_is_free_and_the_scalar_unit_has_come_to_it():
    core = Core(0, 1)
    core.scalar(3.0)
    core.occupy(V, 10.0, 2.0)
    core.occupy(V, 5.0, 1.0)
    assert (core.free[V], core.done[V], core.busy[V]) == (18.0, 19.0, 15.0)
    core.scalar(20.0)
    core.occupy(V, 1.0, 0.0)
    assert (core.free[V], core.done[V], core.busy[V]) == (24.0, 24.0, 16.0)
    assert (core.free[S], core.busy[S], core.free[MTE2]) == (23.0, 23.0, 0.0)


def test_a_short_transfer_does_not_undo_the_latency_of_one_before():
    core = Core(0, 1)
    core.occupy(MTE2, 10.0, 100.0)
    core.occupy(MTE2, 1.0, 0.0)
    assert (core.free[MTE2], core.done[MTE2]) == (11.0, 110.0)


def test_a_barrier_waits_for_its_own_pipe_or_for_all():
    core = Core(0, 1)
    core.occupy(V, 10.0, 5.0)
    core.occupy(MTE2, 50.0, 7.0)
    core.barrier(V, 2.0)
    assert (core.free[V], core.free[MTE2], core.free[S]) == (17.0, 50.0, 0.0)
    core.barrier(None, 3.0)
    assert core.free == [60.0] * 4


def test_flags_are_taken_in_turn_once_what_they_stand_for_is_done():
    core = Core(0, 1)
    core.occupy(MTE2, 10.0, 5.0)
    core.set_flag(MTE2, V, 0)
    core.occupy(MTE2, 10.0, 5.0)
    core.set_flag(MTE2, V, 0)
    core.wait_flag(MTE2, V, 0, 1.0)
    assert core.free[V] == 16.0
    core.occupy(V, 100.0, 0.0)
    core.wait_flag(MTE2, V, 0, 1.0)
    assert core.free[V] == 116.0
    for flag, words in (((MTE2, V, 0), "V waits for event 0 of MTE2"), ((V, MTE3, 1), "MTE3 waits for event 1 of V")):
        with pytest.raises(ValueError, match=f"deadlock: {words}, which is never set"):
            core.wait_flag(*flag, 1.0)
    core.scalar(200.0)
    core.set_flag(V, MTE3, 0)  # the scalar unit comes to it later
    core.wait_flag(V, MTE3, 0, 1.0)
    assert core.free[MTE3] == 201.0


def busy_core():
    core = Core(3, 2)
    core.occupy(V, 10.0, 5.0)
    core.set_flag(V, MTE3, 0)
    core.set_flag(V, MTE3, 1)
    core.odd_rows, core.elements = 4.0, 6
    core.reads[0], core.writes[1], core.atomics[1] = 100, 40, 20
    return core


def test_a_programs_time_has_what_moved_and_no_zeros():
    found = busy_core().finished()
    assert (found.cycles, found.busy) == (15.0, {"S": 0.0, "V": 10.0, "MTE2": 0.0, "MTE3": 0.0})
    assert (found.reads, found.writes, found.atomics) == ({0: 100}, {1: 40}, {1: 20})
    assert (found.bytes_in, found.bytes_out, found.odd_rows) == (100, 40, 4.0)
    assert set(Core(0, 0, CUBE_PIPES).finished().busy) == set(CUBE_PIPES)


def test_periods_advance_clocks_flags_and_counters():
    core = busy_core()
    before = core.copy()
    times = [float(number) for number in range(len(core.times()))]
    counts = [float(number) for number in range(len(core.counts()))]
    core.advance(times, counts, 3)
    assert core.times() == [old + 3 * step for old, step in zip(before.times(), times, strict=True)]
    assert core.counts() == [old + 3 * step for old, step in zip(before.counts(), counts, strict=True)]
    assert len(core.times()) == 4 + 4 + 2
    core.become(before)
    assert (core.times(), core.counts(), core.program) == (before.times(), before.counts(), 3)


def test_a_copy_is_on_its_own():
    core = busy_core()
    twin = core.copy()
    core.occupy(MTE2, 1.0, 1.0)
    core.wait_flag(V, MTE3, 0, 1.0)
    core.reads[0] += 1
    assert twin.times() == busy_core().times()
    assert twin.counts() == busy_core().counts()


def test_cores_side_by_side_take_as_long_as_the_slowest_and_move_what_all_move():
    cube = ProgramTime(90.0, {"M": 40.0, "MTE2": 30.0, "FIX": 5.0}, {0: 10}, {2: 8}, {}, odd_rows=3.0)
    vector = ProgramTime(100.0, {"V": 50.0, "MTE2": 20.0, "MTE3": 7.0}, {0: 5, 1: 2}, {2: 1}, {2: 1}, odd_rows=4.0)
    found = ProgramTime.together([cube, vector])
    assert (found.cycles, found.odd_rows, found.beside) == (100.0, 4.0, (cube, vector))
    assert (found.busy["M"], found.busy["V"], found.busy["MTE2"], found.busy["MTE1"]) == (40.0, 50.0, 30.0, 0.0)
    assert (found.reads, found.writes, found.atomics) == ({0: 15, 1: 2}, {2: 9}, {2: 1})
    assert found.moving == 30 + 5 + 20 + 7
    assert vector.moving == 27
