"""Look-ups, which answer a question with a stored result or with the reason why there is none.

If nothing is stored for exactly the question, the answer may relax in a fixed order (`Match`), and says how far it did.
Within each step, measured results are preferred to modelled ones. Results of another source of the kernel, or of
another chip, are never used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from tilewise.db.records import Clock, Config, Dims, Question, Result, Scope, Status, Trial, shape_text
from tilewise.errors import NotFound, NothingFeasible, UsageError
from tilewise.kernels.spec import KernelSpec, Target

if TYPE_CHECKING:
    from tilewise.tuner.portfolio.portfolio import Portfolio  # numpy: a fifth of a second of every start

__all__ = [
    "Match",
    "NotTuned",
    "Source",
    "clip",
    "device_name",
    "is_of",
    "match_of",
    "miss",
    "predicted",
    "resolve_or_raise",
    "resolve_with_fallback",
]


class Match(StrEnum):
    """The steps by which an answer may relax. Each step allows those before it.

    - `exact`: stored for this problem, this source of the kernel and, if one is given, this toolchain.
    - `older`: the same, found with another toolchain.
    - `nearest`: the winner of another shape within `nearest_shapes.NEAREST_BOUND`, if it is feasible for this one.
    - `portfolio`: of the configs that are good for some tuned shape, the one predicted to be fastest here.
    - `predicted`: the config of the whole space that the prior ranks first, or the default of a kernel of a kind that
      the prior does not know on the device; nothing was timed.
    """

    EXACT = "exact"
    OLDER = "older"
    NEAREST = "nearest"
    PORTFOLIO = "portfolio"
    PREDICTED = "predicted"

    def allows(self, step: Match) -> bool:
        return list(Match).index(step) <= list(Match).index(self)


def match_of(text: str) -> Match:
    """Parse the name of a step; raise `UsageError` for any other text."""
    try:
        return Match(text)
    except ValueError:
        raise UsageError(f"match is {text!r}; expected one of {', '.join(Match)}") from None


class NotTuned(NotFound):
    """No stored result answers the question. `nearest` holds the closest tuned shapes, nearest first."""

    def __init__(self, message: str, nearest: Sequence[Dims] = ()) -> None:
        super().__init__(message)
        self.nearest = tuple(nearest)


class Source(Protocol):
    """A store or file to look results up in. A `source_hash` of None accepts any source of the kernel."""

    def answers(self, question: Question, source_hash: str | None) -> Sequence[Result]:
        """Return all winners of exactly this question: measured before modelled, then newest first."""

    def near(self, question: Question, source_hash: str | None, bound: float) -> Sequence[tuple[float, Dims]]:
        """Return the nearest other shapes that may have a winner, each with its distance, nearest first."""

    def portfolios(self, question: Question, source_hash: str | None, spec: KernelSpec) -> Sequence[Portfolio]:
        """Return the portfolios of this kernel, dtype and device: measured before modelled."""

    def target(self, device: str) -> Target | None:
        """Return the device as known from its results, or None if there are none."""


class HintingSource(Source, Protocol):
    """A source that can suggest alternatives if it has no answer."""

    def not_tuned(self, question: Question) -> NotTuned:
        """Return the error that names the nearest tuned shapes, or other stored results."""


def resolve_with_fallback(
    source: Source,
    question: Question,
    spec: KernelSpec,
    *,
    source_hash: str,
    match: Match,
    toolchain: str | None = None,
    target: Target | None = None,
) -> Result | None:
    """Return the answer that relaxes least, at most as far as `match`, or None if there is none.

    `target` is the device if it is available. Results with another core count then count as another chip's, and configs
    that could not be passed to the kernel are skipped. Otherwise the target is derived from the device's name and its
    stored results. `toolchain` may be a prefix that ends before a comma. An answer that was not tried for this very
    problem has no time, is not verified, and gives its origin in `why`.
    """
    found = source.answers(question, source_hash)
    if target is not None:
        found = [result for result in found if _runs_on(target, result, question, spec)]
    for result in found:
        if toolchain is None or is_of(result, toolchain):
            return result
    if match.allows(Match.OLDER) and found:
        return dataclasses.replace(found[0], match=Match.OLDER.value)
    target = target or source.target(question.device)
    if target is None or not match.allows(Match.NEAREST):
        return None
    steps: list[tuple[Match, Callable[[], Result | None]]] = [
        (Match.NEAREST, partial(_neighbour, source, question, spec, source_hash, target)),
        (Match.PORTFOLIO, partial(_from_portfolio, source, question, spec, source_hash, target)),
        (Match.PREDICTED, partial(predicted, question, spec, source_hash, target)),
    ]
    if question.problem.objective:  # portfolios and the prior know times only
        steps = steps[:1]
    answers = (find() for step, find in steps if match.allows(step))
    return next((result for result in answers if result is not None), None)


def resolve_or_raise(
    source: HintingSource,
    question: Question,
    spec: KernelSpec,
    *,
    source_hash: str,
    match: Match = Match.EXACT,
    toolchain: str | None = None,
) -> Result:
    """Resolve like `resolve_with_fallback`; if nothing answers, raise `NotTuned`, which names the nearest shapes."""
    found = resolve_with_fallback(source, question, spec, source_hash=source_hash, match=match, toolchain=toolchain)
    if found is None:
        raise source.not_tuned(question)
    return found


def device_name(device: str) -> str:
    """Return the name that a device's results are stored under: its id without `model:`."""
    return device.removeprefix("model:")


