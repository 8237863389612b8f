"""Look-ups of a service with and without hostile readers beside them, and imports of large files."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.header import service_header
from tilewise.benchmarks.common.many import fill
from tilewise.benchmarks.service.imports import bench_imports
from tilewise.benchmarks.service.readers import STORED
from tilewise.benchmarks.service.serve import serving
from tilewise.errors import Unavailable

__all__ = ["bench_hostile"]

_LIGHT = 4
"""Readers of stored problems."""

_EARLY_SECONDS = 2.0
"""Time that hostile readers have before the others begin."""


def bench_hostile(
    clients: Sequence[int], half_open: int, *, files: int, seconds: int, problems: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Run the benchmark and return its JSON: a row for each number of hostile readers, and one for half-open requests.

    The server may have `files` open. An export of `problems` is imported. Raises `Unavailable` if this process may not
    have enough files for the connections.
    """
    _allow_files(half_open + 100)
    with tempfile.TemporaryDirectory(prefix="tilewise-hostile-") as folder:
        url = f"sqlite:///{Path(folder) / 'tilewise.db'}"
        fill(url, STORED)
        rows = []
        for kind, count in [("hostile", 0), *(("hostile", count) for count in clients), ("half-open", half_open)]:
            say(f"{count} {kind} readers")
            with serving(url, files=files) as (address, _, _):
                rows.append({"kind": kind, "readers": count, **_row(address, kind, count, seconds)})
        imports = bench_imports(Path(folder), problems, say)
    words = " ".join(f"--clients {count}" for count in clients)
    options = f"--half-open {half_open} --files {files} --seconds {seconds} --problems {problems}"
    header = service_header(f"tilewise bench hostile {words} {options}")
    return {**header, "light_readers": _LIGHT, "rows": rows, "imports": imports}


def _row(address: str, kind: str, count: int, seconds: int) -> dict[str, Any]:
    first = _readers(address, _EARLY_SECONDS, "light", 1)  # what is slow only once belongs to no row
    first.communicate()
    others = _readers(address, seconds + 2 * _EARLY_SECONDS, kind, count)
    try:
        _readers(address, _EARLY_SECONDS, "light", 1).communicate()
        light = _result(_readers(address, float(seconds), "light", _LIGHT))
        return {**light, "others": _result(others)}
    finally:
        others.kill()


def _readers(address: str, seconds: float, kind: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tilewise.benchmarks.service.readers", address, str(seconds), kind, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _result(process: subprocess.Popen[str]) -> dict[str, Any]:
    printed, _ = process.communicate()
    if process.returncode:
        raise Unavailable(f"the benchmark's readers ended with exit code {process.returncode}")
    result: dict[str, Any] = json.loads(printed)
    return result


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard < count:
            raise Unavailable(f"this process may open {hard} files; the benchmark needs {count}: raise `ulimit -n`")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
