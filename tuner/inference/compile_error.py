"""A front end's refusal of a kernel, told with the place in the kernel's source."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tilewise.tuner.workers.worker import describe

__all__ = ["describe_at_source"]


def describe_at_source(error: Exception, file: Path) -> str:
    """Return an error of Triton's front end in one line: `kernel.py:12: Mask must have boolean scalar type`.

    `file` defines the kernel. A line of a function elsewhere, which the kernel calls, is quoted.
    """
    text, place = describe(error), _place(_innermost(error), file)
    if not place:
        return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"
    if raised := re.match(r"""(\w+)\((["'])(.*?)(?:\2\)|$)""", text):  # another exception's repr
        text = f"{raised.group(1)}: {raised.group(3)}"
    return f"{place}: {text}"


def _innermost(error: BaseException) -> Any:
    """Return the error of the function that the kernel calls last on its way to it."""
    while type(error.__cause__).__name__ == "CompilationError":
        assert error.__cause__ is not None
        error = error.__cause__
    return error


def _place(error: Any, file: Path) -> str:
    source, line = getattr(error, "src", None), getattr(getattr(error, "node", None), "lineno", 0)
    if not source or not line:
        return ""
    before, _, after = file.read_text().partition(source.rstrip())
    if after:
        return f"{file.name}:{before.count(chr(10)) + line}"
    return f"`{source.splitlines()[line - 1].strip()}`"
