"""Corrections of Triton's interpreter: atomic extremes of floats, reductions by halves, integer sums, loop bounds."""

import importlib.util
from pathlib import Path

import pytest

if importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch and triton", allow_module_level=True)

KERNELS = """
import triton
import triton.language as tl

@triton.jit
def extremes(x_ptr, most_ptr, least_ptr, N, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < N, other=0.0)
    tl.atomic_max(most_ptr + at // 4, x, mask=at < N)
    tl.atomic_min(least_ptr + at // 4, x, mask=at < N)

@triton.jit
def _last(a, b):
    return b

@triton.jit
def _later(a, i, b, j):
    return tl.where(j > i, b, a), tl.maximum(i, j)

@triton.jit
def folds(x_ptr, rows_ptr, cols_ptr, all_ptr, where_ptr, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + m[:, None] * N + n[None, :])
    tl.store(rows_ptr + m, tl.reduce(x, 1, _last))
    tl.store(cols_ptr + n, tl.reduce(x, 0, _last))
    tl.store(all_ptr, tl.reduce(x, None, _last))
    kept = tl.reduce(x, 1, _last, keep_dims=True)
    tl.store(all_ptr + 1 + m[:, None], kept)
    value, index = tl.reduce((x, n[None, :] + m[:, None] * 0), 1, _later)
    tl.store(where_ptr + m, value)
    tl.store(where_ptr + M + m, index.to(tl.float32))

@triton.jit
def counts(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + m[:, None] * N + n[None, :])
    tl.store(out_ptr + m, tl.sum(x, 1))
    tl.store(out_ptr + 2 * M + m, tl.cumsum(tl.sum(x, 1), 0))

@triton.jit
def trips(end_ptr, out_ptr):
    for trip in range(tl.load(end_ptr)):
        tl.store(out_ptr + trip, trip)
"""

SCRIPT = """
import json, sys, warnings
import torch
sys.path.insert(0, sys.argv[1])
from tilewise.benchmarks.model import interpreter_fixes
interpreter_fixes.install()
from kernels_of_this_test import counts, extremes, folds, trips

inf, nan = float("inf"), float("nan")
x = torch.tensor([1.0, -2.0, 0.5, 1.5,  -3.0, -1.0, -0.0, -7.0,  -inf, -5.0, -inf, -6.0,  2.0, nan, -1.0, inf, 9.0])
most, least = torch.full((5,), -inf), torch.full((5,), inf)
extremes[(1,)](x, most, least, 17, BLOCK=20)
y = torch.arange(3 * 7, dtype=torch.float32).view(3, 7) + 1
rows, cols, everything, where = torch.zeros(3), torch.zeros(7), torch.zeros(4), torch.zeros(6)
folds[(1,)](y, rows, cols, everything, where, M=3, N=7)
counted = torch.full((16,), -1, dtype=torch.int32)
counts[(1,)](torch.ones(4, 8, dtype=torch.int32), counted, M=4, N=8)
tripped = torch.full((4,), -1, dtype=torch.int32)
warnings.simplefilter("error", DeprecationWarning)  # so says numpy before 2.4 of what later versions refuse
trips[(1,)](torch.tensor([3]), tripped)
print(json.dumps([t.tolist() for t in (most, least, rows, cols, everything, where, counted, tripped)]))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory, interpreted):
    folder = tmp_path_factory.mktemp("interpreted")
    Path(folder, "kernels_of_this_test.py").write_text(KERNELS)
    return interpreted(SCRIPT, str(folder))


def test_atomic_maxima_and_minima_of_floats_hold_for_every_sign(results):
    most, least = results[:2]
    assert most[:3] + most[4:] == [1.5, 0.0, -5.0, 9.0]
    assert least[:3] == [-2.0, -7.0, float("-inf")]
    assert least[3:] == [-1.0, 9.0]


def test_an_atomic_maximum_keeps_nan(results):
    assert results[0][3] != results[0][3]


def test_a_reduction_by_halves_keeps_the_order_of_its_elements(results):
    """The last of each row, column, and of all, from sizes that do not halve."""
    _, _, rows, cols, everything, _ = results[:6]
    assert rows == [7, 14, 21]
    assert cols == [15, 16, 17, 18, 19, 20, 21]
    assert everything == [21, 7, 14, 21]


def test_a_reduction_of_two_tensors_at_once_gives_both(results):
    assert results[5] == [7, 14, 21, 6, 6, 6]


def test_sums_of_integers_are_stored_in_their_own_width(results):
    assert results[6] == [8, 8, 8, 8, -1, -1, -1, -1, 8, 16, 24, 32, -1, -1, -1, -1]


def test_a_loop_ends_at_a_bound_that_the_kernel_reads(results):
    assert results[7] == [0, 1, 2, -1]
