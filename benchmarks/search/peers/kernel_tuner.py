"""Kernel Tuner's strategies on a recorded landscape, for comparison with ours on the same files.

Kernel Tuner runs a strategy against a *runner*, which returns the results of configs. The runner here looks them up and
counts: a config counts once, however often a strategy requests it. The strategy is stopped when it has used its budget
of different configs, or when it only repeats itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewise.errors import Unavailable
from tilewise.tuner.space.search_space import Space

__all__ = ["STRATEGIES", "run_strategy", "unavailable_reason"]

STRATEGIES = (
    "genetic_algorithm",
    "simulated_annealing",
    "greedy_ils",
    "pso",
    "diff_evo",
    "dual_annealing",
    "gen_hybrid_vndx",
    "gen_adaptive_tabu_greywolf",
)

_PATIENCE = 50
"""A strategy ends when its repeated configs reach this many times its budget."""


def unavailable_reason() -> str:
    """Return the reason why Kernel Tuner cannot be used, or an empty text."""
    return (
        "" if importlib.util.find_spec("kernel_tuner") else "kernel-tuner is not installed: pip install tilewise[bench]"
    )


def run_strategy(strategy: str, space: Space, times: Sequence[float | None], seed: int, budget: int) -> list[int]:
    """Return the config indices that the strategy evaluates, each once, in order; fewer than `budget` if it ends.

    Raises `Unavailable` if Kernel Tuner is not installed, or if the strategy fails, as some do in spaces with fewer
    configs than they draw at first.
    """
    if reason := unavailable_reason():
        raise Unavailable(reason)
    from kernel_tuner import util
    from kernel_tuner.interface import Options
    from kernel_tuner.searchspace import Searchspace

    module = importlib.import_module(f"kernel_tuner.strategies.{strategy}")
    parameters = {name: list(values) for name, values in space.domains.items()}
    recorded = {str(index): dict(config) for index, config in enumerate(space.configs)}
    searchspace = Searchspace(None, None, None, from_cache={"tune_params": parameters, "cache": recorded})
    runner = _Runner(space, times, budget, util.StopCriterionReached, util.RuntimeFailedConfig)
    options = Options(
        objective=["time"],
        objective_higher_is_better=[False],
        strategy=strategy,
        strategy_options=Options({}),
        budget=util.TuningBudget(max_fevals=budget * (_PATIENCE + 1)),
        tune_params=parameters,
        cache={},
        metrics=None,
        verbose=False,
        seed=seed,
    )
    random.seed(seed)
    np.random.seed(seed)  # Kernel Tuner draws from the global generators
    while len(runner.seen) < budget and runner.repeats < _PATIENCE * budget:
        before = len(runner.seen)
        try:
            module.tune(searchspace, runner, options)
        except util.StopCriterionReached:
            pass
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise Unavailable(
                f"Kernel Tuner's {strategy} fails in a space of {len(space)} configs ({reason})"
            ) from error
        if len(runner.seen) == before:
            break
    return runner.seen


class _Runner:
    """A Kernel Tuner runner with what strategies use; `seen` holds the config indices so far."""

    def __init__(
        self, space: Space, times: Sequence[float | None], budget: int, stop: type[Exception], failure: type[Any]
    ) -> None:
        self._space, self._times, self._budget = space, times, budget
        self._stop, self._failure = stop, failure
        self.seen: list[int] = []
        self._counted: set[int] = set()
        self.repeats = 0

    def add_strategy_time(self, seconds: float) -> None:
        """Ignore the strategy's own time."""

    def run(self, configs: Sequence[Sequence[Any]], options: Any) -> list[dict[str, Any]]:
        return [self._result(config) for config in configs]

    def _result(self, values: Sequence[Any]) -> dict[str, Any]:
        config = dict(zip(self._space.domains, values, strict=True))
        index = self._space.index(config)
        assert index is not None, "strategies know which configs are valid"
        if index in self._counted:
            self.repeats += 1
            if self.repeats >= _PATIENCE * self._budget:
                raise self._stop("only repeats")
        else:
            if len(self.seen) >= self._budget:
                raise self._stop("the budget is spent")
            self._counted.add(index)
            self.seen.append(index)
        time_us = self._times[index]
        return {**config, "time": time_us} if time_us is not None else {**config, "__error__": self._failure()}
