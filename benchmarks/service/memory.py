"""Memory of a server's processes, by their number: when it has just started, and after questions of all kinds."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2

from tilewise.benchmarks.common.header import service_header
from tilewise.benchmarks.common.many import DEVICE, KERNEL, fill, shapes
from tilewise.benchmarks.service.imports import descendants
from tilewise.benchmarks.service.serve import serving
from tilewise.errors import Unavailable

__all__ = ["bench_memory"]

_MATCHES = ("exact", "nearest", "portfolio", "predicted")
_ASKED = 40
"""Questions of each kind, on connections of their own, so that all processes get some."""

_SETTLE_SECONDS = 5.0
_PATIENCE_SECONDS = 120.0


def bench_memory(workers: Sequence[int], problems: int, *, say: Callable[[str], None]) -> dict[str, Any]:
    """Run the benchmark and return its JSON, with a row for each number of workers.

    Raises `Unavailable` if the server fails.
    """
    rows = []
    with tempfile.TemporaryDirectory(prefix="tilewise-memory-") as folder:
        url = f"sqlite:///{Path(folder) / 'tilewise.db'}"
        fill(url, problems)
        for count in workers:
            say(f"{count} workers")
            with serving(url, workers=count) as (address, process, _):
                time.sleep(_SETTLE_SECONDS)
                idle = _taken(process.pid)
                _ask(address, problems)
                rows.append({"workers": count, "idle": idle, "asked": _taken(process.pid)})
    words = " ".join(f"--workers {count}" for count in workers)
    return {**service_header(f"tilewise bench memory {words} --problems {problems}"), "rows": rows}


def _ask(address: str, problems: int) -> None:
    stored = shapes(problems)
    for number in range(_ASKED):
        for match in _MATCHES:
            dims = stored[number % len(stored)] if match == "exact" else {"M": 1000 + number, "N": 8191}
            query: dict[str, str | int] = {**dims, "device": DEVICE, "match": match}
            answer = httpx2.get(f"{address}/v1/configs/{KERNEL}", params=query, timeout=_PATIENCE_SECONDS)
            if answer.status_code not in (200, 404):  # nothing is tuned near a question
                raise Unavailable(f"a look-up answered {answer.status_code}: {answer.text[:200]}")


def _taken(server: int) -> dict[str, Any]:
    """Return the number of processes, the memory of all, where what several share counts once, and the largest's."""
    found = []
    for pid in (server, *descendants(server)):
        with suppress(OSError):  # it has ended meanwhile
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines[1:]}
            found.append((sizes["Pss"], sizes["Rss"]))
    return {
        "processes": len(found),
        "all_mb": round(sum(shared for shared, _ in found) / 1e6),
        "largest_mb": round(max(resident for _, resident in found) / 1e6),
    }
