"""Inferred specs in the user's data folder, where other processes and later programs find them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tilewise.errors import StoreError
from tilewise.kernels.source import digest

__all__ = ["keep_spec", "kept_spec", "only_kept_spec"]


def keep_spec(text: str, name: str, data_folder: Path) -> Path:
    """Write the spec of the kernel `name`, and return its file. Raises `StoreError` if it cannot be written.

    A spec of another text is another file: processes import a file once, and may do so while others write it.
    """
    file = data_folder / "specs" / f"{name}-{digest(text)[:12]}.py"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        whole = file.with_name(f"{file.name}.{os.getpid()}.tmp")
        whole.write_text(text)
        whole.replace(file)
    except OSError as error:
        raise StoreError(f"cannot write {file}: {error.strerror}; set TILEWISE_DATA to another folder") from error
    return file


def kept_spec(file: Path, nesting: str, data_folder: Path) -> Path | None:
    """Return the newest spec of a kernel in the program's `file`, or None. `nesting` is its name, or `outer.inner`."""
    name = nesting.rpartition(".")[2]
    found = [path for path in (data_folder / "specs").glob(f"{name}-*.py") if _is_of(path, f"{file}:{nesting}")]
    return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)


def only_kept_spec(name: str, data_folder: Path) -> Path | None:
    """Return the newest spec of the kernel `name`, or None if there is none, or if two programs have such a kernel."""
    found = list((data_folder / "specs").glob(f"{name}-????????????.py"))
    place = re.compile(rf'"[^"\n]+:(?:[\w.]+\.)?{name}"')
    functions = {text for path in found for text in place.findall(path.read_text(errors="replace"))}
    return max(found, key=lambda path: path.stat().st_mtime_ns) if len(functions) == 1 else None


def _is_of(spec: Path, function: str) -> bool:
    return f'"{function}"' in spec.read_text(errors="replace")
