"""Choices that several processes share: the ranks of a job, which agree, and later runs, for which they are pinned.

Ranks of one job that launch different configs wait for each other at every collective, and may add numbers in another
order. So the first rank that chooses a config for a problem chooses for all: it puts its choice into the key-value
store that torchrun keeps for its workers, and a key's first value stays. No rank waits for another. Of a kernel whose
spec was inferred, they first agree on that spec in the same way: a node that lacks it could not tell the problem.

`TILEWISE_CHOICES` names a file of choices. What is in the file is launched, and what is not is added to it. On a file
system that all processes share, they agree by the file, without torchrun too.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tilewise.db.exchange.typed import Config, Shape, typed
from tilewise.db.records import Problem, Question, canonical_json, digest
from tilewise.errors import StoreError, TilewiseError
from tilewise.settings import read_settings
from tilewise.tuner.workers.file_lock import try_lock

__all__ = ["WAIT_SECONDS", "SharedChoice", "SharedChoices", "shared_choices"]

_T = TypeVar("_T")

_log = logging.getLogger("tilewise.runtime")

WAIT_SECONDS = 5.0
"""Most seconds that a process waits for the ranks' store, or for a file that others write to, until it goes on
alone."""

_POLL_SECONDS = 0.01


class _Line(msgspec.Struct):
    """A choice in the file, one line, and in the ranks' store."""

    kernel: str
    dims: Shape
    dtype: str
    device: str
    source_hash: str
    config: Config
    match: str
    why: str


@dataclass(frozen=True, slots=True)
class SharedChoice:
    """A config for a problem on a device, of one version of the kernel's source."""

    question: Question
    source_hash: str
    config: Config
    match: str
    why: str

    @property
    def key(self) -> str:
        return digest([self.question.key, self.source_hash])

    def text(self) -> str:
        """Return the choice as one line of JSON."""
        about = {"source_hash": self.source_hash, "match": self.match, "why": self.why}
        return canonical_json({**self.question.to_json(), "config": dict(self.config), **about})

    @classmethod
    def read(cls, text: str | bytes) -> SharedChoice:
        """Read `text()`. Raises `ValueError`."""
        line = typed(json.loads(text), _Line)
        question = Question(Problem.of(line.kernel, line.dims, line.dtype), line.device)
        return cls(question, line.source_hash, line.config, line.match, line.why)


class SharedChoices:
    """The choices of this process's job. With neither ranks nor a file, every choice is its own.

    `environment` tells of ranks as torchrun does. What cannot be reached is told in one warning, and left out from then
    on: a process that cannot learn of the others' choices launches its own.
    """

    def __init__(self, file: Path | None, environment: Mapping[str, str]) -> None:
        self._file = None if file is None else _File(file)
        self._ranks = _Ranks(environment) if _is_one_of_many(environment) else None

    @property
    def are_shared(self) -> bool:
        return self._file is not None or self._ranks is not None

    def pinned(self, question: Question, source_hash: str) -> SharedChoice | None:
        """Return the choice that the file has for a problem. One of another source is not used, with a warning."""
        found = self._ask(lambda file: file.of(question)) if self._file is not None else None
        if found is None or found.source_hash == source_hash:
            return found
        _log.warning("%s: the pinned choice is of another version of the kernel's source, so it is not used", question)
        return None

    def agreed(self, own: SharedChoice) -> SharedChoice:
        """Return everybody's choice: that of the first process, which may be this one."""
        own = self._first(f"tilewise/{own.key}", own, SharedChoice.text, partial(_read_for, own.key))
        if self._file is not None:
            own = self._ask(lambda file: file.first(own)) or own
        return own

    def agreed_spec(self, function: str, own: str | None) -> str | None:
        """Return the text of everybody's spec of a function, given by its source; None if the first rank has none."""
        return self._first(f"tilewise/spec/{digest(function)}", own, json.dumps, json.loads)

    def _first(self, key: str, own: _T, encode: Callable[[_T], str], decode: Callable[[bytes], _T]) -> _T:
        """Return the value of the rank that came first, `own` without ranks or without their store."""
        if self._ranks is None:
            return own
        try:
            return decode(self._ranks.first(key, encode(own)))
        except (RuntimeError, ValueError, ImportError) as error:
            _log.warning("ranks may choose different configs: torchrun's store does not answer: %s", error)
            self._ranks = None
            return own

    def _ask(self, question: Any) -> SharedChoice | None:
        try:
            found: SharedChoice | None = question(self._file)
        except TilewiseError as error:
            _log.warning("choices are not shared: %s", error)
            self._file = None
            return None
        return found


