"""`model:PART` as a device: compile processes, outcomes in order, nothing left behind."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewise.db.records import Clock, L2State, Status
from tilewise.errors import BadSpec, Unavailable, UnknownDevice
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model import device as device_module
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.device import ModelDevice
from tilewise.tuner.devices.ascend_model.model_config import model_config
from tilewise.tuner.hardware import calibrated_costs
from tilewise.tuner.hardware.ascend_costs import costs
from tilewise.tuner.hardware.ascend_parts import part
from tilewise.tuner.hardware.cube_costs import cube_fingerprint
from tilewise.tuner.workers.worker import WorkerDied, WorkerError, WorkerExceeded, WorkerFailed, WorkerTimeout


def children(parent):
    """Return the processes that `parent` started and that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, ppid = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it ended meanwhile
            continue
        if int(ppid) == parent and state != "Z":
            found.append(int(stat.parent.name))
    return found


def alive(pids):
    running = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            running.append(pid)
    return running


def gone(pids, seconds=60):
    """Return whether all processes end before the time is up."""
    end = time.monotonic() + seconds
    while alive(pids) and time.monotonic() < end:
        time.sleep(0.05)
    return not alive(pids)


@pytest.fixture(scope="module")
def device(cache_folder):
    with ModelDevice("Ascend910B4", jobs=2) as device:
        yield device


@pytest.fixture
def user_kernel(kernel_file):
    def load(name, n=1000):
        spec = registry.load(f"{kernel_file}:{name}")
        dims = {"N": n} if spec.dims == ("N",) else {"M": 50, "N": 127}
        return spec, Problem(spec.name, dims, spec.dtypes[0])

    return load


@pytest.fixture
def configs(rows):
    """Configs that compile, one that does not fit, one that loses its double buffers, one single-buffered."""
    tiles = [(25, 25, 256), (25, 25, 2048), (50, 25, 256), (25, 5, 2048), (20, 20, 256)]
    return [*(rows(*tile) for tile in tiles), rows(25, 25, 256, multibuffer=False)]


# Outcomes -------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_one_process_and_two_give_the_same_outcomes_in_order(
    device, row_reduce, problem, configs, target, cache_folder
):
    two = list(device.evaluate(row_reduce, problem(1000, 8192), configs))
    with ModelDevice("Ascend910B4", jobs=1) as alone:
        one = list(alone.evaluate(row_reduce, problem(1000, 8192), configs))
    here = [model_config(row_reduce, problem(1000, 8192), config, target, cache_folder)[0] for config in configs]
    assert one == two == here
    statuses = [outcome.status for outcome in two]
    assert statuses == [Status.CORRECT, Status.COMPILE, *[Status.CORRECT] * 4]


def test_an_outcome_says_what_the_compiler_did(device, row_reduce, problem, configs):
    double, overflow, _, dropped, _, single = device.evaluate(row_reduce, problem(1000, 8192), configs)
    assert double.facts["effective_options"] == {"multibuffer": True, "code_motion": True}
    assert double.facts["double_buffered"] is True
    assert double.facts["on_chip_bits"]["required"] <= double.facts["on_chip_bits"]["available"] == 1572864
    assert set(double.facts["pipes_us"]) == {"S", "V", "MTE2", "MTE3"}
    assert double.facts["bound_by"] == "V"
    required = overflow.facts["on_chip_bits"]["required"]
    assert overflow.reason == f"UB overflow: {required} bits required, 1572864 available"
    assert overflow.timing is None
    assert dropped.facts["effective_options"] == {"multibuffer": False, "code_motion": False}
    assert dropped.facts["double_buffered"] is False
    assert single.facts["effective_options"] == {"multibuffer": False, "code_motion": True}
    assert single.timing.time_us > double.timing.time_us


def test_a_modelled_time_has_no_spread(device, row_reduce, problem, rows):
    (outcome,) = device.evaluate(row_reduce, problem(1000, 8192), [rows(25, 25, 256)])
    assert (outcome.timing.p20_us, outcome.timing.p80_us, outcome.timing.samples) == (None, None, 1)
    assert device.clock is Clock.MODELLED


