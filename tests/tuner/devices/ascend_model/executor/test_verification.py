"""Verification on a modelled part executes the compiled program, and tells wrong values from a failed check."""

import dataclasses
import os
import re
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from places import HELPERS

from tilewise.benchmarks.model.mutations import edited
from tilewise.db.records import Status
from tilewise.errors import StoreError
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model import device as device_module
from tilewise.tuner.devices.ascend_model.device import ModelDevice
from tilewise.tuner.devices.ascend_model.executor import verification
from tilewise.tuner.devices.ascend_model.executor.verification import (
    compile_config,
    execute,
    executed_problem,
    judge,
    verify_compiled,
)
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation
from tilewise.tuner.devices.ascend_model.toolchain import Compiled
from tilewise.tuner.measure.outcome import Verdict
from tilewise.tuner.measure.verify import Arguments

FAULTY = HELPERS / "faulty_kernels.py"
CONFIG = {"ROWS": 8, "SUB": 4, "COLS": 64}


@pytest.fixture(scope="module")
def device(cache_folder):
    with ModelDevice("Ascend910B4", jobs=1) as device:
        yield device


@pytest.fixture
def faulty():
    def load(name, m=19, n=150, dtype="float32"):
        return registry.load(f"{FAULTY}:{name}"), Problem("k", {"M": m, "N": n}, dtype)

    return load


@pytest.mark.in_part(1)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_right_kernel_agrees_in_every_dtype(device, faulty, dtype):
    verdict = device.verify(*faulty("RIGHT", dtype=dtype), CONFIG)
    assert verdict.agreed, verdict.reason
    assert 0 < verdict.error <= verdict.tolerance


@pytest.mark.parametrize(
    ("name", "m", "n", "reason"),
    [
        (
            "NO_COLUMN_MASK",
            19,
            150,
            "uses element .* of x_ptr, which has 2850",
        ),  # at the very end, found by its address
        ("MISSING_COLUMN", 19, 150, "off by"),
        ("NO_STORE_MASK", 19, 150, "uses element .* of out_ptr, which has 19"),
        ("NO_TAIL_TRIP", 20, 64, "never written"),
    ],
)
def test_a_wrong_kernel_disagrees_with_the_reason(device, faulty, name, m, n, reason):
    config = {**CONFIG, "SUB": 3} if name == "NO_TAIL_TRIP" else CONFIG
    verdict = device.verify(*faulty(name, m, n), config)
    assert not verdict.agreed
    assert verdict.status is Status.CORRECTNESS
    assert re.search(reason, verdict.reason), verdict.reason


def test_the_headline_problem_is_executed_whole_within_two_seconds(device, row_reduce, problem, rows):
    config = rows(25, 25, 256)
    headline = problem(1000, 8192)
    assert executed_problem(row_reduce, headline, config) == headline
    (outcome,) = device.evaluate(row_reduce, headline, [config])  # compiles, and warms up the process
    assert outcome.status is Status.CORRECT
    taken = []
    for _ in range(3):
        began = time.monotonic()
        verdict = device.verify(row_reduce, headline, config)
        taken.append(time.monotonic() - began)
        assert verdict.agreed, verdict.reason
    assert min(taken) < 2 * _slowness()


def _slowness():
    """Return how much slower this machine is right now than one that adds a million floats in half a millisecond."""
    data, began = np.ones(1 << 20, np.float32), time.monotonic()
    for _ in range(20):
        data + data
    return max(1.0, (time.monotonic() - began) / 20 / 5e-4)


def test_a_large_problem_is_executed_on_a_small_one_with_the_same_tails(row_reduce, problem, rows):
    config = rows(25, 4, 256)
    smaller = executed_problem(row_reduce, problem(131072, 8190), config)
    assert smaller.dims["M"] % 25 == 131072 % 25
    assert smaller.dims["N"] % 256 == 8190 % 256
    assert smaller.dims["M"] * smaller.dims["N"] < 1e5


def test_a_disagreement_on_other_sizes_names_them(device, faulty):
    verdict = device.verify(*faulty("MISSING_COLUMN", 100_003, 8200), CONFIG)
    assert verdict.reason.startswith("on M=19,N=136: out_ptr: ")


