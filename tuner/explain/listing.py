"""The source of a kernel's functions, with the modelled time of each line beside it."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewise.tuner.devices.ascend_model.report.analysis import LineTime

__all__ = ["SourceLine", "listing"]


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a file. `path_us` is its time on the critical path, `pipes_us` that of each pipe which is busy on it,
    both in microseconds of the whole config; they are 0 and empty where nothing is computed."""

    file: str
    number: int
    text: str
    path_us: float = 0.0
    pipes_us: Mapping[str, float] | None = None


def listing(lines: Iterable[LineTime]) -> list[SourceLine]:
    """Return all lines of the functions that hold any of these, by file in the order of the first line given."""
    files: dict[str, dict[int, LineTime]] = {}
    for line in lines:
        files.setdefault(line.place.file, {})[line.place.line] = line
    return [found for file, timed in files.items() for found in _of_file(file, timed)]


def _of_file(file: str, timed: Mapping[int, LineTime]) -> Iterator[SourceLine]:
    linecache.checkcache(file)
    for first, last in _functions("".join(linecache.getlines(file))):
        if not any(first <= number <= last for number in timed):
            continue
        for number in range(first, last + 1):
            text = linecache.getline(file, number).rstrip()
            if (line := timed.get(number)) is None:
                yield SourceLine(Path(file).name, number, text)
            else:
                busy = {pipe: us for pipe, us in line.pipes_us.items() if us}
                yield SourceLine(Path(file).name, number, text, line.path_us, busy)


def _functions(text: str) -> list[tuple[int, int]]:
    """Return the first and last line of each function, with its decorators."""
    found = []
    for each in ast.parse(text).body:
        if isinstance(each, ast.FunctionDef):
            first = min([each.lineno, *(decorator.lineno for decorator in each.decorator_list)])
            found.append((first, each.end_lineno or each.lineno))
    return found