def miss(question: Question, match: str, why: str) -> dict[str, Any]:
    """Return the JSON result of a question without an answer at this level of relaxation."""
    return {**question.to_json(), "match": str(match), "config": None, "why": why}


def clip(text: str) -> str:
    """Shorten untrusted text to one printable line of at most 60 characters."""
    line = text if text.isprintable() else repr(text)[1:-1]
    return line if len(line) <= 60 else line[:57] + "..."


def is_of(result: Result, toolchain: str) -> bool:
    """Return whether `toolchain` equals the result's toolchain, or the start of it up to a comma."""
    return f"{result.scope.toolchain},".startswith(f"{toolchain},")


def _runs_on(target: Target, result: Result, question: Question, spec: KernelSpec) -> bool:
    from tilewise.tuner.space.search_space import is_launchable

    assert result.winner is not None, "sources return winners only"
    same_chip = result.scope.cores == target.cores
    return same_chip and is_launchable(spec, question.problem, target, result.winner.config)


def _neighbour(source: Source, question: Question, spec: KernelSpec, source_hash: str, target: Target) -> Result | None:
    """Return the feasible config of the nearest measured neighbour, or else of the nearest modelled one."""
    from tilewise.tuner.lookup.nearest_shapes import NEAREST_BOUND  # imports numpy

    modelled = None
    for distance, dims in source.near(question, source_hash, NEAREST_BOUND):
        stored = source.answers(question.resized(dims), source_hash)
        for result in [result for result in stored if result.scope.cores == target.cores][:1]:
            if modelled is not None and result.scope.clock is not Clock.MEASURED:
                continue
            found = _moved(result, distance, question, spec, target)
            if found is not None and found.scope.clock is Clock.MEASURED:
                return found
            modelled = modelled or found
    return modelled


def _moved(result: Result, distance: float, question: Question, spec: KernelSpec, target: Target) -> Result | None:
    from tilewise.tuner.space.nearest_config import adapt_config

    assert result.winner is not None, "sources return winners only"
    config = adapt_config(spec, question.problem, target, result.winner.config)
    if config is None:
        return None
    time = f"{result.winner.time_us:.2f} us {result.scope.clock}"
    moved = _differences(result.winner.config, config)
    why = f"won at {shape_text(result.scope.shape)} ({time}){moved}; not timed for this shape"
    scope = result.scope.resized(question.dims)
    return _untimed(scope, config, Match.NEAREST, distance, why, search=result.winner.search)


def _from_portfolio(
    source: Source, question: Question, spec: KernelSpec, source_hash: str, target: Target
) -> Result | None:
    from tilewise.tuner.space.problem_checks import shape_distance

    for portfolio in source.portfolios(question, source_hash, spec):
        if portfolio.scope.cores != target.cores:
            continue
        for config in portfolio.picks(spec, question.dims, target)[:1]:
            away = min(shape_distance(question.dims, dims) for dims in portfolio.shapes)
            scope = portfolio.scope.resized(question.dims)
            return _untimed(scope, config, Match.PORTFOLIO, away, _why(portfolio))
    return None


def _why(portfolio: Portfolio) -> str:
    count, shapes = len(portfolio.proven), len(portfolio.shapes)
    among = f"{count} config{'s' * (count != 1)} of {shapes} tuned shape{'s' * (shapes != 1)}"
    held = portfolio.held_out
    cost = "" if held.mean is None else f"; a shape left out of it takes {held.mean:.3f}x its best on average"
    return f"expected to be the fastest here of {among}{cost}; not timed for this shape"


def predicted(question: Question, spec: KernelSpec, source_hash: str, target: Target) -> Result | None:
    """Return the config of the whole space that the prior ranks first: a second's work where there are thousands."""
    from tilewise.tuner.prior.penalties import penalties, rank_by_prior
    from tilewise.tuner.space.search_space import check_config, enumerate_space

    problem = question.problem
    try:
        space = enumerate_space(spec, problem, target)
    except NothingFeasible:
        return None
    best = rank_by_prior(spec, problem, space.configs, target)[0]
    why = f"what the prior likes best of {len(space)} configs; nothing was timed"
    if not penalties(spec, problem, best, target):
        if not spec.tiling(best, problem).axes:
            return None
        best, why = spec.default(problem, target), _NO_PRIOR
        if check_config(spec, problem, target, best):
            return None
    scope = Scope(
        question.problem,
        source_hash=source_hash,
        device=question.device,
        clock=Clock.MODELLED,
        toolchain="the prior",
        cores=target.cores,
    )
    return _untimed(scope, best, Match.PREDICTED, None, why)


_NO_PRIOR = "the kernel's default, as the prior knows no kernels of this kind on this device; nothing was timed"


def _differences(config: Config, moved: Config) -> str:
    changes = [f"{name} {value} -> {moved[name]}" for name, value in config.items() if moved[name] != value]
    return f", with {', '.join(changes)}" if changes else ""


def _untimed(scope: Scope, config: Config, match: Match, distance: float | None, why: str, search: str = "") -> Result:
    winner = Trial(config=config, status=Status.CORRECT, why=why, search=search)
    return Result(scope, winner, None, {}, 0.0, match=match.value, distance=distance)
