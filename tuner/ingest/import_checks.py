"""Checks of imported results: trials that could become a best are compared with the kernel that they name.

A trial without a verdict cannot become a best before `tilewise tune` verifies it, so it only needs a plausible time. A
verified one must name a kernel known here. If it has the kernel's present source, its config must be in the kernel's
space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from tilewise.db.exchange.import_file import ImportFile, Offer, Refusal
from tilewise.db.exchange.jsonfile import one_line
from tilewise.db.records import OBJECTIVE, Scope, Status, Suggestion, Trial, canonical_json, shape_text
from tilewise.errors import TilewiseError, UnknownKernel
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.kernels.spec import KernelSpec, Problem
from tilewise.tuner.hardware.peaks import arithmetic_binds
from tilewise.tuner.hardware.targets import known_target, memory_gb_s
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.space.search_space import check_config

__all__ = ["checked_import", "checked_offers"]

_LONGEST_US = 3.6e9
"""Longest plausible time of one launch: an hour."""

_AHEAD = timedelta(hours=1)
"""How far another machine's clock may run ahead. Of two equal trials the one created later is kept, so one from the
future would never be replaced."""

_MOST_FACTS = 100_000

_LEAST_SHARE = 0.5
"""Share of the time in which the device's memory moves the problem's least bytes; a shorter time is implausible."""


def checked_import(reading: ImportFile, own: Mapping[str, KernelSpec] | None = None) -> ImportFile:
    """Return the import without its invalid parts, and with a refusal (place and reason) for each of them.

    `own` maps names to specs that are not registered.
    """
    checker = _Checker(own or {})
    refusals, suggestions = list(reading.refusals), []
    offers = list(checker.offers(reading.offers, refusals.append))
    for suggestion in reading.suggestions:
        problem, reason = checker.suggestion(suggestion)
        if problem is None:
            refusals.append(Refusal(f"size {shape_text(suggestion.shape)}"[:60], reason))
        else:
            suggestions.append(replace(suggestion, problem=problem))
    return ImportFile(tuple(offers), tuple(refusals), tuple(suggestions))


def checked_offers(items: Iterable[Offer | Refusal], refuse: Callable[[Refusal], object]) -> Iterator[Offer]:
    """Yield the valid parts of offers as they are read; call `refuse` with each refusal, also with those that come."""
    return _Checker({}).offers(items, refuse)


class _Checker:
    """A checker of one file, which loads each spec once for all entries."""

    def __init__(self, own: Mapping[str, KernelSpec]) -> None:
        self._specs: dict[str, KernelSpec | None] = dict(own)
        self._latest = datetime.now(UTC) + _AHEAD

    def offers(self, items: Iterable[Offer | Refusal], refuse: Callable[[Refusal], object]) -> Iterator[Offer]:
        for item in items:
            if isinstance(item, Refusal):
                refuse(item)
                continue
            kept, refused = self.offer(item)
            for refusal in refused:
                refuse(refusal)
            if kept.trials:
                yield kept

    def offer(self, offer: Offer) -> tuple[Offer, list[Refusal]]:
        """Return the part of an offer that may be stored, and the refusals. A bad trial does not affect the rest."""
        spec, problem, wrong = self._problem(offer.scope)
        if wrong and any(trial.verified for trial in offer.trials):
            return replace(offer, trials=()), [Refusal(offer.place, wrong)]
        kept, refused = [], []
        for ordinal, trial in enumerate(offer.trials, 1):
            if reason := next(self._flaws(trial, offer.scope, spec, problem), ""):
                refused.append(Refusal(f"{offer.place}, trial {ordinal}", reason))
            else:
                kept.append(trial)
        scope = offer.scope if problem is None else replace(offer.scope, problem=problem)
        return replace(offer, scope=scope, trials=tuple(kept)), refused

    def suggestion(self, suggestion: Suggestion) -> tuple[Problem | None, str]:
        """Return the suggestion's problem without flags that have their default, or None and why it cannot be used."""
        spec = self._spec(suggestion.kernel)
        if spec is None:
            return None, _unknown(suggestion.kernel)
        try:
            problem = make_problem(spec, suggestion.shape, suggestion.dtype)
        except TilewiseError as error:
            return None, one_line(error)
        unknown = sorted(suggestion.config.keys() - {parameter.name for parameter in spec.parameters})
        return (None, f"{spec.name} has no parameter {unknown[0][:40]!r}") if unknown else (problem, "")

    def _problem(self, scope: Scope) -> tuple[KernelSpec | None, Problem | None, str]:
        """Return the spec and the problem, each None if there is none, and the reason in that case."""
        spec = self._spec(scope.kernel)
        if spec is None:
            return None, None, _unknown(scope.kernel)
        try:
            return spec, make_problem(spec, scope.shape, scope.dtype), ""
        except TilewiseError as error:
            return spec, None, one_line(error)

    def _flaws(self, trial: Trial, scope: Scope, spec: KernelSpec | None, problem: Problem | None) -> Iterator[str]:
        if trial.created > self._latest:
            yield f"it was created at {trial.created:%Y-%m-%d %H:%M} UTC, in the future: set the clock that told so"
        if (size := len(canonical_json(dict(trial.facts)))) > _MOST_FACTS:
            yield f"its facts are {size} characters of JSON; expected at most {_MOST_FACTS}"
        if trial.status is not Status.CORRECT:
            return
        if trial.facts.get(OBJECTIVE, "") != scope.problem.objective or trial.cost is None:
            wanted = scope.problem.objective or "its time"
            yield f"its problem ranks configs by {wanted}, which it does not have or is not ranked by"
        fastest = min(time for time in (trial.time_us, trial.time_to_beat_us) if time is not None)
        if not fastest <= _LONGEST_US:
            yield f"time_us is {fastest:.3g}, more than an hour"
        if spec is None or problem is None:
            return
        floor = _LEAST_SHARE * spec.bytes(problem) / memory_gb_s(scope.device, spec.bytes(problem)) / 1e3
        bound, needs = arithmetic_binds(spec, problem, scope.device), "move the problem's bytes"
        if bound is not None:
            floor, needs = _LEAST_SHARE * bound.floor_us, "do the problem's operations"
        if fastest < floor:
            yield f"{fastest:.3g} us is less than {scope.device[:60]!r} needs to {needs} ({floor:.3g} us)"
        if trial.verified and not _is_default(trial, spec, problem, scope) and scope.source_hash == _hash(spec):
            yield from _misfits(trial, spec, problem, scope)

    def _spec(self, name: str) -> KernelSpec | None:
        if name not in self._specs:
            try:
                self._specs[name] = registry.load(name) if registry.place(name) else None
            except UnknownKernel:
                self._specs[name] = None
        return self._specs[name]


@lru_cache(maxsize=64)
def _hash(spec: KernelSpec) -> str:
    return source_hash(spec)


def _misfits(trial: Trial, spec: KernelSpec, problem: Problem, scope: Scope) -> Iterator[str]:
    try:
        broken = check_config(spec, problem, known_target(scope.device, scope.cores), trial.config)
    except TilewiseError as error:
        yield one_line(error)
    except Exception as error:  # the spec's own code, for a device that it was never tried on
        yield f"its config cannot be checked: {type(error).__name__}: {one_line(error)}"
    else:
        yield from [f"its config breaks a rule of {spec.name}: {broken}"] if broken else []


def _is_default(trial: Trial, spec: KernelSpec, problem: Problem, scope: Scope) -> bool:
    """Return whether the trial is the spec's default, which may have values outside the space."""
    default = spec.default(problem, known_target(scope.device, scope.cores))
    return trial.is_default and dict(trial.config) == dict(default)


def _unknown(kernel: str) -> str:
    return f"kernel {kernel[:40]!r} is unknown here; if it is your own, add --kernel path/to/file.py:SPEC"
