"""The arithmetic of single numbers and of a number per program, by MLIR's names and predicates."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest

from tilewise.tuner.devices.ascend_model.ir.hivm import Op
from tilewise.tuner.devices.ascend_model.ir.scalars import (
    _float_comparison,
    scalar_function,
    straight_line,
    wrapping_function,
)
from tilewise.tuner.devices.ascend_model.ir.values import UNKNOWN, UnknownOperation

PAIRS = [(1.0, 2.0), (2.0, 1.0), (1.0, 1.0), (math.nan, 1.0), (1.0, math.nan), (math.nan, math.nan)]
ORDERED = [operator.eq, operator.gt, operator.ge, operator.lt, operator.le, operator.ne]


def expected(predicate, a, b):
    """Return MLIR's result: 1-6 are false for NaN, 8-13 true."""
    with_nan = math.isnan(a) or math.isnan(b)
    if predicate in (0, 7, 14, 15):
        return {0: False, 7: not with_nan, 14: with_nan, 15: True}[predicate]
    return predicate > 7 if with_nan else ORDERED[(predicate - 1) % 7](a, b)


@pytest.mark.parametrize("predicate", range(16))
def test_each_comparison_is_mlirs_also_for_nan(predicate):
    compare = _float_comparison(predicate)
    for a, b in PAIRS:
        assert bool(compare(np.float32(a), np.float32(b))) is expected(predicate, a, b), (a, b)


@pytest.mark.parametrize(
    ("name", "kind", "rows", "expected"),
    [
        ("arith.addi", "i32", [(2**31 - 1, 1), (5, 7)], [-(2**31), 12]),
        ("arith.subi", "i16", [(-(2**15), 1), (5, 7)], [2**15 - 1, -2]),
        ("arith.muli", "i16", [(159, 251), (100, 251)], [159 * 251 - 2**16, 25100]),
        ("arith.shli", "i8", [(3, 7), (3, 2)], [-128, 12]),
        ("arith.muli", "i64", [(2**20, 2**20), (2, 3)], [2**40, 6]),
        ("arith.minsi", "i16", [(2**15 - 1, 9), (1, 2)], [9, 1]),
    ],
)
def test_sums_products_and_shifts_wrap_at_the_width_of_their_type(name, kind, rows, expected):
    compute = wrapping_function(Op(name, (0, 1), (2,), {}, (kind, kind), (kind,)))
    assert both_ways(compute, rows) == expected


# Whole numbers and floats -----------------------------------------------------------------------------------------


def function(name, kind, *, before="i64", **attributes):
    return scalar_function(Op(name, (0, 1), (2,), attributes, (before, before), (kind,)))


def both_ways(compute, rows):
    """Return the results of one row after another, after a check that arrays of all rows give the same."""
    one_by_one = [compute(*row) for row in rows]
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    assert np.asarray(compute(*columns)).tolist() == pytest.approx(one_by_one)
    return one_by_one


def test_a_logical_shift_fills_with_zeros():
    rows = [(-1, 28), (-(2**31), 31), (40, 3), (7, 0)]
    assert both_ways(function("shrui", "i32"), rows) == [15, 1, 5, 7]
    assert both_ways(function("shrui", "i64"), [(-1, 60), (2**40, 8)]) == [15, 2**32]


def test_numbers_of_32_bits_from_memory_are_widened():
    loaded = np.array([-1, 5], np.int32)
    assert function("extui", "i64", before="i32")(loaded).tolist() == [2**32 - 1, 5]
    assert function("trunci", "i32")(loaded).tolist() == [-1, 5]


NUMBERS = [(7, 2), (-7, 2), (7, -2), (-7, -2), (6, 3), (0, 5), (-1, 4)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("addi", [9, -5, 5, -9, 9, 5, 3]),
        ("subi", [5, -9, 9, -5, 3, -5, -5]),
        ("muli", [14, -14, -14, 14, 18, 0, -4]),
        ("divsi", [3, -3, -3, 3, 2, 0, 0]),  # towards zero
        ("remsi", [1, -1, 1, -1, 0, 0, -1]),
        ("floordivsi", [3, -4, -4, 3, 2, 0, -1]),
        ("ceildivsi", [4, -3, -3, 4, 2, 0, 0]),
        ("maxsi", [7, 2, 7, -2, 6, 5, 4]),
        ("minsi", [2, -7, -2, -7, 3, 0, -1]),
        ("andi", [2, 0, 6, -8, 2, 0, 4]),
        ("ori", [7, -5, -1, -1, 7, 5, -1]),
        ("xori", [5, -5, -7, 7, 5, 5, -5]),
    ],
)
def test_whole_numbers_alone_and_side_by_side_are_computed_alike(name, expected):
    assert both_ways(function(f"arith.{name}", "i64"), NUMBERS) == expected


@pytest.mark.parametrize(("name", "expected"), [("divui", [3, 2, 0]), ("remui", [1, 0, 5])])
def test_sizes_are_divided_as_unsigned_numbers(name, expected):
    assert both_ways(function(f"arith.{name}", "index"), [(7, 2), (6, 3), (5, 9)]) == expected


