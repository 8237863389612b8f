"""Every vector operation against numpy or torch, with tails, masks, odd strides and one row per program."""

import itertools
import math

import numpy as np
import pytest
import torch

from tilewise.tuner.devices.ascend_model.executor.memory import OnChip, OutOfBounds, View
from tilewise.tuner.devices.ascend_model.executor.vector_ops import computation
from tilewise.tuner.devices.ascend_model.ir.hivm import MemRef, Op
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation

PROGRAMS = 3
SHAPES = [(64,), (13,), (5, 7), (3, 2, 9), (4, 1)]
TYPES = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "i16": np.int16, "i8": np.int8}


class Core:
    """Memory for three programs: tiles one after the other, with gaps between rows."""

    def __init__(self):
        self.chip = OnChip(PROGRAMS, 1 << 16)
        self.values, self.kinds, self.end = [], [], 0

    def tile(self, shape, dtype, elements=None):
        item = 1 if dtype == "i1" else 16 if dtype == "bf16" else TYPES[dtype]().itemsize * 8
        block = 256 if dtype == "i1" else 256 // item
        strides, step = [], 1
        for axis in reversed(range(len(shape))):
            strides.insert(0, step)
            step *= shape[axis]
            if axis == len(shape) - 1:
                step = (step // block + 2) * block  # a gap between rows
        view = View(-1, self.end, 0, shape, tuple(strides), dtype)
        self.end += (view.span()[1] * item // 256 + 3) * 32
        if elements is not None:
            self.chip.write(view, elements, Op("fill", (), (), {}, (), ()))
        return self.add(view, MemRef(shape, tuple(strides), dtype, "ub"))

    def number(self, value, dtype):
        return self.add(value, dtype)

    def add(self, value, kind):
        self.values.append(value)
        self.kinds.append(kind)
        return len(self.values) - 1

    def run(self, name, operands, segments=None, **attributes):
        if segments is not None:
            attributes["operandSegmentSizes"] = segments
        op = Op(f"hivm.hir.{name}", tuple(operands), (), attributes, tuple(self.kinds[n] for n in operands), (), (), 3)
        compute, _, _ = computation(op)
        with np.errstate(all="ignore"):
            compute(self.chip, self.values)

    def read(self, number):
        return self.chip.read(self.values[number], Op("read", (), (), {}, (), ()))


@pytest.fixture
def core():
    return Core()


def draw(shape, dtype="f32", seed=0, low=-4.0):
    generator = np.random.default_rng([seed, *shape])
    if dtype.startswith("i"):
        return generator.integers(-50, 50, (PROGRAMS, *shape)).astype(TYPES[dtype])
    return (generator.random((PROGRAMS, *shape)) * (4.0 - low) + low).astype(TYPES[dtype])


BINARY = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vmul": np.multiply,
    "vdiv": np.divide,
    "vmax": np.maximum,
    "vmin": np.minimum,
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", BINARY)
def test_arithmetic_on_two_tiles_is_rounded_once_in_their_type(core, name, dtype, shape):
    a, b = draw(shape, dtype), draw(shape, dtype, seed=1, low=0.5)
    x, y, out = core.tile(shape, dtype, a), core.tile(shape, dtype, b), core.tile(shape, dtype)
    core.run(name, (x, y, out), (2, 1, 0))
    expected = BINARY[name](a, b)
    assert core.read(out).dtype == expected.dtype
    assert (core.read(out) == expected).all()


@pytest.mark.parametrize("name", BINARY)
def test_arithmetic_with_a_number_on_either_side(core, name):
    a = draw((5, 7), low=0.5)
    x, number, out = core.tile((5, 7), "f32", a), core.number(1.25, "f32"), core.tile((5, 7), "f32")
    core.run(name, (x, number, out), (2, 1, 0))
    assert (core.read(out) == BINARY[name](a, np.float32(1.25))).all()
    core.run(name, (number, x, out), (2, 1, 0))
    assert (core.read(out) == BINARY[name](np.float32(1.25), a)).all()


def test_a_number_may_differ_from_program_to_program(core):
    a, numbers = draw((5, 7)), np.array([1, -2, 3], np.float32)
    x, number, out = core.tile((5, 7), "f32", a), core.number(numbers, "f32"), core.tile((5, 7), "f32")
    core.run("vmul", (x, number, out), (2, 1, 0))
    assert (core.read(out) == a * numbers[:, None, None]).all()


@pytest.mark.parametrize("repeated", [(1, 7), (5, 1)])
@pytest.mark.parametrize("name", BINARY)
def test_an_operand_of_extent_one_is_repeated(core, name, repeated):
    a, b = draw((5, 7)), draw(repeated, low=0.5)
    x, y, scratch = core.tile((5, 7), "f32", a), core.tile(repeated, "f32", b), core.tile((8,), "f32")
    core.run(name, (x, y, x, scratch), (2, 1, 1), broadcast=(repeated.index(1),))
    assert (core.read(x) == BINARY[name](a, b)).all()


@pytest.mark.parametrize("name", ["vmax", "vmin"])
def test_extremes_pass_nan_on(core, name):
    a, b = np.array([1, np.nan, 3], np.float32), np.array([np.nan, 2, 1], np.float32)
    x, y = core.tile((3,), "f32", np.tile(a, (PROGRAMS, 1))), core.tile((3,), "f32", np.tile(b, (PROGRAMS, 1)))
    core.run(name, (x, y, x), (2, 1, 0))
    assert np.isnan(core.read(x)[0]).tolist() == [True, True, False]


UNARY = {
    "vexp": (torch.exp, -4.0),
    "vln": (torch.log, 0.1),
    "vsqrt": (torch.sqrt, 0.1),
    "vabs": (torch.abs, -4.0),
    "vrelu": (torch.relu, -4.0),
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_functions_are_those_of_float64_rounded_to_a_few_units(core, name, shape):
    function, low = UNARY[name]
    a = draw(shape, low=low)
    x, out = core.tile(shape, "f32", a), core.tile(shape, "f32")
    core.run(name, (x, out), (1, 1, 0))
    expected = function(torch.from_numpy(a).double()).numpy()
    np.testing.assert_allclose(core.read(out), expected, rtol=4 * 2**-24)


INTEGERS = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vmul": np.multiply,
    "vmax": np.maximum,
    "vmin": np.minimum,
    "vand": np.bitwise_and,
    "vor": np.bitwise_or,
    "vxor": np.bitwise_xor,
}


@pytest.mark.parametrize("dtype", ["i32", "i16"])
@pytest.mark.parametrize("name", INTEGERS)
def test_integer_arithmetic(core, name, dtype):
    a, b = draw((3, 2, 9), dtype), draw((3, 2, 9), dtype, seed=1)
    x, y, out = core.tile((3, 2, 9), dtype, a), core.tile((3, 2, 9), dtype, b), core.tile((3, 2, 9), dtype)
    core.run(name, (x, y, out), (2, 1, 0))
    assert (core.read(out) == INTEGERS[name](a, b)).all()


def test_integer_quotients_are_towards_zero(core):
    a, b = np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])
    x, y = (core.tile((4,), "i32", np.tile(values, (PROGRAMS, 1))) for values in (a, b))
    core.run("vdiv", (x, y, x), (2, 1, 0))
    assert core.read(x)[1].tolist() == [3, -3, -3, 3]


