"""`tilewise bench mutants`: the share of mistakes in the kernels' source that verification refuses.

Every outcome is written to a journal as soon as it is known. A run with the same journal goes on where the last one
stopped, and tries again what was changed since.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.header import header
from tilewise.benchmarks.common.journal import Journal
from tilewise.benchmarks.model.mutants.source import Mutant, sample
from tilewise.benchmarks.model.mutants.trial import DRAWS_PER_PROBLEM, ORACLE_DIMS
from tilewise.tuner.workers.worker import WorkerDied, WorkerFailed, WorkerPool, WorkerTimeout

__all__ = ["EQUIVALENT_SHARE", "mutants_body", "try_mutants"]

_ENTRY = "tilewise.benchmarks.model.mutants.trial:try_mutant"
_SECONDS, _SECONDS_ON_GPU = 900.0, 240.0
_MEMORY_BYTES = 8 << 30

_REASONS = Path(__file__).with_name("equivalent.toml")
"""Names of mutants by the reason why they are equivalent. A name changes with the module's source."""

EQUIVALENT_SHARE = 0.1
"""Share of the mutants whose compiled code differs that may be equivalent; those above it count as survivors."""


def try_mutants(
    count: int, seed: int, device: str, folder: Path, journal: Path, jobs: int = 1
) -> Iterator[dict[str, Any]]:
    """Yield the outcome of each of `count` mutants: those in the journal, then the others as they end, `jobs` at once;
    `agreed` ones again when the oracle has judged them."""
    kept = Journal(journal)
    known = {row["name"]: row for row in kept.rows() if (row["device"], row["seed"]) == (device, seed)}
    mutants = sample(count, seed)
    yield from [known[mutant.name] for mutant in mutants if mutant.name in known]
    env = {} if device.startswith("cuda") else {"TRITON_INTERPRET": None}
    pool = WorkerPool(_ENTRY, jobs, env=env, imports=("torch",), memory_bytes=_MEMORY_BYTES)
    submit = partial(_submitted, pool, device, folder, seed)
    waiting = {submit(mutant, known.get(mutant.name)): mutant for mutant in mutants if _is_open(known.get(mutant.name))}
    oracle = {future for future, mutant in waiting.items() if mutant.name in known}
    try:
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                mutant = waiting.pop(future)
                row = _described(mutant) | {"device": device, "seed": seed} | _outcome(future, future in oracle)
                kept.add(row)
                if _is_open(row):
                    waiting[judged := submit(mutant, row)] = mutant
                    oracle.add(judged)
                yield row
    finally:
        pool.close()


def _is_open(row: Mapping[str, Any] | None) -> bool:
    """Return whether a mutant is still to be tried, or to be judged by the oracle."""
    return row is None or row["outcome"] == "agreed"


def _submitted(
    pool: WorkerPool, device: str, folder: Path, seed: int, mutant: Mutant, row: Mapping[str, Any] | None
) -> Future[Any]:
    return pool.submit(mutant, device, folder, seed, row["verified"] if row else (), timeout=_seconds(device))


def _seconds(device: str) -> float:
    """Return the time of one call: a kernel that never ends hangs a GPU, while a model's executor stops it."""
    return _SECONDS if device.startswith("model:") else _SECONDS_ON_GPU


def _outcome(future: Future[Any], oracle: bool) -> dict[str, Any]:
    """Return what a mutant's process found, or the oracle's about one that agreed.

    One that crashes or hangs its process would do so in a tuning too, where that is noticed: it is refused.
    """
    try:
        found: dict[str, Any] = future.result()
        return found
    except (WorkerTimeout, WorkerDied) as error:
        ended = {"outcome": "survived", "refused_there": True} if oracle else {"outcome": "refused"}
        return {**ended, "reason": f"{error}", "seconds": None}
    except WorkerFailed as error:
        return {"outcome": "not tried", "reason": f"{error}", "seconds": 0.0}


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
    """Return all outcomes and their summary as plain JSON values."""
    clock = "modelled" if device.startswith("model:") else "measured"
    return header(command, clock, device) | {
        "seed": seed,
        "summary": _summary(rows),
        "mutants": [dict(r) | _why(r) for r in rows],
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
