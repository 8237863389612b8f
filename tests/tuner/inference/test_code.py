"""Work read off the text of Triton's IR."""

from __future__ import annotations

import pytest

from tilewise.tuner.inference.code import Access, read_code

# ruff: noqa: E501

LOOPS = """
module {
  tt.func public @kernel(%arg0: !tt.ptr<f16> {tt.divisibility = 16 : i32} loc("a"), %arg1: !tt.ptr<f32>, %arg2: i32) {
    %c32_i32 = arith.constant 32 : i32 loc(#loc)
    %c0_i32 = arith.constant 0 : i32
    %cst = arith.constant dense<0.000000e+00> : tensor<8xf32>
    %0 = tt.get_program_id x : i32
    %1 = tt.get_num_programs x : i32 loc(#loc1)
    %2 = tt.splat %arg0 : !tt.ptr<f16> -> tensor<8x32x!tt.ptr<f16>>
    scf.for %arg3 = %0 to %arg2 step %1  : i32 {
      %3:2 = scf.for %arg4 = %c0_i32 to %arg2 step %c32_i32 iter_args(%arg5 = %cst, %arg6 = %2) -> (tensor<8xf32>, tensor<8x32x!tt.ptr<f16>>)  : i32 {
        %4 = tt.load %arg6 : tensor<8x32x!tt.ptr<f16>> loc(#loc2)
        %5 = arith.extf %4 : tensor<8x32xf16> to tensor<8x32xf32>
        %6 = math.exp %5 : tensor<8x32xf32>
        %7 = "tt.reduce"(%6) <{axis = 1 : i32}> ({
        ^bb0(%arg7: f32, %arg8: f32):
          %9 = arith.addf %arg7, %arg8 : f32
          tt.reduce.return %9 : f32
        }) : (tensor<8x32xf32>) -> tensor<8xf32>
        %8 = arith.addf %arg5, %7 : tensor<8xf32>
        scf.yield %8, %arg6 : tensor<8xf32>, tensor<8x32x!tt.ptr<f16>>
      }
      %10 = tt.splat %arg1 : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
      tt.store %10, %3#0 : tensor<8x!tt.ptr<f32>>
      %11 = tt.atomic_rmw fadd, acq_rel, gpu, %arg1, %cst_1, %true : (!tt.ptr<f32>, f32, i1) -> f32
    }
    tt.return
  }
}
"""


def read(text=LOOPS, names=("x", "out", "n"), n=100, grid=(10,)):
    return read_code(text, names, {"n": n}, grid)


def test_accesses_have_their_tiles_and_loops():
    work = read()
    assert work.accesses == [
        Access("x", "load", (8, 32), 2, (0, 1)),
        Access("out", "store", (8,), 4, (0,)),
        Access("out", "atomic", (), 4, (0,)),
    ]
    assert work.written("out") and work.read("out") and not work.written("x")


def test_trips_follow_from_arguments_constants_and_the_grid():
    work = read()
    assert work.trips == {0: 10, 1: 4} and work.trips_of((0, 1)) == 40
    assert read(n=101).trips == {0: 11, 1: 4}
    assert read(grid=(101,), n=100).trips[0] == 1


def test_arithmetic_is_counted_in_all_trips():
    assert read().operations == 40 * (8 * 32 + 8 * 32 + 8)  # exponentials, the reduction, the sum
    assert read().reductions == [(0, 1)]


def test_products_have_their_sizes():
    text = LOOPS.replace(
        "%8 = arith.addf %arg5, %7 : tensor<8xf32>",
        "%8 = tt.dot %4, %12, %13 : tensor<8x32xf16> * tensor<32x16xf16> -> tensor<8x16xf32>",
    ).replace("%5 = arith", "%12 = arith.truncf %c : tensor<32x16xf32> to tensor<32x16xf16>\n        %5 = arith")
    assert read(text).dots == [((8, 16, 32), (0, 1))]


def test_a_function_of_other_arguments_is_not_read():
    assert read(names=("x", "out")) is None


SKIPPED_AT_FIRST = LOOPS.replace("= %c0_i32 to %arg2 step %c32_i32", "= %c0_i32 to %0 step %c32_i32")


def test_a_loop_that_the_first_program_leaves_out_is_read_for_one_in_the_middle():
    assert read(SKIPPED_AT_FIRST, grid=(1,)).trips[1] == 0
    assert read(SKIPPED_AT_FIRST, grid=(200,)).trips[1] == 4


def function(*lines, arguments="%n: i32"):
    body = "\n".join(f"    {line}" for line in lines)
    return f"module {{\n  tt.func public @kernel({arguments}) {{\n{body}\n    tt.return\n  }}\n}}\n"


