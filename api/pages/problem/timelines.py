"""Timelines of modelled winners: each is drawn once, one at a time, so that readers cannot keep the machine busy."""

from __future__ import annotations

import threading
from collections import OrderedDict

from tilewise.db.records import Scope, Trial
from tilewise.errors import Unavailable
from tilewise.tuner.explain.timeline import timeline

__all__ = ["Timelines"]

_KEPT = 64


class Timelines:
    """The last drawn timelines. Timelines that could not be drawn are remembered as well."""

    def __init__(self) -> None:
        self._drawn: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._one_at_a_time = threading.Lock()

    def svg(self, scope: Scope, winner: Trial) -> str:
        """Return a timeline as SVG, empty if it cannot be drawn. Call it from a thread: drawing takes 1 or 2 s."""
        key = scope.key, winner.config_key
        with self._one_at_a_time:
            if key not in self._drawn:
                self._drawn[key] = self._draw(scope, winner)
                while len(self._drawn) > _KEPT:
                    self._drawn.popitem(last=False)
            return self._drawn[key]

    def _draw(self, scope: Scope, winner: Trial) -> str:
        try:
            return timeline(scope, winner.config)
        except Unavailable:
            return ""
