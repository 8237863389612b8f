"""The tables of docs/service.md, from the JSON of `tilewise bench serve`, `hostile`, `memory` and `soak`.

`python -m tilewise.benchmarks.service.service_report docs` writes them; a test checks that they are up to date.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.tables import markdown, placed

__all__ = ["SOAKS", "aims", "filled", "single_shares"]

SOAKS = ("soak-sqlite", "soak-postgresql")
_SOAKED = [
    "database",
    "kills: server, jobs",
    "look-ups",
    "writes",
    "exports",
    "jobs",
    "slowest: look-up, write, export",
]
_SERVED = ["stored problems", "look-ups per second", "share of hello's", "p99 (hello's), ms", "first answer, s"]
_UNSEEN = ["first-time look-ups per second", "share of hello's", "p50, p99 (hello's), ms"]
_LESS_HOT = ["nearest, one at a time, median ms", "first nearest, first portfolio (one request each), s"]
_HOSTILE = ["beside", "look-ups: p50, p99, slowest, ms", "slowest /readyz, ms"]
_IMPORTED = ["file", "MB", "answer", "seconds", "memory: server, its process, MB"]
_TAKEN = ["workers", "at the start: processes, MB", "later: processes, MB", "the largest, MB"]
_AT_ONCE = ("nearest_at_once_s", "portfolio_at_once_s")
_RATIO, _P99_MS = 0.30, 25
_MEMORY = "memory: first answer, later, MB"


def filled(page: str, results: Path) -> str:
    """Return the page with its tables up to date; `results` is the folder of recorded results."""
    names = ("serve", "hostile", "memory", *SOAKS)
    served, hostile, memory, *soaked = (json.loads((results / f"{name}.json").read_text()) for name in names)
    rows = served["rows"]
    return placed(
        page,
        {
            "soak": markdown([*_SOAKED, "memory"], [_soak(body) for body in soaked]),
            "about": _about(served),
            "rounds": _rounds(rows, served["command"]),
            "serve": markdown([*_SERVED, _MEMORY], [_served(row) for row in rows]),
            "unseen": markdown([_SERVED[0], *_UNSEEN, *_LESS_HOT], [_less_hot(row) for row in rows]),
            "aims": f"Aims for first-time look-ups: {aims(rows[-1])}.",
            "hostile": f"{_hostile_about(hostile)}\n\n{markdown(_HOSTILE, [_beside(row) for row in hostile['rows']])}",
            "memory": f"{_memory_about(memory)}\n\n{markdown(_TAKEN, [_taken(row) for row in memory['rows']])}",
            "imports": markdown(_IMPORTED, [_imported(row) for row in hostile["imports"]]),
            "export": _export([row for row in rows if "export" in row][-1]),
        },
    )


def _soak(body: Mapping[str, Any]) -> list[str]:
    kills, requests, slowest, memory = (
        body[key] for key in ("kills", "requests", "slowest_answer_s", "server_memory_mb")
    )
    return [
        body["database"],
        f"{kills['server']}, {kills['job']}",
        *(f"{requests[name]}" for name in ("look_up", "write", "export")),
        f"{body['jobs_done']}",
        f"{slowest['look_up']:.1f} s, {slowest['write']:.1f} s, {slowest['export']:.1f} s",
        f"{memory['largest']} MB, x{memory['growth_of_last_life']:.2f}",
    ]


def _served(row: Mapping[str, Any]) -> list[str]:
    return [
        _power(row["problems"]),
        f"{row['per_second']}",
        f"{row['ratio']:.2f}",
        f"{row['p99_ms']:.1f} ({row['hello_p99_ms']:.1f})",
        f"{row['first_answer_s']:.2f}",
        f"{row['memory_mb']['first_answer']}, {row['memory_mb']['after_all']}",
    ]


def _less_hot(row: Mapping[str, Any]) -> list[str]:
    return [
        _power(row["problems"]),
        f"{row['unseen_per_second']}",
        f"{row['unseen_ratio']:.2f}",
        f"{row['unseen_p50_ms']:.1f}, {row['unseen_p99_ms']:.1f} ({row['unseen_hello_p99_ms']:.1f})",
        f"{row['nearest_p50_ms']:.1f}",
        ", ".join(f"{row[name]:.2f}" for name in _AT_ONCE),
    ]


def _hostile_about(body: Mapping[str, Any]) -> str:
    return (
        f"{body['light_readers']} readers look up stored problems one after the other, all on one machine: "
        f"{body['machine']}, Python {body['versions']['python']}, {body['date'][:10]} "
        "([results](results/hostile.json))."
    )


def _beside(row: Mapping[str, Any]) -> list[str]:
    what = f"{row['readers']} {'hostile readers' if row['kind'] == 'hostile' else 'half-open requests'}"
    return [
        what if row["readers"] else "nobody",
        f"{row['p50_ms']:.1f}, {row['p99_ms']:.1f}, {row['slowest_ms']:.1f}",
        f"{row['readyz_slowest_ms']:.0f}",
    ]


def _memory_about(body: Mapping[str, Any]) -> str:
    return (
        f"{body['machine']}, Python {body['versions']['python']}, {body['date'][:10]} ([results](results/memory.json))."
    )


def _taken(row: Mapping[str, Any]) -> list[str]:
    figures = (f"{row[when]['processes']}, {row[when]['all_mb']}" for when in ("idle", "asked"))
    return [f"{row['workers']}", *figures, f"{row['asked']['largest_mb']}"]


def _imported(row: Mapping[str, Any]) -> list[str]:
    figures = f"{row['mb']:.0f}", f"{row['status']}", f"{row['seconds']:.0f}"
    return [row["file"], *figures, f"{row['server_mb']}, {row['process_mb']}"]


def aims(row: Mapping[str, Any]) -> str:
    """Return the aims for first-time look-ups and how far a database of this row is from them."""
    ratio, p99 = row["unseen_ratio"], row["unseen_p99_ms"]
    return (
        f"at {_power(row['problems'])} problems {_RATIO:.2f} of hello's, {'met' if ratio >= _RATIO else 'missed'} by "
        f"{abs(ratio - _RATIO):.2f}, and a p99 under {_P99_MS} ms, {'met' if p99 < _P99_MS else 'missed'} by "
        f"{abs(p99 - _P99_MS):.0f} ms, with hello's own at {row['unseen_hello_p99_ms']:.0f} ms"
    )


def _about(body: Mapping[str, Any]) -> str:
    return (
        "Exact look-ups against a bare Starlette hello in the same run: one worker, "
        f"{body['connections']} connections, {body['machine']}, "
        f"Python {body['versions']['python']}, {body['date'][:10]} ([results](results/serve.json))."
    )


def single_shares(rows: Sequence[Mapping[str, Any]], rounds: str) -> list[float]:
    """Return the share of hello's requests a second in each single round; `rounds` names the rounds of each row."""
    return [one["server"]["per_second"] / one["hello"]["per_second"] for row in rows for one in row[rounds]]