def value_of(*lines, n=7, grid=(5, 6, 7)):
    """Return the value that the lines give `%r`: the trips of a loop from -100 up to it, less 100."""
    bounds = ["%low = arith.constant -100 : i32", "%one = arith.constant 1 : i32"]
    text = function(*bounds, *lines, "scf.for %i = %low to %r step %one : i32 {", "}")
    work = read_code(text, ["n"], {"n": n}, grid)
    assert work is not None
    return work.trips[0] - 100


@pytest.mark.parametrize(
    ("name", "left", "right", "value"),
    [
        ("addi", 7, 3, 10), ("subi", 7, 3, 4), ("muli", 7, 3, 21),
        ("divsi", 7, 2, 3), ("divsi", -7, 2, -3), ("divsi", 7, 0, 0),
        ("divui", 7, 2, 3), ("divui", 7, 0, 0),
        ("ceildivsi", 7, 2, 4), ("ceildivsi", -7, 2, -3), ("ceildivsi", 7, 0, 0),
        ("remsi", 7, 4, 3), ("remsi", -7, 4, -3), ("remsi", 7, 0, 0), ("remui", 7, 4, 3), ("remui", 7, 0, 0),
        ("minsi", 7, 3, 3), ("minui", 3, 7, 3), ("maxsi", 7, 3, 7), ("maxui", 3, 7, 7),
    ],
)  # fmt: skip
def test_integers_are_worked_out_as_the_code_would(name, left, right, value):
    constants = [f"%a = arith.constant {left} : i32", f"%b = arith.constant {right} : i64"]
    assert value_of(*constants, f"%r = arith.{name} %a, %b : i32") == value


@pytest.mark.parametrize("name", ["extsi", "extui", "trunci", "index_cast"])
def test_an_integer_keeps_its_value_in_another_type(name):
    assert value_of(f"%r = arith.{name} %n : i32 to i64") == 7


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("%r = tt.get_program_id x : i32", 0),
        ("%r = tt.get_num_programs x : i32", 5),
        ("%r = tt.get_num_programs y : i32", 6),
        ("%r = tt.get_num_programs z : i32", 7),
        ("%r = arith.constant -3 : index", -3),
    ],
)
def test_programs_and_constants_are_known(line, value):
    assert value_of(line) == value


def test_an_axis_without_programs_has_one():
    assert value_of("%r = tt.get_num_programs y : i32", grid=(5,)) == 1
    assert value_of("%r = tt.get_program_id z : i32", grid=(5,)) == 0


@pytest.mark.parametrize(
    "line", ["%r = arith.xori %n, %n : i32", "%r = arith.addi %n, %m : i32", "%r = tt.load %n : i32"]
)
def test_a_loop_up_to_an_unknown_number_counts_as_one_trip(line):
    assert value_of(line) == 1 - 100


@pytest.mark.parametrize(("last", "step", "trips"), [(10, 3, 4), (9, 3, 3), (1, 3, 1), (0, 3, 0), (-4, 3, 0)])
def test_trips_are_steps_up_to_the_last(last, step, trips):
    lines = ["%z = arith.constant 0 : i32", f"%r = arith.constant {last} : i32", f"%s = arith.constant {step} : i32"]
    work = read_code(function(*lines, "scf.for %i = %z to %r step %s : i32 {", "}"), ["n"], {}, (1,))
    assert work is not None and work.trips == {0: trips}


POINTER = "%p: !tt.ptr<f16>"


def accesses(line, arguments=POINTER, kind="tensor<4x2x!tt.ptr<f16>>"):
    text = function(f"%t = tt.splat %p : !tt.ptr<f16> -> {kind}", line, arguments=arguments)
    work = read_code(text, ["p"], {}, (1,))
    assert work is not None
    return [(one.kind, one.masked, one.elements, one.bytes) for one in work.accesses]


@pytest.mark.parametrize(
    ("line", "kind", "masked"),
    [
        ("%v = tt.load %t : tensor<4x2x!tt.ptr<f16>>", "load", False),
        ("%v = tt.load %t, %mask : tensor<4x2x!tt.ptr<f16>>", "load", True),
        ("tt.store %t, %v : tensor<4x2x!tt.ptr<f16>>", "store", False),
        ("tt.store %t, %v, %mask : tensor<4x2x!tt.ptr<f16>>", "store", True),
        ("%v = tt.atomic_rmw fadd, gpu, %t, %v, %m : (tensor<4x2xf16>) -> tensor<4x2xf16>", "atomic", False),
        ("%v = tt.atomic_rmw fadd, gpu, %t, %v, %m, %k : (tensor<4x2xf16>) -> tensor<4x2xf16>", "atomic", True),
        ("%v = tt.atomic_cas gpu, %t, %v, %m : (tensor<4x2xf16>) -> tensor<4x2xf16>", "atomic", False),
        ("tt.store %t, %v {boundaryCheck = array<i32: 0>} : tensor<4x2x!tt.ptr<f16>>", "store", True),
    ],
)
def test_an_access_with_one_value_more_is_masked(line, kind, masked):
    assert accesses(line) == [(kind, masked, 8, 16)]


