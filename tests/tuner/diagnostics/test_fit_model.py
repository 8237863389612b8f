"""Calibration: planted figures are recovered from noisy times, on a model and through the NPU device."""

import math
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tilewise.db.records import L2State
from tilewise.errors import Unavailable
from tilewise.tuner.devices.ascend_model import toolchain

if reason := toolchain.unavailable_reason():
    pytest.skip(reason, allow_module_level=True)
pytest.importorskip("torch")

from tilewise.settings import read_settings
from tilewise.tuner.devices.ascend_model.device import ModelDevice
from tilewise.tuner.devices.ascend_model.model_config import model_config
from tilewise.tuner.diagnostics import fit_model
from tilewise.tuner.diagnostics.fit_model import Measured, fit, parameters, time_probes
from tilewise.tuner.diagnostics.micro_kernels import probes
from tilewise.tuner.hardware.ascend_costs import FIGURES, REPEAT_CYCLES, Figure, costs
from tilewise.tuner.hardware.ascend_parts import part
from tilewise.tuner.hardware.calibrated_costs import (
    Calibration,
    calibrated,
    calibration_file,
    forget,
    keep,
    model_fingerprint,
)
from tilewise.tuner.hardware.cube_costs import CUBE_FIGURES
from tilewise.tuner.measure.outcome import Timing

PART = "Ascend910B4"
PLANTED = {
    "launch_us": 1.4,
    "dispatch_us": 0.018,
    "l2_read_bytes": 54.0,
    "vexp": 2.3,
    "vdiv": 4.4,
}
PROBES = (
    "empty, 1 programs",
    "empty, 40 programs",
    "empty, 400 programs",
    "load, one core",
    "load, all cores",
    "load, rows of 1 KB",
    "exp",
    "divide",
)


@pytest.fixture(autouse=True)
def data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWISE_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def target():
    return toolchain.target(PART, read_settings().cache_folder)


@pytest.fixture(scope="module")
def compiled(target):
    """A few probes, each with its compiled code, which can be timed at any costs."""
    made = {}
    for probe in probes(40):
        if probe.name in PROBES:
            outcome, machines = model_config(
                probe.spec, probe.problem, probe.config, target, read_settings().cache_folder, l2=L2State.COLD
            )
            assert machines is not None, outcome.reason
            made[probe.name] = (probe, machines)
    assert set(made) == set(PROBES)
    return made


def planted(values):
    """Return the cost table with these figures replaced."""
    instead = {}
    for parameter in parameters(tuple(values)):
        (value,) = [values[name] for name in parameter.names if name in values]
        instead |= dict.fromkeys(parameter.names, replace(parameter.shipped, value=value))
    return costs(instead=instead)


def measured(compiled, values, *, noise, names=PROBES):
    generator = random.Random(7)
    chosen = planted(values)

    def timed(name):
        machines = compiled[name][1]
        time_us = machines.time_at(chosen).time_us * (1 + generator.gauss(0, noise))
        return Measured(name, time_us, noise, lambda at: machines.time_at(at).time_us)

    return [timed(name) for name in names]


@pytest.mark.full
def test_planted_figures_are_recovered_from_times_with_noise(compiled):
    found = fit(measured(compiled, PLANTED, noise=0.01), parameters(tuple(PLANTED)), "planted")
    for name, value in PLANTED.items():
        figure = found.figures[name]
        assert figure.value == pytest.approx(value, rel=0.07), name
        assert figure.low < value < figure.high, name
        assert figure.source == "planted"
    assert set(PLANTED) <= found.determined
    assert found.error("fitted") < 0.02 < 0.05 < found.error("shipped")


@pytest.mark.full
def test_operations_that_cost_the_same_are_fitted_as_one(compiled):
    found = fit(measured(compiled, {"vdiv": 4.4}, noise=0.01, names=("exp", "divide")), parameters(("vexp",)), "x")
    alike = [name for name, figure in REPEAT_CYCLES.items() if figure == REPEAT_CYCLES["vexp"]]
    assert len(alike) > 3
    assert len({found.figures[name] for name in alike}) == 1


