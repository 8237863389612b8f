"""Which processes are alive, from their signs of life: a count that each raises in the database.

None of this depends on the wall clock, nor on clocks of other hosts.
"""

from __future__ import annotations

import time
from collections.abc import Hashable

from tilewise.api.jobs.processes import is_gone

__all__ = ["LEASE_SECONDS", "Liveness"]

LEASE_SECONDS = 60.0
"""Time without a sign of life after which a process counts as lost."""


class Liveness:
    """Signs of life that one process has seen of others."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, tuple[Hashable, float]] = {}

    def is_lost(self, key: Hashable, owner: str, sign: Hashable) -> bool:
        """Return whether a process was lost: it has ended, or its sign has not changed for `LEASE_SECONDS` here."""
        if is_gone(owner):
            return True
        seen, since = self._seen.get(key, (None, 0.0))
        if seen != sign:
            self._seen[key] = sign, time.monotonic()
            return False
        return time.monotonic() - since > LEASE_SECONDS

    def drop(self, key: Hashable) -> None:
        self._seen.pop(key, None)
