"""A cache of encoded answers that stays current when any process writes to the database.

Before it returns an answer, the cache asks the database whether anything was written since. It asks once per turn of
the event loop, after the requests of that turn have arrived, so an answer is never older than its request. SQLite
answers in microseconds. Other databases are polled by a background task every `POLL_SECONDS`, which is how old their
answers may be. A write drops the answers that it affects; the next request for one of them reads it again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from typing import Any, NamedTuple

from tilewise.db.sql.changes import Changes

__all__ = ["POLL_SECONDS", "Answer", "AnswerCache", "encode"]

POLL_SECONDS = 0.1

_MOST_SPELLINGS = 8
"""Limit of the targets kept for one question: its parameters can be given in any order and quoted in many ways."""

_OVERHEAD = 530
"""Bytes that an answer takes beyond its own text, measured with 10^5 answers."""


class Answer(NamedTuple):
    """A body with its entity tag."""

    body: bytes
    tag: bytes

    @classmethod
    def of(cls, body: bytes) -> Answer:
        return cls(body, b'"%s"' % hashlib.blake2b(body, digest_size=9).hexdigest().encode())

    def fits(self, asked: bytes) -> bool:
        """Return whether an `If-None-Match` header names this answer. Tags are quoted, so no tag contains another."""
        return self.tag in asked or asked.strip() == b"*"


def encode(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


class AnswerCache:
    """Answers by request target, in at most `most_bytes`; the oldest are dropped for new ones.

    Use it only from the event loop's thread. Entries are plain tuples of texts, which the garbage collector stops
    tracking: with an object for each of 10^5 answers, every full collection would hold up all requests for 50 ms.
    """

    def __init__(self, changes: Changes, most_bytes: int) -> None:
        self._changes, self._most_bytes = changes, most_bytes
        # A plain dict would search for its oldest entry past all that were dropped before.
        self._answers: OrderedDict[bytes, tuple[bytes, bytes, str]] = OrderedDict()
        self._targets: dict[str, tuple[bytes, ...]] = {}
        self._bytes = 0
        self._checked = False
        self._loop = asyncio.get_running_loop()
        self.generation = 0
        """Incremented whenever anything was written: earlier reads may be stale."""
        self._poller = None if changes.is_quick else self._loop.create_task(self._poll())

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def size(self) -> int:
        """Size of the answers in bytes."""
        return self._bytes

    def find(self, target: bytes) -> Answer | None:
        """Return the answer if it is still current. Raises `StoreError` if the database cannot tell."""
        if not self._checked:
            self.follow()
        found = self._answers.get(target)
        return Answer(found[0], found[1]) if found else None

    def follow(self) -> None:
        """Drop the answers affected by writes since the last call; at most once per turn of the event loop."""
        if self._checked or self._poller is not None:
            return
        changed = self._changes.poll()
        self._checked = True
        self._loop.call_soon(self._expire_check)
        if changed is None or changed:
            self._drop(changed)

    def keep(self, target: bytes, question: str, answer: Answer, *, read_at: int) -> None:
        """Keep an answer that was read at generation `read_at`, unless anything was written since."""
        if read_at != self.generation or target in self._answers:
            return
        if len(known := self._targets.get(question, ())) == _MOST_SPELLINGS:
            self._forget(known[0])
        self._answers[target] = (answer.body, answer.tag, question)
        self._targets[question] = (*self._targets.get(question, ()), target)
        self._bytes += _size(target, answer.body)
        while self._bytes > self._most_bytes:
            self._forget(next(iter(self._answers)))

    async def close(self) -> None:
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.gather(self._poller, return_exceptions=True)
        self._changes.close()

    async def catch_up(self) -> None:
        """Drop the answers affected by what this process has just written."""
        self._checked = False
        if self._poller is None:
            self.follow()
        else:
            self._drop(await asyncio.to_thread(self._changes.poll))

    def _expire_check(self) -> None:
        self._checked = False

    def _drop(self, questions: object) -> None:
        if questions == ():
            return
        self.generation += 1
        if questions is None:
            self._answers.clear()
            self._targets.clear()
            self._bytes = 0
            return
        assert isinstance(questions, list)
        for question in questions:
            for target in self._targets.pop(question, ()):
                body, *_ = self._answers.pop(target)
                self._bytes -= _size(target, body)

    def _forget(self, target: bytes) -> None:
        body, _, question = self._answers.pop(target)
        self._bytes -= _size(target, body)
        others = tuple(other for other in self._targets.pop(question) if other != target)
        if others:
            self._targets[question] = others

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                self._drop(await asyncio.to_thread(self._changes.poll))
            except Exception:  # the database is unavailable: any answer in memory may be stale
                self._drop(None)


def _size(target: bytes, body: bytes) -> int:
    return len(target) + len(body) + _OVERHEAD