def test_shifts_are_arithmetic(core):
    a = draw((13,), "i32")
    x, number, out = core.tile((13,), "i32", a), core.number(2, "i32"), core.tile((13,), "i32")
    core.run("vshl", (x, number, out), (2, 1, 0))
    assert (core.read(out) == a * 4).all()
    core.run("vshr", (x, number, out), (2, 1, 0))
    assert (core.read(out) == a // 4).all()


def test_not_turns_the_bits_of_integers_and_masks(core):
    a, mask = draw((13,), "i32"), draw((3, 13)) > 0
    x, m = core.tile((13,), "i32", a), core.tile((3, 13), "i1", mask)
    core.run("vnot", (x, x), (1, 1, 0))
    core.run("vnot", (m, m), (1, 1, 0))
    assert (core.read(x) == ~a).all()
    assert (core.read(m) == ~mask).all()


# Comparisons and masks --------------------------------------------------------------------------------------------

COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}


@pytest.mark.parametrize("shape", [(64,), (13,), (4, 131)], ids=str)
@pytest.mark.parametrize("dtype", ["f32", "f16", "i32"])
@pytest.mark.parametrize("mode", COMPARISONS)
def test_comparisons_give_bits(core, mode, dtype, shape):
    a, b = np.rint(draw(shape, "f32")).astype(TYPES[dtype]), np.rint(draw(shape, "f32", seed=1)).astype(TYPES[dtype])
    x, y, m = core.tile(shape, dtype, a), core.tile(shape, dtype, b), core.tile(shape, "i1")
    core.run("vcmp", (x, y, m), (2, 1), compare_mode=mode)
    assert (core.read(m) == getattr(np, COMPARISONS[mode])(a, b)).all()


