"""A file of a study's outcomes, one JSON object a line, from which an interrupted run goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Journal"]


class Journal:
    """A file of rows. Its folder is made, and a last line that was cut off is ended and left out."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists() and not (text := file.read_text()).endswith("\n"):
            file.write_text(text + "\n")

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows that can be read."""
        rows = []
        for line in self._file.read_text().splitlines() if self._file.exists() else []:
            try:
                rows.append(json.loads(line))
            except ValueError:
                continue
        return rows

    def add(self, row: Mapping[str, Any]) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(row) + "\n")
