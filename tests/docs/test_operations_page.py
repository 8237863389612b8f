"""docs/operations.md names tests and messages that exist."""

from __future__ import annotations

import re

from places import ROOT

PAGE = (ROOT / "docs/operations.md").read_text()


def test_every_fault_names_tests_that_are_there():
    written = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    [table] = re.findall(r"^\| fault \|.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    rows = table.strip().splitlines()[2:]
    assert len(rows) > 10
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, row
        assert [name for name in named if f"def {name}(" not in written] == []


def test_the_lines_it_quotes_are_those_of_the_program():
    quoted = re.findall(r"`((?:no space|stayed|another process|was left|is read-only|is damaged)[^`]*)`", PAGE)
    program = "\n".join(path.read_text() for path in (ROOT / "db").rglob("*.py"))
    assert len(quoted) >= 6
    for line in quoted:
        assert all(part in program for part in re.split(r"\s*\.\.\.;?\s*", line)), line
