"""Figures fitted to a user's chip: kept, read again when they change, and refused where they do not fit."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tilewise.errors import Unavailable
from tilewise.tuner.hardware import calibrated_costs
from tilewise.tuner.hardware.ascend_parts import PARTS
from tilewise.tuner.hardware.calibrated_costs import (
    Calibration,
    calibrated,
    calibration,
    calibration_file,
    forget,
    keep,
    model_fingerprint,
)
from tilewise.tuner.hardware.figure import Figure

PART = PARTS["Ascend910B4"]
FITTED = {"launch_us": Figure(9.0, 8.0, 9.5, "us", "fitted"), "mad_start": Figure(7.0, 7.0, 7.0, "cycles", "fitted")}
MADE = Calibration("Ascend910B4", "npu:0", "cann", "2026-11-01", {**FITTED, "vadd": Figure(1, 1, 2, "", "")})


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWISE_DATA", str(tmp_path))


def test_a_calibration_is_kept_until_it_is_forgotten(tmp_path):
    assert calibration("Ascend910B4") is None and calibrated("Ascend910B4") == {} and not forget("Ascend910B4")
    assert keep(MADE) == calibration_file("Ascend910B4") == tmp_path / "calibrations" / "Ascend910B4.json"
    assert calibration("Ascend910B4") == MADE and calibrated("Ascend910B4") == MADE.figures
    assert calibration("Ascend910B1") is None
    assert forget("Ascend910B4") and calibration("Ascend910B4") is None


def test_a_changed_file_is_read_again():
    file = keep(MADE)
    assert calibration("Ascend910B4") == MADE
    keep(replace(MADE, created="later"))
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 10**9))
    found = calibration("Ascend910B4")
    assert found is not None and found.created == "later"


@pytest.mark.parametrize("figure", [(0, 0, 1), (1, 2, 3), (4, 2, 3), (-1, -1, 1)])
def test_a_figure_beyond_its_range_does_not_fit(figure):
    keep(replace(MADE, figures=FITTED | {"launch_us": Figure(*figure, "us", "fitted")}))
    with pytest.raises(Unavailable, match=r"does not fit this version of the model \(launch_us\); run tilewise calib"):
        calibration("Ascend910B4")


def test_unknown_figures_and_broken_files_say_what_to_do():
    keep(replace(MADE, figures={"zeta": Figure(1, 1, 1, "", ""), "alpha": Figure(1, 1, 1, "", "")}))
    with pytest.raises(Unavailable, match=r"does not fit this version of the model \(alpha, zeta\)"):
        calibration("Ascend910B4")
    for text in ("{", "[]", "{}", '{"figures": {"launch_us": {"value": 1}}}', '{"figures": {}, "more": 1}'):
        calibration_file("Ascend910B4").write_text(text)
        calibrated_costs._read.cache_clear()
        with pytest.raises(Unavailable, match=r"is not a valid calibration \(.*\); delete it or run tilewise calib"):
            calibration("Ascend910B4")


def test_a_model_has_another_fingerprint_for_each_part_and_each_figure():
    shipped = model_fingerprint(PART)
    assert shipped.partition(".")[0] == "9" and len(shipped) == len("9.") + 8
    assert model_fingerprint(PARTS["Ascend910B1"]) != shipped
    keep(MADE)
    fitted = model_fingerprint(PART)
    assert fitted.endswith(" calibrated") and fitted.removesuffix(" calibrated") != shipped
    assert model_fingerprint(PARTS["Ascend910B1"]).endswith(" calibrated") is False
