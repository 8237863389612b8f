"""The self-test passes a working device, and says what is wrong with a faulty one."""

import json

import pytest
from click.testing import CliRunner

from tilewise.cli import cli
from tilewise.db.records import Status
from tilewise.errors import Unavailable
from tilewise.kernels.spec import Dot, Problem
from tilewise.tuner.diagnostics.selftest import LARGE, MULTIPLIED, PRODUCT, RIGHT, RIGHT_PRODUCT, SPEC, STEPS, selftest
from tilewise.tuner.measure.outcome import Outcome, Timing, Verdict

ORDER = ["device", "compile", "launch", "right values", "wrong values", "repeated timing", "bandwidth", "product"]


@pytest.fixture
def device(bowl):
    """A factory of working devices; `changes` are methods to replace."""

    def make(**changes):
        class Working(bowl.FormulaDevice):
            def verify(self, spec, problem, config):
                shifted = config["SHIFT"] != 0
                return Verdict(not shifted, 1.0 if shifted else 0.0, 0.1, "out_ptr: off by 1" if shifted else "")

            def floor_us(self, spec, problem):
                return 9.0

        return type("Changed", (Working,), changes)(lambda config: 10.0)

    return make


def steps(device):
    return {step.name: (str(step.verdict), step.detail) for step in selftest(lambda: device)}


def test_a_device_that_works_passes_every_step_and_is_closed(device):
    working = device()
    found = steps(working)
    assert list(found) == ORDER
    assert {verdict for verdict, _ in found.values()} == {"ok"}
    assert len(STEPS) == len(ORDER) - 1
    assert working.closed


def test_a_device_that_is_not_here_says_why_and_is_not_asked_further():
    def absent():
        raise Unavailable("no device npu: no Ascend NPU on this machine")

    (step,) = selftest(absent)
    assert (step.verdict, step.detail) == ("not here", "no device npu: no Ascend NPU on this machine")


def test_a_compiler_that_fails_fails_compile_and_launch(device):
    def evaluate(self, spec, problem, configs, **options):
        return iter([Outcome(Status.COMPILE, "ub overflow") for _ in configs])

    found = steps(device(evaluate=evaluate))
    assert [found[name] for name in ("compile", "launch")] == [("failed", "ub overflow")] * 2
    assert found["repeated timing"] == ("failed", "5 of 5 timings failed")
    assert found["bandwidth"] == ("failed", "nothing was timed")


def test_a_launch_that_fails_is_told_from_a_compile_that_does(device):
    def evaluate(self, spec, problem, configs, **options):
        return iter([Outcome(Status.RUNTIME, "illegal address") for _ in configs])

    found = steps(device(evaluate=evaluate))
    assert found["compile"][0] == "ok"
    assert found["launch"] == ("failed", "illegal address")


@pytest.mark.parametrize(
    ("verdict", "name", "detail"),
    [
        (Verdict(True, 0.0, 0.1), "wrong values", "a kernel that adds 1 to every value was verified as correct"),
        (Verdict(False, 9.0, 0.1, "out_ptr: off by 9"), "right values", "out_ptr: off by 9"),
        (
            Verdict(False, 9.0, 0.1, "the process died", Status.RUNTIME),
            "wrong values",
            "the values were not compared: the process died",
        ),
    ],
)
def test_a_comparison_that_passes_or_refuses_everything_fails(device, verdict, name, detail):
    assert steps(device(verify=lambda self, spec, problem, config: verdict))[name] == ("failed", detail)


def test_a_clock_that_wanders_fails(device):
    times = iter([5.0, 100.0, 101.0, 104.0, 100.0, 100.0])

    def evaluate(self, spec, problem, configs, **options):
        return iter([Outcome(Status.CORRECT, timing=Timing(next(times)))])

    verdict, detail = steps(device(evaluate=evaluate))["repeated timing"]
    assert (verdict, detail) == ("failed", "5 timings differ by 4.00% (allowed: 2%)")


@pytest.mark.parametrize(("floor", "verdict"), [(2.0, "failed"), (9.9, "ok"), (13.0, "failed"), (None, "ok")])
def test_a_bandwidth_far_below_or_above_the_devices_own_fails(device, floor, verdict):
    found = steps(device(floor_us=lambda self, spec, problem: floor))
    assert found["bandwidth"][0] == verdict
    assert LARGE.dims["N"] * 8 / 10 / 1e6 == pytest.approx(26.8, abs=0.1)
    assert found["bandwidth"][1].startswith("26.84 TB/s")


