"""docs/npu.md matches the code: its variables, files and releases."""

import re

from npu_names import sources
from places import ROOT

from tilewise.tuner.devices.npu.faults import FAULTS

PAGE = (ROOT / "docs/npu.md").read_text()


def test_every_environment_variable_of_the_npu_code_is_explained():
    used = set(re.findall(r'"((?:TRITON|ASCEND|ENABLE)_[A-Z_]+)"', "".join(file.read_text() for file in sources())))
    table = PAGE.partition("## Environment variables")[2]
    assert used == set(re.findall(r"`((?:TRITON|ASCEND|ENABLE)_[A-Z_]+)`", table))


def test_the_releases_are_those_that_the_tests_read():
    (releases,) = re.findall(r"^TORCH_NPU := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    oldest, newest = releases.split()
    assert f"torch_npu {oldest} and {newest}" in PAGE
    assert f'"torch_npu>={oldest}"' in (ROOT / "pyproject.toml").read_text()


def test_what_it_links_to_is_there():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target


def test_the_codes_it_calls_time_outs_are_time_outs():
    for code in re.findall(r"\b507\d{3}\b", PAGE):
        assert FAULTS[int(code)].endswith("_TIMEOUT")
