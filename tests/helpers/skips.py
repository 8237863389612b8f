"""A pytest plugin: what a run may leave out.

Tests marked `needs_gpu` or `needs_npu` are skipped on a machine without one; the run lists them, with the date on which
they last ran. With `CI` set every other skip is a failure, except for want of rights.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from typing import Any, TypeVar

import pytest
from places import RESULTS
from rights import NoRights
from run_record import DEVICES, device_row, is_marked, last_run

_Report = TypeVar("_Report", pytest.TestReport, pytest.CollectReport)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for marker, (device, _) in DEVICES.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        if marked and not (row := device_row(marker)).available:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=f"needs {device}: {row.unavailable_reason}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    allowed = any(map(item.get_closest_marker, DEVICES)) or (call.excinfo and call.excinfo.errisinstance(NoRights))
    return report if allowed else _failed_if_skipped(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _failed_if_skipped((yield))


def _failed_if_skipped(report: _Report) -> _Report:
    """Turn a skip into a failure with its reason, if `CI` is set."""
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason}\nWith CI set a test is skipped only for want of a GPU, an NPU or rights."
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped: list[pytest.TestReport] = terminalreporter.stats.get("skipped", [])
    for marker, (device, _) in DEVICES.items():
        files = Counter(report.nodeid.partition("::")[0] for report in skipped if is_marked(report, marker))
        if files:
            terminalreporter.section(f"not run: tests that need {device}")
            for file, count in sorted(files.items()):
                terminalreporter.write_line(f"{file}: {count}")
            last = last_run(RESULTS / "test-gpu.json", marker)
            command = f"make {marker.replace('needs', 'test').replace('_', '-')}"
            terminalreporter.write_line(f"In all {files.total()}. Last run: {last}. `{command}` runs them.")
