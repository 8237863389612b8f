"""Records of Ascend's profilers: reading the profiler's file, and splitting the records into runs."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

__all__ = ["ClockError", "KernelRecord", "read_kernel_details", "run_times_us"]

NAME_LENGTH = 49
"""Characters that triton-ascend keeps of a kernel's name (`KERNEL_NAME_MAX_LEN` of its compiler.py)."""

NAME, START, DURATION = "Name", "Start Time(us)", "Duration(us)"
"""Columns of `kernel_details.csv` in every release. Others vary: `Block Dim` became `Block Num`, and `Step Id` and the
shapes are optional."""


class ClockError(RuntimeError):
    """A clock's records that do not match the kernels that ran; the message is one line."""


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One kernel that ran: its reported name, its start in the clock's own unit, and its duration in microseconds."""

    name: str
    start: Decimal
    us: float


def read_kernel_details(folder: Path) -> list[KernelRecord]:
    """Return the kernels of the only `kernel_details.csv` under `folder`, sorted by start; raises `ClockError`."""
    files = sorted(folder.rglob("kernel_details.csv"))
    if len(files) != 1:
        raise ClockError(f"the profiler wrote {len(files)} kernel_details.csv files; one process on one NPU writes one")
    text = files[0].read_text(encoding="utf-8-sig")
    if not text.endswith("\n"):
        raise ClockError("the profiler's kernel_details.csv is cut off in its last line")
    rows = csv.DictReader(io.StringIO(text, newline=""))
    if missing := [column for column in (NAME, START, DURATION) if column not in (rows.fieldnames or ())]:
        raise ClockError(f"the profiler's kernel_details.csv has no column {', '.join(missing)}")
    return sorted((_record(row, line) for line, row in enumerate(rows, start=2)), key=lambda record: record.start)


def run_times_us(
    records: Sequence[KernelRecord], jobs: Sequence[Sequence[str]], orders: Sequence[Sequence[int]]
) -> list[list[float]]:
    """Return microseconds by job and round.

    A round runs each job once, in its order from `orders`, and a job launches its kernel functions in order. `records`
    are sorted by time and may hold other kernels, which are ignored. Raises `ClockError` if the records do not match
    the launches.
    """
    names = list(dict.fromkeys(name for kernels in jobs for name in kernels))
    ours = [record for record in records if any(_is_kernel(record.name, name) for name in names)]
    wanted = [name for order in orders for job in order for name in jobs[job]]
    if len(ours) != len(wanted):
        raise ClockError(f"{len(ours)} runs of {', '.join(names)} were recorded, {len(wanted)} were made")
    if not all(_is_kernel(record.name, name) for record, name in zip(ours, wanted, strict=True)):
        raise ClockError(f"{', '.join(names)} were recorded in another order than they were launched")
    left = iter(ours)
    times: list[list[float]] = [[] for _ in jobs]
    for order in orders:
        for job in order:
            times[job].append(sum(next(left).us for _ in jobs[job]))
    return times


def _record(row: dict[str, str | None], line: int) -> KernelRecord:
    """Parse a row. Its numbers may end in a tab, which keeps spreadsheets from rounding them."""
    try:
        name, start, duration = ((row[column] or "").strip() for column in (NAME, START, DURATION))
        return KernelRecord(name, Decimal(start), float(duration))
    except (InvalidOperation, ValueError) as error:
        raise ClockError(f"line {line} of the profiler's kernel_details.csv has no time") from error


def _is_kernel(name: str, kernel: str) -> bool:
    """Return whether `name` is how the function `kernel` is reported.

    triton-ascend reports the end of the function's name; CANN may add a suffix such as `_mix_aiv`.
    """
    reported = kernel[-NAME_LENGTH:]
    return name in (kernel, reported) or name.startswith(f"{reported}_mix")
