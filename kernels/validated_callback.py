"""Checked functions of a spec: an exception or an invalid result becomes a `BadSpec` that names the function."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewise.errors import BadSpec, TilewiseError

__all__ = ["ValidatedCallback", "cut", "raised", "validated"]

_LONGEST = 60
"""Characters of a value shown in a message."""


@dataclass(frozen=True, slots=True)
class ValidatedCallback:
    """A function of a spec that checks its result at each call.

    `what` names it in messages. `check` returns an invalid result in words with what was expected, or an empty text.
    An exception for which `passes_through(error, arguments)` is true is not turned into `BadSpec`: it may be the
    device's.
    """

    what: str
    function: Callable[..., Any]
    check: Callable[[Any], str]
    passes_through: Callable[[Exception, tuple[Any, ...]], bool] = lambda error, given: False

    def __call__(self, *given: Any) -> Any:
        try:
            result = self.function(*given)
        except Exception as error:
            if isinstance(error, TilewiseError) or self.passes_through(error, given):
                raise
            raise BadSpec(f"{self.what} raises {raised(error, self._file())}{_where(given)}") from error
        if invalid := self.check(result):
            raise BadSpec(f"{self.what} returns {invalid}")
        return result

    def _file(self) -> str:
        code = getattr(self.function, "__code__", None)
        return code.co_filename if code else ""


def validated(what: str, function: Any, check: Callable[[Any], str], **more: Any) -> ValidatedCallback:
    """Wrap a function, unless it is a `ValidatedCallback` already; raise `BadSpec` if it is not a function."""
    if isinstance(function, ValidatedCallback):
        return function
    if not callable(function):
        raise BadSpec(f"{what} is {cut(function)}; expected a function")
    return ValidatedCallback(what, function, check, **more)


def raised(error: BaseException, file: str) -> str:
    """Describe an error in one line, with the last line of `file` in its traceback if there is one."""
    reason = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{reason} ({Path(file).name}, line {lines[-1]})" if lines else reason


def cut(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _where(given: tuple[Any, ...]) -> str:
    """Describe the function's first argument if it is a config or a mapping of tensors."""
    if not given or not isinstance(given[0], Mapping):
        return ""
    if all(isinstance(value, int | float | str) for value in given[0].values()):
        return f" where {', '.join(f'{name}={value}' for name, value in given[0].items())}"
    return f" where the inputs are {', '.join(given[0])}"
