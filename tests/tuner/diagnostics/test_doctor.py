"""The quick look at an installation: what it finds, what it advises, and that it changes nothing."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from places import ROOT
from sqlalchemy import make_url

import tilewise
from tilewise.cli import main
from tilewise.db.sql.schema import HEAD
from tilewise.db.sql.sql_store import open_store
from tilewise.settings import read_settings
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.diagnostics import doctor
from tilewise.tuner.diagnostics.selftest import Step, Verdict
from tilewise.tuner.hardware.ascend_costs import FIGURES
from tilewise.tuner.hardware.calibrated_costs import Calibration, calibration_file, keep

LINES = ["packages", "npu", "cuda", "model:PART", "database", "cache", "data", "calibration", "extras"]

Doctor = Callable[..., dict[str, Step]]


@pytest.fixture
def examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> Doctor:
    """A function that returns the findings by name, with folders of this test's own."""
    monkeypatch.setenv("TILEWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TILEWISE_DATA", str(tmp_path / "data"))
    return lambda database=url: {step.name: step for step in doctor.examine(read_settings(), database)}


def contents(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in [folder, *folder.rglob("*")]}


def verdicts(found: dict[str, Step]) -> set[Verdict]:
    return {step.verdict for step in found.values()}


def test_a_new_user_is_told_in_ten_lines_what_is_there_and_nothing_is_made(examined, tmp_path):
    found = examined()
    assert list(found) == LINES
    assert Verdict.FAILED not in verdicts(found)
    assert found["database"].detail.endswith("tilewise.db does not exist yet: tilewise tune or import makes it")
    assert found["cache"].detail == f"{tmp_path / 'cache'} is made when needed"
    assert list(tmp_path.iterdir()) == []
    for step in found.values():
        assert "\n" not in step.detail
        assert step.verdict is Verdict.OK or ": " in step.detail, step


@pytest.mark.parametrize("state", ["closed", "open elsewhere", "left by a killed writer"])
def test_a_database_is_counted_without_a_change_to_any_file(examined, tmp_path, tune_into, url, state):
    tune_into(url)
    tune_into(url, device="Ascend910B1")  # the same problem
    if state == "left by a killed writer":
        writing = f"""
import os, sqlite3
connection = sqlite3.connect({str(tmp_path / "tilewise.db")!r}, isolation_level=None)
connection.execute("UPDATE scopes SET dtype = 'float16' WHERE device = 'Ascend910B1'")
os.kill(os.getpid(), 9)
"""
        subprocess.run([sys.executable, "-c", writing], check=False)
    with open_store(url) if state == "open elsewhere" else nullcontext():
        before = contents(tmp_path)
        found = examined()["database"]
        assert contents(tmp_path) == before
    problems = "2 problems" if state == "left by a killed writer" else "1 problem"
    assert (found.verdict, found.detail) == (Verdict.OK, f"{url}: schema {HEAD}, {problems}")


def test_a_database_of_another_schema_is_counted_or_refused(examined, tmp_path, tune_into, url):
    tune_into(url)
    for version, verdict, words in (
        ("0004", Verdict.OK, f"schema 0004, 1 problem; the next command that writes upgrades it to {HEAD}"),
        ("9999", Verdict.FAILED, f"newer than {HEAD} of this tilewise; upgrade tilewise"),
    ):
        with closing(sqlite3.connect(tmp_path / "tilewise.db")) as connection, connection:
            connection.execute("UPDATE alembic_version SET version_num = ?", (version,))
        found = examined()["database"]
        assert found.verdict is verdict
        assert found.detail.endswith(words)


@pytest.mark.parametrize(
    ("database", "words"),
    [
        ("sqlite:////dev/null/tiles.db", "/dev/null is not a folder; set TILEWISE_DB to another"),
        ("mysql://me:secret@host/tiles", "is not supported; expected sqlite:///path"),
        ("postgresql+psycopg://me:secret@127.0.0.1:1/tiles?password=secret", "check that the server is running"),
        ("nonsense:secret@", "is not a database URL"),
    ],
)
def test_a_database_that_cannot_be_used_is_a_failure_that_hides_the_password(examined, database, words):
    if database.startswith("postgresql"):
        pytest.importorskip("psycopg")
    found = examined(database)["database"]
    assert found.verdict is Verdict.FAILED
    assert words in found.detail
    assert "secret" not in found.detail


def test_a_database_on_a_server_is_named_without_its_password(examined, postgres_url, tune_into):
    tune_into(postgres_url)
    with_password = make_url(postgres_url).set(password="secret").update_query_dict({"password": "secret"})
    found = examined(with_password.render_as_string(hide_password=False))["database"]
    assert (found.verdict, found.facts["problems"]) == (Verdict.OK, 1), found.detail
    assert "secret" not in str(found)


