"""The roofline plot: drawn only if the roofs are known, and the same file for the same config."""

import xml.etree.ElementTree as ElementTree

import pytest

from tilewise.errors import UsageError
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.explain.roofline import draw, modelled_roofs

PROBLEM = Problem("bowl", {"M": 64}, "float32")
BODY = {"time_us": 10.0, "clock": "modelled", "device": "Ascend910B4", "traffic": {"bytes": 512}}


@pytest.fixture(scope="module")
def part():
    if reason := toolchain.unavailable_reason():
        pytest.skip(reason)
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    from tilewise.tuner.devices.ascend_model.device import ModelDevice

    with ModelDevice("Ascend910B4", jobs=1) as device:
        yield device


def test_a_device_whose_rates_are_not_known_has_no_roofs(bowl):
    with pytest.raises(UsageError, match="--roofline needs a modelled part"):
        modelled_roofs(bowl.FormulaDevice())


def test_another_suffix_is_refused_before_anything_is_drawn(bowl, tmp_path):
    with pytest.raises(UsageError, match=r"--roofline writes .png or .svg, not 'plot.pdf'"):
        draw(tmp_path / "plot.pdf", bowl.FormulaDevice(), bowl.SPEC, PROBLEM, BODY)
    assert list(tmp_path.iterdir()) == []


def test_the_roofs_are_those_of_the_cost_table(part):
    roofs = modelled_roofs(part)
    assert roofs.memory_gb_s == {"global memory": pytest.approx(784), "L2 cache": 2100}
    assert roofs.vector_gflop_s == pytest.approx(40 * 64 * 1.5)  # 64 lanes, one cycle per addition


def test_a_plot_is_a_picture_of_the_asked_form_and_the_same_each_time(bowl, part, tmp_path):
    for name in ("a.svg", "b.svg", "a.png"):
        draw(tmp_path / name, part, bowl.SPEC, PROBLEM, BODY)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
