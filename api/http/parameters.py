"""Strict parsing of query strings: known names, each at most once, numbers in plain digits, one line per fault."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tilewise.errors import BadDimension, UsageError
from tilewise.tuner.space.problem_checks import LARGEST, parse_flag

__all__ = ["Parameters"]

_WHOLE_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_SHOWN = 40


class Parameters:
    """The parameters of a query string. Each `take` method removes what it returns; the rest can be refused.

    All methods raise `UsageError` for an invalid parameter.
    """

    def __init__(self, items: Iterable[tuple[str, str]]) -> None:
        self._values: dict[str, str] = {}
        for name, value in items:
            if name in self._values:
                raise UsageError(f"{name[:_SHOWN]!r} is given more than once; give it once")
            self._values[name] = value

    def take(self, name: str) -> str | None:
        """Take a text, which must not be empty; None if it was not given."""
        value = self._values.pop(name, None)
        if value == "":
            raise UsageError(f"{name} is empty; give it a value or leave it out")
        return value

    def take_choice(self, name: str, choices: Sequence[str]) -> str | None:
        value = self.take(name)
        if value is not None and value not in choices:
            raise UsageError(f"{name} is {value[:_SHOWN]!r}; expected {_either(choices)}")
        return value

    def take_number(self, name: str, default: int, *, least: int, most: int) -> int:
        value = self._values.pop(name, None)
        return default if value is None else _number(name, value, least, most)

    def take_shape(self) -> dict[str, int | bool | str]:
        """Take all remaining parameters as dimension sizes and flags. Raises `BadDimension`."""
        try:
            shape = {name: _size_or_flag(name, value) for name, value in self._values.items()}
        except UsageError as error:
            raise BadDimension(str(error)) from error
        self._values.clear()
        return shape

    @property
    def names(self) -> list[str]:
        """The parameters not taken yet."""
        return list(self._values)

    def finish(self, known: str) -> None:
        """Refuse the remaining parameters; `known` lists the valid ones."""
        if self._values:
            raise UsageError(f"unknown parameter {next(iter(self._values))[:_SHOWN]!r}; expected {known}")


def _size_or_flag(name: str, text: str) -> int | bool | str:
    flag = parse_flag(text)
    return _number(name, text, 1, LARGEST) if flag is None else flag


def _number(name: str, text: str, least: int, most: int) -> int:
    """Parse plain digits only: `int` would also take `1_000`, `+5`, spaces and the digits of other scripts."""
    if not _WHOLE_NUMBER.fullmatch(text) or not least <= int(text) <= most:
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
        raise UsageError(f"{name[:_SHOWN]} is {shown!r}; expected a whole number from {least} to {most}")
    return int(text)


def _either(choices: Sequence[str]) -> str:
    return ", ".join(choices[:-1]) + " or " + choices[-1] if len(choices) > 1 else choices[0]
