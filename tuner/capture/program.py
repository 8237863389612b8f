"""A user's program, run in this process as `python PROGRAM` or `python -m PROGRAM` would run it."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewise.errors import UsageError

__all__ = ["Ending", "Program", "parse_program", "run_program"]


@dataclass(frozen=True, slots=True)
class Program:
    """A program and one of its kernels, as `path/to/file.py:KERNEL` or `package.module:KERNEL` name them.

    `kernel` is empty if the text names none.
    """

    name: str
    kernel: str = ""

    @property
    def is_file(self) -> bool:
        return self.name.endswith(".py")

    def __str__(self) -> str:
        return f"{self.name}:{self.kernel}" if self.kernel else self.name


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a program: its exit code, the text that it exited with, and its own error if it had one."""

    code: int = 0
    text: str = ""
    error: Exception | None = None


def parse_program(text: str) -> Program:
    """Parse `path/to/file.py:KERNEL` or `package.module:KERNEL`, with or without the kernel.

    Raises `UsageError` if there is no such file.
    """
    name, colon, kernel = text.rpartition(":")
    program = Program(name, kernel) if colon else Program(text)
    if program.is_file and not Path(program.name).is_file():
        raise UsageError(f"no file {program.name}; expected a Python program")
    if not program.is_file and ("/" in program.name or not program.name):
        raise UsageError(f"{program.name or text} is not a program; expected path/to/file.py or a module's name")
    return program


def run_program(program: Program, arguments: Sequence[str]) -> Ending:
    """Run a program to its end. Ctrl-C ends it and this process alike."""
    words, path = sys.argv, list(sys.path)
    sys.argv = [program.name, *arguments]
    sys.path.insert(0, str(Path(program.name).resolve().parent) if program.is_file else "")
    try:
        if program.is_file:
            runpy.run_path(program.name, run_name="__main__")
        else:
            runpy.run_module(program.name, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return Ending(end.code or 0)
        return Ending(1, str(end.code))
    except Exception as error:
        return Ending(1, error=error)
    finally:
        sys.argv, sys.path[:] = words, path
    return Ending()
