"""Real faults for tests: file systems that are full or read-only, and a lock that another process keeps."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rights import NoRights

Mount = Callable[[str], None]


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Mount]:
    """Mount an empty file system of that size; yield a function that remounts it with other options."""
    folder.mkdir()

    def mount(*words: str) -> None:
        done = subprocess.run(["mount", *words, str(folder)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoRights(f"cannot mount here: {done.stderr.strip()}")

    mount("-t", "tmpfs", "-o", f"size={size}", "tilewise-test")
    try:
        yield lambda options: mount("-o", f"remount,{options}")
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # a server may have it open a moment longer


def fill(folder: Path) -> Path:
    """Fill the folder's file system."""
    ballast = folder / "ballast"
    full = subprocess.run(
        ["dd", "if=/dev/zero", f"of={ballast}", "bs=4096"], capture_output=True, text=True, check=False
    )
    assert "No space left" in full.stderr
    return ballast


_HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(file: Path) -> Iterator[Callable[[], None]]:
    """Let another process hold the write lock of the SQLite file until the yielded function is called."""
    command = [sys.executable, "-c", _HOLD, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder.kill
        finally:
            holder.kill()


class WallClock:
    """The wall clock of processes started with `environment`, ahead of the machine's by the seconds given to `set`."""

    def __init__(self, folder: Path) -> None:
        library, self._offset = folder / "clock.so", folder / "offset"
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
        self._offset.write_bytes(bytes(8))
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_OFFSET": str(self._offset)}

    def set(self, seconds: int) -> None:
        with self._offset.open("r+b") as file:
            file.write(seconds.to_bytes(8, sys.byteorder, signed=True))