def shared_choices() -> SharedChoices:
    """Return the choices of this process's job, as the settings and the environment are now."""
    place = tuple(os.environ.get(name, "") for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
    return _opened(read_settings().choices_file, place, os.getpid())


@cache
def _opened(file: Path | None, place: tuple[str, ...], process: int) -> SharedChoices:
    """Open each file and store once per process: a fork must not use its parent's connection."""
    return SharedChoices(file, os.environ)


def _read_for(key: str, text: bytes) -> SharedChoice:
    """Read a choice. Raises `ValueError` if it is one for another problem than the key's."""
    found = SharedChoice.read(text)
    if found.key != key:
        raise ValueError("it holds a choice for another problem")
    return found


def _is_one_of_many(environment: Mapping[str, str]) -> bool:
    world = environment.get("WORLD_SIZE", "")
    return world.isdigit() and int(world) > 1 and {"MASTER_ADDR", "MASTER_PORT"} <= environment.keys()


class _Ranks:
    """The key-value store of a job's ranks, at MASTER_ADDR and MASTER_PORT: torchrun's own, or that of rank 0."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._place = environment["MASTER_ADDR"], environment["MASTER_PORT"]
        self._opened: Any = None

    def first(self, key: str, own: str) -> bytes:
        """Return what the rank that came first put there. Raises `RuntimeError` if the store cannot be reached."""
        if self._opened is None:
            distributed: Any = importlib.import_module("torch.distributed")
            host, port = self._place
            limit = timedelta(seconds=WAIT_SECONDS)
            self._opened = distributed.TCPStore(host, int(port), is_master=False, timeout=limit, wait_for_workers=False)
        found: bytes = self._opened.compare_set(key, "", own)
        return found


class _File:
    """A file of choices, one a line, of which the first for a problem and source counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, SharedChoice] = {}
        self._read_bytes = 0

    def of(self, question: Question) -> SharedChoice | None:
        """Return a problem's choice, the last one if there are several for different sources."""
        self._read()
        return self._known.get(question.key)

    def first(self, own: SharedChoice) -> SharedChoice:
        """Return the choice of the process that came first, after adding it. Raises `TilewiseError`."""
        lock_file = self._path.with_name(f"{self._path.name}.lock")
        latest = time.monotonic() + WAIT_SECONDS
        while (lock := try_lock(lock_file, "share choices", remedy="set TILEWISE_CHOICES to another file")) is None:
            if time.monotonic() > latest:
                raise StoreError(f"{self._path} is locked for more than {WAIT_SECONDS:g} s by another process")
            time.sleep(_POLL_SECONDS)
        try:
            self._read()
            known = self._known.get(own.question.key)
            if known is not None and known.source_hash == own.source_hash:
                return known
            self._append(own)
            return own
        finally:
            lock.release()

    def _append(self, own: SharedChoice) -> None:
        try:
            cut_short = self._read_bytes < (self._path.stat().st_size if self._path.exists() else 0)
            with self._path.open("ab", buffering=0) as file:
                file.write(b"\n" * cut_short + own.text().encode() + b"\n")
        except OSError as error:
            raise StoreError(f"cannot write {self._path}: {error.strerror}; check its permissions") from error
        self._read()

    def _read(self) -> None:
        """Read what was added since the last time; a line that a crash cut short is skipped."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                lines = file.readlines()
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"cannot read {self._path}: {error.strerror}; check its permissions") from error
        for line in lines:
            if not line.endswith(b"\n"):
                break
            self._read_bytes += len(line)
            try:
                found = SharedChoice.read(line)
            except (ValueError, RecursionError):
                continue
            known = self._known.get(found.question.key)
            if known is None or known.source_hash != found.source_hash:
                self._known[found.question.key] = found
