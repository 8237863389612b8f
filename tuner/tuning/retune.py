"""Keep results up to date: the best configs of an older toolchain or source, timed again under the present one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.db.records import Question, Result, Scope, Status, Trial
from tilewise.db.store import Store, Wanted
from tilewise.errors import NothingFeasible, UsageError
from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.tuner.devices.base import Device
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.tuning.loop import Budget, Tuning, Watcher

__all__ = ["RETUNE", "Retuned", "Stale", "find_stale", "retune", "stale_problem"]

RETUNE = "retune"
"""The name of this in place of a search."""

_BEST = 10
"""Configs that are timed again, the default not counted."""

_PAGE = 1000
"""Results that are read at a time."""


@dataclass(frozen=True, slots=True)
class Stale:
    """A problem that has results, but none of the present source and toolchain; `before` is the best of them."""

    spec: KernelSpec
    problem: Problem
    before: Result
    moved: tuple[str, ...]
    """`source`, `toolchain` or both."""

    @property
    def time_us(self) -> float:
        """The time of the former best."""
        assert self.before.winner is not None and self.before.winner.time_us is not None, "a stored best has a time"
        return self.before.winner.time_us


@dataclass(frozen=True, slots=True)
class Retuned:
    """A stale problem after its best configs were timed again.

    `after` is None if none of them is correct now. `kept_us` is what the former best takes now, and None if it does not
    run. `reason` says why.
    """

    stale: Stale
    after: Result | None
    kept_us: float | None = None
    reason: str = ""

    @property
    def flipped(self) -> bool:
        """True if another config is the best now."""
        return self.after is not None and _config(self.after) != _config(self.stale.before)

    @property
    def cost(self) -> float | None:
        """The factor by which the former best takes longer than the new one; None if one of them does not run."""
        now = self.after.winner.time_us if self.after is not None and self.after.winner is not None else None
        return self.kept_us / now if self.kept_us and now else None

    def to_json(self) -> dict[str, Any]:
        """Return the result of the new best, or the problem where there is none, with the former best and its cost."""
        known = {"cost": self.cost, "kept_us": self.kept_us, "why_not_kept": self.reason or None}
        body = self.after.to_json() if self.after is not None else {**self.stale.before.scope.to_json(), "config": None}
        return {
            **body,
            "moved": list(self.stale.moved),
            "before": {"config": _config(self.stale.before), **self.stale.before.scope.to_json()},
            "flipped": self.flipped,
            **{name: value for name, value in known.items() if value is not None},
        }


def _config(result: Result) -> Config | None:
    return dict(result.winner.config) if result.winner is not None else None


def stale_problem(store: Store, device: Device, spec: KernelSpec, problem: Problem) -> Stale | None:
    """Return the problem if its results on this device are all of another source or toolchain, else None."""
    now = device.scope(spec, problem)
    found = [r for r in store.answers(Question(problem, device.target.name)) if _is_comparable(r.scope, now)]
    if not found or any(result.scope == now for result in found):
        return None
    before = found[0]
    moved = {
        "source": before.scope.source_hash != now.source_hash,
        "toolchain": before.scope.toolchain != now.toolchain,
    }
    return Stale(spec, problem, before, tuple(name for name, is_so in moved.items() if is_so))


def find_stale(store: Store, device: Device, spec: KernelSpec) -> tuple[list[Stale], list[str]]:
    """Return a kernel's stale problems, those that take longest first, and why others cannot be timed again, a line
    each."""
    with_result = _scopes_with_result(store, Wanted(spec.name, device=device.target.name))
    scopes = {scope.key: scope for scope in reversed(list(with_result))}  # those that were seen first go first
    problems = {scope.question.key: scope.problem for scope in scopes.values()}
    found, refused = list[Stale](), list[str]()
    for problem in problems.values():
        try:
            now = make_problem(spec, problem.shape, problem.dtype)
        except UsageError as error:  # the kernel takes other sizes, dtypes or flags now
            refused.append(f"{problem}: {error}")
            continue
        if device.scope(spec, now).key not in scopes:
            stale = stale_problem(store, device, spec, now)
            found += [stale] if stale is not None else []
    return sorted(found, key=lambda stale: -stale.time_us), refused


def _scopes_with_result(store: Store, wanted: Wanted) -> Iterator[Scope]:
    before = None
    while page := store.results(wanted, before=before, most=_PAGE):
        yield from (result.scope for _, result in page)
        before = page[-1][0]


def _is_comparable(before: Scope, now: Scope) -> bool:
    return (before.clock, before.cores) == (now.clock, now.cores)


def retune(stale: Stale, device: Device, store: Store, watcher: Watcher | None = None) -> Retuned:
    """Time the ten best configs of the former results and the default, store the trials, and compare.

    The winner is verified and compared as at the end of any tuning.
    """
    tuning = Tuning(
        stale.spec, stale.problem, device, store, budget=Budget(None), search=RETUNE, watcher=watcher or Watcher()
    )
    try:
        after = tuning.retime(_best(stale.before, store.trials(stale.before.scope)))
    except NothingFeasible as error:
        return Retuned(stale, None, reason=str(error))
    kept = next((trial for trial in after.trials if dict(trial.config) == _config(stale.before)), None)
    if kept is None:
        return Retuned(stale, after, reason="the kernel's space does not hold it any more")
    if kept.status is not Status.CORRECT:
        return Retuned(stale, after, reason=f"{kept.status}: {kept.reason}")
    return Retuned(stale, after, kept.time_us)


def _best(before: Result, trials: Sequence[Trial]) -> list[Config]:
    """Return the configs of the winner and of the trials that come next."""
    assert before.winner is not None
    correct = [t for t in trials if t.status is Status.CORRECT and t.config_key != before.winner.config_key]
    ranked = sorted(correct, key=lambda trial: trial.ranking or 0.0)
    return [before.winner.config, *(trial.config for trial in ranked[: _BEST - 1])]
