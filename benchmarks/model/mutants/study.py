"""`tilewise bench mutants`: the share of mistakes in the kernels' source that verification refuses.

A change that leaves the compiled code as it is, or that is proven to change nothing, is no mistake: it is replaced by
the next that is drawn, and counted apart.

Every outcome is written to a journal as soon as it is known. A run with the same journal goes on where the last one
stopped, and tries again what was changed since.
"""

from __future__ import annotations

import tomllib
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import islice
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.header import header
from tilewise.benchmarks.common.journal import Journal
from tilewise.benchmarks.model.mutants.source import Mutant, drawn
from tilewise.benchmarks.model.mutants.trial import DRAWS_PER_PROBLEM, ORACLE_DIMS
from tilewise.tuner.workers.supervisor import ONE_THREAD
from tilewise.tuner.workers.worker import WorkerDied, WorkerFailed, WorkerPool, WorkerTimeout

__all__ = ["DROPPED", "EQUIVALENT_SHARE", "mutants_body", "try_mutants"]

_ENTRY = "tilewise.benchmarks.model.mutants.trial:try_mutant"
_COMPARE = "tilewise.benchmarks.model.mutants.proof:compare"
_SECONDS, _SECONDS_ON_GPU = 900.0, 240.0
_MEMORY_BYTES = 8 << 30

_REASONS = Path(__file__).with_name("equivalent.toml")
"""Names of mutants by the reason why they are equivalent. A name changes with the module's source."""

EQUIVALENT_SHARE = 0.1
"""Share of the mutants told from their kernels in no way that may be equivalent; those above it count as survivors."""

DROPPED = ("same code", "proven the same")
"""Outcomes of changes that change nothing, of which the sample has none: each is replaced by the next that is drawn."""


def try_mutants(
    count: int, seed: int, device: str, folder: Path, journal: Path, jobs: int = 1
) -> Iterator[dict[str, Any]]:
    """Yield the outcomes of mutants until `count` are none of `DROPPED`: those in the journal, then the others as they
    end, `jobs` at once; `agreed` ones again when the runs were compared and when the oracle has judged them."""
    kept = Journal(journal)
    known = {row["name"]: row for row in kept.rows() if (row["device"], row["seed"]) == (device, seed)}
    rest, stages = drawn(seed), _Stages(device, folder, seed, jobs)
    begun, waiting = deque(islice(rest, count)), dict[Future[Any], Mutant]()
    try:
        while begun or waiting:
            while begun and len(waiting) < jobs:
                mutant = begun.popleft()
                row = known.get(mutant.name)
                if row is None or _is_open(row):
                    waiting[stages.submit(mutant, row)] = mutant
                else:
                    begun += islice(rest, row["outcome"] in DROPPED)
                    yield row
            for future in wait(waiting, return_when=FIRST_COMPLETED).done if waiting else ():
                mutant = waiting.pop(future)
                row = _described(mutant) | {"device": device, "seed": seed} | _outcome(future, known.get(mutant.name))
                kept.add(row)
                known[mutant.name] = row
                begun.append(mutant)
                if _is_open(row):
                    yield row
    finally:
        stages.close()


def _is_open(row: Mapping[str, Any]) -> bool:
    """Return whether a mutant's run is still to be compared with its kernel's, or to be judged by the oracle."""
    return bool(row["outcome"] == "agreed")


class _Stages:
    """The processes that try, compare and judge mutants. Those that compare compute in Triton's interpreter."""

    def __init__(self, device: str, folder: Path, seed: int, jobs: int) -> None:
        self._arguments, self._seconds = (device, folder, seed), _seconds(device)
        env = ONE_THREAD if device.startswith("cuda") else {"TRITON_INTERPRET": None, **ONE_THREAD}
        self._trying = WorkerPool(_ENTRY, jobs, env=env, imports=("torch",), memory_bytes=_MEMORY_BYTES)
        interpreting = {**ONE_THREAD, "TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore"}
        self._comparing = WorkerPool(_COMPARE, jobs, env=interpreting, imports=("torch",), memory_bytes=_MEMORY_BYTES)

    def submit(self, mutant: Mutant, row: Mapping[str, Any] | None) -> Future[Any]:
        """Begin the stage that a mutant's row is open for, or the first."""
        if row is not None and "compared" not in row:
            return self._comparing.submit(mutant, *self._arguments, timeout=_SECONDS)
        found = (row["verified"], row["different"]) if row is not None else ()
        return self._trying.submit(mutant, *self._arguments, *found, timeout=self._seconds)

    def close(self) -> None:
        self._trying.close()
        self._comparing.close()