def test_a_users_kernel_is_found_by_its_path(device, user_kernel):
    spec, problem = user_kernel("SOFTMAX")
    assert spec.origin.endswith("operation_kernels.py:SOFTMAX")
    (outcome,) = device.evaluate(spec, problem, [spec.default(problem, device.target)])
    assert (outcome.status, outcome.reason) == (Status.CORRECT, "")


def test_a_spec_without_an_origin_is_compiled_in_this_process(device, user_kernel):
    spec, problem = user_kernel("RELU")
    config = spec.default(problem, device.target)
    (there,) = device.evaluate(spec, problem, [config])
    (here,) = device.evaluate(dataclasses.replace(spec, origin=""), problem, [config])
    assert here == there


def test_what_the_front_end_refuses_is_one_line_that_says_why(device, user_kernel):
    spec, problem = user_kernel("UNDEFINED_NAME")
    (outcome,) = device.evaluate(spec, problem, [spec.default(problem, device.target)])
    assert outcome.status is Status.COMPILE
    assert "no_such_function" in outcome.reason
    assert "\n" not in outcome.reason
    assert "def undefined_name" not in outcome.reason  # the cause, not the source


def test_undeclared_matrix_products_are_refused_with_advice(device, user_kernel):
    spec, problem = user_kernel("MATRIX_PRODUCT")
    (outcome,) = device.evaluate(spec, problem, [spec.default(problem, device.target)])
    assert outcome.status is Status.UNMODELLED
    assert "give its spec a `matrix_dtype`" in outcome.reason


def test_times_of_cube_cores_carry_the_version_of_their_own_figures(device, user_kernel):
    product, vector = registry.load("gemm"), user_kernel("RELU")
    problem = Problem("gemm", {"M": 64, "N": 64, "K": 64}, "float16")
    assert device.scope(product, problem).toolchain == f"{device.toolchain}, cube {cube_fingerprint()}"
    assert device.scope(*vector).toolchain == device.toolchain


def test_a_crash_of_the_front_end_is_an_outcome_and_the_next_config_goes_on(device, user_kernel):
    spec, _ = user_kernel("CRASHING")
    problem, fatal = Problem("relu", {"N": 1000}, "float32"), Problem("relu", {"N": 13}, "float32")
    config = spec.default(problem, device.target)
    (crashed,) = device.evaluate(spec, fatal, [config])
    assert crashed.status is Status.COMPILE
    assert "crashed" in crashed.reason and "SIGABRT" in crashed.reason
    (fine,) = device.evaluate(spec, problem, [config])
    assert fine.status is Status.CORRECT


def test_a_spec_that_is_wrong_as_a_whole_is_an_error_not_an_outcome(device, user_kernel):
    spec, problem = user_kernel("ONE_ARGUMENT_MORE")
    with pytest.raises(BadSpec, match="does not pass MISSING"):
        list(device.evaluate(spec, problem, [spec.default(problem, device.target)]))


def test_a_compile_that_takes_too_long_is_a_timeout(user_kernel, target, cache_folder, monkeypatch):
    slow = toolchain.Compiled(refusal="the compiler did not finish within 120 s", timed_out=True)
    monkeypatch.setattr(toolchain, "compile_linalg", lambda *arguments, **options: slow)
    spec, problem = user_kernel("RELU")
    outcome, _ = model_config(spec, problem, spec.default(problem, target), target, cache_folder)
    assert (outcome.status, outcome.reason) == (Status.TIMEOUT, "the compiler did not finish within 120 s")


def test_outcomes_may_be_left_unread(device, row_reduce, problem, configs):
    outcomes = device.evaluate(row_reduce, problem(1000, 8192), configs)
    assert next(outcomes).status is Status.CORRECT
    outcomes.close()
    (again,) = device.evaluate(row_reduce, problem(1000, 8192), configs[:1])
    assert again.status is Status.CORRECT


# Properties of the device ---------------------------------------------------------------------------------------


def test_it_names_its_part_cores_and_toolchain(device):
    assert (device.id, device.target.name, device.target.cores) == ("model:Ascend910B4", "Ascend910B4", 40)
    assert device.toolchain.startswith("triton-ascend ") and ", model " in device.toolchain


