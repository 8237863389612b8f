"""Typed reading of one JSON object that somebody else wrote."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

__all__ = ["Fields"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fields:
    """The keys of an object by type; each method raises `ValueError`, in a few words, unless the value fits.

    Keys that nobody reads are left aside: a later minor version may add some. Booleans are not numbers here.
    """

    body: Mapping[str, Any]

    @classmethod
    def of(cls, value: Any) -> Fields:
        if not isinstance(value, dict):
            raise ValueError(f"expected an object, found {_kind(value)}")
        return cls(value)

    def text(self, name: str) -> str:
        return self._typed(name, str, "a text")

    def flag(self, name: str) -> bool:
        return self._typed(name, bool, "true or false")

    def mapping(self, name: str) -> dict[str, Any]:
        return self._typed(name, dict, "an object")

    def items(self, name: str) -> list[Any]:
        return self._typed(name, list, "a list")

    def integer(self, name: str, *, least: int = 0) -> int:
        value = self._typed(name, int, "a whole number")
        if not least <= value < 2**63:
            raise ValueError(f"{name} is {_kind(value)}; expected a whole number of {least} or more, below 2^63")
        return value

    def number(self, name: str) -> float:
        value = self._get(name)
        if not _is_number(value):
            raise ValueError(f"{name} is {_kind(value)}; expected a finite number")
        return float(value)

    def optional_integer(self, name: str) -> int | None:
        return None if self.body.get(name) is None else self.integer(name)

    def optional_number(self, name: str) -> float | None:
        return None if self.body.get(name) is None else self.number(name)

    def optional_text(self, name: str) -> str:
        return "" if self.body.get(name) is None else self.text(name)

    def optional_flag(self, name: str) -> bool:
        return self.body.get(name) is not None and self.flag(name)

    def moment(self, name: str) -> datetime:
        text = self.text(name)
        try:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is not None:
                return moment.astimezone(UTC)
        except (ValueError, OverflowError):  # no date, or one that UTC moves out of the calendar
            pass
        raise ValueError(f"{name} is {text[:40]!r}; expected an ISO 8601 time with its zone")

    def config(self, name: str) -> dict[str, int | float | str | bool]:
        config = self.mapping(name)
        for parameter, value in config.items():
            if not isinstance(value, int | float | str) or (isinstance(value, float) and not math.isfinite(value)):
                raise ValueError(f"{name}.{parameter} is {_kind(value)}; expected a number, a text or true or false")
        return config

    def dims(self, name: str) -> dict[str, int]:
        dims = Fields(self.mapping(name))
        return {dim: dims.integer(dim, least=1) for dim in dims.body}

    def _get(self, name: str) -> Any:
        if name not in self.body:
            raise ValueError(f"{name} is missing")
        return self.body[name]

    def _typed(self, name: str, kind: type[T], expected: str) -> T:
        value = self._get(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{name} is {_kind(value)}; expected {expected}")
        return value


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False


def _kind(value: Any) -> str:
    """What a wrong value is, kept short."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return "null" if value is None else repr(value)[:40]