def _seconds(device: str) -> float:
    """Return the time of one call: a kernel that never ends hangs a GPU, while a model's executor stops it."""
    return _SECONDS if device.startswith("model:") else _SECONDS_ON_GPU


def _outcome(future: Future[Any], row: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a mutant's process found; `row` is what was known before, and stays where a comparison ended early.

    One that crashes or hangs its process would do so in a tuning too, where that is noticed: it is refused.
    """
    compares = row is not None and "compared" not in row
    try:
        found: dict[str, Any] = future.result()
    except (WorkerTimeout, WorkerDied) as error:
        if row is not None and compares:
            return _not_compared(row, error)
        ended = {"outcome": "survived", "refused_there": True} if row is not None else {"outcome": "refused"}
        return {**ended, "reason": f"{error}", "seconds": None}
    except WorkerFailed as error:
        if row is not None and compares:
            return _not_compared(row, error)
        return {"outcome": "not tried", "reason": f"{error}", "seconds": 0.0}
    if row is not None and compares:
        return {"verified": row["verified"]} | found
    return found


def _not_compared(row: Mapping[str, Any], error: Exception) -> dict[str, Any]:
    found = {"outcome": "agreed", "compared": 0, "different": [], "reason": f"not compared: {error}", "seconds": None}
    return {"verified": row["verified"]} | found


def _described(mutant: Mutant) -> dict[str, Any]:
    return {
        "name": mutant.name,
        "module": mutant.module,
        "function": mutant.function,
        "line": mutant.line,
        "kind": mutant.kind,
        "change": mutant.change,
    }


def mutants_body(rows: Sequence[Mapping[str, Any]], command: str, device: str, seed: int) -> dict[str, Any]:
    """Return all outcomes and their summary as plain JSON values; `dropped` are those that are no mistakes."""
    clock = "modelled" if device.startswith("model:") else "measured"
    kept, dropped = ([row for row in rows if (row["outcome"] in DROPPED) is none] for none in (False, True))
    return header(command, clock, device) | {
        "seed": seed,
        "summary": _summary(kept) | {"dropped": dict(sorted(Counter(row["outcome"] for row in dropped).items()))},
        "mutants": [dict(r) | _why(r) for r in kept],
        "dropped": [{name: value for name, value in row.items() if name != "verified"} for row in dropped],
    }


def _why(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the reason, as a person found it, why an equivalent mutant computes the same."""
    reasons = tomllib.loads(_REASONS.read_text())
    found = [text for text, names in reasons.items() if row["outcome"] == "equivalent" and row["name"] in names]
    return {"why": found[0]} if found else {}


def _summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the counts. Those that the oracle cannot separate count as survivors above `EQUIVALENT_SHARE`."""
    outcomes = Counter(row["outcome"] for row in rows)
    refused, equivalent = outcomes["refused"], outcomes["equivalent"]
    differ = refused + outcomes["survived"] + equivalent
    survived = outcomes["survived"] + max(0, equivalent - int(EQUIVALENT_SHARE * differ))
    judged = refused + survived
    return {
        "mutants": len(rows),
        "outcomes": dict(sorted(outcomes.items())),
        "not_yet_judged_by_the_oracle": outcomes["agreed"],
        "oracle_problems": min(len(dims) for dims in ORACLE_DIMS.values()),
        "oracle_draws": DRAWS_PER_PROBLEM * min(len(dims) for dims in ORACLE_DIMS.values()),
        "told_apart_by_the_oracle": {
            "refused": refused,
            "survived": outcomes["survived"],
            "of_these_refused_where_the_oracle_looked": sum(bool(row.get("refused_there")) for row in rows),
            "share_refused": _share(refused, refused + outcomes["survived"]),
        },
        "counting_equivalents_above_a_tenth": {"survived": survived, "share_refused": _share(refused, judged)},
        "by_kernel": {
            kernel: dict(sorted(Counter(row["outcome"] for row in rows if row.get("kernel") == kernel).items()))
            for kernel in sorted({row["kernel"] for row in rows if "kernel" in row})
        },
        "by_kind": {
            kind: dict(sorted(Counter(row["outcome"] for row in rows if row["kind"] == kind).items()))
            for kind in sorted({row["kind"] for row in rows})
        },
    }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
