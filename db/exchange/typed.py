"""Typed reading of untrusted JSON: msgspec's types, and its errors reworded for a person."""

from __future__ import annotations

import re
import sys
from datetime import datetime
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
from msgspec import Meta

__all__ = ["Config", "Count", "Dims", "Moment", "Name", "Number", "Object", "Shape", "Size", "Text", "typed"]

T = TypeVar("T")

Object = dict[str, Any]
Number = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""Finite; whole numbers count."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Size = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Moment = Annotated[datetime, Meta(tz=True)]
Name = Annotated[str, Meta(max_length=200)]
Text = Annotated[str, Meta(max_length=10_000)]
Dims = dict[Name, Size]
_ShapeValue = Size | bool | Annotated[str, Meta(pattern=r"^[\w.+-]{1,64}$")]
Shape = dict[Name, _ShapeValue]
"""Dimensions, and flags: true, false or a word."""

_ConfigValue = int | Number | Name | bool
Config = dict[Name, _ConfigValue]

_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
    "datetime": "an ISO 8601 time with a time zone",
}
_AT = re.compile(r"(?P<what>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_EXPECTED = re.compile(r"Expected `([^`]*)`")


def typed(value: Any, kind: type[T]) -> T:
    """Return `value` as an instance of `kind`: a type above, or a `msgspec.Struct`. Raises a short `ValueError`.

    Keys that a struct does not have are ignored, since a later minor version may add some. Booleans are not numbers.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(_message(str(error), value, kind)) from None


def _message(text: str, value: Any, kind: Any) -> str:
    """Return a message such as "version is '1'; expected a whole number"."""
    found = _AT.fullmatch(text)
    what, path = (found["what"], found["path"] or "") if found else (text, "")
    name, actual = path.removeprefix("."), _at(value, path)
    if missing := _MISSING.fullmatch(what):
        return f"{'.'.join(filter(None, (name, missing[1])))} is missing"
    if found and found["key"]:  # a name that is too long
        name, actual = f"a name in {name}", max(actual, key=len)
    if name.endswith("[...]") and isinstance(actual, dict):  # msgspec does not name the key
        key, what = _wrong_item(actual)
        name, actual = f"{name.removesuffix('[...]')}.{key}", actual.get(key)
    if "enum value" in what:
        return f"{name} is {_shown(actual)}; expected one of {', '.join(get_type_hints(kind)[name])}"
    return (
        f"{name} is {_shown(actual)}; expected {_expected(what)}"
        if name
        else f"expected {_expected(what)}, found {_shown(actual)}"
    )


def _wrong_item(mapping: dict[str, Any]) -> tuple[str, str]:
    """Return the key of the item that is not a valid value of a config or shape, and what is wrong with it."""
    for kind in (_ConfigValue, _ShapeValue):
        for key, item in mapping.items():
            try:
                msgspec.convert(item, kind)
            except msgspec.ValidationError as error:
                return key, str(error)
    return "?", ""


def _expected(what: str) -> str:
    if "RFC3339" in what or "timezone" in what:
        return _WORDS["datetime"]
    found = _EXPECTED.match(what)
    if found is None or str(sys.float_info.max) in what:
        return "a finite number"
    kinds = [word.strip() for word in found[1].split("|")]
    words = ", ".join(_WORDS.get(each, each) for each in kinds if each != "null")
    limit = what[found.end() :].partition(", got")[0].strip()
    if least := re.fullmatch(r">= (-?\d+)", limit):
        return f"{words} of {least[1]} or more"
    if most := re.fullmatch(r"of length <= (\d+)", limit):
        return f"{words} of at most {most[1]} characters"
    if limit.startswith("matching"):
        return f"{words} of letters, digits and _ . + -"
    return f"{words} below 2^63" if limit else words


def _at(value: Any, path: str) -> Any:
    """Return the value at a path such as `.dims.M` or `.configs[3]`, following the path as far as it goes."""
    for key, index in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        try:
            value = value[int(index)] if index else value[key]
        except (KeyError, IndexError, TypeError):
            break
    return value


def _shown(value: Any) -> str:
    """Return a short description of a wrong value."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return "null" if value is None else repr(value)[:40]
