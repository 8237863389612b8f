"""The lines of the Triton source that compiled operations come from, read from MLIR's locations."""

from __future__ import annotations

import importlib.util
import linecache
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Place", "without_locations"]

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
    entry functions, in text order.

    The place of a line in Triton's own library is that of the call.
    """
    aliases = dict(_ALIAS.findall(code))
    code = _ALIAS.sub("", code)
    return _LOCATION.sub("", code), [(name, _place(location, aliases)) for name, location in _operations(code)]


def _operations(code: str) -> Iterator[tuple[str, str]]:
    """Yield the entry functions' operations as name and location. One with regions has its location after these."""
    found: list[list[str]] = []
    pending: list[int] = []
    entry, first = False, 0
    for line in code.splitlines():
        start = _START.match(line)
        if start:
            pending.append(len(found))
            found.append([start.group(1), ""])
        elif not line.lstrip().startswith("}"):
            continue
        if line.endswith("{"):  # its first or next region follows
            if start and start.group(1) == "func.func":
                entry, first = "hacc.entry" in line, len(found)
            continue
        index = pending.pop()
        location = _LOCATION.search(line, line.rfind(" loc("))
        found[index][1] = location.group() if location else ""
        if found[index][0] == "func.func" and (entry or "hacc.entry" in line):
            yield from (tuple(each) for each in found[first:])  # type: ignore[misc]
            entry = False


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
