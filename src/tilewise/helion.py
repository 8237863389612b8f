"""A remote cache for Helion's autotuner on a tilewise server, and an autotuner that also tells names and times.

    HELION_REMOTE_CACHE_BACKEND=tilewise.helion.RemoteCache HELION_AUTOTUNE_CACHE=RemoteAutotuneCache \\
    TILEWISE_HELION_SERVER=http://tiles.example:8300 TILEWISE_TOKEN=.. python program.py

Helion's own search fills the cache: nothing here times a config. A server that is away costs Helion a warning, after
which it goes on with its local cache. Writing needs a token with the right `submit`.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from helion.autotuner import RemoteAutotuneCache, RemoteCacheBackend
from helion.runtime.settings import default_autotuner_fn

from tilewise.client import Client
from tilewise.errors import NotFound, UsageError
from tilewise.settings import read_settings

__all__ = ["RemoteCache", "autotuner"]

_SECONDS = 5.0
"""Time that a request may take before Helion goes on without."""


class RemoteCache(RemoteCacheBackend):  # type: ignore[misc]
    """Helion's remote cache on the server that `TILEWISE_HELION_SERVER` names."""

    kernel = ""
    """The kernel that the next record is of, and `search_us`, the shortest time of its search, where they are known."""
    search_us: float | None = None

    def __init__(self) -> None:
        settings = read_settings()
        if settings.helion_server is None:
            raise UsageError(
                "TILEWISE_HELION_SERVER is not set; expected the URL of a server, such as http://tiles:8300"
            )
        self._client = Client(settings.helion_server, token=settings.token, timeout=_SECONDS)

    def get(self, key: str) -> str | None:
        """Return the record of a key; None if the server has none."""
        try:
            return json.dumps(self._client.helion_record(key)["record"])
        except NotFound:
            return None

    def put(self, key: str, data: str) -> None:
        """Keep a record under its key."""
        record = json.loads(data)
        self._client.keep_helion_record(
            key, record, record["key"]["fields"]["hardware"], kernel=self.kernel, search_us=self.search_us
        )

    def list(self, max_results: int | None = None) -> Iterable[str]:
        """Yield the server's records, the newest first, by which Helion begins other searches."""
        for found in itertools.islice(self._client.helion_records(), max_results):
            yield json.dumps(found["record"])


class _NamedCache(RemoteAutotuneCache):  # type: ignore[misc]
    """Helion's remote cache, whose records have the kernel's name and the time that the search saw."""

    def put(self, config: Any) -> None:
        if isinstance(self._backend, RemoteCache):
            self._backend.kernel = str(self.kernel.kernel.name)
            self._backend.search_us = _microseconds(self.autotuner, self.args)
        super().put(config)


def autotuner(bound_kernel: Any, args: Sequence[Any], **options: Any) -> Any:
    """Tune as Helion does by default, behind the remote cache: `@helion.kernel(autotuner_fn=autotuner)`.

    `HELION_AUTOTUNER` and the kernel's settings choose the search, as for Helion's own.
    """
    own = default_autotuner_fn(bound_kernel, args, **options)
    return _NamedCache(own.autotuner, autotuner_factory=own._autotuner_factory)


def _microseconds(search: Any, args: Any) -> float | None:
    """Return the shortest time of a search, which Helion has in ms; None where it counts in ratios or knows none."""
    best = search.best_perf_so_far
    relative = getattr(args, "relative_to", None) is not None
    return None if relative or not math.isfinite(best) or best <= 0 else best * 1000
