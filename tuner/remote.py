"""A tilewise server as a running program sees it: asked in the background, its answers kept for when it is gone."""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tilewise.db.exchange.files import write_file
from tilewise.db.exchange.trials import result_from_json
from tilewise.db.exchange.winners import Winners, encode_winners
from tilewise.db.records import Question, Result
from tilewise.errors import BadImport, Forbidden, NotFound, StoreError, Unavailable, UsageError
from tilewise.settings import read_settings

if TYPE_CHECKING:
    from tilewise.client import Match as HowFar

__all__ = ["Remote", "copy_of"]

_log = logging.getLogger("tilewise.runtime")

TIMEOUT_SECONDS = 5.0
"""How long the background waits for one answer."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
"""Seconds until a server that failed is asked again: doubled each time."""

_GATHER_SECONDS = 0.2
"""For how long answers are gathered before the copy on disk is written anew."""

_WAITING = 10_000
"""Questions that may wait for a server that is away; more are not asked."""

OnAnswer = Callable[[Result], None]


class Remote:
    """The server at `url`. One daemon thread asks it; nothing here waits for the network but that thread.

    Answers are copied to `copy`, an export file, of which a later process answers while the server does not; None keeps
    none. What the server says is checked like a file that somebody sent: no answer of another problem, source or form
    is taken.
    """

    def __init__(self, url: str, copy: Path | None) -> None:
        self.url, self.copy = url.rstrip("/"), copy
        self._questions: queue.Queue[tuple[Question, str, str, OnAnswer]] = queue.Queue(_WAITING)
        self._kept: dict[str, Result] = {}
        self._unsaved = False
        self._failures = 0
        self._thread: threading.Thread | None = None

    @property
    def is_away(self) -> bool:
        """Whether the last request failed, so that there is no point in waiting for the next."""
        return self._failures > 0

    def ask(self, question: Question, source_hash: str, match: str, then: OnAnswer) -> None:
        """Ask in the background; `then` is called there with the answer, if there is one."""
        try:
            self._questions.put_nowait((question, source_hash, match, then))
        except queue.Full:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tilewise-remote", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                question, source_hash, match, then = self._questions.get(
                    timeout=_GATHER_SECONDS if self._unsaved else None
                )
            except queue.Empty:
                self._save()
                continue
            result = self._fetched(question, source_hash, match)
            if result is not None:
                self._keep(result)
                try:
                    then(result)
                except Exception:  # the thread must live on
                    _log.exception("an answer of %s could not be used", self.url)

    def _fetched(self, question: Question, source_hash: str, match: str) -> Result | None:
        """The server's answer, asked for until it gives one; None where it has none."""
        while True:
            try:
                result = self._answer(question, source_hash, match)
                self._recovered()
                return result
            except (Unavailable, ValueError, RecursionError) as error:
                self._failed(error)
                if self._unsaved:
                    self._save()
                time.sleep(min(_FIRST_PAUSE * 2 ** (self._failures - 1), _LONGEST_PAUSE))

    def _answer(self, question: Question, source_hash: str, match: str) -> Result | None:
        """Raises `Unavailable` or `ValueError` where the server does not answer or answers garbage."""
        from tilewise.client import Client

        kernel, dims, dtype, device = question.kernel, question.dims, question.dtype, question.device
        with Client(self.url, token=read_settings().token, timeout=TIMEOUT_SECONDS) as client:
            try:
                body = client.lookup(kernel, dims, dtype=dtype, device=device, match=cast("HowFar", match))
            except NotFound:
                return None
            except (UsageError, Forbidden) as error:
                _log.warning("%s refuses to look %s up: %s", self.url, kernel, error)
                return None
        return _checked(body, question, source_hash)

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
        return list(Winners(path).results())
    except BadImport:  # none yet, or damaged: it is made anew
        return []


def _checked(body: Any, question: Question, source_hash: str) -> Result | None:
    """The answer as a result; None for one without a config or of another source; raises `ValueError` for garbage."""
    result = result_from_json(body)
    if result.scope.question != question:
        raise ValueError("its answer is to another question")
    return result if result.scope.source_hash == source_hash else None