def test_a_folder_that_cannot_be_written_is_a_failure(examined, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TILEWISE_CACHE", str(tmp_path / "file" / "cache"))
    found = examined()
    assert found["cache"].verdict is Verdict.FAILED
    assert found["cache"].detail.endswith("file is not a folder; set TILEWISE_CACHE to another folder")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "is not writable; set TILEWISE_DATA" in examined()["data"].detail


def test_a_calibration_is_named_with_its_day_and_a_damaged_one_is_a_failure(examined, url):
    examined()
    figures = {"launch_us": replace(FIGURES["launch_us"], value=1.2)}
    keep(Calibration("Ascend910B4", "a chip", "1", "2026-11-20T12:00:00", figures))
    assert examined()["calibration"].detail.startswith("Ascend910B4 from 2026-11-20; to undo: ")
    calibration_file("Ascend910B4").write_text("{}")
    found = examined()["calibration"]
    assert found.verdict is Verdict.FAILED
    assert "delete it or run tilewise calibrate again" in found.detail


@pytest.mark.parametrize(
    ("installed", "verdict", "words"),
    [
        ({}, Verdict.NOT_HERE, "look-ups and the server work without"),
        ({"triton": "3.6.0", "torch": "2.13.0"}, Verdict.OK, "triton 3.6.0, torch 2.13.0"),
        ({"triton": "3.6.0", "triton-ascend": "3.2.0"}, Verdict.FAILED, "overwrite each other"),
        ({"torch": "2.13.0", "torch_npu": "2.7.1"}, Verdict.FAILED, "breaks torch where CANN is not set up"),
    ],
)
def test_packages_that_do_not_go_together_are_a_failure(examined, monkeypatch, installed, verdict, words):
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    monkeypatch.setattr(doctor, "_version", installed.get)
    found = examined()["packages"]
    assert found.verdict is verdict
    assert words in found.detail


def test_a_missing_extra_is_named_with_its_command(examined, monkeypatch):
    monkeypatch.setattr(doctor, "EXTRAS", {**doctor.EXTRAS, "plot": "no_such_module", "fleet": "json"})
    assert examined()["extras"].detail == "postgres, parquet, fleet; without plot: pip install 'tilewise[plot]'"


def test_the_extras_are_those_of_the_package():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, module in doctor.EXTRAS.items():
        assert declared[extra][0].startswith(module)


@pytest.mark.parametrize("words", [("devices",), ("doctor",), ("tune", "vector_add", "-s", "N=8")])
def test_where_the_marker_left_triton_ascend_out_the_package_and_a_python_that_has_it_are_named(
    words, examined, monkeypatch, capfd
):
    monkeypatch.setattr(toolchain, "_PYTHON", (3, 13))
    monkeypatch.setattr(toolchain, "_installed", lambda package, module: package != "triton-ascend")
    code, out, err = ended(words, capfd)
    assert code == (0 if words == ("devices",) else 1)
    advice = "use Python 3.11, as triton-ascend has no release for Python 3.13 (missing: triton-ascend)"
    assert advice in (err if words[0] == "tune" else out)


def ended(words, capfd) -> tuple[int, str, str]:
    """Run the command line in this process; return its exit code and what it printed."""
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as caught:
            main(words)
    finally:
        signal.signal(signal.SIGTERM, on_sigterm)
    return caught.value.code, *capfd.readouterr()


def test_the_command_prints_the_findings_and_exits_by_them(examined, capfd, url, tmp_path):
    code, out, _ = ended(["doctor", "--db", url], capfd)
    assert code == 0
    assert len(out.splitlines()) == 1 + len(LINES)
    assert out.startswith(f"tilewise {tilewise.__version__}, Python 3.")
    (tmp_path / "tilewise.db").write_text("not a database\n" * 100)
    code, out, _ = ended(["doctor", "--db", url, "--json"], capfd)
    body = json.loads(out)
    assert (code, body["good"], body.keys()) == (1, False, {"about", "good", "findings"})
    failed = [finding["name"] for finding in body["findings"] if finding["verdict"] == "failed"]
    assert failed == ["database"]


def test_a_host_that_shares_artefacts_is_told_whether_their_key_and_database_serve(examined, tmp_path, monkeypatch):
    shared = f"sqlite:///{tmp_path / 'shared.db'}"
    monkeypatch.setenv("TILEWISE_ARTEFACTS", shared)
    found = examined()["artefacts"]
    assert found.verdict is Verdict.FAILED and "TILEWISE_KERNEL_KEY" in found.detail
    key = tmp_path / "kernel.key"
    monkeypatch.setenv("TILEWISE_KERNEL_KEY", str(key))
    assert "cannot read the kernel key" in examined()["artefacts"].detail
    key.write_bytes(bytes(range(32)))
    key.chmod(0o600)
    assert examined()["artefacts"].verdict is Verdict.NOT_HERE
    with open_store(shared, create=True):
        pass
    found = examined()["artefacts"]
    assert (found.verdict, found.detail.startswith(f"{shared}: schema {HEAD}")) == (Verdict.OK, True)
