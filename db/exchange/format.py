"""A file format: how results are written in it, how they are read back, and what such a file looks like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tilewise.db.exchange.import_file import About, ImportFile
from tilewise.db.exchange.selection import Selection

__all__ = ["Format", "Written"]


@dataclass(frozen=True, slots=True)
class Written:
    """An export: one file (named ``), or several by name that make up a folder; and of how many problems it is."""

    files: Mapping[str, bytes]
    problems: int

    @classmethod
    def single(cls, data: bytes, problems: int) -> Written:
        return cls({"": data}, problems)

    @property
    def is_folder(self) -> bool:
        return "" not in self.files


@dataclass(frozen=True, slots=True)
class Format:
    """One format, by the `name` that `--format` has for it; `summary` is what export writes in it.

    `write(selection)` raises `NotFound` where nothing of the selection can be written, and `UsageError` where it holds
    more than the format can. `read(data, name, about, written)` gets the file's bytes and name, what the caller says
    of it, and when it was last changed; it raises `BadImport` for a file that cannot be used at all. `mark` is a
    regular expression that is looked for in the text rather than in the parsed document, since a recording that was
    cut off has none.
    """

    name: str
    summary: str = ""
    write: Callable[[Selection], Written] | None = None
    read: Callable[[bytes, str, About, datetime], ImportFile] | None = None
    mark: str = ""
