"""A tilewise server as a running program sees it: asked in the background, its answers kept for when it is gone."""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilewise.db.exchange.files import write_file
from tilewise.db.exchange.native.runtime_file import WinnersFile, encode_winners
from tilewise.db.exchange.trials import result_from_json
from tilewise.db.records import Question, Result
from tilewise.errors import BadImport, Forbidden, NotFound, StoreError, TilewiseError, UsageError
from tilewise.settings import read_settings
from tilewise.tuner.lookup.resolve import Match, is_of

__all__ = ["ServerClient", "ServerQuery", "copy_of"]

_log = logging.getLogger("tilewise.runtime")

TIMEOUT_SECONDS = 5.0
"""How long the background waits for one answer."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
"""Seconds until a server that failed is asked again: doubled each time."""

_GATHER_SECONDS = 0.2
"""For how long answers are gathered before the copy on disk is written anew."""

_WAITING = 10_000
"""Questions that may wait for a server that is away; more are not asked."""


@dataclass(frozen=True, slots=True)
class ServerQuery:
    """A question, and what its answer may be: `source_hash` and, where they are named, `cores` must be its own.

    `match` says how far it may relax, `toolchain` (or the start of one) what exact means. `then` is called with the
    answer, or with None where the server has none.
    """

    question: Question
    source_hash: str
    match: Match
    toolchain: str | None = None
    cores: int | None = None
    then: Callable[[Result | None], None] = lambda result: None

    def steps(self) -> Iterator[Match]:
        """What a server is asked for in turn. What nobody tuned comes to its notice only where nothing relaxes; and
        the prior is at hand here."""
        yield Match.OLDER if self.match.allows(Match.OLDER) else Match.EXACT
        if self.match.allows(Match.NEAREST):
            yield Match.PORTFOLIO if self.match.allows(Match.PORTFOLIO) else Match.NEAREST


class ServerClient:
    """The server at `url`. One daemon thread asks it; nothing here waits for the network but that thread.

    Answers are copied to `copy`, an export file, of which a later process answers while the server does not; None keeps
    none. What the server says is checked like a file that somebody sent: no answer of another problem, source or form
    is taken.
    """

    def __init__(self, url: str, copy: Path | None) -> None:
        self.url, self.copy = url.rstrip("/"), copy
        self._questions: queue.Queue[ServerQuery] = queue.Queue(_WAITING)
        self._kept: dict[str, Result] = {}
        self._refusal = ""
        self._unsaved = False
        self._failures = 0
        self._thread: threading.Thread | None = None

    @property
    def is_away(self) -> bool:
        """Whether the last request failed, so that there is no point in waiting for the next."""
        return self._failures > 0

    def ask(self, asked: ServerQuery) -> None:
        """Ask in the background, from where `asked.then` is called."""
        try:
            self._questions.put_nowait(asked)
        except queue.Full:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tilewise-remote", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                asked = self._questions.get(timeout=_GATHER_SECONDS if self._unsaved else None)
            except queue.Empty:
                self._save()
                continue
            result = self._fetched(asked)
            if result is not None:
                self._keep(result)
            try:
                asked.then(result)
            except Exception:  # the thread must live on
                _log.exception("an answer of %s could not be used", self.url)

    def _fetched(self, asked: ServerQuery) -> Result | None:
        """The server's answer, asked for until it gives one; None where it has none."""
        while True:
            try:
                result = self._answer(asked)
                self._recovered()
                return result
            except (TilewiseError, ValueError, RecursionError) as error:  # away, busy, its database gone, garbage
                self._failed(error)
                if self._unsaved:
                    self._save()
                time.sleep(min(_FIRST_PAUSE * 2 ** (self._failures - 1), _LONGEST_PAUSE))

    def _answer(self, asked: ServerQuery) -> Result | None:
        """Raises `TilewiseError` or `ValueError` where the server does not answer or answers garbage."""
        from tilewise.client import Client

        problem, device = asked.question.problem, asked.question.device
        with Client(self.url, token=read_settings().token, timeout=TIMEOUT_SECONDS) as client:
            for match in asked.steps():
                try:
                    body = client.lookup(
                        problem.kernel,
                        problem.dims,
                        dtype=problem.dtype,
                        device=device,
                        match=match.value,
                        toolchain=asked.toolchain,
                    )
                except NotFound:
                    continue
                except (UsageError, Forbidden) as error:
                    self._refused(error)
                    return None
                return _checked(body, asked)
        return None

    def _refused(self, error: TilewiseError) -> None:
        if str(error) != self._refusal:  # else a line for each shape
            self._refusal = str(error)
            _log.warning("%s refuses: %s", self.url, error)

    def _failed(self, error: Exception) -> None:
        if self._failures == 0:
            _log.warning("%s does not answer (%s); going on without it, and asking again", self.url, error)
        self._failures = min(self._failures + 1, 16)

    def _recovered(self) -> None:
        if self._failures:
            _log.warning("%s answers again", self.url)
        self._failures = 0

    def _keep(self, result: Result) -> None:
        if self.copy is not None:
            self._kept[result.scope.question.key] = result
            self._unsaved = True

    def _save(self) -> None:
        """Add what is new to the copy on disk; of two processes that do so at once the later wins."""
        self._unsaved = False
        if self.copy is None:
            return
        try:
            kept = {r.scope.question.key: r for r in _stored(self.copy) if r.winner and r.winner.time_us is not None}
            kept |= {key: result for key, result in self._kept.items() if result.match in ("exact", "older")}
            self.copy.parent.mkdir(parents=True, exist_ok=True)
            write_file(self.copy, encode_winners(result.to_json() for result in kept.values()))
        except (OSError, StoreError) as error:
            _log.warning("cannot keep the server's answers at %s: %s", self.copy, error)


def copy_of(url: str, folder: Path) -> Path:
    """Where the answers of the server at `url` are kept."""
    return folder / "served" / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}.json"


def _stored(path: Path) -> list[Result]:
    try:
        return list(WinnersFile(path).results())
    except BadImport:  # none yet, or damaged: it is made anew
        return []


def _checked(body: Any, asked: ServerQuery) -> Result | None:
    """The answer as a result; None for one of another source or number of cores; raises `ValueError` for garbage."""
    result = result_from_json(body)
    if result.scope.question != asked.question:
        raise ValueError("its answer is to another question")
    if result.scope.source_hash != asked.source_hash or asked.cores not in (None, result.scope.cores):
        return None
    if Match(result.match) is Match.EXACT and asked.toolchain is not None and not is_of(result, asked.toolchain):
        return replace(result, match=Match.OLDER.value) if asked.match.allows(Match.OLDER) else None
    return result