@pytest.mark.parametrize(
    ("right", "wrong", "detail"),
    [
        (
            Verdict(True, 0.0, 0.1),
            Verdict(True, 0.0, 0.1),
            "a product that leaves out a column was verified as correct",
        ),
        (Verdict(False, 9.0, 0.1, "out_ptr: off by 9"), Verdict(False, 9.0, 0.1, ""), "out_ptr: off by 9"),
        (Verdict(True, 0.0, 0.1), Verdict(False, 0.0, 0.1, "it died", Status.RUNTIME), "it died"),
    ],
)
def test_a_product_that_is_wrong_or_cannot_be_judged_fails_its_step(device, right, wrong, detail):
    def verify(self, spec, problem, config):
        return wrong if config["SHIFT"] else right

    assert steps(device(verify=verify))["product"] == ("failed", detail)


def test_a_product_that_does_not_run_says_why(device):
    def evaluate(self, spec, problem, configs, **options):
        status = Status.UNMODELLED if spec.name == "multiplied" else Status.CORRECT
        timing = None if status is Status.UNMODELLED else Timing(10.0)
        return iter([Outcome(status, "no matrix units", timing=timing) for _ in configs])

    found = steps(device(evaluate=evaluate))
    assert found["product"] == ("failed", "no matrix units")
    assert found["launch"][0] == "ok"


def test_a_step_that_raises_is_a_failed_step_and_the_others_go_on(device):
    def verify(self, spec, problem, config):
        raise OSError("the pipe is gone")

    found = steps(device(verify=verify))
    assert found["right values"] == found["wrong values"] == ("failed", "OSError: the pipe is gone")
    assert found["bandwidth"][0] == "ok"


def test_the_command_tests_the_modelled_part_with_the_real_compiler():
    pytest.importorskip("triton")
    result = CliRunner().invoke(cli, ["selftest", "--device", "model:Ascend910B4", "--json"], standalone_mode=False)
    body = json.loads(result.stdout)
    assert result.return_value == 0
    assert body["good"] is True
    assert [(step["name"], step["verdict"]) for step in body["steps"]] == [(name, "ok") for name in ORDER]


@pytest.mark.parametrize(
    "device",
    [pytest.param("cuda", marks=pytest.mark.needs_gpu), pytest.param("npu", marks=pytest.mark.needs_npu)],
)
def test_the_command_passes_every_step_on_a_chip(device):
    result = CliRunner().invoke(cli, ["selftest", "--device", device, "--json"], standalone_mode=False)
    body = json.loads(result.stdout)
    assert [step for step in body["steps"] if step["verdict"] != "ok"] == []
    assert body["good"] is True


def test_the_command_exits_with_1_where_the_device_is_not_here():
    result = CliRunner().invoke(cli, ["selftest", "--device", "npu"], standalone_mode=False)
    assert result.return_value == 1
    assert "not here  device: no device npu" in result.stdout
    assert result.stdout.rstrip().endswith("the output of the same command with --json.")


def test_the_kernels_of_the_self_test_describe_what_they_do():
    (axis,) = SPEC.tiling(RIGHT, Problem("doubled", {"N": 100_003}, "float32")).axes
    assert (axis.name, axis.size, axis.block, axis.step, axis.programs) == ("N", 100_003, 8192, 2048, 13)
    tiling = SPEC.tiling(RIGHT, LARGE)
    assert (tiling.streamed_bytes, tiling.resident_bytes) == (2 * 2048 * 4, 0)
    assert SPEC.flops(LARGE) == 1 << 25
    assert [launch.grid for launch in SPEC.plan(RIGHT, LARGE)] == [(4096,)]


def test_the_product_of_the_self_test_has_a_tail_along_each_axis():
    tiling = PRODUCT.tiling(RIGHT_PRODUCT, MULTIPLIED)
    axes = [(axis.name, axis.size, axis.block, axis.step) for axis in tiling.axes]
    assert axes == [("M", 100, 64, 64), ("K", 130, 130, 64), ("N", 70, 64, 64)]
    assert (tiling.streamed_bytes, tiling.resident_bytes) == (2 * 64 * 64 * 2, 64 * 64 * 4)
    assert tiling.dot == Dot(64, 64, 64, alone=True)
    assert all(axis.size % axis.step for axis in tiling.axes)
    assert PRODUCT.flops(MULTIPLIED) == 2 * 100 * 70 * 130
    assert [launch.grid for launch in PRODUCT.plan(RIGHT_PRODUCT, MULTIPLIED)] == [(4,)]
    buffers = PRODUCT.buffers(MULTIPLIED)
    assert {name: buffer.shape for name, buffer in buffers.items()} == {
        "a_ptr": (100, 130),
        "b_ptr": (130, 70),
        "out_ptr": (100, 70),
    }
    assert buffers["out_ptr"].terms == 130
