"""The model beside an NPU: the same part, the cores in use, and the cache emptied as the NPU's timer does."""

import pytest

from tilewise.db.records import L2State
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model import toolchain

if reason := toolchain.unavailable_reason():
    pytest.skip(reason, allow_module_level=True)
pytest.importorskip("torch")

from tilewise.kernels import registry
from tilewise.settings import read_settings
from tilewise.tuner.devices.ascend_model.model_config import model_config
from tilewise.tuner.explain.explain import course, explain

PROBLEM = Problem("row_reduce", {"M": 1000, "N": 8192}, "float32")


def config(block, sub, cols):
    return {"BLOCK_SIZE_M": block, "SUB_BLOCK_SIZE_M": sub, "BLOCK_SIZE_N": cols, "multibuffer": True}


GOOD, SLOW, REFUSED = config(25, 25, 256), config(50, 25, 256), config(25, 25, 1024)


@pytest.fixture
def spec():
    return registry.load("row_reduce")


def test_a_chip_foresees_by_the_model_of_its_part(shared_npu, spec):
    good, slow, refused = shared_npu.predict_us(spec, PROBLEM, [GOOD, SLOW, REFUSED])
    target = toolchain.target("Ascend910B4", read_settings().cache_folder)
    outcome, _ = model_config(spec, PROBLEM, GOOD, target, read_settings().cache_folder, l2=L2State.COLD)
    assert good == outcome.timing.time_us < slow
    assert refused is None


@pytest.mark.full
def test_fewer_cores_in_use_are_fewer_in_the_model(npu, shared_npu, spec):
    (fast,), (slow,) = (device.predict_us(spec, PROBLEM, [GOOD]) for device in (shared_npu, npu(limit=20)))
    assert slow > 1.5 * fast


def test_a_part_that_is_not_modelled_foresees_nothing(npu, spec):
    device = npu(name="Ascend310P")
    assert device.predict_us(spec, PROBLEM, [GOOD]) is None
    assert course(device, spec, PROBLEM, GOOD) is None


def test_what_cannot_be_modelled_is_explained_by_what_was_measured_and_says_so(shared_npu, halves, monkeypatch):
    def beyond_the_model(*arguments, **options):
        raise ValueError("the kernel needs matrix cores, which are not modelled")

    monkeypatch.setattr("tilewise.tuner.devices.ascend_model.toolchain.lower", beyond_the_model)
    problem = Problem("halves", {"N": 100_000}, "float32")
    body = explain(shared_npu, halves, problem, {"SIZE": 4096, "FAULT": 0, "multibuffer": True})
    assert body["clock"] == "measured"
    assert body["time_us"] == pytest.approx(6.0, rel=0.02)
    assert body["not_modelled"].startswith("cannot record a timeline of halves")
    assert not body.keys() & {"rows_us", "modelled_us", "suggestions"}
