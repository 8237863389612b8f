"""Reports on winners. Each is made once, since it takes seconds of a core."""

from __future__ import annotations

import threading
from collections import OrderedDict

from tilewise.db.records import Scope, Trial
from tilewise.errors import Unavailable
from tilewise.tuner.explain.report import Report, report

__all__ = ["Explanations"]

_MOST_KEPT = 256
_MOST_BYTES = 64 << 20


class Explanations:
    """The last reports on winners in the store at `url`, and why there is none of others. Call it from any thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._kept: OrderedDict[tuple[str, str], Report | str] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def known(self, scope: Scope, winner: Trial) -> Report | str | None:
        """Return a report that was made, or why it cannot be; None if nobody has tried. This waits for nothing."""
        with self._lock:
            found = self._kept.get(key := (scope.key, winner.config_key))
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def make(self, scope: Scope, winner: Trial) -> Report | str:
        """Return the report, or why it cannot be made. Only one call at a time may be under way."""
        found = self.known(scope, winner)
        if found is None:
            try:
                found = report(self._url, scope, winner.config)
            except Unavailable as error:
                found = str(error)
            self._keep((scope.key, winner.config_key), found)
        return found

    def _keep(self, key: tuple[str, str], found: Report | str) -> None:
        with self._lock:
            self._kept[key] = found
            self._size += _size(found)
            while len(self._kept) > _MOST_KEPT or (self._size > _MOST_BYTES and len(self._kept) > 1):
                self._size -= _size(self._kept.popitem(last=False)[1])


def _size(found: Report | str) -> int:
    return found.size if isinstance(found, Report) else len(found)
