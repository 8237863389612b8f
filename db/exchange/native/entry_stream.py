"""The entries of an export file, one at a time, so that memory holds one of them and not the file."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from tilewise.db.exchange.jsonfile import LARGEST, value_at
from tilewise.db.records import canonical_json

__all__ = ["stream_entries"]

_GZIP = b"\x1f\x8b"
_PIECE = 1 << 18
_LARGEST_VALUE = 10 << 20
"""Characters of an entry."""

_MOST_CONTAINERS = 200_000
"""Lists and objects of an entry. An empty list takes 64 bytes of memory for 3 characters; a trial has about three."""

_SPACE = " \t\r\n"


def stream_entries(file: BinaryIO, header: dict[str, Any]) -> Iterator[Any]:
    """Yield the entries of a file, plain or gzipped, unread, and add the other members of the document to `header`.

    Raises `ValueError` where the file is not JSON, and after the last entry if its checksum does not match them.
    """
    checksum, separator = hashlib.sha256(b"["), b""
    found = False
    for name, entry in _members(_Text(file)):
        if name != "entries":
            header[name] = entry
            continue
        found = True
        if entry is not _END:
            checksum.update(separator + canonical_json(entry).encode())
            separator = b","
            yield entry
            entry = None  # its memory is free for the next one
    checksum.update(b"]")
    if not found or "sha256" not in header:
        raise ValueError(f"{'sha256' if found else 'entries'} is missing")
    if header["sha256"] != checksum.hexdigest():
        raise ValueError("its checksum does not match its entries: it was damaged or edited; export it again")


_END = object()
"""Stands for the end of the entries, of which there may be none."""


def _members(text: _Text) -> Iterator[tuple[str, Any]]:
    """Yield the members of the document, and of `entries` each item in its place."""
    names = set[str]()
    for _ in text.items("{", "}"):
        name = text.value()
        if not isinstance(name, str) or name in names:
            raise ValueError(f"an object holds {str(name)[:40]!r} twice or as a name")
        names.add(name)
        text.take(":")
        if name != "entries":
            yield name, text.value()
            continue
        for _ in text.items("[", "]"):
            yield name, text.value()
        yield name, _END
    if text.peek():
        raise ValueError("it is not JSON (something follows the document)")


class _Text:
    """A JSON text that is read in pieces."""

    def __init__(self, file: BinaryIO) -> None:
        packed = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        plain = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file
        self._file = io.TextIOWrapper(plain, encoding="utf-8-sig", newline="")
        self._text, self._at, self._read = "", 0, 0

    def peek(self) -> str:
        """Return the next character that is not space; empty at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _SPACE:
                    return self._text[self._at]
                self._at += 1
            if not self._more():
                return ""

    def take(self, expected: str) -> None:
        if (character := self.peek()) != expected:
            raise ValueError(f"it is not JSON (found {character or 'its end'!r} instead of {expected!r})")
        self._at += 1

    def items(self, opening: str, closing: str) -> Iterator[None]:
        """Stop before each item of a list or an object, which the caller takes."""
        self.take(opening)
        if self.peek() != closing:
            yield
            while self.peek() == ",":
                self._at += 1
                yield
        self.take(closing)

    def value(self) -> Any:
        self.peek()
        while True:
            try:
                value, end = value_at(self._text, self._at)
            except json.JSONDecodeError as error:  # the piece may end within the value
                if not self._more():
                    raise ValueError(f"it is not JSON ({error.msg})") from error
                continue
            if end == len(self._text) and self._more():  # a number may go on
                continue
            self._at = end
            return value

    def _more(self) -> bool:
        """Read as much again as there is; return whether there was any.

        Raises `ValueError` if the value here is too large already. It is about to be parsed, so its lists and objects
        are counted before.
        """
        if (size := len(self._text) - self._at) > _LARGEST_VALUE:
            raise ValueError(f"it holds an entry of more than {_LARGEST_VALUE >> 20} MiB")
        if size and sum(self._text.count(opening, self._at) for opening in "[{") > _MOST_CONTAINERS:
            raise ValueError(f"it holds an entry with more than {_MOST_CONTAINERS} lists and objects")
        try:
            new = self._file.read(max(_PIECE, len(self._text) - self._at))
        except UnicodeDecodeError as error:
            raise ValueError("it is not UTF-8 text") from error
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"its compressed data is damaged ({error})") from error
        self._read += len(new)
        if self._read > LARGEST:
            raise ValueError(f"it is more than {LARGEST // 2**20} MiB when decompressed")
        self._text, self._at = self._text[self._at :] + new, 0
        return bool(new)
