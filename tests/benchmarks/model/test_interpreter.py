"""Verification by Triton's interpreter: correct kernels agree, wrong ones do not, and a dead process is replaced."""

import dataclasses
import importlib.util

import pytest
from places import HELPERS

if importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch and triton", allow_module_level=True)

from tilewise.benchmarks.model.interpreter import InterpreterVerifier, cheap
from tilewise.errors import UsageError
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem

KERNELS = HELPERS / "faulty_kernels.py"
CONFIG = {"ROWS": 8, "SUB": 4, "COLS": 64}


def spec_named(name):
    return registry.load(f"{KERNELS}:{name}")


def problem(m=19, n=150, dtype="float32"):
    return Problem("k", {"M": m, "N": n}, dtype)


@pytest.fixture(scope="module")
def verifier():
    verifier = InterpreterVerifier()
    verifier.start()
    yield verifier
    verifier.close()


@pytest.mark.in_part(1)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_right_kernel_agrees_in_every_dtype(verifier, dtype):
    verdict = verifier.verify(spec_named("RIGHT"), problem(dtype=dtype), CONFIG)
    assert verdict.agreed, verdict.reason
    assert 0 < verdict.error <= verdict.tolerance


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("tiles", [(25, 25, 256), (25, 1, 512), (24, 10, 1024)])
def test_the_headline_kernel_agrees_with_and_without_tails(verifier, dtype, tiles):
    config = dict(zip(("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_N"), tiles, strict=True), multibuffer=True)
    headline = Problem("row_reduce", {"M": 131072, "N": 8192}, dtype)  # never cheap: verified reduced
    verdict = verifier.verify(registry.load("row_reduce"), headline, config)
    assert verdict.agreed, verdict.reason


@pytest.mark.parametrize(
    ("name", "m", "n", "reason"),
    [
        ("NO_COLUMN_MASK", 19, 150, "elements wrong"),  # the last rows read behind the input
        ("MISSING_COLUMN", 19, 150, "off by"),
        ("NO_STORE_MASK", 19, 150, "wrote outside"),
        ("NO_TAIL_TRIP", 20, 64, "never written"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_wrong_kernel_is_caught(verifier, name, m, n, reason, dtype):
    config = {**CONFIG, "SUB": 3} if name == "NO_TAIL_TRIP" else CONFIG
    verdict = verifier.verify(spec_named(name), problem(m, n, dtype), config)
    assert not verdict.agreed
    assert reason in verdict.reason
    assert "\n" not in verdict.reason


def test_a_wrong_kernel_is_caught_at_a_size_that_is_not_interpreted_whole(verifier):
    huge = problem(1_000_003, 4096 + 37)
    assert not cheap(spec_named("MISSING_COLUMN"), huge, CONFIG)
    assert not verifier.verify(spec_named("MISSING_COLUMN"), huge, CONFIG).agreed
    assert verifier.verify(spec_named("RIGHT"), huge, CONFIG).agreed


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_arithmetic_and_comparisons_in_16_bits_are_done_on_values(verifier, dtype):
    verdict = verifier.verify(spec_named("BFLOAT16_ARITHMETIC"), problem(m=8, n=64, dtype=dtype), CONFIG)
    assert verdict.agreed, verdict.reason


def test_a_mask_of_one_false_value_masks_stores_and_atomics(verifier):
    one_row_tiles = {**CONFIG, "SUB": 1}
    assert verifier.verify(spec_named("RIGHT"), problem(), one_row_tiles).agreed
    verdict = verifier.verify(spec_named("ADDING"), problem(), one_row_tiles)
    assert verdict.agreed, verdict.reason


def test_what_a_kernel_prints_does_not_break_the_protocol(verifier):
    config = {"ROWS": 8, "SUB": 8, "COLS": 256}
    assert verifier.verify(spec_named("NOISY"), problem(), config).agreed


def test_a_kernel_that_raises_is_a_disagreement_with_its_reason(verifier):
    verdict = verifier.verify(spec_named("FAILING"), problem(), CONFIG)
    assert not verdict.agreed
    assert "not today" in verdict.reason or "AssertionError" in verdict.reason


def test_a_crash_is_a_disagreement_and_the_next_call_works(verifier):
    verdict = verifier.verify(spec_named("CRASHING"), problem(), CONFIG)
    assert not verdict.agreed
    assert "SIGABRT" in verdict.reason
    assert verifier.verify(spec_named("RIGHT"), problem(), CONFIG).agreed


def test_a_kernel_without_end_is_stopped_and_the_next_call_works():
    verifier = InterpreterVerifier(seconds=1.0)
    try:
        verdict = verifier.verify(spec_named("ENDLESS"), problem(), CONFIG)
        assert not verdict.agreed
        assert "no answer within 1 s" in verdict.reason
        assert verifier.verify(spec_named("RIGHT"), problem(3, 5), CONFIG).agreed
    finally:
        verifier.close()


def test_a_spec_that_no_other_process_can_find_is_refused(verifier):
    nowhere = dataclasses.replace(spec_named("RIGHT"), origin="")
    with pytest.raises(UsageError, match="has no origin"):
        verifier.verify(nowhere, problem(), CONFIG)
