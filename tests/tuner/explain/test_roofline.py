"""The roofline plot: drawn only if the roofs are known, and the same file for the same config."""

import xml.etree.ElementTree as ElementTree

import pytest

from tilewise.errors import UsageError
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.explain.roofline import draw, modelled_roofs
from tilewise.tuner.hardware import calibrated_costs
from tilewise.tuner.hardware.figure import Figure

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
    assert roofs.vector_gflop_s == pytest.approx(40 * 64 * 1.65)  # 64 lanes, one cycle per addition


def test_a_part_that_adds_in_two_cycles_has_half_the_additions(part, monkeypatch):
    instead = {"vadd": Figure(2.0, 2.0, 2.0, "cycles", "a test")}
    monkeypatch.setattr(calibrated_costs, "calibrated", lambda name: instead)
    assert modelled_roofs(part).vector_gflop_s == pytest.approx(40 * 32 * 1.65)


def test_a_plot_is_a_picture_of_the_asked_form_and_the_same_each_time(bowl, part, tmp_path):
    for name in ("a.svg", "b.svg", "a.png"):
        draw(tmp_path / name, part, bowl.SPEC, PROBLEM, BODY)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_plot_shows_the_roofs_and_the_config_where_they_are(bowl, part, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **options: drawn.append((figure, file, options)))
    draw(tmp_path / "a.svg", part, bowl.SPEC, PROBLEM, BODY)
    draw(tmp_path / "a.png", part, bowl.SPEC, PROBLEM, BODY)
    (figure, file, options), (_, _, other) = drawn
    assert (file, options, other) == (
        tmp_path / "a.svg",
        {"metadata": {"Date": None}, "dpi": 120},
        {"metadata": None, "dpi": 120},
    )
    (axes,) = figure.axes
    lines = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}
    peak, least = 4224.0, 64 / bowl.SPEC.bytes(PROBLEM)
    assert axes.get_xlim() == pytest.approx((least / 30, least * 30))
    for label, rate in (("global memory, 784 GB/s", 784), ("L2 cache, 2100 GB/s", 2100)):
        x, y = lines[label]
        assert x == pytest.approx([least / 30, peak / rate, least * 30])
        assert y == pytest.approx([rate * least / 30, peak, peak])
    assert lines["4224 GFLOP/s, additions"][1] == [pytest.approx(peak)] * 2
    x, y = lines["this config, 10.00 us (modelled)"]
    assert (x, y) == ([pytest.approx(64 / 512)], [pytest.approx(64 / 10.0 / 1e3)])
    assert lines["least traffic"][0] == [pytest.approx(least)] * 2
    assert axes.get_title() == "bowl M=64 float32 on Ascend910B4"
    draw(tmp_path / "b.svg", part, bowl.SPEC, PROBLEM, {**BODY, "traffic": {}})
    (line,) = (line for line in drawn[2][0].axes[0].lines if str(line.get_label()).startswith("this config"))
    assert list(line.get_xdata()) == [pytest.approx(least)]
