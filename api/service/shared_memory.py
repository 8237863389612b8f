"""Memory that the processes of a server share, made before they are forked."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["SharedTable", "digest_of"]


def digest_of(caller: object) -> int:
    """Return a number for a caller, never 0, that is the same in all forks of this process."""
    return hash((type(caller).__name__, caller)) & 0xFFFF_FFFF_FFFF_FFFF or 1


class SharedTable:
    """Rows of `form`, a format of `struct`, which are zero at first. Use them only while you hold the lock.

    The lock belongs to a process, and ends with it: a process that is killed leaves no other waiting. Use the table
    from one thread.
    """

    def __init__(self, form: str, rows: int) -> None:
        self._row, self._rows = struct.Struct(form), rows
        self._file = os.memfd_create("tilewise")
        os.ftruncate(self._file, rows * self._row.size)
        self._memory = mmap.mmap(self._file, rows * self._row.size)
        weakref.finalize(self, os.close, self._file)

    def __len__(self) -> int:
        return self._rows

    @contextmanager
    def locked(self) -> Iterator[None]:
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def all(self) -> list[tuple[float, ...]]:
        return list(self._row.iter_unpack(self._memory))

    def __getitem__(self, index: int) -> tuple[float, ...]:
        return self._row.unpack_from(self._memory, index * self._row.size)

    def __setitem__(self, index: int, values: tuple[float, ...]) -> None:
        self._row.pack_into(self._memory, index * self._row.size, *values)
