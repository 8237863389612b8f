"""A file format: how to write results, how to read them back, and how to recognize a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tilewise.db.exchange.import_file import About, ImportFile
from tilewise.db.exchange.selection import Selection

__all__ = ["Format", "Written"]


@dataclass(frozen=True, slots=True)
class Written:
    """An export: one file (with an empty name) or several by name, which form a folder, and the number of problems."""

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
    """A file format. `name` is its name for `--format`; `summary` describes an export in it.

    `write(selection)` raises `NotFound` if nothing in the selection can be written, and `UsageError` if the selection
    holds more than the format can. `read(data, name, about, written)` takes the file's bytes and name, the caller's
    facts about it, and when it was last changed. It raises `BadImport` for a file that cannot be used at all. `mark` is
    a regular expression that identifies the format. It is searched in the text, since a recording that was cut off has
    no parsed document.
    """

    name: str
    summary: str = ""
    write: Callable[[Selection], Written] | None = None
    read: Callable[[bytes, str, About, datetime], ImportFile] | None = None
    mark: str = ""
