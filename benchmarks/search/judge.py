"""`tilewise bench judge`: the default search on landscapes that decided nothing about it.

Each landscape is tuned from nothing with the default budget, as a user would, once per seed. No test reads these
landscapes: what a test requires is tuned until it holds. The table of `landscapes/README.md` says which are judged.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.header import header
from tilewise.benchmarks.common.processes import processes
from tilewise.benchmarks.search.endings import Ending, summary, tune_recorded
from tilewise.benchmarks.search.search import clocks, load_recorded
from tilewise.errors import UsageError
from tilewise.tuner.tuning.loop import DEFAULT_TRIALS

__all__ = ["bench_judge", "landscape_files", "landscapes_used_for"]

_ROOT = Path(__file__).resolve().parents[2]
LANDSCAPES = _ROOT / "landscapes"
RECORD = _ROOT / "docs" / "results" / "judged.json"
"""The last judgement that is kept; `-o` writes it."""

MARGINS = (0.02, 0.05)
_SHARE = 0.95
"""Share of the seeds that need at most the second count of evaluations."""


def landscapes_used_for(use: str) -> list[Path]:
    """Return the recorded landscapes that `landscapes/README.md` says are used for `design` or `judged`."""
    table = (LANDSCAPES / "README.md").read_text()
    return [LANDSCAPES / f"{name}.json.gz" for name in re.findall(rf"^\| (\S+) \|.*\| {use} \|$", table, re.MULTILINE)]


def landscape_files(named: Sequence[str]) -> list[str]:
    """Return the files named, and those in the folders named; without names the judged landscapes.

    Raises `UsageError` for a folder without landscapes.
    """
    found: list[str] = []
    for name in named or map(str, landscapes_used_for("judged")):
        inside = sorted(map(str, Path(name).glob("*.json*"))) if Path(name).is_dir() else [name]
        if not inside:
            raise UsageError(f"{name} holds no landscape; expected files named *.json or *.json.gz")
        found += inside
    return list(dict.fromkeys(found))


def bench_judge(files: Sequence[str], *, seeds: int = 12, jobs: int = 1) -> dict[str, Any]:
    """Run the benchmark and return its JSON, one row per landscape.

    `last_looked_at` is the day of the judgement that was kept before this one, or None.
    """
    for file in files:
        load_recorded(file)  # refuse what is no landscape before any is searched
    with processes(jobs) as pool:
        running = [
            [pool.submit(tune_recorded, file, [DEFAULT_TRIALS], seed) for seed in range(seeds)] for file in files
        ]
        rows = [
            _row(file, [future.result()[0] for future in futures]) for file, futures in zip(files, running, strict=True)
        ]
    return {
        **header(f"tilewise bench judge {' '.join(Path(f).name for f in files)} --seeds {seeds}", clocks(files)),
        "seeds": seeds,
        "trials": DEFAULT_TRIALS,
        "landscapes": rows,
    }


def _last_looked_at(name: str) -> str | None:
    """Return the day of the judgement that is kept, or None if it does not include the landscape."""
    body = json.loads(RECORD.read_text()) if RECORD.exists() else {"landscapes": []}
    return str(body["date"])[:10] if any(row["file"] == name for row in body["landscapes"]) else None


def _row(file: str, endings: Sequence[Ending]) -> dict[str, Any]:
    recorded, name = load_recorded(file), Path(file).name
    reached = {f"{margin:.0%}": [_evaluations_to(ending, margin) for ending in endings] for margin in MARGINS}
    return {
        "file": name,
        "last_looked_at": _last_looked_at(name),
        "configs": len(recorded.space),
        "clock": str(recorded.scope.clock),
        "prior": recorded.prior is not None,
        "optimum": recorded.optimum,
        "evaluations_to": {margin: _finite(statistics.median(counts)) for margin, counts in reached.items()},
        "evaluations_to_p95": {margin: _finite(_most(counts)) for margin, counts in reached.items()},
        "ended": summary(endings) | {"left_median": round(statistics.median(e.left for e in endings), 4)},
    }


def _evaluations_to(ending: Ending, margin: float) -> float:
    return next((n for n, behind in enumerate(ending.behind, 1) if behind <= margin), math.inf)


def _most(counts: Sequence[float]) -> float:
    return sorted(counts)[math.ceil(_SHARE * len(counts)) - 1]


def _finite(value: float) -> float | None:
    """Return a count, or None where the margin was not reached."""
    return value if math.isfinite(value) else None