@pytest.mark.parametrize("name", ["divsi", "divui", "floordivsi"])
def test_a_quotient_by_zero_is_zero(name):
    assert function(f"arith.{name}", "i64")(5, 0) == 0


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (0, [True, False, False, False]),
        (1, [False, True, True, True]),
        (2, [False, True, False, True]),
        (3, [True, True, False, True]),
        (4, [False, False, True, False]),
        (5, [True, False, True, False]),
        (6, [False, True, True, False]),  # unsigned: -1 is the largest
        (7, [True, True, True, False]),
        (8, [False, False, False, True]),
        (9, [True, False, False, True]),
    ],
)
def test_whole_numbers_are_compared_by_mlirs_predicates(predicate, expected):
    compare = function("arith.cmpi", "i1", predicate=predicate)
    assert both_ways(compare, [(3, 3), (2, 3), (3, -1), (-1, 3)]) == expected


def test_a_selection_takes_the_first_where_its_condition_holds():
    select = function("arith.select", "i64")
    assert (select(True, 1, 2), select(False, 1, 2)) == (1, 2)
    assert select(np.array([True, False]), np.array([1, 2]), 7).tolist() == [1, 7]


@pytest.mark.parametrize(
    ("name", "before", "after", "values", "expected"),
    [
        ("trunci", "i64", "i8", [127, 128, -129, 256, -1], [127, -128, 127, 0, -1]),
        ("trunci", "i64", "i32", [2**31, -(2**31) - 1], [-(2**31), 2**31 - 1]),
        ("trunci", "i64", "i1", [2, 3], [0, 1]),
        ("extsi", "i1", "i32", [0, 1], [0, -1]),
        ("extui", "i1", "i32", [0, 1], [0, 1]),
        ("extui", "i8", "i32", [-1, 5], [255, 5]),
        ("index_castui", "i32", "index", [-1], [2**32 - 1]),
        ("index_cast", "i32", "index", [-1, 5], [-1, 5]),
        ("extui", "i64", "i64", [-1], [-1]),
    ],
)
def test_casts_between_widths_wrap_or_extend(name, before, after, values, expected):
    cast = function(f"arith.{name}", after, before=before)
    assert both_ways(cast, [(value,) for value in values]) == expected


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("fptosi", [1.9, -1.9, 0.0, math.nan, math.inf, -math.inf], [1, -1, 0, 0, 2**62, -(2**62)]),
        ("fptoui", [3.999], [3]),
    ],
)
def test_floats_become_whole_towards_zero(name, values, expected):
    convert = function(f"arith.{name}", "i64", before="f32")
    assert both_ways(convert, [(np.float64(value),) for value in values]) == expected


def test_floats_are_rounded_to_their_type_after_each_operation():
    third = float(function("arith.divf", "f16", before="f16")(1.0, 3.0))
    assert third == float(np.float16(1 / 3)) != 1 / 3
    assert function("arith.addf", "f32", before="f32")(2**24, 1.0) == 2**24
    assert function("math.rsqrt", "f32", before="f32")(16.0) == 0.25
    fused = scalar_function(Op("math.fma", (0, 1, 2), (3,), {}, ("f32",) * 3, ("f32",)))
    assert fused(2.0, 3.0, 4.0) == 10.0
    assert function("math.erf", "f64", before="f64")(0.5) == pytest.approx(math.erf(0.5))


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("arith.no_such", "i32", r"the operation arith\.no_such"),
        ("arith.addi", "vector<4xi32>", r"arith\.addi of vector"),
    ],
)
def test_an_unknown_operation_or_type_is_named(name, kind, message):
    with pytest.raises(UnknownOperation, match=message):
        function(name, kind)


# Straight lines -----------------------------------------------------------------------------------------------------

LINE = [
    Op("arith.constant", (), (2,), {"value": -3}, (), ("index",)),
    Op("arith.addi", (0, 1), (3,), {}, ("index", "index"), ("index",)),
    Op("arith.muli", (3, 2), (4,), {}, ("index", "index"), ("index",)),
    Op("arith.divsi", (4, 1), (5,), {}, ("index", "index"), ("index",)),
    Op("arith.cmpi", (5, 0), (6,), {"predicate": 2}, ("index", "index"), ("i1",)),
    Op("arith.select", (6, 5, 3), (7,), {}, ("i1", "index", "index"), ("index",)),
    Op("arith.extui", (6,), (8,), {}, ("i1",), ("index",)),
    Op("arith.index_cast", (7,), (9,), {}, ("index",), ("i64",)),
    Op("arith.trunci", (9,), (10,), {}, ("i64",), ("i8",)),
    Op("arith.sitofp", (10,), (11,), {}, ("i8",), ("f16",)),
    Op("arith.subi", (8, 9), (12,), {}, ("index", "index"), ("index",)),
]


@pytest.mark.parametrize(("a", "b"), [(7, 3), (-100, 7), (3, -250), (0, 0)])
def test_a_straight_line_gives_what_its_operations_give_one_by_one(a, b):
    values = [a, b, *[None] * 11]
    straight_line(LINE)(values)
    expected = [a, b, *[None] * 11]
    for op in LINE:
        (result,) = op.results
        known = op.attributes.get("value")
        expected[result] = scalar_function(op)(*[expected[n] for n in op.operands]) if known is None else known
    assert values == expected
    assert [type(value) for value in values] == [type(value) for value in expected]


def test_an_unknown_number_stops_a_straight_line():
    with pytest.raises(TypeError):
        straight_line(LINE)([UNKNOWN, 1, *[None] * 11])