def _rounds(rows: Sequence[Mapping[str, Any]], command: str) -> str:
    again, first = (single_shares(rows, name) for name in ("rounds", "unseen_rounds"))
    [seconds] = re.findall(r"--seconds (\d+)", command)
    return (
        f"Rates and shares are medians of {len(rows[0]['rounds'])} rounds of {seconds} s, p99s the worst round's. "
        f"Single rounds gave {min(again):.2f} to {max(again):.2f} of hello's rate and, for first-time look-ups, "
        f"{min(first):.2f} to {max(first):.2f}: they differ more than the databases do."
    )


def _export(row: Mapping[str, Any]) -> str:
    made = row["export"]
    return (
        f"An export of {_power(row['problems'])} problems, {made['mb']:.0f} MB, took {made['seconds']:.0f} s, with the "
        f"first byte after {1e3 * made['first_byte_s']:.0f} ms and a peak of {made['memory_mb']} MB in the server, "
        f"which held {row['memory_mb']['hot']} MB before the first-time look-ups, whose answers it keeps."
    )


def _power(count: int) -> str:
    return f"10^{len(str(count)) - 1}"


if __name__ == "__main__":
    docs = Path(sys.argv[1])
    page = docs / "service.md"
    page.write_text(filled(page.read_text(), docs / "results"))
