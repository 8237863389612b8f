"""Memory and time of imports through the service: of an export of many problems, and of a file made to fill memory."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2

from tilewise.benchmarks.common.many import fill
from tilewise.benchmarks.service.serve import serving
from tilewise.db.exchange.native.export_file import stream_native
from tilewise.db.sql.sql_store import open_store
from tilewise.db.tokens import Right, Tokens
from tilewise.errors import Unavailable

__all__ = ["bench_imports", "descendants"]

_HOSTILE_ENTRIES = 6
_EMPTY_LISTS = 3_400_000
"""Of one entry: its 10 MB of text take 200 MB as objects."""

_PLAUSIBLE_US = 1e6
"""Long enough to move the bytes of any stored shape; a shorter time would be refused."""

_SAMPLE_SECONDS = 0.1
_PATIENCE_SECONDS = 3600.0


def bench_imports(folder: Path, problems: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return a row for each of the two files."""
    exported, hostile = folder / "export.json", folder / "hostile.json"
    say(f"exporting {problems} problems")
    stored = f"sqlite:///{folder / 'stored.db'}"
    fill(stored, problems, time_us=_PLAUSIBLE_US)
    with open_store(stored) as store, exported.open("wb") as file:
        file.writelines(stream_native(store, store.scopes()))
    _write_hostile(hostile)
    rows = []
    for name, file_, expected in (("an export", exported, 200), ("empty lists", hostile, 400)):
        say(f"importing {file_.stat().st_size >> 20} MiB of {name}")
        row = _row(f"sqlite:///{folder / f'{file_.stem}.db'}", file_, expected)
        rows.append({"file": name, "mb": round(file_.stat().st_size / 1e6, 1), **row})
    return rows


def _row(url: str, file: Path, expected: int) -> dict[str, Any]:
    with open_store(url, create=True) as store:
        token = Tokens(store.database).create("bench", Right.ADMIN)
    with serving(url) as (address, process, _), _watched(process.pid) as largest:
        began = time.monotonic()
        with file.open("rb") as content:
            headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
            response = httpx2.post(f"{address}/v1/import", content=content, headers=headers, timeout=_PATIENCE_SECONDS)
        seconds = time.monotonic() - began
    if response.status_code != expected:
        raise Unavailable(f"the import answered {response.status_code}: {response.text[:200]}")
    body = response.json()
    return {
        "status": response.status_code,
        "seconds": round(seconds, 1),
        "added": body.get("added", 0),
        "server_mb": round(largest["server"] / 1e6),
        "process_mb": round(largest["process"] / 1e6),
    }


def _write_hostile(file: Path) -> None:
    entry = '{"facts":[' + ",".join(["[]"] * _EMPTY_LISTS) + "]}"
    entries = ",".join([entry] * _HOSTILE_ENTRIES)
    checksum = hashlib.sha256(f"[{entries}]".encode()).hexdigest()
    file.write_text(f'{{"format":"tilewise","version":1,"sha256":"{checksum}","entries":[{entries}]}}')


@contextmanager
def _watched(server: int) -> Iterator[dict[str, int]]:
    """Yield the largest resident memory so far, in bytes: the server's, and that of any process that it has started."""
    largest, over = {"server": 0, "process": 0}, threading.Event()

    def watch() -> None:
        while not over.wait(_SAMPLE_SECONDS):
            largest["server"] = max(largest["server"], _resident(server))
            largest["process"] = max(largest["process"], *(_resident(pid) for pid in descendants(server)), 0)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield largest
    finally:
        over.set()
        watching.join()


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes below one, of which some may have ended."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it has ended meanwhile
            for child in task.read_text().split():
                yield int(child)
                yield from descendants(int(child))


def _resident(pid: int) -> int:
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
