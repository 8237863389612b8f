"""Atomic writing of files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tilewise.errors import StoreError

__all__ = ["write_file"]


def write_file(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write `data`, whole or in pieces, to `path`. The old file is replaced only once all of the data is on the disk.

    A reader finds either the old file or the new one, even after a crash. Raises `StoreError` if the path cannot be
    written, and leaves the old file untouched.
    """
    path = path.resolve()  # replaces the file that a symbolic link points to, not the link
    try:
        if path.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        _replace(path, data)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}; choose another path or free some space") from error


def _replace(path: Path, data: bytes | Iterable[bytes]) -> None:
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, _mode(path))
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(descriptor)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
    _sync_folder(path.parent)


def _mode(path: Path) -> int:
    """Return the old file's mode, or for a new file the mode that the umask allows (`mkstemp` makes files private)."""
    if path.exists():
        return path.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _sync_folder(folder: Path) -> None:
    """Sync the folder, so that the new name survives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
