"""What the functions of a spec answer, checked: what one raises, or gives amiss, is `BadSpec` and names it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewise.errors import BadSpec, TilewiseError

__all__ = ["ValidatedCallback", "cut", "raised", "validated"]

_LONGEST = 60
"""Characters of a value in a message."""


@dataclass(frozen=True, slots=True)
class ValidatedCallback:
    """A function of a spec, called as itself.

    `what` names it in messages. `amiss` says what is wrong with an answer and what was expected, or is empty. An error
    that is `spared`, of what was given, goes through as it is: it may be a device's.
    """

    what: str
    function: Callable[..., Any]
    amiss: Callable[[Any], str]
    spared: Callable[[Exception, tuple[Any, ...]], bool] = lambda error, given: False

    def __call__(self, *given: Any) -> Any:
        try:
            answer = self.function(*given)
        except Exception as error:
            if isinstance(error, TilewiseError) or self.spared(error, given):
                raise
            raise BadSpec(f"{self.what} raises {raised(error, self._file())}{_where(given)}") from error
        if wrong := self.amiss(answer):
            raise BadSpec(f"{self.what} gives {wrong}")
        return answer

    def _file(self) -> str:
        code = getattr(self.function, "__code__", None)
        return code.co_filename if code else ""


def validated(what: str, function: Any, amiss: Callable[[Any], str], **more: Any) -> ValidatedCallback:
    """Raises `BadSpec` for what is no function; one that is `ValidatedCallback` already stays as it is."""
    if isinstance(function, ValidatedCallback):
        return function
    if not callable(function):
        raise BadSpec(f"{what} is {cut(function)}; expected a function")
    return ValidatedCallback(what, function, amiss, **more)


def raised(error: BaseException, file: str) -> str:
    """An error in words, with the line of `file` that it came from where it came from there."""
    reason = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{reason} ({Path(file).name}, line {lines[-1]})" if lines else reason


def cut(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _where(given: tuple[Any, ...]) -> str:
    """The config, or the names of the tensors, that the function was given first."""
    if not given or not isinstance(given[0], Mapping):
        return ""
    if all(isinstance(value, int | float | str) for value in given[0].values()):
        return f" where {', '.join(f'{name}={value}' for name, value in given[0].items())}"
    return f" where the inputs are {', '.join(given[0])}"
