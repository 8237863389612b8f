"""Files that are either all there or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tilewise.errors import StoreError

__all__ = ["write_file"]


def write_file(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write `data`, whole or in pieces, to `path`, replacing what was there only once all of it is on the disk.

    Who reads meanwhile, or after a crash, finds the old file or the new one. Raises `StoreError` where the place
    cannot be written; the old file is untouched then.
    """
    path = path.resolve()  # through a symbolic link the file is replaced, not the link
    try:
        if path.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        _replace(path, data)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}; choose another place or make room") from error


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
    """The mode of the file to be replaced; for a new one what the umask leaves (`mkstemp` makes files private)."""
    if path.exists():
        return path.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _sync_folder(folder: Path) -> None:
    """Make the new name itself survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