@pytest.mark.full
def test_what_the_probes_say_nothing_about_stays_as_shipped(compiled):
    names = ("exp", "empty, 1 programs")
    found = fit(measured(compiled, {"vexp": 2.3}, noise=0.01, names=names), parameters(("vexp", "scalar_outside")), "x")
    assert found.figures["scalar_outside"].value == pytest.approx(FIGURES["scalar_outside"].value, rel=1e-6)
    assert "scalar_outside" not in found.determined
    assert "vexp" in found.determined


def test_noise_widens_what_is_left_open(compiled):
    quiet, loud = (
        fit(measured(compiled, {}, noise=noise, names=PROBES[:1]), parameters(("launch_us",)), "x").figures["launch_us"]
        for noise in (0.01, 0.2)
    )
    assert loud.high / loud.low > 1.5 * quiet.high / quiet.low


@pytest.mark.full
def test_the_report_holds_each_probe_and_each_figure(compiled):
    body = fit(measured(compiled, PLANTED, noise=0.01), parameters(("launch_us", "vexp")), "x").to_json()
    assert [row["name"] for row in body["probes"]] == list(PROBES)
    (exp,) = [row for row in body["probes"] if row["name"] == "exp"]
    assert abs(exp["fitted_us"] / exp["measured_us"] - 1) < abs(exp["shipped_us"] / exp["measured_us"] - 1)
    (launch,) = [row for row in body["figures"] if row["name"] == "launch_us"]
    assert launch["shipped"] == FIGURES["launch_us"].value
    assert launch["low"] <= launch["fitted"] <= launch["high"]


@pytest.mark.parametrize(("off", "moves"), [(0.8e-4, False), (1.25e-4, True), (0.01, True)])
def test_figures_are_fitted_to_a_ten_thousandth(off, moves):
    """A hundred probes that take just that long tell more than the shipped range."""
    shipped = FIGURES["launch_us"].value
    probes = [Measured("p", shipped * (1 + off), 0.0, lambda chosen: chosen["launch_us"])] * 100
    fitted = fit(probes, parameters(("launch_us",)), "x").figures["launch_us"].value / shipped
    assert fitted == pytest.approx(1 + off if moves else 1.0, abs=1e-5 + off / 10 if moves else 0.0)


def test_a_step_that_goes_too_far_is_shortened_until_it_helps():
    """Newton's steps from where the slope is small lead ever farther away."""
    shipped, off = FIGURES["launch_us"].value, 0.6
    modelled = lambda chosen: math.exp(math.atan(5 * (math.log(chosen["launch_us"] / shipped) - off)))  # noqa: E731
    found = fit([Measured("p", 1.0, 0.0, modelled)] * 100, parameters(("launch_us",)), "x")
    assert found.figures["launch_us"].value == pytest.approx(shipped * math.exp(off), rel=1e-3)
    assert found.determined == {"launch_us"}


def test_a_fit_is_told_with_its_errors_as_they_were_and_are():
    """The second probe shows that nothing can explain both."""
    shipped = FIGURES["launch_us"].value
    probes = [Measured(str(share), shipped * share, 0.0, lambda chosen: chosen["launch_us"]) for share in (1.2, 1.25)]
    found = fit(probes * 50, parameters(("launch_us",)), "x")
    fitted = found.figures["launch_us"].value
    assert found.error("shipped") == pytest.approx((1 - 1 / 1.2 + 1 - 1 / 1.25) / 2, abs=1e-4)
    assert found.error("fitted") == pytest.approx((fitted / shipped / 1.2 - fitted / shipped / 1.25) / 2, abs=1e-3)
    body = found.to_json()
    assert body["mean_error"] == {which: round(found.error(which), 4) for which in ("shipped", "fitted")}
    (told,) = body["figures"]
    assert (told["name"], told["shipped"], told["fitted"]) == ("launch_us", shipped, round(fitted, 6))
    assert told["low"] < told["fitted"] < told["high"] and told["determined"] and told["unit"] == "us"
    assert body["probes"][0] == {
        "name": "1.2",
        "measured_us": shipped * 1.2,
        "shipped_us": round(shipped, 4),
        "fitted_us": round(fitted, 4),
    }


