"""A product of tiles in L1, part by part: what fits halves of L0, and the flags around it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewise.tuner.devices.ascend_model.ir.mmad import (
    HALVES,
    NO_FLAG,
    Flag,
    Load,
    LoadBias,
    Mmad,
    Multiply,
    Part,
    Sync,
    depth_parts,
    fractal_width,
    needs_barrier,
)

HALF, WHOLE = 32 << 10, 64 << 10


def parts(depth, rows, cols, item_bytes=2, trip=NO_FLAG):
    return [
        (part.start, part.depth, part.stored, part.half, part.half_bytes, part.last)
        for part in depth_parts(depth, rows, cols, item_bytes, trip)
    ]


@pytest.mark.parametrize(
    ("depth", "rows", "cols", "item_bytes", "longest", "size"),
    [
        (1000, 128, 256, 2, 64, HALF),  # 256 columns of 64 16-bit numbers are 32 KiB
        (1000, 256, 16, 2, 64, HALF),
        (1000, 16, 16, 4, 512, HALF),
        (1000, 16, 48, 1, 512, HALF),  # 48 columns of bytes take two fractals of 32
        (1000, 17, 1, 2, 512, HALF),
        (1000, 1024, 16, 2, 16, HALF),
        (1000, 1025, 16, 2, 16, WHOLE),  # half of L0 holds no fractal of the depth
        (1000, 2048, 16, 2, 16, WHOLE),
    ],
)
def test_a_part_is_as_deep_as_its_operands_fit_half_of_l0(depth, rows, cols, item_bytes, longest, size):
    found = parts(depth, rows, cols, item_bytes)
    assert [start for start, *_ in found] == [*range(0, depth, longest)]
    assert {one[4] for one in found} == {size}
    assert [one[5] for one in found] == [False] * (len(found) - 1) + [True]
    assert sum(one[1] for one in found) == depth
    assert {one[3] for one in found} == ({0, 1} if size == HALF and len(found) > 1 else {0})


def test_the_last_part_is_stored_in_whole_fractals():
    assert parts(70, 128, 256) == [(0, 64, 64, 0, HALF, False), (64, 6, 16, 1, HALF, True)]
    assert parts(70, 128, 256, 4)[-1] == (64, 6, 8, 0, HALF, True)
    assert parts(33, 16, 16, 1) == [(0, 33, 64, 0, HALF, True)]


@pytest.mark.parametrize(("trip", "halves"), [(NO_FLAG, [0, 1, 0]), (0, [0, 1, 0]), (1, [1, 0, 1]), (2, [0, 1, 0])])
def test_halves_alternate_from_trip_to_trip(trip, halves):
    assert [half for _, _, _, half, _, _ in parts(192, 128, 256, trip=trip)] == halves
    assert {half for _, _, _, half, _, _ in parts(32, 2048, 16, trip=trip)} == {0}


@pytest.mark.parametrize(("depth", "rows"), [(0, 16), (-16, 16), (16, 2049), (16, 4096)])
def test_what_the_hardware_would_trap_is_refused(depth, rows):
    with pytest.raises(ValueError, match=f"a product of {rows} x {depth} x 16 does not fit the operand buffers"):
        parts(depth, rows, 16)


def test_a_fractal_has_rows_of_32_bytes_and_few_of_them_need_a_barrier():
    assert [fractal_width(size) for size in (1, 2, 4)] == [32, 16, 8]
    assert [needs_barrier(rows, cols) for rows, cols in ((48, 48), (32, 80), (16, 144), (16, 160), (160, 16))] == [
        True, False, True, False, False,
    ]  # fmt: skip


PLAIN = Mmad(a=0, b=1, out=2, first=3, depth=4, cols=5, events=(), transposed=(False, False))
A, B = (3, 5, 7, 11), (13, 17, 19, 23)
"""Sizes of views in fractals: columns, rows, and those of a fractal."""


@pytest.mark.parametrize(
    ("transposed", "extents", "deepest"),
    [
        ((False, False), (5 * 7, 13 * 23), 3 * 11),
        ((True, False), (3 * 11, 13 * 23), 5 * 7),
        ((False, True), (5 * 7, 17 * 19), 3 * 11),
        ((True, True), (3 * 11, 17 * 19), 5 * 7),
    ],
)
def test_a_transposed_operand_has_its_depth_where_the_other_has_its_rows(transposed, extents, deepest):
    product = replace(PLAIN, transposed=transposed)
    assert (product.extents(A, B), product.deepest(A, B)) == (extents, deepest)
    shallow = (2, 1, 1, 5) if transposed[1] else (5, 1, 2, 1)
    assert product.deepest(A, shallow) == (10 if transposed[1] else 2)


def test_without_events_both_halves_are_free_first_and_waited_for_last():
    first, last = Part(0, 64, 64, 0, HALF, False), Part(64, 6, 16, 1, HALF, True)
    assert list(PLAIN.course([0, 0, 0, 0, 70], 128, 256, 2)) == [
        Flag("set", "M", "MTE1", 0), Flag("set", "M", "MTE1", 1),
        Flag("wait", "M", "MTE1", 0), Load(0, first), Load(1, first),
        Flag("set", "MTE1", "M", 0), Flag("wait", "MTE1", "M", 0), Multiply(first), Flag("set", "M", "MTE1", 0),
        Flag("wait", "M", "MTE1", 1), Load(0, last), Load(1, last),
        Flag("set", "MTE1", "M", 1), Flag("wait", "MTE1", "M", 1), Multiply(last), Flag("set", "M", "MTE1", 1),
        Flag("wait", "M", "MTE1", 0), Flag("wait", "M", "MTE1", 1),
    ]  # fmt: skip


def test_halves_that_are_handed_on_are_neither_free_first_nor_waited_for_last():
    first, last = Part(0, 64, 64, 0, HALF, False), Part(64, 6, 16, 1, HALF, True)
    assert list(PLAIN.course([0, 0, 0, 0, 70], 128, 256, 2, handed=True)) == [
        Flag("wait", "M", "MTE1", HALVES[0]), Load(0, first), Load(1, first),
        Flag("set", "MTE1", "M", HALVES[0]), Flag("wait", "MTE1", "M", HALVES[0]), Multiply(first),
        Flag("set", "M", "MTE1", HALVES[0]),
        Flag("wait", "M", "MTE1", HALVES[1]), Load(0, last), Load(1, last),
        Flag("set", "MTE1", "M", HALVES[1]), Flag("wait", "MTE1", "M", HALVES[1]), Multiply(last),
        Flag("set", "M", "MTE1", HALVES[1]),
    ]  # fmt: skip


def test_operands_are_waited_for_at_the_first_part_and_released_at_the_last():
    """The events are 10 to 13 for the operands, the trip is 1, and the halves are freed by 21 and 22."""
    values = [0, 0, 0, 0, 70, 0, 10, 11, 12, 13, 1, 21, 22]
    product = replace(PLAIN, events=tuple(range(6, 13)), bias=9)
    first, last = Part(0, 64, 64, 0, HALF, False), Part(64, 6, 16, 1, HALF, True)
    assert list(product.course(values, 128, 256, 2)) == [
        Flag("wait", "M", "MTE1", 21),
        Flag("wait", "MTE2", "MTE1", 10), Load(0, first), Flag("wait", "MTE2", "MTE1", 11), Load(1, first),
        LoadBias(9), Flag("set", "MTE1", "M", 21), Flag("wait", "MTE1", "M", 21), Multiply(first),
        Flag("set", "M", "MTE1", 21),
        Flag("wait", "M", "MTE1", 22),
        Load(0, last), Flag("set", "MTE1", "MTE2", 12), Load(1, last), Flag("set", "MTE1", "MTE2", 13),
        LoadBias(9), Flag("set", "MTE1", "M", 22), Flag("wait", "MTE1", "M", 22), Multiply(last),
        Flag("set", "M", "MTE1", 22),
    ]  # fmt: skip


def test_a_product_has_its_events_by_the_numbers_of_their_values_or_none_at_all():
    values = [*range(100, 120)]
    found = Sync.of([1, 2, 3, 4, 5, 6, 7], values)
    assert (found.filled, found.emptied, found.trip, found.halves) == ((101, 102), (103, 104), 105, (106, 107))
    none = Sync.of([], values)
    assert {*none.filled, *none.emptied, none.trip, *none.halves} == {NO_FLAG}