def test_a_config_that_does_not_fit_is_a_compile_failure_not_a_wrong_result(
    row_reduce, problem, rows, target, cache_folder
):
    verdict = verify_compiled(row_reduce, problem(1000, 8192), rows(25, 25, 2048), target, cache_folder)
    assert (verdict.agreed, verdict.status) == (False, Status.COMPILE)
    assert verdict.reason.startswith("UB overflow")


def test_an_operation_that_cannot_be_executed_is_named_and_no_wrong_result(
    row_reduce, problem, rows, target, cache_folder, monkeypatch
):
    genuine = verification.parse
    monkeypatch.setattr(verification, "parse", lambda text: genuine(text.replace("hivm.hir.vexp", "hivm.hir.vmystery")))
    verdict = verify_compiled(row_reduce, problem(50, 512), rows(25, 25, 256), target, cache_folder)
    assert (verdict.agreed, verdict.status) == (False, Status.UNMODELLED)
    assert "hivm.hir.vmystery" in verdict.reason


@pytest.mark.parametrize("error", [ValueError, IndexError])
def test_views_that_no_compiler_would_make_are_no_wrong_result(row_reduce, problem, rows, monkeypatch, error):
    def execute(*given, **options):
        raise error("no such row")

    monkeypatch.setattr(verification, "execute", execute)
    small = problem(5, 16)
    verdict = judge(row_reduce, small, rows(5, 5, 16), (), Arguments(row_reduce, small), 1 << 16)
    assert (verdict.agreed, verdict.status) == (False, Status.UNMODELLED)
    assert verdict.reason == "the compiled program cannot be executed: no such row"


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (TimeoutError("it did not finish"), Status.TIMEOUT, "it did not finish"),
        (UnknownOperation("no such operation"), Status.UNMODELLED, "no such operation"),
        (ValueError("UB overflow"), Status.COMPILE, "UB overflow"),
        (AssertionError("the front end's"), Status.COMPILE, "the front end's"),
    ],
)
def test_a_config_without_code_is_judged_by_why_there_is_none(
    row_reduce, problem, rows, target, cache_folder, monkeypatch, error, status, reason
):
    def compile_config(*given):
        raise error

    monkeypatch.setattr(verification, "compile_config", compile_config)
    verdict = verify_compiled(row_reduce, problem(5, 16), rows(5, 5, 16), target, cache_folder)
    assert (verdict.agreed, verdict.status) == (False, status)
    assert reason in verdict.reason


def test_an_error_of_ours_is_no_verdict(row_reduce, problem, rows, target, cache_folder, monkeypatch):
    def compile_config(*given):
        raise StoreError("the cache is full")

    monkeypatch.setattr(verification, "compile_config", compile_config)
    with pytest.raises(StoreError, match="the cache is full"):
        verify_compiled(row_reduce, problem(5, 16), rows(5, 5, 16), target, cache_folder)


@pytest.mark.parametrize(
    "error", [UnknownOperation("no such operation"), TimeoutError("endless"), AssertionError("the front end's")]
)
def test_a_config_that_has_no_code_at_its_own_size_keeps_the_verdict_of_smaller_ones(
    row_reduce, problem, rows, target, cache_folder, monkeypatch, error
):
    """Its evaluation tells of that; only an error of ours is no verdict."""

    def compile_config(*given):
        raise error

    monkeypatch.setattr(verification, "compile_config", compile_config)
    given = row_reduce, problem(5, 16), rows(5, 5, 16), target, cache_folder
    verdict = Verdict(agreed=True, error=0.5, tolerance=1.0)
    assert verification._within_reach(verdict, *given) is verdict
    error = StoreError("the cache is full")
    with pytest.raises(StoreError, match="the cache is full"):
        verification._within_reach(verdict, *given)


@pytest.mark.parametrize(
    ("made", "status", "reason"),
    [
        (Compiled(code='"builtin.module"('), Status.UNMODELLED, "the compiled module"),
        (Compiled(refusal="UB overflow"), Status.COMPILE, "UB overflow"),
        (Compiled(refusal="it did not finish", timed_out=True), Status.TIMEOUT, "it did not finish"),
    ],
)
def test_code_that_cannot_be_read_is_told_from_none(
    row_reduce, problem, rows, target, cache_folder, monkeypatch, made, status, reason
):
    monkeypatch.setattr(verification.toolchain, "compile_linalg", lambda *given, **named: made)
    verdict = verify_compiled(row_reduce, problem(5, 16), rows(5, 5, 16), target, cache_folder)
    assert (verdict.agreed, verdict.status) == (False, status)
    assert reason in verdict.reason


