"""Reading of untrusted JSON, which may be compressed, damaged or malicious."""

from __future__ import annotations

import json
import re
import zlib
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["LARGEST", "one_line", "parse", "text_of", "unpacked", "value_at"]

LARGEST = 2**30
"""Limit of a file in bytes once decompressed, since a few kilobytes can expand to many gigabytes."""

_GZIP = b"\x1f\x8b"
_SHOWN = 200
_NUL = re.compile(rb"(?<!\\)(\\\\)*\\u0000")  # but not an escaped backslash before these letters
_ODD_ESCAPE = re.compile(r"\\u(d[89a-f]|0000)", re.IGNORECASE)


def unpacked(data: bytes, *, cut: bool = False) -> bytes:
    """Return the bytes, decompressed if they are gzipped. With `cut` they may end early. Raises `ValueError`."""
    if not data.startswith(_GZIP):
        return data
    try:
        stream = zlib.decompressobj(wbits=31)
        plain = stream.decompress(data, LARGEST)
    except zlib.error as error:
        raise ValueError(f"its compressed data is damaged ({error})") from error
    if not stream.eof:
        if len(plain) >= LARGEST:
            raise ValueError(f"it is more than {LARGEST // 2**20} MiB when decompressed")
        if cut:
            return plain
        raise ValueError("its compressed data is damaged (it ends early)")
    return plain


def text_of(data: bytes, *, cut: bool = False) -> str:
    """Return the text of a file, plain or gzipped. With `cut` it may end anywhere. Raises `ValueError`."""
    try:
        return getincrementaldecoder("utf-8-sig")().decode(unpacked(data, cut=cut), final=not cut)
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8 text") from error


def parse(text: str, *, constant: Callable[[str], Any] | None = None) -> Any:
    """Parse a JSON document. Raises `ValueError`, also if an object has a key twice.

    `constant` converts `NaN` and `Infinity`, which are not JSON and are refused without it.
    """
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_constant=constant or _refuse_constant)
        if _ODD_ESCAPE.search(text):
            _refuse_odd_characters(document)
        return document
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error})") from error
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def value_at(text: str, at: int) -> tuple[Any, int]:
    """Parse the JSON value that begins at an index, as `parse` does; return it and the index behind it.

    Raises `json.JSONDecodeError` where the text ends too early or is not JSON, and `ValueError` otherwise.
    """
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if _ODD_ESCAPE.search(text, at, end):
        _refuse_odd_characters(value)
    return value, end


def one_line(error: BaseException) -> str:
    """Return the message of an error as one printable line of at most 200 characters."""
    text = " ".join(str(error).split())
    text = text if text.isprintable() else text.encode("unicode_escape").decode()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"an object holds {twice[:40]!r} twice")
    return unique


def _refuse_odd_characters(document: Any) -> None:
    """Raise `ValueError` for texts that databases cannot store: half surrogate pairs, and NUL."""
    try:
        characters = json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("it holds half of a surrogate pair, which is not valid text") from error
    if _NUL.search(characters):
        raise ValueError("it holds a NUL character")


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"it holds {text}, which is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant)
