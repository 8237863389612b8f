"""The sources that a running program looks configs up in: opened once per process, and shared."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tilewise.db.records import Dims, Question, Result
from tilewise.db.store import Store
from tilewise.kernels.spec import KernelSpec, Target
from tilewise.settings import read_settings
from tilewise.tuner.lookup.resolve import Source
from tilewise.tuner.portfolio.portfolio import Portfolio

__all__ = ["Nothing", "Opened", "close_source", "forget_opened", "is_server", "open_source"]


class Opened(Source, Protocol):
    """A source that holds files or connections until it is closed."""

    def close(self) -> None:
        """Release its files and connections."""


class Nothing:
    """A source without results."""

    def answers(self, question: Question, source_hash: str | None) -> Sequence[Result]:
        return []

    def near(self, question: Question, source_hash: str | None, bound: float) -> Sequence[tuple[float, Dims]]:
        return []

    def portfolios(self, question: Question, source_hash: str | None, spec: KernelSpec) -> Sequence[Portfolio]:
        return []

    def target(self, device: str) -> Target | None:
        return None

    def close(self) -> None:
        return


_opened: dict[str, Opened] = {}
_lock = threading.Lock()


def is_server(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def open_source(place: str | Path | Store | None) -> Opened:
    """Return the file or database at `place` (None: the configured database), opened once per process.

    Raises `BadImport` for a file and `StoreError` for a database that cannot be used.
    """
    if isinstance(place, Store):
        from tilewise.tuner.lookup.store_source import StoreSource

        return StoreSource(place)
    text = str(place or read_settings().database_url)
    with _lock:
        if text not in _opened:
            _opened[text] = _open(text)
        return _opened[text]


def close_source(source: Opened) -> None:
    """Close a source for all who share it. The next `open_source` opens it anew."""
    with _lock:
        for text in [text for text, opened in _opened.items() if opened is source]:
            del _opened[text]
    source.close()


def forget_opened() -> None:
    """Drop all open sources in the child of a fork.

    Their connections belong to the parent, and so do the threads that may hold a lock.
    """
    global _lock
    _lock = threading.Lock()
    _opened.clear()


def _open(text: str) -> Opened:
    if "://" not in text:
        from tilewise.tuner.lookup.file_source import FileSource

        return FileSource(text)
    from tilewise.db.sql.sql_store import open_store
    from tilewise.tuner.lookup.store_source import StoreSource

    return StoreSource(open_store(text, create=False, read_only=True))
