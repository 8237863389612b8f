"""In CI a run of the tests leaves out only what needs a GPU, an NPU or rights. Runs of marked tests are noted."""

import json
import os
import subprocess
import sys

import pytest
from places import HELPERS
from run_record import last_run

TESTS = """
import pytest
from rights import NoRights

@pytest.mark.full
def test_runs(): ...

@pytest.mark.needs_npu
def test_on_a_chip(): ...

def test_without_rights():
    raise NoRights("cannot mount here")
"""
SKIPPED = """
def test_without_a_package():
    pytest.importorskip("no_such_package")

@pytest.mark.xfail
def test_known_to_fail():
    assert False
"""
MODULE = "import pytest\npytest.importorskip('no_such_package')\n"


@pytest.fixture
def run(tmp_path):
    """A function that writes test modules and runs them in another process."""

    def run(ci, *words, **modules):
        (tmp_path / "pytest.ini").touch()
        for name, text in modules.items():
            (tmp_path / f"test_{name}.py").write_text(text)
        command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "run_record", "-p", "skips", *words]
        settings = {name: value for name, value in os.environ.items() if name != "CI"} | ({"CI": "true"} if ci else {})
        settings["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # others take seconds to import
        path = os.pathsep.join([str(HELPERS), *sys.path])
        return subprocess.run(
            command, cwd=tmp_path, env=settings | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
        )

    return run


@pytest.mark.in_part(1)
@pytest.mark.parametrize("words", [(), ("-p", "xdist", "-n", "1")])
def test_in_ci_a_test_is_skipped_only_for_want_of_a_device_or_rights(run, words):
    allowed = run(True, *words, allowed=TESTS)
    assert (allowed.returncode, allowed.stdout.count("SKIPPED")) == (0, 2), allowed.stdout
    assert "not run: tests that need an Ascend NPU" in allowed.stdout
    assert "test_allowed.py: 1\n" in allowed.stdout
    refused = run(True, *words, allowed=TESTS, skipped=TESTS + SKIPPED)
    assert refused.returncode == 1
    assert "FAILED test_skipped.py::test_without_a_package" in refused.stdout
    assert "With CI set a test is skipped only for want of a GPU, an NPU or rights." in refused.stdout
    assert refused.stdout.count("FAILED") == refused.stdout.count("XFAIL ") == 1


@pytest.mark.full
def test_in_ci_a_module_that_skips_itself_fails(run):
    assert run(True, module=MODULE).returncode == 2
    assert run(False, module=MODULE, skipped=TESTS + SKIPPED).returncode == 0


def test_a_run_of_marked_tests_is_noted_and_other_notes_are_kept(run, tmp_path):
    file = tmp_path / "runs.json"
    file.write_text(json.dumps({"needs_npu": {"date": "2026-01-02T03", "device": "a chip", "passed": 3, "failed": []}}))
    assert run(False, "-m", "full", "--record", "runs.json", marked=TESTS).returncode == 0
    noted = json.loads(file.read_text())["full"]
    assert noted["command"].endswith("-m full --record runs.json")
    assert (noted["passed"], noted["failed"]) == (1, [])
    assert last_run(file, "full") == f"on {noted['date'][:10]} on {noted['machine']}: 1 passed, 0 failed"
    assert last_run(file, "needs_npu") == "on 2026-01-02 on a chip: 3 passed, 0 failed"
    assert last_run(file, "needs_gpu") == last_run(tmp_path / "gone.json", "full") == "never"


def test_a_run_in_which_nothing_marked_ran_is_not_noted_and_fails(run, tmp_path):
    done = run(False, "-m", "needs_npu", "--record", "runs.json", marked=TESTS)
    assert (done.returncode, (tmp_path / "runs.json").exists()) == (1, False)
    assert "no marked test ran; runs.json is as it was" in done.stdout


def test_a_test_that_fails_is_noted_by_its_name(run, tmp_path):
    text = TESTS.replace("def test_runs(): ...", "def test_runs(): assert 0")
    assert run(False, "-m", "full", "--record", "runs.json", marked=text).returncode == 1
    assert json.loads((tmp_path / "runs.json").read_text())["full"]["failed"] == ["test_marked.py::test_runs"]
