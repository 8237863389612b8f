"""The table of all trials: filtered, sorted, in pages, and as a CSV file. The page's address holds all of it."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from tilewise.api.pages.problem.landscape import ABSENT, Landscape
from tilewise.db.records import Status
from tilewise.errors import UsageError

__all__ = ["PAGE_SIZE", "Column", "TableRow", "TrialQuery", "TrialTable", "csv_lines", "trial_table"]

PAGE_SIZE = 100
_TIME, _EVALUATION, _STATUS = "time", "evaluation", "status"
_MOST_PERCENT = 1e6
_NUMBER = re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class TrialQuery:
    """The trials to show. `within` keeps those at most that many percent slower than the fastest; `sort` is `time`,
    `evaluation`, `status` or a parameter, after a minus for the reverse order."""

    status: str = ""
    within: float | None = None
    sort: str = _TIME
    first: int = 0

    @classmethod
    def of(cls, given: Mapping[str, str]) -> TrialQuery:
        """Read a page's query. Raises `UsageError`."""
        status = given.get("status", "")
        if status and status not in set(Status):
            raise UsageError(f"status is {status[:30]!r}; expected one of {', '.join(Status)}")
        return cls(status, _within(given.get("within", "")), given.get("sort") or _TIME, _first(given.get("first", "")))

    @property
    def key(self) -> str:
        return self.sort.removeprefix("-")

    def text(self) -> str:
        """Return the query as an address holds it, without what it would be anyway."""
        shown = {
            "status": self.status,
            "within": "" if self.within is None else f"{self.within:g}",
            "sort": "" if self.sort == _TIME else self.sort,
            "first": str(self.first) if self.first else "",
        }
        return urlencode({name: value for name, value in shown.items() if value})

    def sorted_by(self, key: str) -> TrialQuery:
        """Return the query of a click on a column: its order, or the reverse one if it has that already."""
        return replace(self, sort=f"-{key}" if self.sort == key else key, first=0)


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading, what to sort by for it, the query of a click on it, and its order if it is sorted."""

    title: str
    key: str
    query: str
    order: str
    number: bool


@dataclass(frozen=True, slots=True)
class TableRow:
    """A trial in the table. `values` are those of its parameters."""

    trial: int
    time_us: float | None
    ratio: float | None
    status: str
    reason: str
    verified: bool
    ordinal: int | None
    values: Sequence[str]


@dataclass(frozen=True, slots=True)
class TrialTable:
    """A page of the table. `matching` counts the trials on all pages, `within_best` those that `within` 20 keeps."""

    query: TrialQuery
    columns: Sequence[Column]
    rows: Sequence[TableRow]
    matching: int
    total: int
    counts: Mapping[str, int]
    before: str | None
    after: str | None


def trial_table(landscape: Landscape, query: TrialQuery) -> TrialTable:
    """Return a page of the trials that match. Raises `UsageError` if there is no such parameter to sort by."""
    found = _matching(landscape, query)
    last = query.first + PAGE_SIZE
    counts: dict[str, int] = {}
    for status in landscape.statuses:
        counts[status] = counts.get(status, 0) + 1
    return TrialTable(
        query=query,
        columns=_columns(landscape, query),
        rows=[_row(landscape, trial, landscape.best_us) for trial in found[query.first : last]],
        matching=len(found),
        total=len(landscape),
        counts=counts,
        before=replace(query, first=max(0, query.first - PAGE_SIZE)).text() if query.first else None,
        after=replace(query, first=last).text() if last < len(found) else None,
    )


def csv_lines(landscape: Landscape, query: TrialQuery) -> Iterator[str]:
    """Yield the matching trials of all pages as CSV with a line of names, some hundred lines at a time."""
    names = [each.name for each in landscape.parameters]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["time_us", "status", "verified", "evaluation", "reason", *names])
    for number, trial in enumerate(_matching(landscape, query), 1):
        row = _row(landscape, trial, None)
        known = [row.time_us, row.status, row.verified, row.ordinal, row.reason]
        writer.writerow(["" if value is None else _cell(value) for value in (*known, *row.values)])
        if number % 500 == 0:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def _cell(value: object) -> object:
    """Return a text that no spreadsheet takes for a formula: stored texts come from anywhere."""
    risky = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if risky and not _NUMBER.fullmatch(str(value)) else value


def _matching(landscape: Landscape, query: TrialQuery) -> list[int]:
    limit = math.inf
    if query.within is not None:
        limit = (landscape.best_us or 0.0) * (1 + query.within / 100)
    found = [
        trial
        for trial, (status, time_us) in enumerate(zip(landscape.statuses, landscape.times_us, strict=True))
        if query.status in ("", status) and (query.within is None or (time_us is not None and time_us <= limit))
    ]
    keys = _sort_keys(landscape, query.key)
    found.sort(key=keys.__getitem__, reverse=query.sort.startswith("-"))
    return found


def _sort_keys(landscape: Landscape, key: str) -> Sequence[float | str]:
    """Return what each trial is sorted by; unknown times and evaluations count as the largest."""
    if key == _TIME:
        return [math.inf if time_us is None else time_us for time_us in landscape.times_us]
    if key == _EVALUATION:
        return [math.inf if ordinal is None else ordinal for ordinal in landscape.ordinals]
    if key == _STATUS:
        return landscape.statuses
    try:
        return landscape.parameter(key).codes
    except KeyError:
        raise UsageError(f"sort is {key[:30]!r}; expected time, evaluation, status or a parameter") from None


def _columns(landscape: Landscape, query: TrialQuery) -> list[Column]:
    titles = [("us", _TIME, True), ("Status", _STATUS, False), ("Evaluation", _EVALUATION, True)]
    titles += [(each.name, each.name, True) for each in landscape.parameters]
    return [
        Column(title, key, query.sorted_by(key).text(), _order(query, key), number) for title, key, number in titles
    ]


def _order(query: TrialQuery, key: str) -> str:
    if query.key != key:
        return "none"
    return "descending" if query.sort.startswith("-") else "ascending"


def _row(landscape: Landscape, trial: int, best: float | None) -> TableRow:
    time_us = landscape.times_us[trial]
    return TableRow(
        trial=trial,
        time_us=time_us,
        ratio=time_us / best if time_us and best else None,
        status=landscape.statuses[trial],
        reason=landscape.reasons[trial],
        verified=landscape.verified[trial],
        ordinal=landscape.ordinals[trial],
        values=[
            "" if each.codes[trial] == ABSENT else str(each.values[each.codes[trial]]) for each in landscape.parameters
        ],
    )


def _within(text: str) -> float | None:
    if not text:
        return None
    try:
        percent = float(text)
    except ValueError:
        percent = math.nan
    if not 0 <= percent <= _MOST_PERCENT:
        raise UsageError(f"within is {text[:30]!r}; expected percent above the best time, such as 20")
    return percent


def _first(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError(f"first is {text[:30]!r}; expected the number of trials to skip")
    return int(text)