def test_the_first_of_some_configs_that_compiles_stands_in_for_a_reference(row_reduce, problem, target, monkeypatch):
    tried, ran = [], []

    def compile_config(spec, problem, config, target, folder):
        tried.append(config)
        if len(tried) < last:
            raise AssertionError(f"failure {len(tried)}")
        return ()

    monkeypatch.setattr(verification, "compile_config", compile_config)
    monkeypatch.setattr(verification, "stand_ins", lambda *given: [{"N": number} for number in range(3)])
    monkeypatch.setattr(verification, "execute", lambda spec, problem, config, *given, **options: ran.append(config))
    run, last = verification._default_run(row_reduce, target, None), 2
    run(problem(5, 16), SimpleNamespace(bind=lambda config: {}))
    assert (tried, ran) == ([{"N": 0}, {"N": 1}], [{"N": 1}])
    last = 99
    with pytest.raises(UnknownOperation, match="as the default config does not compile: failure 3"):
        run(problem(5, 16), SimpleNamespace(bind=lambda config: {}))


@pytest.mark.parametrize("error", [UnknownOperation("no such operation"), StoreError("the cache is full")])
def test_nothing_stands_in_for_a_default_config_that_the_model_cannot_read(
    row_reduce, problem, target, monkeypatch, error
):
    tried = []

    def compile_config(spec, problem, config, target, folder):
        tried.append(config)
        raise error

    monkeypatch.setattr(verification, "compile_config", compile_config)
    monkeypatch.setattr(verification, "stand_ins", lambda *given: [{"N": number} for number in range(3)])
    run = verification._default_run(row_reduce, target, None)
    with pytest.raises(type(error), match=f"^{error}$"):
        run(problem(5, 16), SimpleNamespace(bind=lambda config: {}))
    assert tried == [{"N": 0}]


def test_a_program_that_takes_too_long_to_execute_is_not_judged(cache_folder, row_reduce, problem, rows, monkeypatch):
    monkeypatch.setattr(device_module, "_VERIFY_SECONDS", 0.01)
    with ModelDevice("Ascend910B4", jobs=1) as device:
        verdict = device.verify(row_reduce, problem(1000, 8192), rows(25, 25, 256))
    assert (verdict.agreed, verdict.status) == (False, Status.UNMODELLED)


def test_a_crash_of_the_process_judges_nothing_and_the_next_check_goes_on(device, row_reduce, problem, rows):
    device.verify(row_reduce, problem(50, 512), rows(25, 25, 256))
    (worker,) = device._workers._workers
    threading.Timer(0.1, os.kill, (worker.pid, signal.SIGKILL)).start()
    verdict = device.verify(row_reduce, problem(1003, 8111), rows(10, 1, 64))
    assert (verdict.agreed, verdict.status) == (False, Status.UNMODELLED)
    assert device.verify(row_reduce, problem(50, 512), rows(25, 25, 256)).agreed


def test_a_spec_without_an_origin_is_executed_in_this_process(device, row_reduce, problem, rows):
    spec = dataclasses.replace(row_reduce, origin="")
    assert device.verify(spec, problem(50, 512), rows(25, 25, 256)).agreed


# Faults that execution has found -----------------------------------------------------------------------------------


def test_the_mask_that_the_front_end_drops_from_an_atomic_of_one_element_is_found(target, cache_folder):
    spec, problem = registry.load("sum_rows"), Problem("sum_rows", {"M": 77, "N": 1001}, "float32")
    tile = {"VARIANT": "atomic", "BLOCK_SIZE_N": 256, "SUB_BLOCK_SIZE_N": 256, "multibuffer": False}
    verdict = verify_compiled(spec, problem, tile | {"BLOCK_SIZE_M": 2, "SUB_BLOCK_SIZE_M": 1}, target, cache_folder)
    assert (verdict.agreed, verdict.status) == (False, Status.CORRECTNESS)
    assert re.search(r"store \(reduce\.py:\d+\) uses element (\d+) of out_ptr, which has \1", verdict.reason)
    dividing = tile | {"BLOCK_SIZE_M": 7, "SUB_BLOCK_SIZE_M": 1}
    assert verify_compiled(spec, problem, dividing, target, cache_folder).agreed


