"""The limits that a server counts over all of its processes."""

from __future__ import annotations

from tilewise.api.service.buckets import Buckets
from tilewise.api.service.places import Places

__all__ = ["Limits"]

_FAILURES_A_MINUTE = 60
_STREAM_SECONDS = 10.0
"""Time after which to ask again for an event stream or an export, if there are too many."""


class Limits:
    """The counts, made before the processes are forked, which then share them."""

    def __init__(self, writes_a_minute: int) -> None:
        self.writes = Buckets(writes_a_minute)
        self.failures = Buckets(_FAILURES_A_MINUTE)
        self.streams = Places(50, 20, "event streams", _STREAM_SECONDS)
        """Event streams of token holders, for whom the others leave places."""
        self.anonymous_streams = Places(150, 20, "event streams", _STREAM_SECONDS)
        self.explanations = Places(16, 8, "explanations", _STREAM_SECONDS)
        self.exports = Places(32, 8, "exports", _STREAM_SECONDS)
        self.imports = Places(4, 4, "large imports", 30.0)
        """Imports whose files take room on the disk while they wait."""
        self.small_imports = Places(64, 64, "imports", _STREAM_SECONDS)
        self.work = Places(256, 64, "requests of workers", 1.0)

    def forget(self, process: int) -> None:
        """Free what a process held when it ended."""
        streams, imports = (self.streams, self.anonymous_streams), (self.imports, self.small_imports)
        for places in (*streams, self.explanations, self.exports, *imports, self.work):
            places.forget(process)
