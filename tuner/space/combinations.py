"""The combinations of parameter values that satisfy a kernel's rules, found without trying all of them.

A rule reads some of a config's values. If it does not hold, it holds for no config with the same values of these, so
all combinations that differ from that one only in parameters after the last it read are passed over.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tilewise.kernels.spec import Constraint, Problem, Target, Value

__all__ = ["valid_combinations"]


class _Watched(dict[str, Value]):
    """A config that knows the last parameter, by position, whose value was read: the last of all once it was read as a
    whole. Its names are those of any config, so whether one is among them says nothing of its values."""

    __slots__ = ("_positions", "last")
    last: int

    def __init__(self, positions: Mapping[str, int], values: Sequence[Value]) -> None:
        super().__init__(zip(positions, values, strict=True))
        self._positions = positions

    def __getitem__(self, name: str) -> Value:
        self._note(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._note(name)
        return super().get(name, default)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)  # a copy need not be watched

    def _note(self, name: object) -> None:
        at = self._positions.get(name, -1)  # type: ignore[call-overload]  # rules may ask for anything
        if at > self.last:
            self.last = at


def _whole(name: str) -> Callable[..., Any]:
    def read(config: _Watched, *given: Any) -> Any:
        config.last = len(config._positions) - 1
        return getattr(dict, name)(config, *given)

    return read


_WHOLE = ("keys", "values", "items", "copy", "pop", "popitem", "setdefault", "update", "clear")
_WHOLE_OPERATORS = ("iter", "reversed", "len", "repr", "eq", "ne", "or", "ror", "ior", "setitem", "delitem")
for _name in (*_WHOLE, *(f"__{operator}__" for operator in _WHOLE_OPERATORS)):
    setattr(_Watched, _name, _whole(_name))


def valid_combinations(
    rules: Sequence[Constraint], ranges: Mapping[str, Sequence[Value]], problem: Problem, target: Target
) -> Iterator[int]:
    """Yield the numbers of the combinations that satisfy all rules; the last parameter changes fastest."""
    positions = {name: at for at, name in enumerate(ranges)}
    counts = [len(values) for values in ranges.values()]
    alike = [math.prod(counts[at + 1 :]) for at in range(-1, len(counts))]  # by the last parameter read, from none on
    combinations = itertools.product(*ranges.values())
    number = 0
    for values in combinations:
        config = _Watched(positions, values)
        step = next((alike[config.last + 1] for rule in rules if not _holds(rule, config, problem, target)), 0)
        if step == 0:
            yield number
            step = 1
        skipped = step - number % step
        next(itertools.islice(combinations, skipped - 1, skipped - 1), None)
        number += skipped


def _holds(rule: Constraint, config: _Watched, problem: Problem, target: Target) -> bool:
    config.last = -1
    return rule.holds(config, problem, target)
