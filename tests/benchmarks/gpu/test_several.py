"""`bench several` on GPUs; its parts on devices whose times are formulas."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tilewise.benchmarks.gpu.faults import FAULT
from tilewise.benchmarks.gpu.several import timed_beside, tuned_on
from tilewise.cli import main
from tilewise.db.records import Problem, Status
from tilewise.errors import Unavailable

STEADY = SimpleNamespace(times=lambda true_us, count: [true_us] * count)


@pytest.mark.needs_gpu
def test_two_gpus_are_nearly_twice_as_fast_and_leave_each_others_times_alone(tmp_path):
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("needs two NVIDIA GPUs")
    file = tmp_path / "several.json"
    with pytest.raises(SystemExit) as ended:
        main(["bench", "several", "-o", str(file)])
    assert not ended.value.code, json.loads(file.read_text())


def test_each_problem_is_tuned_by_one_of_the_devices(bowl):
    devices = [bowl.FormulaDevice(), bowl.FormulaDevice()]
    for number, device in enumerate(devices):
        device.id = f"cuda:{number}"
    problems = [Problem("bowl", {"M": 64 * factor}, "float32") for factor in (1, 2, 3)]
    done = tuned_on(devices, bowl.SPEC, problems, trials=3)
    assert sum(map(len, done["tunings"].values())) == 3
    assert done["seconds"] > 0


def test_a_lost_device_ends_the_comparison(bowl, monkeypatch):
    def lost(*given, **how):
        raise Unavailable("it fell off the bus")

    monkeypatch.setattr(bowl.FormulaDevice, "verify", lost)
    with pytest.raises(Unavailable, match="fell off the bus"):
        tuned_on([bowl.FormulaDevice()], bowl.SPEC, [Problem("bowl", {"M": 64}, "float32")], trials=3)


def test_times_beside_faults_are_compared_with_those_alone(bowl):
    failed = []

    def faulty(config):
        assert config[FAULT]
        failed.append(config)
        return Status.RUNTIME

    def time_us(config):
        assert not config[FAULT]
        return 20.0 if failed else 10.0

    found = timed_beside(bowl.NoisyDevice(STEADY, time_us), bowl.FormulaDevice(faulty), rounds=5)
    assert found["configs"] == 12
    assert found["faults"] >= 2
    assert found["alone_again"]["median"] == pytest.approx(1.0, abs=0.1)
    assert found["beside_faults"]["median"] == pytest.approx(2.0, abs=0.2)
