"""The buffers of a launch: what programs read from them, what they leave there, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilewise.tuner.devices.ascend_model.clock.core import MTE2, MTE3, S, V
from tilewise.tuner.devices.ascend_model.executor.global_memory import (
    GlobalMemory,
    buffers_of,
    require_on_chip,
    require_transfer,
    written_arguments,
)
from tilewise.tuner.devices.ascend_model.executor.groups import Group
from tilewise.tuner.devices.ascend_model.executor.hazards import Order, Race
from tilewise.tuner.devices.ascend_model.executor.memory import Fault, OnChip, OutOfBounds, View
from tilewise.tuner.devices.ascend_model.ir.hivm import Block, Function, MemRef, Op
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation

LOAD, STORE = (
    Op(f"hivm.hir.{name}", (), (), {}, (), (), (), number) for number, name in enumerate(("load", "store"), 3)
)
ELEMENT = View(1, 0, 0, (), (), "f32")


def row(offset=0, size=4, base=1):
    return View(base, 0, offset, (size,), (1,), "f32")


def group(*programs):
    return Group(np.array(programs or (1,)), [], OnChip(len(programs) or 1, 64), Order(64), [])


@pytest.fixture
def data():
    return np.arange(8, dtype=np.float32)


@pytest.fixture
def memory(data):
    """Argument 1 is read and written, argument 2 only read; 0 is none of the buffers."""
    return GlobalMemory({1: data, 2: np.arange(8, dtype=np.float32)}, ["sync", "x_ptr", "y_ptr"], {1}, 255)


def read(memory, view, *programs):
    return [(part, piece.tolist()) for part, piece in memory.read(group(*programs), MTE2, LOAD, view)]


def test_programs_read_their_windows_of_a_buffer(memory):
    assert read(memory, row(np.array([0, 4])), 1, 2) == [(slice(0, 2), [[0, 1, 2, 3], [4, 5, 6, 7]])]
    assert memory.strays == set()


def test_a_read_a_little_beyond_what_no_program_writes_is_noted_and_gives_stray_values(memory):
    ((part, values),) = read(memory, row(np.array([0, 6]), base=2), 1, 2)
    assert (part, values[0], values[1][:2]) == (slice(0, 2), [0, 1, 2, 3], [6, 7])
    assert np.isnan(values[1][2:]).all()
    assert memory.strays == {"load (operation 3) uses element 9 of y_ptr, which has 8"}


def test_a_read_beyond_what_programs_write_is_refused(memory):
    with pytest.raises(OutOfBounds, match="uses element 9 of x_ptr, which has 8"):
        read(memory, row(6))
    assert memory.strays == set()


def test_a_buffer_that_is_none_of_the_arguments_is_not_supported(memory):
    with pytest.raises(UnknownOperation) as refused:
        read(memory, row(base=0))
    assert str(refused.value) == (
        "the model does not support load (operation 3) on memory other than the kernel's arguments"
    )


def test_elements_are_gathered_from_what_no_program_writes(memory):
    places, element = np.array([[7, 0], [3, 3]]), replace(ELEMENT, base=2)
    assert memory.gather(LOAD, element, places).tolist() == [[7, 0], [3, 3]]
    assert memory.gather(LOAD, ELEMENT, places) is None
    found = memory.gather(LOAD, element, np.array([-1, 2, 8]))
    assert np.isnan(found[[0, 2]]).all() and found[1] == 2
    assert memory.strays == {"load (operation 3) uses element -1 of y_ptr, which has 8"}
    with pytest.raises(OutOfBounds, match="uses element 100000000 of y_ptr"):
        memory.gather(LOAD, element, np.array([100_000_000]))


def test_a_store_of_one_program_that_another_read_is_a_race(memory, data):
    stored = np.full((1, 4), 9, np.float32)
    list(memory.read(group(1), MTE2, LOAD, row()))
    memory.store(group(2), MTE3, STORE, row(4), stored, "none")
    assert data.tolist() == [0, 1, 2, 3, 9, 9, 9, 9]
    with pytest.raises(Race, match="of x_ptr"):
        memory.store(group(2), MTE3, STORE, row(), stored, "none")


def test_a_poisoned_buffer_is_as_if_it_had_never_been_used(memory, data):
    list(memory.read(group(1), MTE2, LOAD, row()))
    memory.poison(1)
    assert np.isnan(data).all()
    memory.store(group(2), MTE3, STORE, row(), np.ones((1, 4), np.float32), "none")
    assert data[:4].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(("kind", "left"), [("add", [111, 223, 2]), ("max", [100, 200, 2]), ("min", [0, 1, 2])])
def test_an_atomic_store_combines_the_values_of_one_program_after_the_other(memory, data, kind, left):
    values = np.array([[10, 20], [100, 200], [1, 2]], np.float32)
    memory.store(group(1, 2, 3), MTE3, STORE, row(np.array([0, 0, 0]), 2), values, kind)
    assert data[:3].tolist() == left


def test_each_program_adds_where_its_window_is(memory, data):
    memory.store(group(1, 2), MTE3, STORE, row(np.array([6, 0]), 2), np.array([[10, 20], [30, 40]], np.float32), "add")
    assert data.tolist() == [30, 41, 2, 3, 4, 5, 16, 27]


@pytest.mark.parametrize(
    ("at", "free"), [([0, 7], True), ([0, 8], False), ([-1, 7], False), ([3, 4], True), ([], True)]
)
def test_elements_are_free_that_lie_inside_the_buffer(memory, at, free):
    programs = np.arange(len(at))
    assert memory.is_free(Order(64), MTE3, STORE, ELEMENT, np.array(at, np.int64), programs) is free


ZERO = np.array([0])
"""The first program, alone."""


def is_free(memory, order, at, program=0, pipe=MTE3):
    return memory.is_free(order, pipe, STORE, ELEMENT, np.array([at]), np.array([program]))


def test_an_element_that_a_program_stored_to_is_free_for_itself_once_that_is_done(memory, data):
    order = Order(64)
    order.issue(MTE3, STORE)
    memory.scatter(ELEMENT, np.array([2, 5]), np.array([20, 50], np.float32), np.array([0, 1]), MTE3, (1, "store"))
    assert data.tolist() == [0, 1, 20, 3, 4, 50, 6, 7]
    assert [is_free(memory, order, at, 0) for at in (2, 5, 6)] == [False, False, True]
    order.barrier(MTE3)
    assert [is_free(memory, order, at, 0) for at in (2, 5, 6)] == [True, False, True]
    assert [is_free(memory, order, at, 1) for at in (2, 5, 6)] == [False, True, True]
    assert not is_free(memory, order, 2, pipe=V)  # only the pipe that stored knows


def test_an_element_that_a_program_read_is_free_for_itself_once_that_is_done(memory):
    order = Order(64)
    order.issue(MTE2, LOAD)
    there = Group(ZERO, [], OnChip(1, 64), order, [])
    list(memory.read(there, MTE2, LOAD, row()))
    assert [is_free(memory, order, at) for at in (3, 4)] == [False, True]
    order.wait(MTE3, order.clock(MTE2))
    assert [is_free(memory, order, at) for at in (3, 4)] == [True, True]
    assert not is_free(memory, order, 3, program=1)


def test_what_the_scalar_unit_read_is_in_its_register(memory):
    order = Order(64)
    order.issue(S, LOAD)
    list(memory.read(Group(ZERO, [], OnChip(1, 64), order, []), S, LOAD, row()))
    assert [is_free(memory, order, 3, program) for program in (0, 1)] == [True, False]


def test_what_the_scalar_unit_stored_may_still_be_in_its_cache(memory):
    order = Order(64)
    order.issue(S, STORE)
    there = Group(ZERO, [], OnChip(1, 64), order, [])
    memory.store(there, S, STORE, row(), np.ones((1, 4), np.float32), "none")
    assert [is_free(memory, order, at) for at in (3, 4)] == [False, True]


def test_all_elements_are_free_of_a_buffer_that_is_not_watched():
    memory = GlobalMemory({0: np.zeros(4, np.float32)}, ["out_ptr"], (), 255)
    element = replace(ELEMENT, base=0)
    memory.scatter(element, np.array([1]), np.array([5], np.float32), ZERO, MTE3, (1, "store"))
    assert memory.is_free(Order(64), MTE3, STORE, element, np.array([1]), np.array([3]))


def test_memory_on_chip_has_a_base_below_zero():
    require_on_chip([row(base=-1)], LOAD)
    for base in (0, 1):
        with pytest.raises(Fault, match=r"^load \(operation 3\) uses global memory as if it were on chip$"):
            require_on_chip([row(base=-1), row(base=base)], LOAD)


def test_a_transfer_joins_global_and_on_chip_memory():
    require_transfer(row(base=0), row(base=-1), LOAD)
    with pytest.raises(Fault, match="uses on-chip memory as if it were global"):
        require_transfer(row(base=-1), row(base=-1), LOAD)
    with pytest.raises(Fault, match="uses global memory as if it were on chip"):
        require_transfer(row(base=0), row(base=1), LOAD)
    with pytest.raises(Fault, match=r"is between memory of shapes \(4,\) and \(5,\), which differ"):
        require_transfer(row(base=0), row(base=-1, size=5), LOAD)


# The function's arguments -------------------------------------------------------------------------------------------

GM = MemRef((-1,), (1,), "f32", "gm")


def an_op(name, operands, results=(), types=(), regions=()):
    return Op(name, tuple(operands), tuple(results), {}, tuple(types), (), tuple(regions))


def function(*operations, arguments=((0, GM), (1, GM), (2, "i32"), (3, GM))):
    return Function("kernel", arguments, Block((), operations), 99)


def test_the_last_memrefs_are_the_kernels_buffers():
    assert buffers_of(function(), ["x_ptr", "out_ptr"]) == {1: "x_ptr", 3: "out_ptr"}
    assert buffers_of(function(), ["x_ptr", "y_ptr", "out_ptr"]) == {0: "x_ptr", 1: "y_ptr", 3: "out_ptr"}


@pytest.mark.parametrize("name", ["hivm.hir.store", "hivm.hir.fixpipe", "memref.store"])
def test_an_argument_is_written_that_a_store_goes_to_through_any_view(name):
    view = an_op("memref.reinterpret_cast", [3], [10], [GM])
    part = an_op("memref.subview", [10], [11], [GM])
    assert written_arguments(function(view, part, an_op(name, [20, 11]))) == {3}
    assert written_arguments(function(view, part, an_op(name, [11, 20]))) == set()
    assert written_arguments(function(view, part, an_op("hivm.hir.load", [20, 11]))) == set()


def test_what_is_made_of_a_number_or_of_the_workspace_is_no_argument():
    of_number = an_op("arith.index_cast", [2], [10], ["i32"])
    workspace = an_op("memref_ext.alloc_workspace", [0], [11], [GM])
    assert written_arguments(function(of_number, an_op("memref.store", [20, 10]))) == set()
    assert written_arguments(function(workspace, an_op("hivm.hir.store", [20, 11]))) == set()


def test_a_view_that_a_loop_carries_is_of_its_argument():
    body = Block((30, 31, 32), (an_op("hivm.hir.store", [20, 31]),))
    loop = an_op("scf.for", [4, 5, 6, 1, 7], [40, 41], regions=[body])
    assert written_arguments(function(loop)) == {1}
    assert written_arguments(function(replace(loop, regions=(Block((30, 31, 32), ()),)))) == set()
    assert written_arguments(function(loop, an_op("hivm.hir.store", [20, 41]))) == {1}
    idle = replace(loop, regions=(Block((30, 31, 32), ()),))
    assert written_arguments(function(idle, an_op("hivm.hir.store", [20, 40]))) == {1}
