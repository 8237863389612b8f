"""The rows of the list of problems."""

from __future__ import annotations

from dataclasses import dataclass

from tilewise.db.records import Result, Status, shape_text

__all__ = ["Row", "row"]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the list of problems."""

    key: str
    kernel: str
    sizes: str
    dtype: str
    device: str
    clock: str
    time_us: float | None
    speed_up: float | None
    trials: int
    note: str
    tuned: str


def row(result: Result) -> Row:
    scope, winner = result.scope, result.winner
    ran = result.counts.get(Status.CORRECT, 0)
    return Row(
        key=scope.key,
        kernel=scope.kernel,
        sizes=shape_text(scope.shape),
        dtype=scope.dtype,
        device=scope.device,
        clock=str(scope.clock),
        time_us=winner.time_us if winner else None,
        speed_up=result.speed_up,
        trials=sum(result.counts.values()),
        note="" if winner else f"{ran} not verified" if ran else "none ran",
        tuned=f"{winner.created:%Y-%m-%d %H:%M}" if winner else "",
    )