def test_the_toolchain_changes_with_the_costs_and_with_the_part(device, monkeypatch):
    b3 = calibrated_costs.model_fingerprint(part("Ascend910B3"))
    b4 = calibrated_costs.model_fingerprint(device.part)
    assert device.toolchain.endswith(b4)
    dearer = dataclasses.replace(calibrated_costs.FIGURES["barrier"], value=5)
    monkeypatch.setattr(calibrated_costs, "FIGURES", {**calibrated_costs.FIGURES, "barrier": dearer})
    assert len({b3, b4, calibrated_costs.model_fingerprint(device.part)}) == 3


def test_no_config_is_faster_than_the_memory_floor(device, row_reduce, problem, configs):
    floor = device.floor_us(row_reduce, problem(1000, 8192))
    times = [
        outcome.timing.time_us
        for outcome in device.evaluate(row_reduce, problem(1000, 8192), configs)
        if outcome.timing
    ]
    assert 0 < floor < min(times)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("m", [8, 100_000])
def test_the_floor_is_the_time_of_the_bytes_that_have_to_move(device, row_reduce, problem, monkeypatch, warm, m):
    """Of a problem that fits the cache, results need not leave it, and operands need not come if they are there."""
    figures, read, written = costs(), m * 1024 * 4 + 1024 * 4, m * 4
    assert row_reduce.bytes(problem(m, 1024)) == read + written
    fits = read + written <= device.part.l2_mib * 2**20
    monkeypatch.setattr(device, "_l2", L2State.WARM if warm else L2State.COLD)
    if fits and warm:
        rate, moved = device.part.l2_gb_s * figures["l2_share"], read + written
    else:
        moved = read if fits else read + written
        share = max(figures["read_share"], figures["mixed_share"])
        rate = device.part.global_gb_s(0.0 if fits else written / moved) * share
    assert fits == (m == 8)
    assert device.floor_us(row_reduce, problem(m, 1024)) == pytest.approx(moved / rate / 1e3)


def test_an_unknown_part_is_refused():
    with pytest.raises(UnknownDevice, match="Ascend310"):
        ModelDevice("Ascend310")


def test_without_the_compiler_it_is_unavailable(monkeypatch):
    monkeypatch.setattr(toolchain, "_MODULES", {"no-such-compiler": "nothing"})
    with pytest.raises(Unavailable, match=r"^model:Ascend910B4 needs the Ascend compiler: pip install"):
        ModelDevice("Ascend910B4")


# Processes ------------------------------------------------------------------------------------------------------


def test_warming_up_starts_one_process_that_forks_the_others(cache_folder, fresh_supervisors):
    before = set(children(os.getpid()))
    with ModelDevice("Ascend910B4", jobs=2) as device:
        device.warm_up()
        [supervisor] = set(children(os.getpid())) - before
        end = time.monotonic() + 60
        while len(children(supervisor)) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        assert len(children(supervisor)) == 2


def test_closing_leaves_no_processes(row_reduce, problem, configs, cache_folder, fresh_supervisors):
    before = set(children(os.getpid()))
    device = ModelDevice("Ascend910B4", jobs=2)
    device.warm_up()
    next(device.evaluate(row_reduce, problem(1000, 8192), configs))
    [supervisor] = set(children(os.getpid())) - before
    started = {supervisor, *children(supervisor)}
    assert len(started) >= 2
    device.close()
    assert gone(started)


def test_processes_outlive_the_thread_that_started_them(row_reduce, problem, configs, cache_folder):
    with ModelDevice("Ascend910B4", jobs=2) as device:
        outcomes = []
        thread = threading.Thread(
            target=lambda: outcomes.extend(device.evaluate(row_reduce, problem(1000, 8192), configs[:2]))
        )
        thread.start()
        thread.join()
        outcomes += device.evaluate(row_reduce, problem(1000, 8192), configs[2:])
    assert len(outcomes) == len(configs)


PARENT = """
import sys, time
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model.device import ModelDevice
device = ModelDevice("Ascend910B4", jobs=2)
device.warm_up()
config = {"BLOCK_SIZE_M": 25, "SUB_BLOCK_SIZE_M": 25, "BLOCK_SIZE_N": 256, "multibuffer": True}
problem = Problem("row_reduce", {"M": 1000, "N": 8192}, "float32")
(outcome,) = device.evaluate(registry.load("row_reduce"), problem, [config])
print(outcome.status, flush=True)
time.sleep(60)
"""


