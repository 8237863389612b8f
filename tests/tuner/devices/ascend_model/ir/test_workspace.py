"""Workspace of a mixed kernel: allocations that share an area, and forms that are not modelled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation
from tilewise.tuner.devices.ascend_model.ir.workspace import CROSS_FLAGS, Area, allocated, areas, cross_flag


def allocate(name, start, count, kind="f32", segments="1, 0, 1", operands=""):
    made = f"memref<{count}x{kind}, #hivm.address_space<gm>>"
    workspace = "memref<?xi8, #hivm.address_space<gm>>"
    types = ", ".join([workspace, *["index"] * segments.count("1")][: segments.count("1")])
    given = operands or f"%workspace, %at{name}"
    return (
        f'%at{name} = "arith.constant"() <{{value = {start} : index}}> : () -> index\n'
        f'%{name} = "memref_ext.alloc_workspace"({given}) <{{operandSegmentSizes = array<i32: {segments}>}}> '
        f": ({types}) -> {made}"
    )


def allocations(function):
    return [op for op in function.walk() if op.name == "memref_ext.alloc_workspace"]


@pytest.mark.parametrize(
    ("made", "found"),
    [
        ([(0, 8), (32, 4)], [Area(0, 32, 4), Area(32, 16, 4)]),  # side by side
        ([(0, 8), (0, 8)], [Area(0, 32, 4)]),
        ([(0, 8), (16, 8)], [Area(0, 48, 4)]),
        ([(0, 8), (8, 2)], [Area(0, 32, 4)]),  # within another
        ([(64, 2), (0, 8)], [Area(0, 32, 4), Area(64, 8, 4)]),
        ([(0, 8), (31, 1)], [Area(0, 35, 4)]),
    ],
)
def test_allocations_that_overlap_share_an_area(program, made, found):
    function = program(*(allocate(f"w{at}", start, count) for at, (start, count) in enumerate(made)))
    assert list(areas(function)) == found
    for op, (start, count) in zip(allocations(function), made, strict=True):
        at, area, one = allocated(op, function)
        assert area == found[at] and area.start <= start < area.start + area.size
        assert (one.start, one.end) == (start, start + 4 * count)


def test_elements_of_different_sizes_may_lie_side_by_side_but_not_overlap(program):
    apart = program(allocate("one", 0, 8), allocate("two", 32, 8, "f16"))
    assert list(areas(apart)) == [Area(0, 32, 4), Area(32, 16, 2)]
    with pytest.raises(UnknownOperation, match="workspace that has elements of different sizes"):
        areas(program(allocate("one", 0, 8), allocate("two", 28, 8, "f16")))


@pytest.mark.parametrize(
    "line",
    [
        allocate("one", 0, 8, operands="%workspace, %c1, %c0", segments="1, 1, 1"),
        allocate("one", 0, "?"),
        allocate("one", 0, 8, operands="%workspace, %unknown"),
    ],
    ids=["given size", "dynamic size", "unknown place"],
)
def test_workspace_of_a_size_or_place_known_at_run_time_only_is_not_modelled(program, line):
    function = program('%unknown = "arith.index_cast"(%n) : (i32) -> index', line)
    with pytest.raises(UnknownOperation, match="alloc_workspace of a size known at run time only"):
        areas(function)


def test_a_flag_of_another_core_or_with_more_words_is_not_modelled(program):
    words = "pipe = #hivm.pipe<PIPE_S>, tpipe = #hivm.pipe<PIPE_MTE3>, tcore_type = #hivm.tcore_type<VECTOR>"
    lines = [f'"{name}"() <{{{words}, static_flag_id = 3 : i64}}> : () -> ()' for name in CROSS_FLAGS]
    function = program(*lines, f'"{CROSS_FLAGS[0]}"(%zero) <{{{words}}}> : (i64) -> ()')
    fixed, waits, given = (op for op in function.walk() if op.name in CROSS_FLAGS)
    assert [cross_flag(op, function).pipe for op in (fixed, waits)] == ["PIPE_MTE3", "PIPE_S"]
    assert cross_flag(fixed, function).number(()) == 3
    assert cross_flag(given, function).number({given.operands[0]: 5}) == 5
    with pytest.raises(UnknownOperation, match="sync_block_set with odd, other"):
        cross_flag(replace(fixed, attributes={**fixed.attributes, "odd": 1, "other": 1}), function)
    with pytest.raises(UnknownOperation, match="sync_block_set of a CUBE core there"):
        cross_flag(replace(fixed, attributes={**fixed.attributes, "tcore_type": "CUBE"}), function)
