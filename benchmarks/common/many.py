"""A database of very many problems for benchmarks: one result of a real kernel, copied to other shapes."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tilewise.db.records import Clock, Dims, Problem, Scope, Status, Trial
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash

__all__ = ["DEVICE", "KERNEL", "fill", "shapes"]

KERNEL, DEVICE = "row_reduce", "Ascend910B4"

_ROWS_AT_ONCE = 10_000
_LARGEST = 2**17
# Valid at nearly all shapes: a portfolio could not be built otherwise.
_CONFIG = {"BLOCK_SIZE_M": 32, "SUB_BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 256, "multibuffer": True}
_WINNER = Trial(
    config=_CONFIG,
    status=Status.CORRECT,
    time_us=47.45,
    samples=1,
    verified=True,
    ordinal=1,
    search="guided",
    seed=0,
    why="Double-buffered, vector pipe busy 82% of the time.",
    seconds=1.5,
)


def shapes(count: int) -> list[Dims]:
    """Return `count` distinct shapes, the same ones for the same count."""
    drawn = random.Random(count)
    found: dict[tuple[int, int], None] = {}
    while len(found) < count:
        found[drawn.randint(1, _LARGEST), drawn.randint(1, _LARGEST)] = None
    return [{"M": m, "N": n} for m, n in found]


def fill(url: str, count: int, *, time_us: float = 47.45) -> None:
    """Store a winner of this time, and a default, for each of `shapes(count)` in a new database."""
    from sqlalchemy import insert

    from tilewise.db.sql import models, schema, stored_answers
    from tilewise.db.sql.database import connect
    from tilewise.db.sql.rows import scope_values, trial_values

    now = datetime.now(UTC)
    source = source_hash(registry.load(KERNEL))
    winner = replace(_WINNER, time_us=time_us)
    default = replace(winner, config=_CONFIG | {"BLOCK_SIZE_M": 64}, verified=False, ordinal=None)
    default = replace(default, time_us=1.63 * time_us, is_default=True)
    trials = [trial_values(trial) for trial in (winner, default)]
    chosen = shapes(count)
    database = connect(url, create=True, read_only=False)
    try:
        schema.bring_up(database)
        for first in range(0, count, _ROWS_AT_ONCE):
            scopes: list[dict[str, Any]] = []
            for scope_id, dims in enumerate(chosen[first : first + _ROWS_AT_ONCE], first + 1):
                scope = Scope(Problem(KERNEL, dims, "float32"), source, DEVICE, Clock.MODELLED, "benchmark", 40)
                scopes.append(scope_values(scope) | {"id": scope_id, "first_seen": now})
            rows = [t | {"scope_id": scope["id"], "current": True} for scope in scopes for t in trials]
            with database.write() as connection:
                connection.execute(insert(models.scopes), scopes)
                connection.execute(insert(models.trials), rows)
        stored_answers.complete(database)
    finally:
        database.close()
