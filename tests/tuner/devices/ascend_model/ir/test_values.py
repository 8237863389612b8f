"""Views as shapes: contiguous runs, vector repeats, folded and cut dimensions."""

import pytest

from tilewise.tuner.devices.ascend_model.ir.hivm import DYNAMIC
from tilewise.tuner.devices.ascend_model.ir.values import UNKNOWN, UnknownOperation, View, ceil, expanded


def view(sizes, strides, bits=32):
    return View(0, 3, sizes, strides, bits)


@pytest.mark.parametrize(
    ("sizes", "strides", "bits", "rows", "row_bytes", "repeats"),
    [
        ((), (), 32, 1, 4, 1),
        ((64,), (1,), 32, 1, 256, 1),
        ((65,), (1,), 32, 1, 260, 2),
        ((64,), (1,), 16, 1, 128, 1),
        ((9,), (1,), 1, 1, 2, 1),  # bits are packed
        ((4, 16), (16, 1), 32, 1, 256, 1),
        ((4, 16), (24, 1), 32, 4, 64, 2),  # eight rows at a time, 32 bytes of each
        ((4, 1, 16), (16, 99, 1), 32, 1, 256, 1),  # the stride of one element does not matter
        ((2, 4, 16), (128, 16, 1), 32, 2, 256, 2),
        ((2, 4, 16), (64, 16, 1), 32, 1, 512, 2),
        ((2, 4, 16), (96, 24, 1), 32, 8, 64, 2),  # once rows lie apart, none of the outer ones join them
        ((16, 1), (8, 1), 32, 16, 4, 2),
        ((4,), (2,), 32, 4, 4, 1),
        ((9, 8), (16, 1), 32, 9, 32, 2),
        ((3, 128), (200, 1), 32, 3, 512, 6),
        ((0, 8), (8, 1), 32, 1, 0, 0),
    ],
)
def test_rows_are_contiguous_runs_and_repeats_take_256_bytes_or_eight_blocks(
    sizes, strides, bits, rows, row_bytes, repeats
):
    made = view(sizes, strides, bits)
    assert made.rows() == (rows, row_bytes)
    assert made.repeats() == repeats


@pytest.mark.parametrize(("sizes", "bits", "expected"), [((3, 5), 32, 60), ((9,), 1, 2), ((8,), 1, 1), ((), 16, 2)])
def test_bytes_are_rounded_up(sizes, bits, expected):
    assert view(sizes, (1,) * len(sizes), bits).bytes() == expected


@pytest.mark.parametrize(("a", "b", "expected"), [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2), (8, 4, 2)])
def test_ceil_rounds_up(a, b, expected):
    assert ceil(a, b) == expected


def test_folded_dimensions_keep_the_innermost_stride():
    folded = view((2, 3, 1, 4), (96, 32, 7, 8), 16).collapsed(((0,), (1, 2), (3,)))
    assert folded == View(0, 3, (2, 3, 4), (96, 32, 8), 16)
    assert view((2, 3, 4), (12, 4, 1)).collapsed(((0, 1, 2),)).strides == (1,)
    assert view((1, 1), (5, 7)).collapsed(((0, 1),)) == View(0, 3, (1,), (1,), 32)


@pytest.mark.parametrize(
    ("sizes", "strides", "groups", "shape", "expected"),
    [
        ((12,), (1,), ((0, 1),), (3, 4), ((3, 4), (4, 1))),
        ((12,), (5,), ((0, 1),), (3, 4), ((3, 4), (20, 5))),
        ((12,), (1,), ((0, 1),), (DYNAMIC, 4), ((3, 4), (4, 1))),
        ((12,), (1,), ((0, 1, 2),), (2, DYNAMIC, 2), ((2, 3, 2), (6, 2, 1))),
        ((7, 12), (24, 2), ((0,), (1, 2)), (7, 6, 2), ((7, 6, 2), (24, 4, 2))),
        ((0,), (1,), ((0, 1),), (DYNAMIC, 0), ((0, 0), (0, 1))),
    ],
)
def test_a_dimension_is_cut_into_neighbouring_ones(sizes, strides, groups, shape, expected):
    assert expanded(sizes, strides, groups, shape) == expected


@pytest.mark.parametrize(("shape", "cut"), [((5, 2), 10), ((DYNAMIC, 5), 10), ((13,), 13)])
def test_a_dimension_that_does_not_divide_is_refused(shape, cut):
    with pytest.raises(UnknownOperation, match=rf"expand_shape cuts 12 elements into {cut}$"):
        expanded((12,), (1,), (tuple(range(len(shape))),), shape)


def test_nothing_is_decided_by_an_unknown_value():
    for use in (bool, lambda value: value == 1, lambda value: value + 1, hash):
        with pytest.raises(TypeError):
            use(UNKNOWN)
