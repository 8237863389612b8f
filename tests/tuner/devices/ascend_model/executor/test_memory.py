"""On-chip memory byte by byte, and global buffers with exact ends."""

import math

import numpy as np
import pytest
import torch

from tilewise.tuner.devices.ascend_model.executor.memory import (
    STRAY_BYTES,
    STRAYS,
    Fault,
    Global,
    Layout,
    OnChip,
    OutOfBounds,
    Unfilled,
    View,
    collapsed,
    decode,
    encode,
)
from tilewise.tuner.devices.ascend_model.ir.hivm import Op
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation
from tilewise.tuner.hardware.ascend_parts import ON_CHIP_NAMES

OP = Op("hivm.hir.vadd", (), (), {}, (), (), (), 7)


def tile(address, *sizes, dtype="f32", strides=None, offset=0):
    dense = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    return View(-1, address, offset, sizes, tuple(strides or dense), dtype)


@pytest.mark.parametrize(("base", "on_chip"), [(-1, True), (0, False), (1, False)])
def test_a_view_is_of_an_argument_or_on_chip(base, on_chip):
    assert View(base, 0, 0, (4,), (1,), "f32").on_chip is on_chip


def test_memory_starts_as_nan_in_every_float_type():
    chip = OnChip(2, 64)
    for dtype in ("f32", "f16", "bf16"):
        assert np.isnan(chip.read(tile(0, 4, dtype=dtype), OP)).all()


def test_what_is_written_is_read_by_every_view_of_the_same_bytes():
    chip = OnChip(1, 64)
    chip.write(tile(32, 8), np.arange(8, dtype=np.float32), OP)
    assert chip.read(tile(32, 4, strides=(2,)), OP).tolist() == [[0, 2, 4, 6]]
    assert chip.read(tile(0, 2, offset=9), OP).tolist() == [[1, 2]]
    as_halves = chip.read(tile(32, 16, dtype="f16"), OP)[0]
    assert as_halves.tobytes() == np.arange(8, dtype=np.float32).tobytes()


def test_a_type_that_the_model_does_not_know_is_named():
    with pytest.raises(UnknownOperation, match=r"^the model does not know the element type f8E4M3$"):
        OnChip(1, 64).read(tile(0, 4, dtype="f8E4M3"), OP)


def test_views_of_nothing_change_nothing_and_lie_anywhere():
    chip, data = OnChip(1, 96), np.zeros(4, np.float32)
    chip.fill_block(tile(36, 0), 5.0, OP)  # the rest of that block is another's
    assert np.isnan(chip.read(tile(0, 24), OP)).all()
    assert [*Global("x", data).pieces(View(0, 0, 100, (0,), (1,), "f32"), 3, OP)] == []


