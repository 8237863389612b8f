"""Symbolic runs: which changes of a kernel leave what is computed as it is, and which do not."""

from contextlib import closing
from pathlib import Path

import pytest

from tilewise.benchmarks.model.mutants.trial import LARGE_DIMS
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.workers.worker import Worker

SMALL = {"M": 9, "N": 37}
NORMALISED = {"VARIANT": "looped", "BLOCK_SIZE_M": 4, "SUB_BLOCK_SIZE_M": 3, "BLOCK_SIZE_N": 16, "multibuffer": False}
REDUCED = {"BLOCK_SIZE_M": 4, "SUB_BLOCK_SIZE_M": 1, "BLOCK_SIZE_N": 16, "multibuffer": False}
LOOPED, ROWS = ("layer_norm", "layer_norm_looped_kernel"), ("row_reduce", "row_reduce_kernel")


@pytest.fixture(scope="module")
def interpreting():
    """Start a process of the interpreter for a function of `symbolic_runs.py`."""
    if reason := toolchain.unavailable_reason():
        pytest.skip(reason)
    env = {"TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).parent)}
    return lambda function: closing(Worker(function, env=env))


@pytest.fixture(scope="module")
def differences(interpreting):
    def call(wanted, dims, config, programs=96, kernel=None):
        problem = Problem(kernel or wanted[0], dims, "float32")
        return worker.call(wanted, problem, config, programs, timeout=120.0)

    with interpreting("symbolic_runs:differences") as worker:
        yield call


def test_what_masks_throw_away_makes_no_difference(differences):
    assert differences((*LOOPED, "other", '0.0 -> float("inf")'), SMALL, NORMALISED) == [""] * 6


def test_a_number_that_is_summed_makes_a_difference(differences):
    found = differences((*LOOPED, "initial value", "0.0 -> 1.0"), SMALL, NORMALISED)
    assert sum(why == "y_ptr, mean_ptr, rstd_ptr: computed in another way" for why in found) == 1
    assert found.count("") == len(found) - 1  # the others are what is loaded in place of elements outside


def test_constants_are_computed_with(differences):
    """Outside the matrix x is minus infinity, to which the weight's 1 is added."""
    assert differences((*ROWS, "other", "0.0 -> 1.0"), SMALL, REDUCED) == [""]
    found = differences((*ROWS, "other", '0.0 -> float("inf")'), SMALL, REDUCED)
    assert found == ["out_ptr: computed in another way"]


def test_what_a_load_leaves_open_is_zero_where_the_compiler_says_so(interpreting):
    """triton-ascend's front end never leaves it open, so no kernel shows it here."""
    with interpreting("symbolic_runs:left_open") as left_open:
        assert left_open.call(True, timeout=60.0) == {"fp32": 1, "int32": [0]}
        assert left_open.call(False, timeout=60.0) == {"fp32": 8, "int32": [0x5A5A5A5A]}


def test_programs_leave_their_atomic_maximum_in_any_order(differences):
    atomic = {"VARIANT": "atomic", "BLOCK_SIZE_N": 16, "SUB_BLOCK_SIZE_N": 8, "multibuffer": False}
    unused = ("reduce", "combine_kernel", "number", "0 -> 1")
    assert set(differences(unused, {"N": 100}, atomic, kernel="max_all")) == {""}
    dropped = ("reduce", "_reduce_part", "dropped statement", "total = _accumulate(total, _widened(x, OP), OP) -> pass")
    assert differences(dropped, {"N": 100}, atomic, kernel="max_all") == ["out_ptr: computed in another way"]


def test_an_access_outside_is_no_proof(differences):
    found = differences((*ROWS, "bound", "< -> <="), SMALL, REDUCED)
    assert "Unproven: accesses memory outside out_ptr" in found


@pytest.mark.full
def test_a_narrow_index_makes_a_difference_on_a_large_problem_only(differences):
    narrow = (*ROWS, "dtype", "int64 -> int16")
    assert differences(narrow, SMALL, REDUCED) == [""]
    assert differences(narrow, LARGE_DIMS["M", "N"], {**REDUCED, "BLOCK_SIZE_N": 2048}, 6) != [""]
