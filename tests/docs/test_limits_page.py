"""docs/limits.md has every limit of the code, with its value.

The values are read from the modules' text: importing all of them takes seconds.
"""

from __future__ import annotations

import re

from places import ROOT

PAGE = (ROOT / "docs/limits.md").read_text()
ROW = re.compile(r"^\| (?P<words>.+) \| (?P<values>.+) \| `(?P<file>\S+)` \| `(?P<names>.+)` \|$", re.MULTILINE)
UNITS = {"": 1, "s": 1, "ms": 1e-3, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "%": 0.01}
ASSIGNED = re.compile(r"^(_?[A-Z][A-Z0-9_]*(?:, _?[A-Z][A-Z0-9_]*)*) = (\d[\de ._<*+,-]*?) *(?:#.*)?$", re.MULTILINE)
LIMIT = re.compile(r"_?(MOST|LONGEST|LARGEST|MAX|LIMIT|ATTEMPTS)(_|$)|SECONDS$|PAGE_(SIZE|LENGTH)$")


def constants(file: str) -> dict[str, float]:
    """Return the numbers that a module's text assigns to names in capitals."""
    found = {}
    for names, text in ASSIGNED.findall((ROOT / file).read_text()):
        values = eval(text)  # digits and operators only
        found |= zip(names.split(", "), values if isinstance(values, tuple) else [values], strict=False)
    return found


def value(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.e]+) ?(\D*)", text).groups()
    return float(number) * UNITS[unit]


def test_every_limit_on_the_page_is_that_of_the_code():
    rows = [row.groupdict() for row in ROW.finditer(PAGE)]
    assert len(rows) == PAGE.count("\n| ") - PAGE.count("\n| limit |") > 150
    for row in rows:
        code = constants(row["file"])
        names, values = row["names"].split(", "), row["values"].split(", ")
        assert [code[name] for name in names] == [value(text) for text in values], row


def test_every_limit_of_the_service_and_of_its_databases_is_on_the_page():
    listed = {(row["file"], name) for row in ROW.finditer(PAGE) for name in row["names"].split(", ")}
    files = [str(path.relative_to(ROOT)) for top in ("api", "db") for path in (ROOT / top).rglob("*.py")]
    there = {(file, name) for file in files for name in constants(file) if LIMIT.search(name)}
    assert len(there) > 70
    assert sorted(there - listed) == []