@pytest.mark.parametrize(
    ("item", "size"),
    [
        ("f64", 8), ("f32", 4), ("f16", 2), ("bf16", 2), ("i64", 8), ("i32", 4), ("i16", 2), ("i8", 1), ("i1", 1),
        ("f8E4M3FN", 1), ("f8E5M2", 1), ("f8E4M3B11FNUZ", 4),
    ],
)  # fmt: skip
def test_elements_have_the_bytes_of_their_type(item, size):
    assert accesses("%v = tt.load %t : x", kind=f"tensor<8x!tt.ptr<{item}>>") == [("load", False, 8, 8 * size)]


@pytest.mark.parametrize(
    ("line", "operations"),
    [
        ("%r = arith.mulf %a, %a : tensor<3x5xf32>", 15),
        ("%r = math.sqrt %a : tensor<7xbf16>", 7),
        ("%r = arith.divf %a, %a : tensor<2xf64>", 2),
        ("%r = arith.addi %a, %a : tensor<2xi32>", 0),
        ("%r = arith.mulf %a, %a : f32", 0),
        ("%r = arith.select %a, %a, %a : tensor<2xf32>", 0),
        ("%r = arith.extf %a : tensor<2xf16> to tensor<2xf32>", 0),
        ("%r = arith.sitofp %a : tensor<2xi32> to tensor<2xf32>", 0),
        ("%r = tt.broadcast %a : tensor<2x1xf32> -> tensor<2x2xf32>", 0),
    ],
)
def test_arithmetic_on_tensors_of_floats_counts(line, operations):
    work = read_code(function(line, arguments="%a: i32"), ["a"], {}, (1,))
    assert work is not None and work.operations == operations


def test_a_product_counts_two_operations_for_each_pair():
    lines = [
        "%a = arith.constant dense<0.0> : tensor<3x5xf16>",
        "%b = arith.constant dense<0.0> : tensor<5x7xf16>",
        "%d = tt.dot %a, %b, %c : tensor<3x5xf16> * tensor<5x7xf16> -> tensor<3x7xf32>",
    ]
    work = read_code(function(*lines), ["n"], {}, (1,))
    assert work is not None
    assert (work.dots, work.operations) == ([((3, 7, 5), ())], 2 * 3 * 7 * 5)


def test_branches_are_no_loops_and_end_where_they_end():
    lines = [
        "%one = arith.constant 1 : i32",
        "%t = tt.splat %p : !tt.ptr<f16> -> tensor<4x!tt.ptr<f16>>",
        "scf.for %i = %one to %one step %one : i32 {",
        "scf.if %c {",
        "%v = tt.load %t : tensor<4x!tt.ptr<f16>>",
        "} else {",
        "tt.store %t, %v : tensor<4x!tt.ptr<f16>>",
        "}",
        "}",
        "%w = tt.load %t : tensor<4x!tt.ptr<f16>>",
    ]
    work = read_code(function(*lines, arguments=POINTER), ["p"], {}, (1,))
    assert work is not None
    assert [(one.kind, one.loops) for one in work.accesses] == [("load", (0,)), ("store", (0,)), ("load", ())]


def test_private_functions_are_not_read():
    text = function("%t = tt.splat %p : !tt.ptr<f16> -> tensor<4x!tt.ptr<f16>>", arguments=POINTER)
    helper = "  tt.func private @helper(%q: i32) -> i32 {\n    %w = arith.mulf %q, %q : tensor<9xf32>\n  }\n"
    work = read_code(text.replace("module {\n", "module {\n" + helper), ["p"], {}, (1,))
    assert work is not None and work.operations == 0


def test_a_loop_in_a_loop_begins_where_the_first_trip_of_the_outer_one_does():
    lines = [
        "%two = arith.constant 2 : i32",
        "%ten = arith.constant 10 : i32",
        "scf.for %i = %two to %ten step %two : i32 {",
        "scf.for %j = %i to %ten step %two : i32 {",
        "}",
        "}",
        "scf.for %k = %unknown to %ten step %two : i32 {",
        "scf.for %l = %k to %ten step %two : i32 {",
        "}",
        "}",
    ]
    work = read_code(function(*lines), ["n"], {}, (1,))
    assert work is not None and work.trips == {0: 4, 1: 4, 2: 1, 3: 1}
