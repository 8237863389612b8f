"""Look-ups: a question in, the stored result or the reason why there is none out.

Where nothing is stored for exactly the question, an answer may be allowed to relax, in a stated order (`Match`). Every
answer says how far it did; within each step what was measured goes before what was modelled. What is of another
source of the kernel, or of another chip, is never taken.
"""

from __future__ import annotations

import dataclasses
import math
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
    "NEAREST_BOUND",
    "Match",
    "NotTuned",
    "Source",
    "clip",
    "device_name",
    "is_of",
    "match_of",
    "miss",
    "resolve_or_raise",
    "resolve_with_fallback",
]

NEAREST_BOUND = math.log(1.25)
"""How far a neighbour may be: its dimensions' ratios multiply to 1.25 at the most. Beyond, what all tuned shapes tell
together (`portfolio`) is better: on an H200, of 22 shapes whose nearest was within 2, the neighbour's config took 1.067
of the best time at the mean, the portfolio's 1.036."""


class Match(StrEnum):
    """How far an answer may relax; each allows those before it.

    - `exact`: stored for this very problem, this source of the kernel and, where one is named, this toolchain.
    - `older`: the same, found with another toolchain.
    - `nearest`: won for another shape no farther than `NEAREST_BOUND`, and is feasible for this one.
    - `portfolio`: of the configs that are good somewhere, the one that all tuned shapes foretell to be best here.
    - `predicted`: what the prior thinks best of the whole space; nothing was timed.
    """

    EXACT = "exact"
    OLDER = "older"
    NEAREST = "nearest"
    PORTFOLIO = "portfolio"
    PREDICTED = "predicted"

    def allows(self, step: Match) -> bool:
        return list(Match).index(step) <= list(Match).index(self)


def match_of(text: str) -> Match:
    """Raises `UsageError` for what is no step."""
    try:
        return Match(text)
    except ValueError:
        raise UsageError(f"match is {text!r}; expected one of {', '.join(Match)}") from None


class NotTuned(NotFound):
    """Nothing stored answers the question; `nearest` are the tuned shapes closest to it, nearest first."""

    def __init__(self, message: str, nearest: Sequence[Dims] = ()) -> None:
        super().__init__(message)
        self.nearest = tuple(nearest)


class Source(Protocol):
    """Where results are looked up: a store, a file. `source_hash` None is any source of the kernel."""

    def answers(self, question: Question, source_hash: str | None) -> Sequence[Result]:
        """All winners of exactly this question: measured before modelled, then the newest first."""

    def near(self, question: Question, source_hash: str | None, bound: float) -> Sequence[tuple[float, Dims]]:
        """The nearest other shapes that may have a winner, each with its distance, the nearest first."""

    def portfolios(self, question: Question, source_hash: str | None, spec: KernelSpec) -> Sequence[Portfolio]:
        """Of this kernel, dtype and device: measured before modelled."""

    def target(self, device: str) -> Target | None:
        """What is known of the device from its results; None where there are none."""


class HintingSource(Source, Protocol):
    """A source that knows what there is instead of an answer."""

    def not_tuned(self, question: Question) -> NotTuned:
        """The error that names the nearest tuned shapes, or what else is stored."""


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
    """The answer that relaxes least, no farther than `match`; None where even that finds none.

    `target` is the device where it is at hand: results found with another number of cores are then of another chip, and
    what could not be passed to the kernel is no config; otherwise it is made up from its name and what is stored for
    it. `toolchain` may be the start of one, up to a comma. An answer that was not tried for this very problem has no
    time, is not verified, and says in `why` where it is from.
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
        (Match.PREDICTED, partial(_predicted, question, spec, source_hash, target)),
    ]
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
    """As `resolve_with_fallback`; raises `NotTuned`, whose message says what is nearest."""
    found = resolve_with_fallback(source, question, spec, source_hash=source_hash, match=match, toolchain=toolchain)
    if found is None:
        raise source.not_tuned(question)
    return found


def device_name(device: str) -> str:
    """What results of a device are stored by; the id of a modelled one means its name."""
    return device.removeprefix("model:")


def miss(question: Question, match: str, why: str) -> dict[str, Any]:
    """The result object of a question that was allowed to relax so far, and has no answer."""
    return {**question.to_json(), "match": str(match), "config": None, "why": why}


def clip(text: str) -> str:
    """Enough of what somebody sent to recognise it, on one line."""
    line = text if text.isprintable() else repr(text)[1:-1]
    return line if len(line) <= 60 else line[:57] + "..."


def is_of(result: Result, toolchain: str) -> bool:
    """Whether that is the result's toolchain, or the start of it up to a comma."""
    return f"{result.scope.toolchain},".startswith(f"{toolchain},")


def _runs_on(target: Target, result: Result, question: Question, spec: KernelSpec) -> bool:
    from tilewise.tuner.space.search_space import is_launchable

    assert result.winner is not None, "sources give winners only"
    same_chip = result.scope.cores == target.cores
    return same_chip and is_launchable(spec, question.problem, target, result.winner.config)


def _neighbour(source: Source, question: Question, spec: KernelSpec, source_hash: str, target: Target) -> Result | None:
    """The nearest measured neighbour's config, or else the nearest modelled one's, that is feasible here."""
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

    assert result.winner is not None, "sources give winners only"
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
    from tilewise.tuner.space.problem import shape_distance

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


def _predicted(question: Question, spec: KernelSpec, source_hash: str, target: Target) -> Result | None:
    from tilewise.tuner.prior.penalties import penalties, rank_by_prior
    from tilewise.tuner.space.search_space import enumerate_space

    problem = question.problem
    try:
        space = enumerate_space(spec, problem, target)
    except NothingFeasible:
        return None
    best = rank_by_prior(spec, problem, space.configs, target)[0]
    if not penalties(spec, problem, best, target):  # a kernel without a prior
        return None
    scope = Scope(
        question.problem,
        source_hash=source_hash,
        device=question.device,
        clock=Clock.MODELLED,
        toolchain="the prior",
        cores=target.cores,
    )
    why = f"what the prior likes best of {len(space)} configs; nothing was timed"
    return _untimed(scope, best, Match.PREDICTED, None, why)


def _differences(config: Config, moved: Config) -> str:
    changes = [f"{name} {value} -> {moved[name]}" for name, value in config.items() if moved[name] != value]
    return f", with {', '.join(changes)}" if changes else ""


def _untimed(scope: Scope, config: Config, match: Match, distance: float | None, why: str, search: str = "") -> Result:
    winner = Trial(config=config, status=Status.CORRECT, why=why, search=search)
    return Result(scope, winner, None, {}, 0.0, match=match.value, distance=distance)