@pytest.mark.parametrize("name", ["vand", "vor", "vxor"])
def test_masks_combine(core, name):
    a, b = draw((3, 131)) > 0, draw((3, 131), seed=1) > 0
    x, y = core.tile((3, 131), "i1", a), core.tile((3, 131), "i1", b)
    core.run(name, (x, y, x), (2, 1, 0))
    assert (core.read(x) == INTEGERS[name](a, b)).all()


@pytest.mark.parametrize("shape", [(13,), (4, 131)], ids=str)
def test_select_takes_tiles_or_numbers_by_bit(core, shape):
    mask, a, b = draw(shape) > 0, draw(shape), draw(shape, seed=1)
    m, x, y = core.tile(shape, "i1", mask), core.tile(shape, "f32", a), core.tile(shape, "f32", b)
    number, out, scratch = core.number(-math.inf, "f32"), core.tile(shape, "f32"), core.tile((16,), "f32")
    core.run("vsel", (m, x, y, out, scratch), (3, 1, 1))
    assert (core.read(out) == np.where(mask, a, b)).all()
    core.run("vsel", (m, x, number, out, scratch), (3, 1, 1))
    assert (core.read(out) == np.where(mask, a, -np.inf)).all()


# Casts ------------------------------------------------------------------------------------------------------------


def cast(core, elements, before, after, mode, scratch=0):
    shape = elements.shape[1:]
    x, out = core.tile(shape, before, elements), core.tile(shape, after)
    extra = (core.tile((48,), "f16"),) if scratch else ()
    core.run("vcast", (x, out, *extra), (1, 1, scratch), cast="cast_signed", round_mode=mode)
    return core.read(out)


@pytest.mark.parametrize("shape", [(13,), (5, 7)], ids=str)
@pytest.mark.parametrize(("after", "kind"), [("f16", torch.float16), ("bf16", torch.bfloat16)])
def test_narrower_floats_are_rounded_to_the_nearest_even(core, after, kind, shape):
    values = draw(shape) * np.float32(1.0003)
    there = cast(core, values, "f32", after, "rint")
    assert (there == torch.from_numpy(values).to(kind).float().numpy()).all()
    assert (cast(core, there.astype(np.float32), "f32", after, "rint") == there).all()


@pytest.mark.parametrize(
    ("mode", "last_places"),
    [
        ("round", [1, 1, 0, -1, -1, 0]),
        ("floor", [0, 0, 0, -1, -1, -1]),
        ("ceil", [1, 1, 1, 0, 0, 0]),
        ("trunc", [0, 0, 0, 0, 0, 0]),
    ],
)
@pytest.mark.parametrize(("after", "unit"), [("f16", 2.0**-10), ("bf16", 2.0**-7)])
def test_narrower_floats_are_rounded_by_the_mode(core, after, unit, mode, last_places):
    parts = np.array([0.5, 0.75, 0.25, -0.5, -0.75, -0.25]) * unit
    signs = np.sign(parts)
    for scale in (1.0, 2.0**-9, 2.0**5):
        values = (scale * (signs + parts)).astype(np.float32)
        there = cast(core, np.stack([values] * 3), "f32", after, mode)
        assert (there == scale * (signs + np.array(last_places) * unit)).all()


def test_rounding_by_a_mode_keeps_zero_the_smallest_numbers_infinity_and_nan(core):
    values = np.array([0.0, 2.0**-25, 2.0**-26, np.inf, -np.inf, np.nan], np.float32)
    there = cast(core, np.stack([values] * 3), "f32", "f16", "round")
    assert np.array_equal(there[0], [0.0, 2.0**-24, 0.0, np.inf, -np.inf, np.nan], equal_nan=True)


