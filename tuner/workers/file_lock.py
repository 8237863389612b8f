"""A lock on a file that ends with the process that holds it, however that ends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tilewise.errors import Unavailable

if TYPE_CHECKING:
    from filelock import BaseFileLock

__all__ = ["try_lock"]


def try_lock(file: Path, what: str, *, remedy: str = "set TILEWISE_CACHE to another folder") -> BaseFileLock | None:
    """Lock `file`, creating it if it is missing, or return None if it is already locked.

    Two locks on one file exclude each other within a process too. Raises `Unavailable` if the file cannot be created;
    `what` is the action that the message says has failed, and `remedy` what to do.
    """
    from filelock import FileLock, Timeout  # takes 70 ms to import, and only running configs needs it

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(file, blocking=False, thread_local=False)
        lock.acquire()
    except Timeout:
        return None
    except OSError as error:
        raise Unavailable(f"cannot {what}: {file}: {error.strerror}; {remedy}") from error
    return lock
