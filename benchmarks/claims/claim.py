"""Claims, and the raw files that hold their figures."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FIRST_SPECS", "Claim", "Place", "Raw", "RawFiles", "Unrecorded"]

FIRST_SPECS = tuple(
    f"kernels/vector/{name}.py"
    for name in ("batch_norm", "elementwise", "layer_norm", "reduce", "row_reduce", "softmax")
)
"""Specs of the 18 vector kernels that the landscapes and the older studies are of."""

Raw = Mapping[str, Any]
"""The bodies of raw files by the stem of their names."""

Text = Callable[[Raw], str]


@dataclass(frozen=True, slots=True)
class Place:
    """A page or a module that makes a claim, and its words there, with the figures as the raw files have them.

    Tables that a page's own report writes have no words here.
    """

    path: str
    words: Text | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim. `figure` and `cases` read the raw `files`, whose paths are relative to the repository.

    A path of `about` that is a folder stands for all modules in it.
    """

    name: str
    question: str
    figure: Text
    cases: Text
    files: tuple[str, ...]
    places: tuple[Place, ...]
    about: tuple[str, ...]
    """The modules whose change may change the figure."""
    designed: str
    """What was chosen or fitted with this data in sight."""
    independent: str
    """What of it, or of what it is compared with, decided nothing."""
    note: str = ""
    command: str = ""
    """The command, where the raw file does not hold it."""
    earlier: tuple[str, ...] = ()
    """Raw files of earlier runs, shown beside the others. They are meant to be older than the code."""


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """A figure in a page or a docstring that no raw file holds."""

    path: str
    words: str
    known: str
    """How it is known."""


class RawFiles:
    """Reads raw files, each once."""

    def __init__(self, root: Path) -> None:
        self._root, self._bodies = root, dict[str, Any]()

    def of(self, claim: Claim) -> Raw:
        return {Path(path).name.split(".")[0]: self.body(path) for path in (*claim.files, *claim.earlier)}

    def body(self, path: str) -> Any:
        if path not in self._bodies:
            packed = (self._root / path).read_bytes()
            self._bodies[path] = json.loads(gzip.decompress(packed) if path.endswith(".gz") else packed)
        return self._bodies[path]