@pytest.mark.parametrize("before", ["f16", "bf16"])
def test_wider_floats_keep_the_value(core, before):
    values = draw((5, 7)).astype(np.float16 if before == "f16" else np.float32)
    x, out = core.tile((5, 7), before, values), core.tile((5, 7), "f32")
    core.run("vcast", (x, out), (1, 1, 0), cast="cast_signed", round_mode="rint")
    assert (core.read(out) == core.read(x)).all()


@pytest.mark.parametrize(
    ("mode", "whole"),
    [
        ("rint", [-2, -2, 0, 0, 0, 2, 2]),
        ("round", [-3, -2, -1, 0, 1, 2, 3]),
        ("floor", [-3, -2, -1, -1, 0, 1, 2]),
        ("ceil", [-2, -1, 0, 0, 1, 2, 3]),
        ("trunc", [-2, -1, 0, 0, 0, 1, 2]),
    ],
)
def test_each_rounding_mode_of_floats_to_integers(core, mode, whole):
    values = np.array([-2.5, -1.5, -0.5, -0.25, 0.5, 1.5, 2.5], np.float32)
    assert cast(core, np.tile(values, (PROGRAMS, 1)), "f32", "i32", mode)[2].tolist() == whole


@pytest.mark.parametrize(("mode", "function"), [("floor", np.floor), ("ceil", np.ceil), ("rint", np.rint)])
def test_a_cast_to_the_same_float_makes_whole_numbers(core, mode, function):
    values = draw((5, 7))
    assert (cast(core, values, "f32", "f32", mode) == function(values)).all()


def test_floats_beyond_an_integers_range_are_held_at_its_ends(core):
    values = np.array([1e10, -1e10, math.inf, -math.inf, math.nan], np.float32)
    ends = [2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 0]
    assert cast(core, np.tile(values, (PROGRAMS, 1)), "f32", "i32", "trunc")[0].tolist() == ends


def test_integers_become_floats_and_narrower_integers_wrap(core):
    values = np.tile(np.array([0, 127, 128, -129, 300], np.int32), (PROGRAMS, 1))
    assert (cast(core, values, "i32", "f32", "rint") == values).all()
    assert cast(core, values, "i32", "i8", "truncwithoverflow")[0].tolist() == [0, 127, -128, 127, 44]


def test_numbers_become_bits_that_say_which_are_not_zero(core):
    values = np.tile(np.array([0, 1, -1, 2, 0], np.int32), (PROGRAMS, 1))
    assert (cast(core, values, "i32", "i1", "rint") == (values != 0)).all()


@pytest.mark.parametrize("shape", [(13,), (2, 1), (4, 131)], ids=str)
def test_bits_become_zeros_and_ones(core, shape):
    mask = draw(shape) > 0
    assert (cast(core, mask, "i1", "f16", "trunc", scratch=1) == mask).all()


# Fills, ranges, repetitions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32"])
def test_a_number_fills_a_tile(core, dtype, shape):
    out = core.tile(shape, dtype)
    core.run("vbrc", (core.number(3, dtype), out), broadcast_dims=())
    assert (core.read(out) == 3).all()


@pytest.mark.parametrize(("source", "shape"), [((1, 7), (5, 7)), ((5, 1), (5, 7)), ((1, 2, 9), (4, 2, 9))])
def test_an_axis_of_extent_one_is_spread(core, source, shape):
    a = draw(source)
    x, out, scratch = core.tile(source, "f32", a), core.tile(shape, "f32"), core.tile((64,), "f32")
    core.run("vbrc", (x, out, scratch), broadcast_dims=(source.index(1),))
    assert (core.read(out) == np.broadcast_to(a, (PROGRAMS, *shape))).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_copy_leaves_the_gaps_between_rows_alone(core, shape):
    a = draw(shape)
    x, out = core.tile(shape, "f32", a), core.tile(shape, "f32")
    core.run("copy", (x, out))
    assert (core.read(out) == a).all()
    view = core.values[out]
    if len(shape) > 1 and shape[0] > 1:
        gap = View(-1, view.address, shape[-1], (1,), (1,), "f32")
        assert np.isnan(core.chip.read(gap, Op("read", (), (), {}, (), ()))).all()