def test_programs_have_memories_of_their_own():
    chip = OnChip(3, 32)
    chip.write(tile(0, 2), np.array([[1, 2], [3, 4], [5, 6]], np.float32), OP)
    assert chip.take(np.array([False, True, True])).read(tile(0, 2), OP).tolist() == [[3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("view", "first", "last"),
    [
        (tile(32, 9), 32, 68),
        (tile(0, 2, 8, strides=(16, 1)), 0, 96),
        (tile(0, 4, strides=(-1,)), -12, 4),
        (tile(-32, 4), -32, -16),
        (tile(0, 4, offset=14), 56, 72),
        (tile(2, 32, dtype="f16"), 2, 66),
        (tile(0, 2, 8, dtype="i1", strides=(512, 1)), 0, 65),
    ],
)
def test_an_access_beyond_the_memory_is_refused_with_its_place(view, first, last):
    with pytest.raises(OutOfBounds) as refused:
        OnChip(1, 64).read(view, OP)
    assert str(refused.value) == f"vadd (operation 7) uses bytes {first} to {last} of on-chip memory, which has 64"


@pytest.mark.parametrize("view", [tile(32, 8), tile(0, 2, 8), tile(12, 4, strides=(-1,)), tile(0, 2, offset=14)])
def test_memory_may_be_used_up_to_its_last_byte(view):
    OnChip(1, 64).write(view, 1.0, OP)


LAYOUT = Layout({"ub": 64, "cbuf": 128, "cc": 32})


@pytest.mark.parametrize(
    ("space", "view", "first", "last"),
    [
        ("ub", tile(0, 16), None, None),
        ("ub", tile(0, 17), 0, 68),
        ("ub", tile(-4, 4), -4, 12),
        ("cbuf", tile(64, 32), None, None),
        ("cbuf", tile(64, 16, offset=16), None, None),
        ("cbuf", tile(64, 16, offset=17), 68, 132),
        ("cbuf", tile(60, 4), -4, 12),
        ("cbuf", tile(68, 4, strides=(-1,)), -8, 8),
        ("cbuf", tile(64, 3, 4, strides=(16, 1)), 0, 144),
        ("cc", tile(192, 8), None, None),
        ("cc", tile(192, 16, dtype="f16", offset=1), 2, 34),
    ],
)
def test_a_view_lies_within_the_memory_of_its_space(space, view, first, last):
    if first is None:
        LAYOUT.require(view, space, OP)
        return
    with pytest.raises(OutOfBounds) as refused:
        LAYOUT.require(view, space, OP)
    name, size = ON_CHIP_NAMES[space], {"ub": 64, "cbuf": 128, "cc": 32}[space]
    assert str(refused.value) == f"vadd (operation 7) uses bytes {first} to {last} of {name}, where {size} are planned"


def test_a_view_of_global_memory_or_of_an_unplanned_space_is_not_on_chip():
    with pytest.raises(Fault, match=r"vadd \(operation 7\) uses global memory as if it were on chip"):
        LAYOUT.require(View(0, 0, 0, (4,), (1,), "f32"), "ub", OP)
    with pytest.raises(OutOfBounds, match=r"uses bytes 0 to 16 of .*, where 0 are planned"):
        LAYOUT.require(tile(0, 4), "ca", OP)


def test_memories_lie_one_after_the_other_and_a_byte_is_named_by_its_own():
    assert (LAYOUT.starts, LAYOUT.size) == ({"ub": 0, "cbuf": 64, "cc": 192}, 224)
    spots = [LAYOUT.spot(byte) for byte in (0, 63, 64, 191, 192, 223)]
    near, sums = ON_CHIP_NAMES["cbuf"], ON_CHIP_NAMES["cc"]
    assert spots[:2] == ["on-chip byte 0", "on-chip byte 63"]
    assert spots[2:] == [f"byte 0 of {near}", f"byte 127 of {near}", f"byte 0 of {sums}", f"byte 31 of {sums}"]


def test_an_address_that_no_element_can_have_is_refused():
    with pytest.raises(OutOfBounds, match="not aligned"):
        OnChip(1, 64).read(tile(2, 4), OP)


@pytest.mark.parametrize("columns", [1, 7, 8, 13, 64])
def test_masks_are_bits_in_rows_that_start_on_a_byte(columns):
    chip = OnChip(2, 256)
    mask = np.random.default_rng(columns).random((2, 3, columns)) < 0.5
    view = tile(32, 3, columns, dtype="i1", strides=(256, 1))
    chip.write(view, mask, OP)
    assert (chip.read(view, OP) == mask).all()
    row = np.unpackbits(chip.read(tile(64, 32, dtype="i8"), OP).view(np.uint8)[1], bitorder="little")
    assert (row[:columns].astype(bool) == mask[1, 1]).all()


@pytest.mark.parametrize(
    "view",
    [
        tile(0, 2, 8, dtype="i1", strides=(12, 1)),
        tile(0, 2, 8, dtype="i1", offset=4),
        tile(0, 2, 8, dtype="i1", strides=(16, 2)),
    ],
)
def test_masks_that_start_within_a_byte_or_have_gaps_are_refused(view):
    with pytest.raises(UnknownOperation, match=r"does not support the layout of the masks of vadd \(operation 7\)"):
        OnChip(1, 64).read(view, OP)


def test_masks_have_any_number_of_axes_and_a_column_may_lie_apart():
    chip = OnChip(2, 64)
    mask = np.random.default_rng(0).random((2, 2, 3, 5)) < 0.5
    chip.write(tile(0, 2, 3, 5, dtype="i1", strides=(64, 16, 1)), mask, OP)
    assert (chip.read(tile(0, 2, 3, 5, dtype="i1", strides=(64, 16, 1)), OP) == mask).all()
    assert (chip.read(tile(8, 3, 1, dtype="i1", strides=(16, 8)), OP)[:, :, 0] == mask[:, 1, :, 0]).all()
    assert (chip.read(tile(0, 5, dtype="i1", offset=16), OP) == mask[:, 0, 1]).all()


def test_an_address_on_chip_does_not_depend_on_data():
    with pytest.raises(UnknownOperation, match=r"that depend on data, as in vadd \(operation 7\)"):
        OnChip(1, 64).read(tile(0, 2, offset=np.array([0])), OP)


def test_bfloat16_is_rounded_as_torch_rounds_it():
    values = np.random.default_rng(0).standard_normal(4096).astype(np.float32) * 10.0 ** np.arange(-2048, 2048).clip(
        -38, 38
    )
    values = np.concatenate([values, [0.0, -0.0, math.inf, -math.inf, 3.4e38, 1 + 2**-8, 1 + 3 * 2**-8]]).astype(
        np.float32
    )
    expected = torch.from_numpy(values).bfloat16()
    assert (encode(values, "bf16").view(np.int16) == expected.view(torch.int16).numpy()).all()
    assert (decode(encode(values, "bf16"), "bf16") == expected.float().numpy()).all()
    assert np.isnan(decode(encode(np.array([math.nan], np.float32), "bf16"), "bf16")).all()


def test_a_row_fills_up_the_block_that_it_ends_in_and_no_more():
    chip = OnChip(1, 128)
    rows = tile(0, 2, 5, strides=(16, 1))
    chip.write(rows, np.zeros((2, 5), np.float32), OP)
    chip.fill_block(rows, 9.0, OP)
    left = chip.read(tile(0, 2, 16), OP)[0]
    assert left[:, :8].tolist() == [[0, 0, 0, 0, 0, 9, 9, 9]] * 2
    assert np.isnan(left[:, 8:]).all()


def test_rows_without_room_between_them_are_not_filled_up():
    chip = OnChip(1, 64)
    rows = tile(0, 2, 5, strides=(6, 1))
    chip.write(rows, np.ones((2, 5), np.float32), OP)
    chip.fill_block(rows, 9.0, OP)
    assert chip.read(rows, OP).tolist() == [[[1] * 5] * 2]


def test_scratch_space_is_left_useless():
    chip = OnChip(1, 64)
    chip.write(tile(0, 16), np.zeros(16, np.float32), OP)
    chip.spoil(tile(32, 4), OP)
    assert np.isnan(chip.read(tile(0, 16), OP)[0]).tolist() == [False] * 8 + [True] * 4 + [False] * 4


# Global buffers -------------------------------------------------------------------------------------------------


def window(offset, *sizes, strides=None, dtype="f32"):
    return tile(0, *sizes, strides=strides, dtype=dtype, offset=offset)


def test_evenly_spaced_programs_are_one_window():
    buffer = Global("x_ptr", np.arange(12, dtype=np.float32))
    ((part, values),) = buffer.pieces(window(np.array([0, 4, 8]), 3), 3, OP)
    assert part == slice(0, 3)
    assert values.tolist() == [[0, 1, 2], [4, 5, 6], [8, 9, 10]]


def test_programs_anywhere_come_in_their_order_in_evenly_spaced_parts():
    data = np.arange(12, dtype=np.float32)
    pieces = list(Global("x_ptr", data).pieces(window(np.array([0, 9, 4]), 3), 3, OP))
    assert [part for part, _ in pieces] == [slice(0, 2), slice(2, 3)]
    assert [values.tolist() for _, values in pieces] == [[[0, 1, 2], [9, 10, 11]], [[4, 5, 6]]]
    pieces[0][1][1] = -1
    assert data[9:].tolist() == [-1, -1, -1]


@pytest.mark.parametrize(
    ("offsets", "parts"),
    [
        ([0, 3, 6, 1, 4, 7, 8], [3, 3, 1]),
        ([0, 2, 4, 9], [1, 1, 2]),  # windows of three elements that overlap are single
        ([9, 6, 3, 3], [3, 1]),
        ([0, 2, 4], [3]),  # all evenly spaced
    ],
)
def test_parts_of_programs_have_windows_that_do_not_overlap(offsets, parts):
    pieces = list(
        Global("x_ptr", np.arange(12, dtype=np.float32)).pieces(window(np.array(offsets), 3), len(offsets), OP)
    )
    assert [part.stop - part.start for part, _ in pieces] == parts
    assert [row[0] for _, values in pieces for row in values.tolist()] == offsets


@pytest.mark.parametrize(
    ("view", "element"),
    [
        (window(10, 3), 12),
        (window(np.array([0, 10]), 3), 12),
        (window(-1, 3), -1),
        (window(0, 3, 4, strides=(5, 1)), 13),
        (window(3, 4, strides=(-2,)), -3),
    ],
)
def test_the_first_element_beyond_a_buffer_is_named(view, element):
    message = rf"vadd \(operation 7\) uses element {element} of x_ptr, which has 12"
    with pytest.raises(OutOfBounds, match=message):
        list(Global("x_ptr", np.zeros(12, np.float32)).pieces(view, np.size(view.offset), OP))
    with pytest.raises(OutOfBounds, match=message):
        list(Unfilled("x_ptr", 48).pieces(view, np.size(view.offset), OP))


def test_a_buffer_of_which_only_the_ends_are_known_reads_as_zeros_however_large_it_is():
    buffer = Unfilled("x_ptr", 1 << 50)
    far = window(np.array([0, 1 << 47]), 3)
    ((part, values),) = buffer.pieces(far, 2, OP)
    assert (part, values.tolist()) == (slice(0, 2), [[0, 0, 0], [0, 0, 0]])
    assert not list(buffer.pieces(window(0, 0), 1, OP))
    buffer.fill(255)
    beyond = window((1 << 48) - 1, 3)
    assert buffer.stray(beyond, OP)
    assert buffer.with_strays(beyond, 1, 255).tolist() == [[0, 0, 0]]


EDGE = STRAY_BYTES // 4


@pytest.mark.parametrize(
    ("view", "element"),
    [
        (window(0, 12), None),
        (window(0, 0), None),
        (window(0, 13), 12),
        (window(-1, 12), -1),
        (window(-1, 14), -1),
        (window(12 + EDGE - 4, 4), 12 + EDGE - 1),
        (window(12 + EDGE - 3, 4), None),  # too far beyond to be a stray read
        (window(-EDGE, 4), -EDGE),
        (window(-EDGE - 1, 4), None),
        (window(np.array([0, 10]), 3), 12),
        (window(np.array([3, -2]), 3), -2),
        (window(0, 25, dtype="f16"), 24),
    ],
)
def test_a_read_a_little_beyond_a_buffer_is_a_stray_one(view, element):
    size = 24 if view.dtype == "f16" else 12
    told = "" if element is None else f"vadd (operation 7) uses element {element} of x_ptr, which has {size}"
    assert Global("x_ptr", np.zeros(12, np.float32)).stray(view, OP) == told


def test_strays_are_made_of_a_byte_and_the_others_are_those_held():
    buffer = Global("x_ptr", np.arange(4, dtype=np.int32))
    found = buffer.with_strays(window(np.array([-2, 2, 9]), 2, 3, strides=(3, 1), dtype="i32"), 3, STRAYS[0])
    assert found.tolist() == [[[-1, -1, 0], [1, 2, 3]], [[2, 3, -1], [-1, -1, -1]], [[-1] * 3] * 2]
    assert buffer.with_strays(window(3, 2, dtype="i32"), 1, STRAYS[1]).tolist() == [[3, 0x7B7B7B7B]]
    assert np.isnan(buffer.with_strays(window(4, 2), 1, STRAYS[0])).all()


@pytest.mark.parametrize(
    ("sizes", "strides", "stride"),
    [((4, 8), (8, 1), 1), ((4, 1), (8, 99), 8), ((1, 4, 1), (5, 8, 99), 8), ((1, 1), (8, 99), 1), ((4, 2), (2, 7), 7)],
)
def test_a_dimension_of_one_does_not_decide_the_stride_of_folded_ones(sizes, strides, stride):
    folded = collapsed(View(-1, 0, 0, sizes, strides, "f32"), [range(len(sizes))])
    assert (folded.sizes, folded.strides) == ((math.prod(sizes),), (stride,))
