"""The fit of figures to times that follow from them by a formula, so that its result does too."""

from __future__ import annotations

import math

import pytest

from tilewise.tuner.diagnostics.fit_model import _LEAST_NOISE, FITTED, FITTED_CUBE, Measured, Parameter, fit, parameters
from tilewise.tuner.hardware.ascend_costs import FIGURES, REPEAT_CYCLES, Figure

LAUNCH, DISPATCH = FIGURES["launch_us"], FIGURES["dispatch_us"]


def timed(name, factor, noise, modelled):
    """Return a probe that took `factor` times what the shipped figures say."""
    return Measured(
        name, factor * modelled({"launch_us": LAUNCH.value, "dispatch_us": DISPATCH.value}), noise, modelled
    )


@pytest.mark.parametrize(("noise", "assumed"), [(0.0, 0.02), (0.02, 0.02), (0.3, 0.3)])
@pytest.mark.parametrize("factor", [0.5, 1.0, 1.25])
def test_a_figure_that_is_a_time_is_the_mean_of_what_is_measured_and_shipped(noise, assumed, factor):
    (sought,) = parameters(("launch_us",))
    found = fit([timed("launch", factor, noise, lambda chosen: chosen["launch_us"])], [sought], "a test")
    certain, known = assumed**-2, sought.spread**-2
    value = LAUNCH.value * factor ** (certain / (certain + known))
    reach = math.exp(2 / math.sqrt(certain + known))
    figure = found.figures["launch_us"]
    assert (figure.value, figure.low, figure.high) == pytest.approx((value, value / reach, value * reach), rel=1e-6)
    assert (figure.unit, figure.source) == (LAUNCH.unit, "a test")
    assert found.determined == ({"launch_us"} if assumed == 0.02 else set())
    assert found.rows == [
        {
            "name": "launch",
            "measured_us": pytest.approx(factor * LAUNCH.value),
            "shipped_us": pytest.approx(LAUNCH.value, abs=1e-4),
            "fitted_us": pytest.approx(value, abs=1e-4),
        }
    ]
    assert found.error("shipped") == pytest.approx(abs(1 / factor - 1), abs=2e-4)
    assert found.error("fitted") == pytest.approx(abs(value / factor / LAUNCH.value - 1), abs=2e-4)


def test_figures_are_told_apart_by_probes_that_mix_them():
    def probe(programs):
        def modelled(chosen):
            return chosen["launch_us"] + programs * chosen["dispatch_us"]

        planted = {"launch_us": 1.2 * LAUNCH.value, "dispatch_us": 0.8 * DISPATCH.value}
        return Measured(str(programs), modelled(planted), 0.0, modelled)

    found = fit(
        [probe(programs) for programs in (0, 10, 100, 1000, 10_000)], parameters(("launch_us", "dispatch_us")), ""
    )
    assert found.figures["launch_us"].value == pytest.approx(1.2 * LAUNCH.value, rel=2e-3)
    assert found.figures["dispatch_us"].value == pytest.approx(0.8 * DISPATCH.value, rel=2e-3)
    assert found.determined == {"launch_us", "dispatch_us"}
    assert found.error("fitted") < 1e-3 < 0.1 < found.error("shipped")


@pytest.mark.parametrize(
    ("low", "value", "high", "spread"),
    [
        (1, 2, 4, math.log(4) / 2),
        (0, 2, 4, math.log(8) / 2),
        (0.5, 2, 4, math.log(8) / 2),
        (0.4, 2, 4, math.log(8) / 2),
        (2, 2, 2, 0.05),
        (2, 2, 2.3, math.log(1.15) / 2),
        (2, 2, 2.2, 0.05),
    ],
)
def test_the_range_of_a_figure_says_how_far_it_may_move(low, value, high, spread):
    assert Parameter(("a",), Figure(value, low, high, "us", "")).spread == pytest.approx(spread)


def test_all_figures_are_sought_and_operations_with_all_that_cost_the_same():
    sought = parameters()
    names = [name for parameter in sought for name in parameter.names]
    assert len(names) == len(set(names))
    assert [parameter.names for parameter in sought[:-4]] == [(name,) for name in (*FITTED, *FITTED_CUBE)]
    assert [parameter.names[0] for parameter in sought[-4:]] == ["vadd", "vsel", "vdiv", "vcast"]
    for parameter in sought[-4:]:
        assert {name for name in REPEAT_CYCLES if REPEAT_CYCLES[name] == parameter.shipped} == set(parameter.names)
    assert _LEAST_NOISE == 0.02
