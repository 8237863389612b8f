"""Weights of the prior's penalties for a kernel, learnt from the trials of its other shapes.

The prior assumes that a config's log penalties add up to its log time. The weights make that sum fit the neighbours'
trials better (ridge regression towards weights of 1). For example, a kernel that hides its loads behind a lot of
arithmetic gains less from double buffering than the prior assumes, at every shape.

"Chosen by hand" below means: on the design landscapes (landscapes/README.md) with neighbours, and never ablated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tilewise.kernels.spec import Config, KernelSpec, Target
from tilewise.tuner.prior.penalties import penalties
from tilewise.tuner.samplers.gaussian_process import Array
from tilewise.tuner.samplers.warm_start import Neighbour
from tilewise.tuner.space.search_space import Space

__all__ = ["learnt_weights"]

_FADING = 2.0
"""Distance at which a neighbour's influence falls to 1/e. Chosen by hand."""

_PULL = 0.001
"""Strength that holds a weight at 1, against its log penalty's variance: a penalty that hardly varies says little.
Chosen by hand."""

_SLOW = 2
"""A trial counts by this power of the best time over its own, because only fast configs need to be told apart. Chosen
by hand."""


class _Observed(NamedTuple):
    """One neighbour's trials, a row each: the log penalties (`table`) and the log time beyond their sum (`rest`), both
    less their means, and how much each trial counts (`share`)."""

    table: Array
    rest: Array
    share: Array


def learnt_weights(known: Sequence[Neighbour], spec: KernelSpec, target: Target, space: Space) -> Array | None:
    """Return one weight per penalty, in the order of `penalties`; None without comparable trials of a neighbour on the
    same device."""
    found = [seen for neighbour in known if (seen := _observed(neighbour, spec, target, space))]
    if not found:
        return None
    table, rest, share = (np.concatenate(parts) for parts in zip(*found, strict=True))
    share = share / share.sum()
    spread = table.T @ (share[:, None] * table)
    shift = np.linalg.solve(spread + _PULL * np.eye(len(spread)), table.T @ (share * rest))
    return np.asarray(1 + shift)


def _observed(neighbour: Neighbour, spec: KernelSpec, target: Target, space: Space) -> _Observed | None:
    trials = [(config, time) for config, time in neighbour.times if _comparable(config, space)]
    if neighbour.device != target.name or len(trials) < 2:
        return None
    factors = [list(penalties(spec, neighbour.problem, config, target).values()) for config, _ in trials]
    if not factors[0]:
        return None
    table, times = np.log(np.array(factors)), np.array([time for _, time in trials])
    share = (times.min() / times) ** _SLOW
    share = share / share.sum()
    rest = np.log(times) - table.sum(axis=1)
    return _Observed(table - share @ table, rest - share @ rest, share * math.exp(-neighbour.away / _FADING))


def _comparable(config: Config, space: Space) -> bool:
    """Return whether a config has the space's parameters and, for parameters without an order, values of the space."""
    return set(config) == set(space.domains) and all(
        space.is_ordered(name) or value in space.domains[name] for name, value in config.items()
    )