@pytest.mark.in_part(1)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_processes_end_with_a_parent_that_is_killed(how, cache_folder):
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout.readline().strip() == "correct"
        [supervisor] = children(parent.pid)
        started = [supervisor, *children(supervisor)]
        assert len(started) >= 2
        parent.send_signal(how)
        parent.wait(timeout=60)
        assert gone(started)
    finally:
        parent.kill()
        parent.communicate()


# Limits ---------------------------------------------------------------------------------------------------------


class TakesTooLong:
    """Compile processes that answer nothing within the time they are given."""

    def submit(self, *job, timeout):
        future = Future()
        future.set_exception(WorkerTimeout(f"no answer within {timeout:g} s"))
        return future


@pytest.fixture
def slow(cache_folder):
    with ModelDevice("Ascend910B4", jobs=1) as device:
        workers, device._workers = device._workers, TakesTooLong()
        yield device
        device._workers = workers


def test_a_config_has_ten_minutes_to_compile_and_three_to_be_executed(slow, row_reduce, problem, rows):
    config = rows(25, 25, 256)
    (outcome,) = slow.evaluate(row_reduce, problem(1000, 8192), [config])
    assert (outcome.status, outcome.reason) == (Status.TIMEOUT, "no answer within 600 s")
    verdict = slow.verify(row_reduce, problem(1000, 8192), config)
    assert (verdict.agreed, verdict.status) == (False, Status.UNMODELLED)
    assert verdict.reason == "executing the program: no answer within 180 s"


# What compile processes answer --------------------------------------------------------------------------------------


def answered(answer):
    future = Future()
    future.set_exception(answer) if isinstance(answer, Exception) else future.set_result(answer)
    return future


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (WorkerTimeout("no answer within 300 s"), Status.TIMEOUT, "no answer within 300 s"),
        (WorkerDied("it died"), Status.COMPILE, "the compiler's front end crashed: it died"),
        (WorkerExceeded("it used much"), Status.COMPILE, "the compiler's front end crashed: it used much"),
        (WorkerFailed("KeyError", "'x'"), Status.RUNTIME, "KeyError: 'x'"),
    ],
)
def test_a_process_that_fails_is_an_outcome_and_judges_nothing(error, status, told):
    found = device_module._outcome(answered(error))
    assert (found.status, found.reason) == (status, told)
    verdict = device_module._verdict(answered(error))
    assert (verdict.agreed, verdict.status) == (False, Status.UNMODELLED)
    assert verdict.reason == f"executing the program: {error}"


@pytest.mark.parametrize("read", ["_outcome", "_verdict"])
@pytest.mark.parametrize(
    ("error", "raised", "told"),
    [
        (WorkerFailed("BadSpec", "it is wrong"), BadSpec, "it is wrong"),
        (WorkerFailed("OSError", "no space left"), Unavailable, "a compile process failed: OSError: no space left"),
        (WorkerFailed("MemoryError", ""), Unavailable, "a compile process failed: MemoryError"),
        (WorkerError("something else"), Unavailable, "something else"),
    ],
)
def test_what_is_wrong_with_the_spec_or_the_machine_is_no_configs_fault(read, error, raised, told):
    with pytest.raises(raised) as failed:
        getattr(device_module, read)(answered(error))
    assert str(failed.value) == told


def test_an_answer_of_a_process_is_taken_as_it_is():
    assert device_module._outcome(answered("an outcome")) == "an outcome"
    assert device_module._verdict(answered("a verdict")) == "a verdict"


def test_processes_have_time_to_compile_and_less_to_execute_beside_that_for_what_hosts_share(
    device, row_reduce, problem, rows, monkeypatch
):
    asked = []
    workers = SimpleNamespace(submit=lambda *job, timeout: asked.append((job, timeout)) or answered("done"))
    monkeypatch.setattr(device, "_workers", workers)
    monkeypatch.setattr(device_module, "waiting_seconds", lambda: 7.0)
    config = rows(25, 25, 256)
    assert list(device.evaluate(row_reduce, problem(100, 512), [config] * 2)) == ["done"] * 2
    assert device.verify(row_reduce, problem(100, 512), config) == "done"
    about = ("row_reduce", problem(100, 512), config, device.target, device._folder)
    compiling = (("evaluate", *about, device._l2), 607.0)
    assert asked == [compiling, compiling, (("verify", *about), 187.0)]
