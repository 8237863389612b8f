"""A winner's explanation in the words and figures of a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from tilewise.tuner.explain.report import Report
from tilewise.tuner.tuning.evidence import PIPE_NAMES, ROW_NAMES

__all__ = ["Explanation", "Line", "Option", "Row", "explanation", "stored_facts"]

_LEAST_TRAFFIC_RATIO = 1.1
"""Ratio to the least traffic above which the reasons are shown."""
_LEAST_BUSY = 0.01
"""Share of the time from which a pipe is shown as busy on a line."""
_KIB_BITS = 8192


@dataclass(frozen=True, slots=True)
class Row:
    """A part of the time, and the whole busy time of the pipe that it is the exposed part of, if it is one."""

    name: str
    us: float
    share: float
    busy_us: float | None
    binds: bool


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the source. `share` is its part of the time; `pipes` and `findings` concern this line."""

    number: int
    text: str
    us: float
    share: float
    pipes: str
    findings: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Option:
    """A compile option of the winner, and the price of its other value: a ratio of times, or why that fails."""

    name: str
    value: str
    other: str
    ratio: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything in a report. `files` holds the source by file, `unplaced` the findings that belong to no line."""

    time_us: float
    between_us: Sequence[float]
    rows: Sequence[Row]
    path: Sequence[Mapping[str, Any]]
    files: Mapping[str, Sequence[Line]]
    findings: Sequence[Mapping[str, Any]]
    unplaced: Sequence[Mapping[str, Any]]
    options: Sequence[Option]
    variants: Sequence[str]
    suggestions: Sequence[Mapping[str, Any]]
    traffic: str
    reasons: Sequence[str]
    not_modelled: str
    has_trace: bool


def explanation(report: Report) -> Explanation:
    """Return a report as the page shows it."""
    body = report.explanation
    time_us, findings = body.get("modelled_us", body.get("time_us", 0.0)), body["findings"]
    files = _files(report, findings, time_us)
    placed = [finding for lines in files.values() for line in lines for finding in line.findings]
    moved = body.get("traffic")
    return Explanation(
        time_us=time_us,
        between_us=body.get("modelled_between_us", ()),
        rows=list(_rows(body, time_us)),
        path=[{**step, "name": PIPE_NAMES.get(step["pipe"], step["pipe"])} for step in body.get("critical_path", ())],
        files=files,
        findings=findings,
        unplaced=[finding for finding in findings if finding not in placed],
        options=[_option(each) for each in body.get("options", ())],
        variants=[each["says"] for each in body.get("variants", ())],
        suggestions=body.get("suggestions", ()),
        traffic=f"{moved['bytes'] / 1e6:.2f} MB, {moved['ratio']:.2f} times the least possible" if moved else "",
        reasons=moved["reasons"] if moved and moved["ratio"] > _LEAST_TRAFFIC_RATIO else (),
        not_modelled=body.get("not_modelled", ""),
        has_trace=bool(report.trace),
    )


def stored_facts(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return in words what a trial's facts say of its limits; imported facts may be of any kind."""
    found = {}
    if (bound := facts.get("bound_by")) and isinstance(bound, str):
        found["Bound by"] = PIPE_NAMES.get(bound, bound)[:60]
    bits = facts.get("on_chip_bits")
    used, room = (bits.get("required"), bits.get("available")) if isinstance(bits, dict) else (None, None)
    if _is_count(used) and _is_count(room) and room:
        found["On chip"] = f"{used / _KIB_BITS:.0f} of {room / _KIB_BITS:.0f} KiB ({used / room:.0%})"
    programs, cores, waves, tails = (facts.get(name) for name in ("programs", "cores", "waves", "tail_rows"))
    if _is_count(programs) and _is_count(cores) and _is_count(waves):
        found["Programs"] = f"{programs} on {cores} cores in {waves} wave{'' if waves == 1 else 's'}"
        if programs > cores > 0 and programs % cores:
            found["Programs"] += f"; the last wave has {programs % cores}"
    if _is_count(tails):
        found["Tails"] = f"{tails} tail row{'' if tails == 1 else 's'} a program" if tails else "none"
    if isinstance(buffered := facts.get("double_buffered"), bool):
        found["Double buffers"] = "yes" if buffered else "no"
    return found


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 2**63


def _rows(body: Mapping[str, Any], time_us: float) -> Iterator[Row]:
    busy = body.get("pipes_us", {})
    for name, us in body.get("rows_us", busy).items():
        if us or name in busy:
            whole = busy.get(name) if "rows_us" in body else None
            yield Row(ROW_NAMES.get(name, name), us, us / time_us, whole, name == body.get("bound_by"))


def _files(report: Report, findings: Sequence[Mapping[str, Any]], time_us: float) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in report.source:
        place = f"{line.file}:{line.number}"
        pipes = ", ".join(
            f"{PIPE_NAMES.get(pipe, pipe)} {us:.2f}"
            for pipe, us in (line.pipes_us or {}).items()
            if us >= _LEAST_BUSY * time_us
        )
        here = [finding for finding in findings if finding.get("line") == place]
        share = line.path_us / time_us if time_us else 0.0
        found.setdefault(line.file, []).append(Line(line.number, line.text, line.path_us, share, pipes, here))
    return found


def _option(option: Mapping[str, Any]) -> Option:
    ratio, reason = option.get("ratio"), option.get("reason", "")
    return Option(option["option"], str(option["value"]), str(option["other"]), ratio, reason)