def test_a_range_has_an_offset_and_a_step_along_each_axis(core):
    numbers = [core.number(value, "index") for value in (5, 100, 3)]
    out = core.tile((4, 7), "i32")
    core.run("varange", (out, *numbers), (1, 1, 2))
    assert (core.read(out)[1] == 5 + 100 * np.arange(4)[:, None] + 3 * np.arange(7)).all()


# Along an axis ----------------------------------------------------------------------------------------------------

REDUCTIONS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


@pytest.mark.parametrize(
    ("shape", "axis"), [((64,), 0), ((13,), 0), ((5, 7), 1), ((5, 7), 0), ((3, 2, 9), 0), ((4, 1), 1)]
)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_along_every_axis(core, name, dtype, shape, axis):
    a = draw(shape, dtype, low=-1.5)
    reduced = (*shape[:axis], 1, *shape[axis + 1 :])
    x, out, scratch = core.tile(shape, dtype, a), core.tile(reduced, dtype), core.tile((64,), dtype)
    core.run("vreduce", (x, out, scratch), (1, 1, 1, 0), arith=name, reduce_dims=(axis,))
    expected = REDUCTIONS[name].reduce(a.astype(np.float64), axis=axis + 1, keepdims=True)
    exact = name in ("max", "min")
    tolerance = 0 if exact else 16 * 2.0 ** (-24 if dtype == "f32" else -11)
    np.testing.assert_allclose(core.read(out), expected, rtol=tolerance, atol=tolerance * 8)


def test_a_sum_folds_halves_so_that_equal_numbers_add_up_exactly(core):
    x, out = core.tile((8192,), "f32", np.full((PROGRAMS, 8192), 0.1, np.float32)), core.tile((1,), "f32")
    core.run("vreduce", (x, out), (1, 1, 0, 0), arith="sum", reduce_dims=(0,))
    assert (core.read(out) == np.float32(0.1) * 8192).all()  # added one after the other, they would not be exact


def test_a_maximum_with_its_index_takes_the_first(core):
    a = np.tile(np.array([[1, 5, 5, 2], [7, 0, 7, 7]], np.float32), (PROGRAMS, 1, 1))
    x, out, where = core.tile((2, 4), "f32", a), core.tile((2, 1), "f32"), core.tile((2, 1), "i32")
    scratch = core.tile((8,), "f32")
    core.run("vreduce", (x, out, where, scratch), (1, 2, 1, 0), arith="max_with_index_left", reduce_dims=(1,))
    assert core.read(out)[0].ravel().tolist() == [5, 7]
    assert core.read(where)[0].ravel().tolist() == [1, 0]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("name", "function"), [("vcumsum", torch.cumsum), ("vcumprod", torch.cumprod)])
def test_running_sums_and_products(core, name, function, axis):
    a = draw((5, 7), low=0.5)
    x, out = core.tile((5, 7), "f32", a), core.tile((5, 7), "f32")
    core.run(name, (x, out), cum_dims=(axis,), reverse=False)
    np.testing.assert_allclose(core.read(out), function(torch.from_numpy(a).double(), axis + 1), rtol=1e-6)


# Moves ------------------------------------------------------------------------------------------------------------


def test_moves_of_elements(core):
    a, b = draw((4, 6)), draw((4, 6), seed=1)
    x, y, out = core.tile((4, 6), "f32", a), core.tile((4, 6), "f32", b), core.tile((4, 6), "f32")
    turned, long, half = core.tile((6, 4), "f32"), core.tile((4, 12), "f32"), core.tile((4, 3), "f32")
    core.run("vtranspose", (x, turned), permutation=(1, 0))
    assert (core.read(turned) == a.transpose(0, 2, 1)).all()
    core.run("vflip", (x, out), flip_axis=1)
    assert (core.read(out) == a[..., ::-1]).all()
    core.run("vsort", (x, out), (1, 1), sort_axis=1, descending=True)
    assert (core.read(out) == -np.sort(-a, axis=-1)).all()
    core.run("vinterleave", (x, y, long), (2, 1, 0), interleave_channel_nums=2)
    assert (core.read(long)[..., ::2] == a).all()
    assert (core.read(long)[..., 1::2] == b).all()
    core.run("vdeinterleave", (x, half), channel_num=2, index_mode="CHANNEL_1")
    assert (core.read(half) == a[..., 1::2]).all()


