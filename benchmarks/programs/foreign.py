"""Kernels of other people's libraries, tuned as their users would: by `tilewise tune` on a program that calls them.

Each is a call of [calls.py](calls.py) and a kernel that it launches, or one of Triton's tutorials, which no package
holds: a folder is given that does. What is not installed is told as such, and is no outcome.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.header import header
from tilewise.benchmarks.programs.cases import CASES, Case
from tilewise.tuner.workers.worker import family

__all__ = ["bench_programs", "outcome", "processor_seconds", "summary"]

_DEVICE = "model:Ascend910B4"
_TRIALS, _SECONDS = 3, 180
"""Trials of a tuning, and processor seconds after which it is ended, whatever else the machine does."""

_WAITED_SECONDS = 1800
"""Wall-clock seconds after which a tuning is ended."""

_LOOKED_SECONDS = 0.5
"""Interval between two looks at a tuning's processor time."""


def bench_programs(
    names: Sequence[str], *, progress: Callable[[str], None], tutorials: Path | None = None
) -> Iterator[dict[str, Any]]:
    """Tune the kernels of the calls whose names begin with one of `names`, in their order, or all, one after the other.

    Yields the results so far after each, as a whole run takes an hour. `tutorials` is the folder of Triton's.
    """
    chosen = [case for name in names for case in CASES if case.call.startswith(name)] if names else CASES
    programs = {case: _program(case, tutorials) for case in chosen}
    ready = {case: program for case, program in programs.items() if program is not None}
    command = " ".join(["tilewise bench programs", *(["--tutorials FOLDER"] if tutorials else []), *names])
    missing = sorted({case.package for case in programs.keys() - ready.keys()})

    def body() -> dict[str, Any]:
        limits = {"trials": _TRIALS, "processor_limit_s": _SECONDS}
        return {**header(command, "modelled", _DEVICE.partition(":")[2]), **limits, "not_installed": missing}

    rows: list[dict[str, Any]] = []
    for number, (case, program) in enumerate(ready.items(), 1):
        progress(f"{case.kernel}, {number} of {len(ready)}")
        rows.append(_row(case, *program))
        yield {**body(), "rows": rows, "not_reached": len(ready) - number, "summary": summary(rows)}
    if not rows:
        yield {**body(), "rows": rows, "not_reached": 0, "summary": summary(rows)}


def _program(case: Case, tutorials: Path | None) -> tuple[Path, list[str]] | None:
    """Return the program that launches a kernel with its arguments; None if it is not installed."""
    if case.module:
        return (
            (Path(__file__).with_name(case.program), [case.call])
            if importlib.util.find_spec(case.module) is not None
            else None
        )
    file = tutorials / f"{case.call.partition('/')[2]}.py" if tutorials else None
    return (file, []) if file and file.is_file() else None


def _row(case: Case, program: Path, arguments: Sequence[str]) -> dict[str, Any]:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        known = {"TILEWISE_DATA": folder, "TILEWISE_DB": f"sqlite:///{folder}/tiles.db"}
        words = ["tune", f"{program}:{case.kernel}", "--program", "--device", _DEVICE, "--trials", str(_TRIALS)]
        command = [sys.executable, "-m", "tilewise.cli", *words, "--json", "--", *arguments]
        (found, message), used = _tuning(command, {**os.environ, **known})
    seconds = {"seconds": round(time.monotonic() - started, 1), "processor_seconds": round(used, 1)}
    row = {"call": case.call, "kernel": case.kernel, "package": case.package, "version": _version(case.package)}
    return {**row, "outcome": found, **seconds, "message": message}


def _tuning(command: Sequence[str], environment: Mapping[str, str]) -> tuple[tuple[str, str], float]:
    """Run a tuning; return its outcome with the line of the refusal, and the processor seconds that it took."""
    latest, used = time.monotonic() + _WAITED_SECONDS, 0.0
    with tempfile.TemporaryFile("w+") as errors:
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment)
        try:
            while running.poll() is None:
                used = max(used, processor_seconds(running.pid))
                if used > _SECONDS:
                    return ("ended", f"not done in {_SECONDS} s of processor time"), used
                if time.monotonic() > latest:
                    return ("ended", f"not done in {_WAITED_SECONDS} s"), used
                time.sleep(_LOOKED_SECONDS)
        finally:
            running.kill()  # its workers end with it
            running.wait()
        errors.seek(0)
        return outcome(running.returncode, errors.read()), used


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process and of all that it has started, those that have ended included."""
    ticks = 0
    for each in family(pid):
        with suppress(OSError):  # it has ended meanwhile
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a checkout on the path, or tutorials
        return "unknown"


def outcome(code: int, errors: str) -> tuple[str, str]:
    """Return what became of a tuning, and the line of the refusal, empty if there is none.

    `tuned`; `captured` if no spec was inferred; `inferred` if no config ran correctly; `not captured`.
    """
    lines = [line.removeprefix("tilewise: ") for line in errors.splitlines() if line.startswith("tilewise: ")]
    message = re.sub(r"/\S+/", "", lines[-1]) if lines else ""
    if code == 0:
        return "tuned", ""
    if any(line.startswith("the spec of ") for line in lines):
        return "inferred", message
    return "not captured" if "launches no" in message or "ended before" in message else "captured", message


def summary(rows: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Return the number of kernels of each outcome."""
    found = [row["outcome"] for row in rows]
    return {"kernels": len(found), **{name: found.count(name) for name in sorted(set(found))}}
