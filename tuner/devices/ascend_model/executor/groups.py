"""Programs that run side by side as long as they take the same control flow, and their splitting where they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewise.tuner.devices.ascend_model.executor.hazards import Order
from tilewise.tuner.devices.ascend_model.executor.memory import Array, OnChip, View

__all__ = ["Group", "Step", "Trip", "run_steps"]


@dataclass(frozen=True, slots=True)
class Trip:
    """The current iteration of a loop: its number, from 0, and that of all of them."""

    number: int
    count: int


class Group:
    """Programs with the same control flow so far, and everything that they have computed."""

    __slots__ = ("chip", "order", "programs", "trips", "values")

    def __init__(self, programs: Array, values: list[Any], chip: OnChip, order: Order, trips: list[Trip]) -> None:
        self.programs, self.values, self.chip, self.order, self.trips = programs, values, chip, order, trips

    def split(self, numbers: Iterable[int]) -> list[Group]:
        """Return one group per combination of these values, which become plain numbers."""
        varying = [n for n in numbers if isinstance(self.values[n], np.ndarray)]
        if not varying:
            return [self]
        rows, members = np.unique(np.stack([self.values[n] for n in varying], axis=1), axis=0, return_inverse=True)
        groups = self.divide(members.ravel(), len(rows))
        for group, row in zip(groups, rows, strict=True):
            for number, value in zip(varying, row.tolist(), strict=True):
                group.values[number] = value
        return groups

    def split_by(self, amounts: Array | int) -> list[tuple[Group, int]]:
        """Return one group per amount, which is given for each program or for all of them, and the amount."""
        if not isinstance(amounts, np.ndarray):
            return [(self, int(amounts))]
        found, members = np.unique(amounts, return_inverse=True)
        return list(zip(self.divide(members, len(found)), found.tolist(), strict=True))

    def divide(self, members: Array, count: int) -> list[Group]:
        """Return `count` groups, by the number of the one that each program belongs to."""
        return [self] if count == 1 else [self._part(members == number) for number in range(count)]

    def _part(self, chosen: Array) -> Group:
        values = [_rows(value, chosen) for value in self.values]
        return Group(self.programs[chosen], values, self.chip.take(chosen), self.order.copy(), [*self.trips])

    def assign(self, targets: Sequence[int], sources: Sequence[int]) -> None:
        """Assign all values at once, as a source may be a target too."""
        for number, value in zip(targets, [self.values[source] for source in sources], strict=True):
            self.values[number] = value

    def iteration(self) -> int:
        """Return how often the innermost body was entered before, over all loops around it."""
        count = 0
        for trip in self.trips:
            count = count * trip.count + trip.number
        return count


def _rows(value: Any, chosen: Array) -> Any:
    if isinstance(value, View):
        return replace(value, offset=value.offset[chosen]) if isinstance(value.offset, np.ndarray) else value
    return value[chosen] if isinstance(value, np.ndarray) else value


Step = Callable[[Group], list[Group] | None]
"""One operation on a group. It returns the parts that the group was split into, or None if the group stays whole."""


def run_steps(steps: Sequence[Step], groups: list[Group]) -> list[Group]:
    """Run every group through every step, one step after the other."""
    for step in steps:
        if len(groups) == 1:
            groups = step(groups[0]) or groups
        else:
            groups = [part for group in groups for part in (step(group) or (group,))]
    return groups
