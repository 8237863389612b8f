"""Work read off the text of Triton's IR."""

from __future__ import annotations

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
