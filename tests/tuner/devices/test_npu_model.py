"""The model beside an NPU: the same part, the cores in use, an empty cache as its timer makes it."""

import pytest

from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.model import toolchain

if reason := toolchain.why_not():
    pytest.skip(reason, allow_module_level=True)
pytest.importorskip("torch")

from tilewise.kernels import registry
from tilewise.settings import read_settings
from tilewise.tuner.devices.model.device import model_config
from tilewise.tuner.devices.npu import NpuDevice
from tilewise.tuner.explain import course, explain

PROBLEM = Problem("row_reduce", {"M": 1000, "N": 8192}, "float32")


def config(block, sub, cols):
    return {"BLOCK_SIZE_M": block, "SUB_BLOCK_SIZE_M": sub, "BLOCK_SIZE_N": cols, "multibuffer": True}


GOOD, SLOW, REFUSED = config(25, 25, 256), config(50, 25, 256), config(25, 25, 1024)


@pytest.fixture
def spec():
    return registry.load("row_reduce")


@pytest.fixture
def npu(stand_in_npu, monkeypatch):
    monkeypatch.setenv("TILEWISE_JOBS", "1")

    def opened(**arguments):
        stand_in, spec, problem = stand_in_npu(**arguments)
        return NpuDevice(runtime=stand_in.runtime), spec, problem

    return opened


def test_a_chip_foresees_by_the_model_of_its_part(npu, spec):
    with npu()[0] as device:
        good, slow, refused = device.foresee(spec, PROBLEM, [GOOD, SLOW, REFUSED])
        target = toolchain.target("Ascend910B4", read_settings().cache_folder)
        outcome, _ = model_config(spec, PROBLEM, GOOD, target, read_settings().cache_folder, evicted=True)
    assert good == outcome.timing.time_us < slow
    assert refused is None


def test_fewer_cores_in_use_are_fewer_in_the_model(npu, spec):
    with npu()[0] as all_cores, npu(limit=20)[0] as half:
        (fast,), (slow,) = (device.foresee(spec, PROBLEM, [GOOD]) for device in (all_cores, half))
    assert slow > 1.5 * fast


def test_a_part_that_is_not_modelled_foresees_nothing(npu, spec):
    with npu(name="Ascend310P")[0] as device:
        assert device.foresee(spec, PROBLEM, [GOOD]) is None
        assert course(device, spec, PROBLEM, GOOD) is None


def test_what_cannot_be_modelled_is_explained_by_what_was_measured_and_says_so(npu):
    """The stand-in's function is no Triton function, so the front end cannot lower it."""
    device, spec, problem = npu()
    with device:
        body = explain(device, spec, problem, {"ROWS": 2, "fault": "", "multibuffer": True})
    assert body["clock"] == "measured"
    assert body["time_us"] == pytest.approx(21.0)
    assert body["not_modelled"].startswith("the course of sums cannot be recorded")
    assert not body.keys() & {"rows_us", "modelled_us", "suggestions"}
