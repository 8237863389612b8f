"""The lines of the Triton source that compiled operations come from, read from MLIR's locations."""

from __future__ import annotations

import importlib.util
import linecache
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Place", "located_functions", "without_locations"]

_LOCATION = re.compile(r" loc\((?:[^()\"]|\"[^\"]*\"|\((?:[^()\"]|\"[^\"]*\"|\([^()]*\))*\))*\)")
_ALIAS = re.compile(r"^(#loc\d*) = (loc\(.*\))\n", flags=re.MULTILINE)
_FRAME = re.compile(r"(#loc\d*)|\"([^\"]+)\":(\d+):\d+")
_START = re.compile(r"\s*(?:%[\w:, %]+ = )?\"([\w.]+)\"\(")


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a source file."""

    file: str
    line: int

    @property
    def text(self) -> str:
        """The text of the line; empty if the file no longer exists."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


def without_locations(code: str) -> tuple[str, Sequence[tuple[str, Place | None]]]:
    """Return a module in MLIR's generic form without its locations, and the name and place of each operation of its
    entry function, in text order.

    The place of a line in Triton's own library is that of the call.
    """
    plain, functions = located_functions(code)
    return plain, functions[0]


def located_functions(code: str) -> tuple[str, Sequence[Sequence[tuple[str, Place | None]]]]:
    """Return the same for each of the module's entry functions, in text order."""
    aliases = dict(_ALIAS.findall(code))
    code = _ALIAS.sub("", code)
    functions = [
        [(name, _place(location, aliases)) for name, location in operations] for operations in _operations(code)
    ]
    return _LOCATION.sub("", code), functions


def _operations(code: str) -> Iterator[list[tuple[str, str]]]:
    """Yield the operations of each entry function as name and location. One with regions has its location after
    these."""
    found: list[list[str]] = []
    pending: list[int] = []
    entry: int | None = None
    for line in code.splitlines():
        start = _START.match(line)
        if start:
            pending.append(len(found))
            found.append([start.group(1), ""])
        elif not line.lstrip().startswith("}"):
            continue
        if line.endswith("{"):  # its first or next region follows
            if start and start.group(1) == "func.func" and "hacc.entry" in line:
                entry = len(found)
            continue
        index = pending.pop()
        location = _LOCATION.search(line, line.rfind(" loc("))
        found[index][1] = location.group() if location else ""
        if found[index][0] == "func.func":
            if entry is not None or "hacc.entry" in line:
                yield [(name, place) for name, place in found[index + 1 if entry is None else entry :]]
            entry = None


def _place(location: str, aliases: Mapping[str, str]) -> Place | None:
    return next((place for place in _frames(location, aliases) if not _is_library(place.file)), None)


def _frames(location: str, aliases: Mapping[str, str]) -> Iterator[Place]:
    """Yield places from the innermost call outwards."""
    for alias, file, line in _FRAME.findall(location):
        if alias:
            yield from _frames(aliases.get(alias, ""), aliases)
        else:
            yield Place(file, int(line))


def _is_library(file: str) -> bool:
    """Return whether a file is Triton's own or the compiler's temporary file."""
    found = importlib.util.find_spec("triton")
    library = str(Path(found.origin).parent) if found and found.origin else ""
    return not file.endswith(".py") or (bool(library) and file.startswith(library))