def test_a_channel_of_a_view_that_steps_over_the_others_is_the_view(core):
    a = draw((16,))
    core.tile((16,), "f32", a)
    stepped = core.add(View(-1, 0, 0, (4,), (4,), "f32"), MemRef((4,), (4,), "f32", "ub"))
    out = core.tile((4,), "f32")
    core.run("vdeinterleave", (stepped, out), channel_num=4, index_mode="CHANNEL_0")
    assert (core.read(out) == a[..., ::4]).all()


def test_a_gather_picks_within_rows_and_refuses_what_lies_outside(core):
    a, indices = draw((4, 6)), draw((4, 6), "i32") % 6
    x, y, out = core.tile((4, 6), "f32", a), core.tile((4, 6), "i32", indices), core.tile((4, 6), "f32")
    core.run("vgather", (x, y, out, core.tile((24,), "i32")))
    assert (core.read(out) == np.take_along_axis(a, indices, -1)).all()
    core.chip.write(core.values[y], indices + 3, Op("fill", (), (), {}, (), ()))
    with pytest.raises(OutOfBounds, match=r"vgather \(operation 3\) picks element"):
        core.run("vgather", (x, y, out, core.tile((24,), "i32")))


def test_scratch_of_no_elements_is_none_that_an_operation_writes():
    kinds = tuple(MemRef(shape, (1,) * len(shape), "i32", "ub") for shape in ((8, 1), (8, 4), (0,)))
    attributes = {"operandSegmentSizes": (1, 1, 1), "broadcast_dims": (1,)}
    _, reads, writes = computation(Op("hivm.hir.vbrc", (0, 1, 2), (), attributes, kinds, (), (), 3))
    assert (reads, writes) == ((0,), (1,))


# Unknown operations -----------------------------------------------------------------------------------------------


def test_an_unknown_operation_is_an_error_that_names_it(core):
    x = core.tile((13,), "f32")
    with pytest.raises(UnknownOperation, match=r"hivm\.hir\.vmystery"):
        core.run("vmystery", (x, x))


@pytest.mark.parametrize(
    ("name", "segments", "attributes", "named"),
    [
        ("vcmp", (2, 1), {"compare_mode": "odd"}, "compare_mode odd"),
        ("vcast", (2, 1), {"round_mode": "odd"}, "round_mode odd"),
        ("vreduce", (2, 1), {"arith": "odd", "reduce_dims": (0,)}, "arith odd"),
        ("vadd", (2, 1), {"transpose": (0,)}, "transposed"),
    ],
)
def test_an_unknown_form_of_an_operation_is_an_error_that_names_it(core, name, segments, attributes, named):
    numbers = [core.tile((13,), "f32") for _ in range(3)]
    operands, segments = (numbers[:2], (1, 1)) if name in ("vcast", "vreduce") else (numbers, segments)
    with pytest.raises(UnknownOperation, match=named):
        core.run(name, operands, segments, **attributes)


def test_scratch_space_that_overlaps_an_operand_spoils_the_result(core):
    """The compiler must keep them apart; if it did not, the result would show it."""
    x, out = core.tile((64,), "f32", draw((64,))), core.tile((1,), "f32")
    core.run("vreduce", (x, out, x), (1, 1, 1, 0), arith="sum", reduce_dims=(0,))
    assert np.isnan(core.read(out)).all()


def test_every_operand_type_pairs_with_every_shape_without_touching_its_neighbours(core):
    tiles = {
        (shape, dtype): core.tile(shape, dtype, np.ones((1, *shape)))
        for shape, dtype in itertools.product(SHAPES, TYPES)
    }
    for (shape, dtype), number in tiles.items():
        core.run("vadd", (number, core.number(len(shape), dtype), number), (2, 1, 0))
    assert all((core.read(number) == 1 + len(shape)).all() for (shape, _), number in tiles.items())