CUBE_PROBES = {
    "mad_fractal": "products, large tiles",
    "l0a_bytes": "products, tall tiles",
    "l0b_bytes": "products, wide tiles",
    "cube_read_bytes": "operands, one core",
    "nd2nz_row": "operands, rows of 64 B",
    "far_row_ns": "operands, far rows",
    "fix_bytes": "results, one core",
    "mixed_launch_us": "product, squared",
}
"""Eight figures of cube cores, each with the probe that is slow for it."""


@pytest.fixture(scope="module")
def cube_machines(target):
    made = {}
    for probe in probes(40):
        if probe.name in CUBE_PROBES.values():
            folder = read_settings().cache_folder
            outcome, made[probe.name] = model_config(
                probe.spec, probe.problem, probe.config, target, folder, l2=L2State.COLD
            )
            assert made[probe.name] is not None, outcome.reason
    return made


def test_each_figure_of_a_cube_core_moves_the_time_of_its_probe(cube_machines):
    for name, probe in CUBE_PROBES.items():
        figure, machines = CUBE_FIGURES[name], cube_machines[probe]
        times = [
            machines.time_at(costs(instead={name: replace(figure, value=value)})).time_us
            for value in (figure.value, 1.2 * figure.value)
        ]
        assert abs(times[1] / times[0] - 1) > 0.05, name


@pytest.mark.full
def test_planted_figures_of_a_cube_core_are_recovered_from_times_with_noise(cube_machines):
    values = {"l0b_bytes": 111.0, "cube_read_bytes": 103.0, "far_row_ns": 120.0, "fix_bytes": 55.0}
    values["mixed_launch_us"] = 3.0
    instead = {name: replace(CUBE_FIGURES[name], value=value) for name, value in values.items()}
    generator, timed = random.Random(7), []
    for name, machines in cube_machines.items():
        time_us = machines.time_at(costs(instead=instead)).time_us * (1 + generator.gauss(0, 0.01))
        timed.append(Measured(name, time_us, 0.01, lambda at, machines=machines: machines.time_at(at).time_us))
    found = fit(timed, parameters(tuple(values)), "planted")
    for name, value in values.items():
        assert found.figures[name].value == pytest.approx(value, rel=0.07), name
    assert found.error("fitted") < 0.02 < found.error("shipped")


def test_a_calibration_may_hold_figures_of_cube_cores():
    keep(made(fix_bytes=50.0))
    assert calibrated(PART)["fix_bytes"].value == 50.0


# Through the NPU device ------------------------------------------------------------------------------------------


def test_a_chip_is_calibrated_through_its_own_clock(npu, compiled):
    """The stand-in takes the times that the model gives with planted figures. A failed probe is named."""
    values = {"launch_us": 0.8, "vexp": 3.1}
    chosen = planted(values)
    empty, exp = (compiled[name][1].time_at(chosen).time_us for name in ("empty, 1 programs", "exp"))
    times = {"probe_empty_kernel": empty, "probe_chain_kernel": exp, "probe_load_kernel": None}
    device = npu(times_us=times)
    probed = [compiled[name][0] for name in ("load, one core", "empty, 1 programs", "exp")]
    timed, failed = time_probes(device, probed)
    assert [(row["name"], row["reason"]) for row in failed] == [
        ("load, one core", "RuntimeError: probe_load_kernel does not run")
    ]
    assert [probe.time_us for probe in timed] == [pytest.approx(empty, rel=1e-3), pytest.approx(exp, rel=1e-3)]
    assert all(0 < probe.noise < 0.02 for probe in timed)
    found = fit(timed, parameters(tuple(values)), "the stand-in")
    for name, value in values.items():
        assert found.figures[name].value == pytest.approx(value, rel=0.1)
    with pytest.raises(Unavailable, match=r"no probe ran on npu; the first failed with: RuntimeError: probe_load"):
        time_probes(device, probed[:1])


