"""`tilewise lint`: text, JSON, SARIF and the exit code; `explain` shows the same findings."""

from __future__ import annotations

import json
import re
import signal
from subprocess import CompletedProcess

import jsonschema_rs
import pytest
from places import HELPERS

from tilewise.cli import main
from tilewise.tuner.devices.ascend_model import toolchain

KERNELS = HELPERS / "lint_kernels.py"
WRAPPED = (f"{KERNELS}:WRAPPED", "-s", "M=256,N=256,K=256", "--dtype", "float16")
WIDE = (f"{KERNELS}:WIDE", "-s", "M=320,N=256", "--dtype", "int32")

pytestmark = pytest.mark.skipif(bool(toolchain.unavailable_reason()), reason="needs the Ascend compiler")

MESSAGE = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
LOCATION = {
    "type": "object",
    "required": ["physicalLocation"],
    "properties": {
        "message": MESSAGE,
        "physicalLocation": {
            "type": "object",
            "required": ["artifactLocation", "region"],
            "properties": {
                "artifactLocation": {
                    "type": "object",
                    "required": ["uri"],
                    "properties": {"uri": {"type": "string", "format": "uri-reference"}},
                },
                "region": {
                    "type": "object",
                    "required": ["startLine"],
                    "properties": {"startLine": {"type": "integer", "minimum": 1}},
                },
            },
        },
    },
}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "$schema": {"type": "string", "format": "uri"},
        "runs": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "additionalProperties": False,
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "properties": {
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "required": ["id"],
                                            "properties": {
                                                "shortDescription": MESSAGE,
                                                "fullDescription": MESSAGE,
                                                "defaultConfiguration": {"properties": {"level": LEVEL}},
                                            },
                                        },
                                    }
                                },
                            }
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["message", "ruleId"],
                            "properties": {
                                "message": MESSAGE,
                                "level": LEVEL,
                                "locations": {"type": "array", "items": LOCATION},
                                "relatedLocations": {"type": "array", "items": LOCATION},
                            },
                        },
                    },
                },
            },
        },
    },
}
"""The part of the standard's schema (section 3 of SARIF 2.1.0) that the fields used here fall under."""


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """A function that runs the command line in this process and in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWISE_DB", f"sqlite:///{tmp_path / 'tiles.db'}")

    def call(*words: str) -> CompletedProcess[str]:
        on_sigterm = signal.getsignal(signal.SIGTERM)
        try:
            with pytest.raises(SystemExit) as ended:
                main(words)
        finally:
            signal.signal(signal.SIGTERM, on_sigterm)
        out, err = capfd.readouterr()
        return CompletedProcess(words, ended.value.code, out, err)

    return call


def test_findings_are_printed_with_line_cause_and_remedy_and_exit_with_1(run):
    done = run("lint", *WRAPPED)
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "product_wrapped M=256,N=256,K=256 float16 on Ascend910B4"
    assert re.fullmatch(
        r"lint_kernels.py:38: warning: element-access, costs up to [\d.]+ us \(modelled\), 9\d% of the time", lines[2]
    )
    assert lines[3].strip().startswith("b = tl.load(b_ptr")
    assert "wrapped by a remainder (%)" in lines[4]
    assert lines[5].startswith("  see lint_kernels.py:38: b = ")
    assert lines[6].startswith("  remedy: ")
    assert re.fullmatch(r"3 findings in [\d.]+ us \(modelled\)", lines[-1])


def test_without_a_modelled_time_the_last_line_says_why(run):
    done = run("lint", f"{KERNELS}:COUNTED", "-s", "M=320,N=256", "--dtype", "int32")
    assert done.returncode == 1
    assert "warning: scalar-arithmetic" in done.stdout
    assert done.stdout.splitlines()[-1] == (
        "1 finding, without costs: the model cannot follow scf.for where it depends on tensor contents"
    )


def test_a_cost_is_called_modelled(run):
    done = run("lint", *WIDE)
    assert "warning: scalar-arithmetic, costs up to 22.57 us (modelled), 90% of the time" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 finding in 25.07 us (modelled)"


def test_a_kernel_without_findings_exits_with_0(run):
    done = run("lint", f"{KERNELS}:COPIED", "-s", "M=320,N=256", "--dtype", "int32")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "no findings in 2.34 us (modelled)")


def test_what_costs_less_than_the_least_share_does_not_fail_the_run(run):
    assert run("lint", *WIDE, "--min-share", "95").returncode == 0


def test_json_has_each_shape_with_its_findings(run):
    done = run("lint", *WIDE, "-s", "M=640,N=256", "--json")
    first, second = json.loads(done.stdout)["results"]
    assert [result["dims"]["M"] for result in (first, second)] == [320, 640]
    (finding,) = first["findings"]
    assert (finding["rule"], finding["level"], finding["line"]) == (
        "scalar-arithmetic",
        "warning",
        "lint_kernels.py:104",
    )
    assert finding["share"] == pytest.approx(finding["modelled_cost_us"] / first["modelled_us"], abs=1e-4)


def test_sarif_follows_the_standard_and_points_at_the_lines(run, tmp_path):
    assert run("lint", *WRAPPED, "--sarif", "found.sarif").returncode == 1
    document = json.loads((tmp_path / "found.sarif").read_text())
    jsonschema_rs.validator_for(SARIF).validate(document)
    (log,) = document["runs"]
    rules = [rule["id"] for rule in log["tool"]["driver"]["rules"]]
    first = log["results"][0]
    assert rules[first["ruleIndex"]] == first["ruleId"] == "element-access"
    place = first["locations"][0]["physicalLocation"]
    assert place["region"] == {"startLine": 38}
    assert place["artifactLocation"] == {"uri": KERNELS.resolve().as_uri()}
    assert first["relatedLocations"][0]["physicalLocation"]["region"] == {"startLine": 38}


def test_files_below_the_working_folder_have_relative_paths(run, tmp_path):
    (tmp_path / "mine.py").write_text(KERNELS.read_text())
    assert run("lint", "mine.py:WIDE", *WIDE[1:], "--sarif", "found.sarif").returncode == 1
    ((finding,),) = [log["results"] for log in json.loads((tmp_path / "found.sarif").read_text())["runs"]]
    assert finding["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "mine.py"
    assert finding["properties"]["modelled_cost_us"] == pytest.approx(22.565, abs=0.01)


def test_a_sarif_file_is_written_without_findings_too(run, tmp_path):
    run("lint", f"{KERNELS}:COPIED", "-s", "M=320,N=256", "--dtype", "int32", "--sarif", "found.sarif")
    document = json.loads((tmp_path / "found.sarif").read_text())
    jsonschema_rs.validator_for(SARIF).validate(document)
    assert document["runs"][0]["results"] == []


def test_a_device_that_has_no_such_code_is_bad_usage(run, monkeypatch):
    from host import HostDevice

    from tilewise.tuner.devices import registry

    monkeypatch.setattr(registry, "choose", lambda text: text)
    monkeypatch.setattr(registry, "open_device", lambda text, **options: HostDevice())
    done = run("lint", *WIDE, "--device", "cuda")
    assert done.returncode == 2
    assert "lint reads code compiled for Ascend; give --device model:PART" in done.stderr


@pytest.mark.in_part(1)
@pytest.mark.parametrize("kernel", [WIDE, WRAPPED])
def test_explain_shows_the_same_findings(kernel, run):
    device = ("--device", "model:Ascend910B4")
    linted = json.loads(run("lint", *kernel, *device, "--json").stdout)["results"][0]
    explained = json.loads(run("explain", *kernel, *device, "--json").stdout)
    assert explained["findings"] == linted["findings"]
    shown = run("explain", *kernel, *device).stdout
    assert f"  finding     {linted['findings'][0]['line']}: warning: {linted['findings'][0]['rule']}" in shown
