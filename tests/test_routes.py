"""Four routes through the code, taken from the call stack, match docs/architecture.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from places import DOCS, HELPERS

from tilewise.tuner.devices.ascend_model import toolchain

if reason := toolchain.unavailable_reason():
    pytest.skip(reason, allow_module_level=True)

MOST_FILES = 14


@cache
def described(heading: str) -> list[list[str]]:
    """Return the lists of files below that heading."""
    page = (DOCS / "architecture.md").read_text()
    section = page.split(f"### {heading}\n")[1].split("\n##")[0]
    blocks = re.findall(r"(?:^\d+\. `[^`]+`.*\n)+", section, re.MULTILINE)
    return [re.findall(r"^\d+\. `([^`]+)`", block, re.MULTILINE) for block in blocks]


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory):
    """A function that returns the distinct call stacks of a route."""
    artefacts = tmp_path_factory.mktemp("artefacts")

    @cache
    def take(route: str) -> list[list[str]]:
        folder: Path = tmp_path_factory.mktemp(route)
        command = [sys.executable, str(HELPERS / "routes.py"), route, str(folder)]
        environment = {**os.environ, "TILEWISE_CACHE": str(artefacts), "TILEWISE_MISSES": "off"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        stacks = [tuple(stack) for stack in json.loads(done.stdout.splitlines()[-1])]
        return [list(stack) for stack in dict.fromkeys(stacks)]

    return take


TUNING = "A tuning, to where a trial is stored"
TIMING = "A config, to where it is timed"
ROUTES = {
    "storing_a_trial": lambda: described(TUNING)[0],
    "handing_over_a_config": lambda: described(TUNING)[0][:5] + described(TIMING)[0],
    "timing_a_config": lambda: described(TIMING)[1],
    "timing_on_an_accelerator": lambda: described(TIMING)[2],
    "forming_an_answer": lambda: described("A look-up over REST, to the statement that reads its answer")[0],
    "choosing_a_config": lambda: described("A launch, to where its config is chosen")[0],
}


@pytest.mark.in_part(1)
@pytest.mark.parametrize("route", ROUTES)
def test_a_route_is_as_described_and_enters_no_file_twice(route, taken):
    [stack] = taken(route)
    assert stack == ROUTES[route]()
    assert len(stack) == len(set(stack)) <= MOST_FILES


def test_a_config_is_timed_within_fourteen_files_over_both_processes(taken):
    [outer], [inner] = taken("handing_over_a_config"), taken("timing_a_config")
    assert len({*outer, *inner}) == len(outer) + len(inner) <= MOST_FILES