def test_a_chip_that_is_not_modelled_cannot_be_fitted(npu):
    with pytest.raises(
        Unavailable, match="Ascend310P is not modelled, so it cannot be calibrated; modelled parts: Ascend910B1"
    ):
        time_probes(npu(name="Ascend310P"), [])


# What is kept ----------------------------------------------------------------------------------------------------


def made(**values):
    figures = {name: Figure(value, 0.9 * value, 1.1 * value, "us", "a test") for name, value in values.items()}
    return Calibration(PART, "npu", "CANN x", "2026-11-20", figures)


def test_a_calibration_replaces_shipped_figures_until_it_is_forgotten(compiled):
    _, machines = compiled["empty, 1 programs"]
    before, shipped = machines.time("value").time_us, model_fingerprint(part(PART))
    file = keep(made(launch_us=5.0))
    assert file == calibration_file(PART)
    assert machines.time("value").time_us == pytest.approx(before + 5.0 - FIGURES["launch_us"].value)
    assert machines.time("low").time_us < machines.time("value").time_us < machines.time("high").time_us
    assert model_fingerprint(part(PART)).endswith(" calibrated")
    assert model_fingerprint(part("Ascend910B3")) != model_fingerprint(part(PART))
    keep(made(launch_us=6.0))  # a second one replaces the first
    assert calibrated(PART)["launch_us"].value == 6.0
    assert forget(PART)
    assert not forget(PART)
    assert machines.time("value").time_us == pytest.approx(before)
    assert model_fingerprint(part(PART)) == shipped


def test_times_of_a_calibrated_part_are_another_scope(monkeypatch):
    with ModelDevice(PART, jobs=1) as shipped:
        keep(made(launch_us=5.0))
        with ModelDevice(PART, jobs=1) as fitted:
            assert fitted.toolchain != shipped.toolchain
            assert fitted.toolchain.endswith("calibrated")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a valid calibration"),
        ("{}", "is not a valid calibration"),
        ('{"part": "x", "device": "", "toolchain": "", "created": "", "figures": {"speed": %s}}', "does not fit"),
    ],
)
def test_a_damaged_calibration_is_an_error_that_names_the_file(text, message):
    file = calibration_file(PART)
    file.parent.mkdir()
    file.write_text(text.replace("%s", '{"value": 1, "low": 1, "high": 1, "unit": "", "source": ""}'))
    with pytest.raises(Unavailable, match=message):
        calibrated(PART)


def test_a_folder_that_cannot_be_written_to_is_an_error(data_folder):
    (data_folder / "calibrations").write_text("in the way")
    with pytest.raises(Unavailable, match=r"cannot write .*; set TILEWISE_DATA to another folder"):
        keep(made(launch_us=1.0))


@pytest.mark.parametrize(
    ("timing", "noise"),
    [
        (Timing(10.0, 9.0, 11.0, 16), 1.25 * 2.0 / 1.683 / 10.0 / 4),
        (Timing(10.0, 9.0, 11.0, 100), 1.25 * 2.0 / 1.683 / 10.0 / 10),
        (Timing(20.0, 9.0, 11.0, 100), 1.25 * 2.0 / 1.683 / 20.0 / 10),
        (Timing(10.0), 0.0),
    ],
)
def test_the_noise_of_a_median_follows_from_its_spread_and_its_samples(timing, noise):
    found = fit_model._measured("load", timing, SimpleNamespace(time_at=lambda chosen: SimpleNamespace(time_us=7.0)))
    assert (found.name, found.time_us) == ("load", timing.time_us)
    assert found.noise == pytest.approx(noise, rel=1e-3)
