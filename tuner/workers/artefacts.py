"""Compiled artefacts that hosts share through a database: what one has compiled, the others fetch.

One process at a time compiles an artefact; the others wait for it. A process that ends while it compiles gives no
further sign of life, and another takes over. No clock of a host decides anything: each waiter counts for itself.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tilewise.errors import NoSpace, ReadOnly, StoreError, UsageError
from tilewise.settings import read_settings
from tilewise.tuner.workers.farm import WAIT_SECONDS

if TYPE_CHECKING:  # every compile process would import SQLAlchemy, shared artefacts or not
    from tilewise.db.artefacts import Artefacts, Claim

__all__ = ["LOST_SECONDS", "SharedArtefacts", "artefacts_key", "shared_artefacts", "waiting_seconds"]

LOST_SECONDS = 30.0
"""Time without a sign of life after which a process that compiles counts as lost."""

_BEAT_SECONDS = 2.0
_POLL_SECONDS = 0.1
_WAIT_SECONDS = 180.0
"""Longest wait for another process: a compiler's time limit, its loss, and some more. After it, a process compiles by
itself."""

_PATIENCE_SECONDS = 60.0
"""Time for which a database that does not answer is asked again."""

_Answer = TypeVar("_Answer")


def shared_artefacts() -> SharedArtefacts | None:
    """Return the artefacts that this host shares, None if it shares none. Raises `UsageError` and `StoreError`."""
    settings = read_settings()
    if settings.artefacts_url is None:
        return None
    return _opened(settings.artefacts_url, artefacts_key(settings.kernel_key_file))


def artefacts_key(file: Path | None) -> Path:
    """Return the file of the key by which artefacts are sealed. Raises `UsageError` if none is named."""
    if file is None:
        raise UsageError(
            "TILEWISE_ARTEFACTS shares compiled code; name the operator's key by which it is sealed with "
            "TILEWISE_KERNEL_KEY, or unset it"
        )
    return file


def waiting_seconds() -> float:
    """Return the time that a compilation may take longer here because other hosts are waited for."""
    settings = read_settings()
    shared = _WAIT_SECONDS + _PATIENCE_SECONDS if settings.artefacts_url else 0.0
    return shared + (WAIT_SECONDS if settings.farm else 0.0)


@cache
def _opened(url: str, key_file: Path) -> SharedArtefacts:
    """Open a database once in a process, and leave it open."""
    from tilewise.db.artefacts import Artefacts
    from tilewise.db.sql.sql_store import open_store
    from tilewise.kernels.signing import read_key

    secret = read_key(key_file)
    return SharedArtefacts(Artefacts(_insist(lambda: open_store(url, create=True)).database, secret))


class SharedArtefacts:
    """The artefacts of a database, for one process. `lost_seconds` replaces `LOST_SECONDS`."""

    def __init__(self, artefacts: Artefacts, *, lost_seconds: float = LOST_SECONDS) -> None:
        self._artefacts, self._lost_seconds = artefacts, lost_seconds
        self._owner = uuid.uuid4().hex
        self._claims: set[str] = set()
        self._beats = False
        self._lock = threading.Lock()

    def made(self, key: str, make: Callable[[], bytes | None]) -> bytes | None:
        """Return the artefact of a key, made by `make` if no host has made it; where that returns None, none is kept.

        Raises `StoreError` if the database does not answer, and what `make` raises.
        """
        if (content := self.fetch(key)) is not None:
            return content
        content = None
        try:
            content = make()
        finally:
            self.settle(key, content)
        return content

    def fetch(self, key: str) -> bytes | None:
        """Return an artefact, after a wait if another process makes it; or None, and then `settle` has to be called.

        The caller has the claim then, or has waited for too long. Raises `StoreError`.
        """
        give_up, seen, since = time.monotonic() + _WAIT_SECONDS, None, time.monotonic()
        while True:
            if (content := _insist(lambda: self._artefacts.get(key))) is not None:
                return content
            if _insist(lambda: self._artefacts.claim(key, self._owner)):
                return self._claimed(key)
            claim = _insist(lambda: self._artefacts.claimed(key))
            if claim != seen:
                seen, since = claim, time.monotonic()
            elif claim is not None and time.monotonic() - since > self._lost_seconds and self._take_over(key, claim):
                return self._claimed(key)
            if time.monotonic() > give_up:
                return None
            time.sleep(_POLL_SECONDS)

    def settle(self, key: str, content: bytes | None) -> None:
        """Keep what was made, if it is not too large, and end the claim."""
        from tilewise.db.artefacts import LARGEST

        with self._lock:
            self._claims.discard(key)
        if content is not None and len(content) <= LARGEST:
            _insist(lambda: self._artefacts.put(key, content, self._owner))
        else:
            _insist(lambda: self._artefacts.release(key, self._owner))

    def _take_over(self, key: str, lost: Claim) -> bool:
        return _insist(lambda: self._artefacts.take_over(key, lost, self._owner))

    def _claimed(self, key: str) -> bytes | None:
        """Begin to give signs of life; return the artefact if its maker has ended just before the claim."""
        with self._lock:
            self._claims.add(key)
            if not self._beats:
                self._beats = True
                threading.Thread(target=self._beat, daemon=True, name="artefacts").start()
        if (content := _insist(lambda: self._artefacts.get(key))) is not None:
            self.settle(key, None)
        return content

    def _beat(self) -> None:
        """Give a sign of life for each claim until there is none."""
        while True:
            time.sleep(_BEAT_SECONDS)
            with self._lock:
                claims = list(self._claims)
                self._beats = bool(claims)
            if not claims:
                return
            for key in claims:
                with suppress(StoreError):  # the next sign may come through
                    self._artefacts.beat(key, self._owner)


def _insist(act: Callable[[], _Answer]) -> _Answer:
    """Act, again and again for a minute while the database fails."""
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return act()
        except (NoSpace, ReadOnly):
            raise
        except StoreError:
            if time.monotonic() > give_up:
                raise
            time.sleep(1.0)
