"""A pytest plugin: `--record FILE` notes when marked tests ran, on what, and how they ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

DEVICES = {"needs_gpu": ("an NVIDIA GPU", "cuda"), "needs_npu": ("an Ascend NPU", "npu")}
"""For each marker the device that its tests need, in words, and the device's package in `tilewise.tuner.devices`."""

FULL = "full"
"""The marker of tests that are left out of the gate because they take long."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, metavar="FILE", help="note the run of marked tests in this JSON file")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Replace the file's entries for markers of which a test ran; fail a run without any such test."""
    config = session.config
    file: Path | None = config.getoption("--record")
    if file is None or hasattr(config, "workerinput") or session.exitstatus not in (0, 1, 5):
        return
    command = " ".join(["pytest", *map(str, config.invocation_params.args)])
    found = dict(_runs(config.pluginmanager.get_plugin("terminalreporter").stats, command))
    if found:
        known = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(known | found, indent=1) + "\n")
    else:
        print(f"\nno marked test ran; {file} is as it was")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _runs(stats: dict[str, list[Any]], command: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for marker in (FULL, *DEVICES):
        passed, *bad = (
            [report for report in stats.get(end, []) if is_marked(report, marker)]
            for end in ("passed", "failed", "error")
        )
        failed = sorted({report.nodeid for reports in bad for report in reports})
        if passed or failed:
            yield marker, {**_about(marker, command), "passed": len(passed), "failed": failed}


def is_marked(report: pytest.TestReport | pytest.CollectReport, marker: str) -> bool:
    """Return whether the report is of a test with the marker; a module that was not collected has no markers."""
    return marker in getattr(report, "keywords", ())


def _about(marker: str, command: str) -> dict[str, Any]:
    from tilewise.benchmarks.common.header import header, service_header

    if marker == FULL:
        return service_header(command)
    return header(command, "measured", device_row(marker).name)


def device_row(marker: str) -> Any:
    """Return the row in `tilewise devices` of the device that the marker's tests need."""
    return import_module(f"tilewise.tuner.devices.{DEVICES[marker][1]}.device").row()


def last_run(file: Path, marker: str) -> str:
    """Return in words when the marker's tests last ran, on what and how they ended, by the file."""
    run = json.loads(file.read_text()).get(marker) if file.exists() else None
    if run is None:
        return "never"
    on = run.get("device") or run["machine"]
    return f"on {run['date'][:10]} on {on}: {run['passed']} passed, {len(run['failed'])} failed"
