"""JSON that somebody else wrote, perhaps compressed, perhaps damaged, perhaps to do harm."""

from __future__ import annotations

import json
import re
import zlib
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["LARGEST", "one_line", "parse", "text_of", "unpacked"]

LARGEST = 2**30
"""Bytes of a file once decompressed; a few kilobytes can claim to be many gigabytes."""

_GZIP = b"\x1f\x8b"
_SHOWN = 200
_NUL = re.compile(rb"(?<!\\)(\\\\)*\\u0000")  # not a backslash that is followed by these letters
_ODD_ESCAPE = re.compile(r"\\u(d[89a-f]|0000)", re.IGNORECASE)


def unpacked(data: bytes, *, cut: bool = False) -> bytes:
    """The bytes, decompressed where they are gzipped; with `cut` as far as they go. Raises `ValueError`."""
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
    """The text of a file, plain or gzipped; with `cut` it may end anywhere. Raises `ValueError`."""
    try:
        return getincrementaldecoder("utf-8-sig")().decode(unpacked(data, cut=cut), final=not cut)
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8 text") from error


def parse(text: str, *, constant: Callable[[str], Any] | None = None) -> Any:
    """A JSON document in which no object has a key twice. Raises `ValueError`.

    `constant` makes a value of `NaN` and `Infinity`, which are no JSON and refused otherwise.
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


def one_line(error: BaseException) -> str:
    """The message of an error, on one line and no longer than a person reads."""
    text = " ".join(str(error).split())
    text = text if text.isprintable() else text.encode("unicode_escape").decode()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"an object holds {twice[:40]!r} twice")
    return made


def _refuse_odd_characters(document: Any) -> None:
    """Texts that no database keeps: halves of surrogate pairs, and NUL."""
    try:
        characters = json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("it holds half of a surrogate pair, which is no text") from error
    if _NUL.search(characters):
        raise ValueError("it holds a NUL character")


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"it holds {text}, which is not JSON")