def test_of_several_launches_the_faulty_one_is_named(target, cache_folder, monkeypatch):
    spec, problem = registry.load("max_all"), Problem("max_all", {"N": 5003}, "float32")
    config = {"VARIANT": "two_stage", "BLOCK_SIZE_N": 1280, "SUB_BLOCK_SIZE_N": 1024, "multibuffer": False}
    genuine, parsed = verification.parse, []

    def without_a_flag_in_the_second(text):
        parsed.append(genuine(text))
        if len(parsed) < 2:
            return parsed[0]
        flags = [op for op in parsed[1].body.walk() if op.name == "hivm.hir.wait_flag"]
        return edited(parsed[1], flags[0], [])

    monkeypatch.setattr(verification, "parse", without_a_flag_in_the_second)
    verdict = verify_compiled(spec, problem, config, target, cache_folder)
    assert len(parsed) == 2
    assert re.match(r"on N=3723: launch 2: (race: |event )", verdict.reason), verdict.reason


def test_a_barrier_that_the_compiler_omits_between_long_tiles_is_noted_not_refused(target, cache_folder):
    spec, problem = registry.load("max_rows"), Problem("max_rows", {"M": 130, "N": 8192}, "float16")
    config = {"VARIANT": "direct", "BLOCK_SIZE_M": 64, "SUB_BLOCK_SIZE_M": 13, "BLOCK_SIZE_N": 8192}
    config |= {"SUB_BLOCK_SIZE_N": 1664, "multibuffer": True}
    functions = compile_config(spec, problem, config, target, cache_folder)
    arguments = Arguments(spec, problem)
    assert judge(spec, problem, config, functions, arguments, target.on_chip_bytes).agreed
    arguments.poison()
    notes = execute(spec, problem, config, functions, arguments.bind(config), target.on_chip_bytes).unbarriered
    assert notes
    assert all(re.match(r"vmax .* what vmax .* on V .* without a barrier between", note) for note in notes)


def test_a_problem_with_a_flag_is_verified_against_the_reference_of_that_flag(target, cache_folder):
    spec = registry.load("topk_gating")
    plain = Problem(spec.name, {"M": 8, "E": 16, "TOPK": 2}, "float32")
    for problem in (plain, dataclasses.replace(plain, flags={"renormalise": False}), plain):
        verdict = verify_compiled(spec, problem, spec.default(problem, target), target, cache_folder)
        assert verdict.agreed, verdict.reason


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (
            "race: a (operation 1) on V reads what c (operation 3) on V wrote",
            "race: a (k.py:1) on V reads what c (k.py:3) on V wrote",
        ),
        ("b (operation 2) uses byte 7", "b (operation 2) uses byte 7"),  # it has no line
        ("d (operation 4) uses byte 7", "d (operation 4) uses byte 7"),  # there is none
        ("launch 2: c (operation 3) uses byte 7", "launch 2: c (k.py:3) uses byte 7"),
        ("launch 3: c (operation 3) uses byte 7", "launch 3: c (operation 3) uses byte 7"),  # other code
        ("out_ptr: off by 9", "out_ptr: off by 9"),
    ],
)
def test_operations_are_told_by_their_lines_where_the_compiler_gives_them(monkeypatch, reason, told):
    def function(*names):
        return SimpleNamespace(walk=lambda: iter([SimpleNamespace(name=name) for name in names]))

    lowered = []
    operations = [("a", "k.py:1"), ("b", None), ("c", "k.py:3")]
    monkeypatch.setattr(
        verification.toolchain,
        "lower",
        lambda spec, problem, config, launch, part, *, locations: lowered.append(launch),
    )
    monkeypatch.setattr(
        verification.toolchain, "compile_linalg", lambda *given, locations, **named: SimpleNamespace(code="the code")
    )
    monkeypatch.setattr(verification, "without_locations", lambda code: (code, operations))
    spec = SimpleNamespace(plan=lambda config, problem: ["first", "second", "third"])
    functions = [function("a", "b", "c")] * 2 + [function("a", "c")]
    target = SimpleNamespace(name="Ascend910B4")
    assert verification._with_lines(reason, spec, None, {}, functions, target, None) == told
    number = int(reason[7]) if reason.startswith("launch") else 1
    assert lowered == ([["first", "second", "third"][number - 1]] if "operation" in reason else [])
