"""The tests neither see nor change what the user keeps: calibrations, a database, a cache, a list of misses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hermetic import isolate
from places import ROOT
from sqlalchemy import make_url

from tilewise.db.sql.sql_store import open_store
from tilewise.settings import read_settings
from tilewise.tuner.hardware.ascend_costs import FIGURES
from tilewise.tuner.hardware.ascend_parts import PARTS
from tilewise.tuner.hardware.calibrated_costs import Calibration, calibration_file, keep

HEADLINE = "tests/tuner/devices/ascend_model/test_headline.py::test_each_config_is_as_far_from_the_best_as_published"
DEFAULTS = "tests/test_hermetic.py::test_what_a_program_keeps_by_default_goes_to_a_folder_of_this_run"


def slow_launch(part: str) -> Calibration:
    """Return a valid calibration under which every modelled time is several microseconds longer."""
    figure = replace(FIGURES["launch_us"], value=9.0, low=8.0, high=10.0)
    return Calibration(part, "planted", "planted", "2026-01-01", {"launch_us": figure})


@pytest.fixture
def user(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who keeps all of these, in the usual places and in places of their own."""
    home = tmp_path / "home"
    usual, own = home / ".local/share/tilewise", home / "own"
    for data in (usual, own):
        (data / "calibrations").mkdir(parents=True)
        for part in PARTS:
            (data / "calibrations" / f"{part}.json").write_text(json.dumps(asdict(slow_launch(part))))
        (data / "tilewise.db").write_bytes(b"not a database" * 100)
        (data / "misses.jsonl").write_text("not a miss\n")
    for cache in (home / ".cache/tilewise", own / "cache"):
        (cache / "parts").mkdir(parents=True)
        (cache / "parts" / "Ascend910B4.json").write_text("not a part")
    theirs = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "TILEWISE_", "PYTEST"))}
    return theirs | {
        "HOME": str(home),
        "TILEWISE_DB": f"sqlite:///{own / 'tilewise.db'}",
        "TILEWISE_CACHE": str(own / "cache"),
        "TILEWISE_DATA": str(own),
        "TILEWISE_MISSES": str(own / "misses.jsonl"),
        "TILEWISE_MISSES_SERVER": "not a URL",
        "TILEWISE_HELION_SERVER": "not a URL",
        "TILEWISE_TOKEN": "secret",
        "TILEWISE_JOBS": "many",
    }


def contents(folder: Path) -> dict[Path, tuple[int, bytes | None]]:
    """Return every path below `folder` with its time of change and its bytes."""
    return {p: (p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else None) for p in folder.rglob("*")}


@pytest.mark.full
def test_what_a_user_keeps_changes_no_test_and_is_not_changed(user):
    before = contents(Path(user["HOME"]))
    words = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib", HEADLINE, DEFAULTS]
    done = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, env=user, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout
    assert contents(Path(user["HOME"])) == before


def test_what_a_program_keeps_by_default_goes_to_a_folder_of_this_run():
    settings = read_settings()
    here = settings.cache_folder.parent
    kept = [Path(make_url(settings.database_url).database or ""), settings.data_folder, settings.misses_file]
    assert here.name.startswith("tilewise-tests-")
    assert {path.parent for path in kept} == {here}
    assert Path.home().parent == here
    assert (settings.token, settings.misses_server, settings.jobs) == (None, None, 1)
    file = calibration_file("Ascend910B4")
    assert not file.exists()
    keep(slow_launch("Ascend910B4")).unlink()
    with open_store(settings.database_url, create=True) as store:
        assert list(store.scopes()) == []


def test_a_worker_keeps_the_folders_of_the_process_that_started_it():
    inherited = {"PYTEST_XDIST_WORKER": "gw0", "TILEWISE_DB": "sqlite:///shared.db"}
    assert isolate(inherited) is None
    assert inherited["TILEWISE_DB"] == "sqlite:///shared.db"
