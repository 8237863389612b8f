"""`bench kernels` on a GPU, and its parts that need none."""

import json

import pytest

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.cuda.accelerator import CudaRuntime
from tilewise.tuner.measure.outcome import Timing
from tilewise.tuner.tuning.loop import Budget

pytest.importorskip("torch")

from tilewise.benchmarks.gpu import kernels


class CountingTimer:
    def __init__(self):
        self.order = []

    def device_time_us(self, run, *, reset=None, seconds):
        self.order.append(run())
        return Timing(float(len(self.order)))


def test_contenders_take_turns_and_every_round_starts_with_another():
    class Device:
        events = CountingTimer()

    runs = {name: (lambda name=name: name, None) for name in "abc"}
    times = kernels.in_turns(Device, runs, rounds=3, seconds=0)
    assert "".join(Device.events.order) == "abcbcacab"
    assert times == {"a": [1, 6, 8], "b": [2, 4, 9], "c": [3, 5, 7]}


def test_the_command_has_the_options_that_decide_the_rows():
    problems = [Problem("softmax", {"M": m, "N": 1024}, "bfloat16") for m in (1, 2)]
    command = kernels.command_of(problems, Budget(12), ("eager",))
    assert command == "tilewise bench kernels softmax --dtype bfloat16 --trials 12 --beside eager"
    assert kernels.command_of(problems, Budget(12), kernels.BESIDE).endswith("--trials 12")


@pytest.mark.needs_gpu
def test_a_row_has_every_contender_on_a_gpu():
    spec = registry.load("row_reduce")
    problem = Problem("row_reduce", {"M": 4096, "N": 1024}, "float32")
    runtime = CudaRuntime()
    config = spec.default(problem, runtime.describe().target)
    report = kernels.bench_kernels(runtime, [(spec, problem, config)], rounds=2, seconds=0.01)
    (row,) = json.loads(json.dumps(report))["rows"]
    assert "failed" not in row
    assert row["verified"]
    names = ("tuned_us", "default_us", "eager_us", "compile_us", "max_autotune_us")
    assert all(row[name] > report["timer_floor_us"] for name in names)
    assert row["tuned_us"] == pytest.approx(row["default_us"], rel=0.2)  # the same config here
    assert row["eager_us"] > row["compile_us"]
    assert 0 < row["share_of_rate"] < 1.2
    assert report["read_rate_tb_s"] == max(report["rates_tb_s"].values())
