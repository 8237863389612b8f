"""Background look-ups at a tilewise server, whose answers are copied to disk for when it is away."""

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
"""Seconds that the background thread waits for one answer."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
"""Seconds until a failed request is retried: doubled each time, up to the longest."""

_GATHER_SECONDS = 0.2
"""Seconds without a further query after which new answers are written to the copy on disk."""

_WAITING = 10_000
"""Most queries that may wait for a server that is away; further ones are dropped."""


@dataclass(frozen=True, slots=True)
class ServerQuery:
    """A question, and the conditions on its answer, which must have this `source_hash` and, if given, these `cores`.

    `match` says how far the answer may relax. An exact answer has this `toolchain` (or one that starts with it). `then`
    is called with the answer, or with None if the server has none.
    """

    question: Question
    source_hash: str
    match: Match
    toolchain: str | None = None
    cores: int | None = None
    then: Callable[[Result | None], None] = lambda result: None

    def steps(self) -> Iterator[Match]:
        """Yield the match levels to request in turn.

        The first does not relax to other shapes, because only then does the server notice an untuned shape. `predicted`
        is never requested: the prior is available in this process.
        """
        yield Match.OLDER if self.match.allows(Match.OLDER) else Match.EXACT
        if self.match.allows(Match.NEAREST):
            yield Match.PORTFOLIO if self.match.allows(Match.PORTFOLIO) else Match.NEAREST


class ServerClient:
    """A client of the server at `url`. One daemon thread sends the requests; no other thread waits for the network.

    Answers are copied to `copy`, an export file that later processes use while the server is away. None keeps no copy.
    Answers are checked like an untrusted file: one for another problem or source, or of another form, is rejected.
    """

    def __init__(self, url: str, copy: Path | None) -> None:
        self.url, self.copy = url.rstrip("/"), copy
        self._queries: queue.Queue[ServerQuery] = queue.Queue(_WAITING)
        self._kept: dict[str, Result] = {}
        self._refusal = ""
        self._unsaved = False
        self._failures = 0
        self._thread: threading.Thread | None = None

    @property
    def is_away(self) -> bool:
        """Return whether the last request failed, in which case waiting for the next is pointless."""
        return self._failures > 0

    def ask(self, query: ServerQuery) -> None:
        """Send the query in the background; `query.then` is called from the background thread."""
        try:
            self._queries.put_nowait(query)
        except queue.Full:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tilewise-remote", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                query = self._queries.get(timeout=_GATHER_SECONDS if self._unsaved else None)
            except queue.Empty:
                self._save()
                continue
            result = self._fetch(query)
            if result is not None:
                self._keep(result)
            try:
                query.then(result)
            except Exception:  # the thread must survive
                _log.exception("failed to use an answer of %s", self.url)

    def _fetch(self, query: ServerQuery) -> Result | None:
        """Retry until the server answers; return its result, or None if it has none."""
        while True:
            try:
                result = self._answer(query)
                self._recovered()
                return result
            except (TilewiseError, ValueError, RecursionError) as error:  # away, busy, without database, garbage
                self._failed(error)
                if self._unsaved:
                    self._save()
                time.sleep(min(_FIRST_PAUSE * 2 ** (self._failures - 1), _LONGEST_PAUSE))

    def _answer(self, query: ServerQuery) -> Result | None:
        """Query the server once; raise `TilewiseError` or `ValueError` if it does not answer or answers garbage."""
        from tilewise.client import Client

        problem, device = query.question.problem, query.question.device
        with Client(self.url, token=read_settings().token, timeout=TIMEOUT_SECONDS) as client:
            for match in query.steps():
                try:
                    body = client.lookup(
                        problem.kernel,
                        problem.shape,
                        dtype=problem.dtype,
                        device=device,
                        match=match.value,
                        toolchain=query.toolchain,
                    )
                except NotFound:
                    continue
                except (UsageError, Forbidden) as error:
                    self._refused(error)
                    return None
                return _checked(body, query)
        return None

    def _refused(self, error: TilewiseError) -> None:
        if str(error) != self._refusal:  # one line, not one per shape
            self._refusal = str(error)
            _log.warning("%s refuses the look-up: %s", self.url, error)

    def _failed(self, error: Exception) -> None:
        if self._failures == 0:
            _log.warning("%s does not answer (%s); continuing without it and retrying", self.url, error)
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
        """Add new answers to the copy on disk. If two processes do so at once, the later one wins."""
        self._unsaved = False
        if self.copy is None:
            return
        try:
            kept = {r.scope.question.key: r for r in _stored(self.copy) if r.winner and r.winner.time_us is not None}
            kept |= {key: result for key, result in self._kept.items() if result.match in ("exact", "older")}
            self.copy.parent.mkdir(parents=True, exist_ok=True)
            write_file(self.copy, encode_winners(result.to_json() for result in kept.values()))
        except (OSError, StoreError) as error:
            _log.warning("cannot save the server's answers to %s: %s", self.copy, error)


def copy_of(url: str, folder: Path) -> Path:
    """Return the path of the file that keeps the answers of the server at `url`."""
    return folder / "served" / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}.json"


def _stored(path: Path) -> list[Result]:
    try:
        return list(WinnersFile(path).results())
    except BadImport:  # missing or damaged: it will be written anew
        return []


def _checked(body: Any, query: ServerQuery) -> Result | None:
    """Parse an answer. Return None if its source or core count differs, and raise `ValueError` for garbage."""
    result = result_from_json(body)
    if result.scope.question != query.question:
        raise ValueError("it answered another question than the one sent")
    if result.scope.source_hash != query.source_hash or query.cores not in (None, result.scope.cores):
        return None
    if Match(result.match) is Match.EXACT and query.toolchain is not None and not is_of(result, query.toolchain):
        return replace(result, match=Match.OLDER.value) if query.match.allows(Match.OLDER) else None
    return result
