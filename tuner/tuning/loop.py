"""One tuning: a sampler draws configs, a device times and verifies them, and the store keeps every trial."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.trial import TrialState

from tilewise.db.records import VERIFIED_BY, Result, Scope, Status, Trial, digest
from tilewise.db.store import Store
from tilewise.errors import BadSpec, NothingFeasible, UsageError
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target, Value
from tilewise.tuner.devices.base import Device
from tilewise.tuner.devices.spread import comparable
from tilewise.tuner.hardware.peaks import Arithmetic, arithmetic_binds
from tilewise.tuner.measure.drift import DRIFT
from tilewise.tuner.measure.outcome import FAULTS, Outcome
from tilewise.tuner.prior.penalties import is_likely_to_fit, penalties
from tilewise.tuner.samplers.base import (
    FAILED,
    PENALTY,
    ExhaustiveSampler,
    RandomSampler,
    TableSampler,
    TpeSampler,
    distributions,
    quiet_study,
)
from tilewise.tuner.samplers.guided import LEAST, GuidedSampler, Outlook
from tilewise.tuner.samplers.model_ranking import CONFIRMED, MODELLED, rank_by_model
from tilewise.tuner.samplers.prior_weights import learnt_weights
from tilewise.tuner.samplers.warm_start import Neighbour, neighbour_indices, neighbours, with_suggestions
from tilewise.tuner.space.search_space import Space, check_tilings, enumerate_space
from tilewise.tuner.tuning.evidence import trial_from_outcome
from tilewise.tuner.tuning.rebenchmark import Rebenchmark
from tilewise.tuner.tuning.unmodelled import Unmodelled, general, unmodelled_text

__all__ = [
    "DEFAULT_TRIALS",
    "LEAST_PER_PARAMETER",
    "SEARCHES",
    "Budget",
    "Plan",
    "PriorTable",
    "Tuning",
    "Watcher",
    "default_trials",
    "make_sampler",
    "prior_table",
]

DEFAULT_TRIALS = 200
"""A limit: most guided searches end by themselves. docs/search.md has the number of trials that they took with several
limits on recorded landscapes, before `LEAST_PER_PARAMETER`, and docs/timing.md how far ten tunings of one problem ended
apart with 60, 120 and 200."""

PriorTable = tuple[NDArray[np.float64], NDArray[np.bool_]]
"""Log penalties, one row per config and one column per penalty; and which configs the prior expects to fit on chip."""

SEARCHES = ("guided", "tpe", "random", "exhaustive")

LEAST_PER_PARAMETER = 24
"""On a noisy device a guided search does not end by itself before this many trials for each parameter that varies. The
prior is a guess there, and the search can be sure too early: of nine tunings of `batch_norm` on an H200, with seven
parameters, five ended after 33 to 73 trials with a winner 7.6% slower than the others'
(docs/results/h200-repeatability-default-earlier.json). Chosen by hand on that problem."""

WARNINGS = "warnings"
"""Key of a verified trial's fact: the warnings of verification."""

_Tried = tuple[Config, Outcome]

_UNLEARNING = ("random", "exhaustive")
_WIDE = 32
"""Batches that a search which does not learn tries at once: the next ones compile while the first are timed."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a tuning: a problem's trials in all, stored ones included (None: the whole space), and seconds.

    Raises `UsageError` for a budget that allows nothing.
    """

    trials: int | None = DEFAULT_TRIALS
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.trials is not None and self.trials < 1:
            raise UsageError(f"a budget of {self.trials} trials; expected 1 or more")
        if self.seconds is not None and not self.seconds > 0:
            raise UsageError(f"a budget of {self.seconds} seconds; expected more than 0")


def default_trials(search: str) -> int | None:
    """Return the default of `Budget.trials`."""
    return None if search == "exhaustive" else DEFAULT_TRIALS


_OF_ANOTHER_SPACE = "of another space: the kernel's parameters or configs have changed since"


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a tuning, which the watcher is told once, before the first trial.

    `floor_us` is the least time that memory allows; `arithmetic` is known where that of the operations is longer.
    """

    scope: Scope
    device_id: str
    search: str
    space: int
    resumed: int
    trials: int
    seconds: float | None
    floor_us: float | None
    arithmetic: Arithmetic | None = None


class Watcher:
    """A listener to the progress of a tuning; this one does nothing."""

    def started(self, plan: Plan) -> None: ...

    def tried(self, trial: Trial, best: Trial | None) -> None: ...

    def verifying(self, config: Config) -> None: ...

    def noticed(self, text: str) -> None:
        """Receive a message about the device that a person should read."""

    def comparing(self, trials: Sequence[Trial]) -> None:
        """Receive the candidates that are about to be timed in turns."""

    def finished(self) -> None:
        """Note the end of the tuning, successful or not."""


def prior_table(spec: KernelSpec, problem: Problem, space: Space, target: Target) -> PriorTable | None:
    """Return the penalties of every config of a space; None if the spec does not say how configs divide the work."""
    if not spec.tiling(space.configs[0], problem).axes:
        return None
    rows = [penalties(spec, problem, config, target) for config in space.configs]
    table = np.log(np.array([list(row.values()) for row in rows]))
    return table, np.array([is_likely_to_fit(row) for row in rows])


def make_sampler(
    search: str,
    space: Space,
    seed: int,
    prior: Callable[[], PriorTable | None] | None = None,
    first: Callable[[PriorTable | None], Sequence[int]] = lambda table: (),
    elsewhere: Callable[[], Sequence[int]] = tuple,
    weights: Callable[[], NDArray[np.float64] | None] = lambda: None,
) -> TableSampler:
    """Return the sampler of that name.

    The callbacks are for the guided one. `prior` returns its table (None: no prior), `first` the config indices to
    begin with, `elsewhere` those of winners for another shape, dtype or device, and `weights` the penalties' weights
    there.
    """
    if search == "guided":
        known = prior() if prior else None
        table, likely = known or (None, None)
        return GuidedSampler(
            space,
            seed,
            log_penalties=table,
            likely=likely,
            known=first(known),
            elsewhere=elsewhere(),
            weights=None if table is None else weights(),
        )
    plain: Mapping[str, type[RandomSampler | ExhaustiveSampler | TpeSampler]] = {
        "tpe": TpeSampler,
        "random": RandomSampler,
        "exhaustive": ExhaustiveSampler,
    }
    return plain[search](space, seed)


class Tuning:
    """The tuning of one problem on one device. `run` may be interrupted at any moment: stored trials are kept."""

    def __init__(
        self,
        spec: KernelSpec,
        problem: Problem,
        device: Device,
        store: Store,
        *,
        budget: Budget,
        search: str = "guided",
        seed: int = 0,
        fresh: bool = False,
        since: int | None = None,
        strict: bool = False,
        watcher: Watcher | None = None,
    ) -> None:
        """`strict` makes warnings of verification, such as reads outside a tensor, failures of the config.

        A `fresh` tuning counts only trials recorded since a mark, by default now.
        """
        device = comparable(device)
        device.check_memory(spec, problem)
        _check_objective(spec, problem, device)
        if not 0 <= seed < 2**63:
            raise UsageError(f"a seed of {seed}; expected 0 or more, below 2^63")
        self._spec, self._problem, self._device, self._store = spec, problem, device, store
        self._search, self._seed, self._fresh, self._strict = search, seed, fresh, strict
        self._warned: set[str] = set()
        self._has_changed = False
        self._watcher = watcher or Watcher()
        self.scope = device.scope(spec, problem)
        self._space = enumerate_space(spec, problem, device.target)
        check_tilings(spec, problem, self._space.configs)
        self._default = _default(spec, problem, device.target, self._space)
        self._began = store.mark() if since is None else since
        self._spent = _spent(store.trials(self.scope))
        self._clock = time.monotonic()
        self._deadline = None if budget.seconds is None else self._clock + budget.seconds
        self._trials = min(len(self._space), budget.trials if budget.trials is not None else len(self._space))
        self._budget = budget
        self._best: Trial | None = None
        self._ordinal = 0
        self._unmodelled = Unmodelled()
        self._predicted: dict[int, float | None] = {}
        self._rebenchmark = Rebenchmark(spec, problem, device, store, self.scope, self._watcher.comparing)
        self.outlook: Outlook | None = None
        """The guided search's last estimate of the gain from further search. It ends searches, and is shown to nobody:
        its chances were poorly calibrated on recorded landscapes."""

    def run(self) -> Result:
        """Tune and return the result. Raises `NothingFeasible` if no config that was tried is correct."""
        return self._tune(self._draw, self._trials)

    def retime(self, configs: Sequence[Config]) -> Result:
        """Time these configs and the default instead of searching, and return the result; raises like `run`.

        Configs outside the space are left out.
        """
        inside = [config for config in configs if self._space.index(config) is not None]
        return self._tune(lambda known: self._time(inside, known), len(inside))

    def _tune(self, course: Callable[[list[Trial]], None], trials: int) -> Result:
        """Run a course, which is given the stored trials, and compare its fastest."""
        self._disown()
        known = self._resume()
        self._device.compare_with(self._problem, self._counted())
        self._watcher.started(
            Plan(
                scope=self.scope,
                device_id=self._device.id,
                search=self._search,
                space=len(self._space),
                resumed=len(known),
                trials=trials,
                seconds=self._budget.seconds,
                floor_us=self._device.floor_us(self._spec, self._problem),
                arithmetic=arithmetic_binds(self._spec, self._problem, self._device.target.name),
            )
        )
        if self._spec.needs_energy and not self._device.measures_energy:
            self._watcher.noticed(f"{self._device.id} does not measure energy; metrics that need it are left out")
        try:
            self._device.warm_up()
            course(known)
            if self._is_hopeless():
                self._watcher.noticed(f"the search stopped: {unmodelled_text(self._counted())}")
            self._try_default()
            self._rebenchmark.run(self._counted())
        finally:
            self._watcher.finished()
        return self._conclude()

    def _draw(self, known: list[Trial]) -> None:
        """Try what the search draws until it ends.

        A device that draws ahead was given its next batch before half of the last one was told. So a resumed search is
        told that half after its first batch, as the unbroken one was.
        """
        late = known[-(self._width() // 2) :] if self._device.draws_ahead else []
        study = self._study(known[: len(known) - len(late)], late)
        while True:
            asked = deque[optuna.Trial]()
            with closing(self._tried(self._batches(study, asked, late))) as tried:
                for trial in tried:
                    _tell(study, asked.popleft(), trial)
            if not self._has_changed:
                return
            self._time_best_again()

    def _time(self, configs: Sequence[Config], known: list[Trial]) -> None:
        """Try those of the configs that were not tried before."""
        tried = {trial.config_key for trial in known}
        left = [config for config in configs if digest(dict(config)) not in tried]
        for first in range(0, len(left), self._device.batch):
            list(self._tried(iter([left[first : first + self._device.batch]])))
            if self._has_changed:
                self._time_best_again()

    def _width(self) -> int:
        """Return how many configs to try at once: more for a search that does not learn, to keep the compilers busy."""
        waits = self._search not in _UNLEARNING or self._deadline is not None
        return self._device.batch * (1 if waits else _WIDE)

    def _enough(self, study: optuna.Study) -> bool:
        """Return whether the search itself expects next to no gain from going on."""
        sampler = study.sampler
        if not isinstance(sampler, GuidedSampler) or sampler.told(study) < self._least():
            return False
        self.outlook = sampler.outlook(study)
        return self.outlook is not None and self.outlook.is_over

    def _least(self) -> int:
        varying = sum(len(values) > 1 for values in self._space.domains.values())
        return max(LEAST, LEAST_PER_PARAMETER * varying) if self._device.noisy else LEAST

    def _is_hopeless(self) -> bool:
        """Return whether the model keeps failing to judge configs for one reason, and has judged none so far."""
        return self._best is None and self._unmodelled.are_hopeless

    def _late(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    # Stored trials -----------------------------------------------------------------------------------------------

    def _disown(self) -> None:
        """Have stored trials of another space of this kernel win no more: those of other parameters and, where the
        space follows from a program's own configs, those of configs that the program has dropped."""
        foreign = [
            t
            for t in self._store.trials(self.scope)
            if t.config.keys() != self._space.domains.keys()
            or (self._spec.inferred and t.ordinal is not None and self._space.index(t.config) is None)
        ]
        untimed = dict.fromkeys(("time_us", "p20_us", "p80_us", "low_us", "high_us", "time_to_beat_us"))
        lost: dict[str, Any] = {**untimed, "status": Status.CONSTRAINTS, "reason": _OF_ANOTHER_SPACE, "verified": False}
        if correct := [t for t in foreign if t.status is Status.CORRECT]:
            self._store.record(self.scope, [replace(t, **lost) for t in correct])

    def _resume(self) -> list[Trial]:
        """Verify the stored leader if it never was, and return the stored trials that a search drew from this space."""
        self._settle()
        drawn = [t for t in self._counted() if t.ordinal is not None]
        known = [t for t in drawn if self._space.index(t.config) is not None and t.reason != _OF_ANOTHER_SPACE]
        known.sort(key=lambda t: t.ordinal or 0)  # a final comparison records its trials again
        self._ordinal = len(known)
        for trial in known:
            self._unmodelled.count(trial)
        return known

    def _settle(self) -> None:
        """Verify the fastest stored trial, then the next fastest, until one is right."""
        while True:
            correct = [t for t in self._counted() if t.status is Status.CORRECT]
            leader = min(correct, key=lambda t: (t.ranking or 0, t.time_to_beat_us is None), default=None)
            if leader is None or (leader.verified and not self._has_more_to_prove(leader)):
                self._best = leader
                return
            verdict = self._device.verify(self._spec, self._problem, leader.config)
            self._store.verify(
                self.scope, leader.config, agreed=verdict.agreed, reason=verdict.reason, status=verdict.status
            )

    def _has_more_to_prove(self, leader: Trial) -> bool:
        """Return whether a trial was verified before the kernel had a reference; it is stored as not verified then."""
        if leader.verified_by != "self" or not self._spec.has_reference:
            return False
        facts = {name: fact for name, fact in leader.facts.items() if name != VERIFIED_BY}
        self._store.record(self.scope, [replace(leader, verified=False, facts=facts)])
        return True

    def _study(self, stored: list[Trial], asked: list[Trial]) -> optuna.Study:
        """Return a study that was told of the stored trials, and only asked for the others."""

        @cache
        def known() -> list[Neighbour]:
            return [] if self._fresh else neighbours(self._store, self.scope)

        def prior() -> PriorTable | None:
            spec, problem, target = self._device.subject(self._spec, self._problem)
            return prior_table(spec, problem, self._space, target)

        def elsewhere() -> list[int]:
            if self._fresh:
                return []
            won = neighbour_indices(known(), self._space)
            return with_suggestions(self._store, self.scope, self._space, won, self._default)

        def weights() -> NDArray[np.float64] | None:
            return learnt_weights(known(), self._spec, self._device.target, self._space)

        study = quiet_study(make_sampler(self._search, self._space, self._seed, prior, self._rank, elsewhere, weights))
        study.add_trials([self._added(trial, TrialState.COMPLETE) for trial in stored])
        study.add_trials([self._added(trial, TrialState.RUNNING) for trial in asked])
        return study

    def _added(self, trial: Trial, state: TrialState) -> optuna.trial.FrozenTrial:
        """Return a stored trial for a study that did not draw it."""
        return optuna.trial.create_trial(
            state=state,
            params=dict(zip(self._space.domains, self._space.value_indices_of(trial.config), strict=True)),
            distributions=distributions(self._space),
            value=_objective(trial) if state is TrialState.COMPLETE else None,
            user_attrs={FAILED: trial.status is not Status.CORRECT},
        )

    def _rank(self, table: PriorTable | None) -> list[int]:
        """Return the configs that the device's model, if it has one, predicts to be fastest."""
        found = rank_by_model(self._predict_us, self._space, table[0] if table else None)
        self._predicted.update(found)
        return list(found)[:CONFIRMED]

    # One batch ---------------------------------------------------------------------------------------------------

    def _batches(
        self, study: optuna.Study, asked: deque[optuna.Trial], late: list[Trial]
    ) -> Iterator[Sequence[Config]]:
        """Draw batches until the search ends or the device has changed, and add what was `asked`.

        After the first one, tell of the `late` trials, which the study was last asked for.
        """
        while (left := self._trials - self._ordinal - len(asked)) > 0:
            if self._late() or self._is_hopeless() or self._has_changed or self._enough(study):
                return
            size = min(self._width(), left)
            drawn = [study.ask(fixed_distributions=distributions(self._space)) for _ in range(size)]
            asked.extend(drawn)
            for number, trial in enumerate(late, drawn[0].number - len(late)):
                study.tell(number, _objective(trial))
            late.clear()
            configs = [self._config(one) for one in drawn]
            self._predict(configs)
            yield configs

    def _tried(self, batches: Iterator[Sequence[Config]]) -> Generator[Trial]:
        """Try batches of configs and yield their trials, each as soon as it is stored."""
        self._has_changed = False
        for tried in self._evaluated(batches):
            lasting = [self._changed(outcome) for _, outcome in tried]
            self._has_changed = self._has_changed or any(lasting)
            first, self._ordinal = self._ordinal + 1, self._ordinal + len(tried)
            yield from self._keep(tried, range(first, self._ordinal + 1))

    def _changed(self, outcome: Outcome) -> bool:
        """Tell the watcher of a disturbance of the device; return whether it lasts."""
        if not (drift := outcome.facts.get(DRIFT)):
            return False
        slow = f"its reference took {drift['ratio']:.2f} times as long as usual"
        state = [drift.get("throttled"), f"{drift['clock_mhz']:.0f} MHz" if "clock_mhz" in drift else None]
        why = ", ".join(text for text in state if text)
        then = "the change lasts, so the best is timed again" if drift["lasts"] else "the config was timed again"
        self._watcher.noticed(f"{self._device.id} was disturbed: {slow}{f' ({why})' if why else ''}; {then}")
        return bool(drift["lasts"])

    def _time_best_again(self) -> None:
        """Time the best again: the time to beat must come from the device as it is now."""
        if (best := self._best) is None:
            return
        outcome = next(iter(self._device.evaluate(self._spec, self._problem, [best.config])))
        again = self._trial(best.config, outcome, best.ordinal)
        if again.status is Status.CORRECT:
            self._best = replace(again, verified=True, search=best.search, seed=best.seed, seconds=best.seconds)
            self._store.record(self.scope, [self._best])

    def _evaluated(self, batches: Iterator[Sequence[Config]]) -> Iterator[Sequence[_Tried]]:
        """Yield configs in order with their outcomes, together if they were known at the same time.

        Configs that failed too often are not tried again; the store has their outcomes.
        """
        waiting = deque[tuple[Config, Outcome | None]]()

        def unknown() -> Iterator[Sequence[Config]]:
            for configs in batches:
                batch = [(config, self._spent.get(digest(dict(config)))) for config in configs]
                waiting.extend(batch)
                yield [config for config, known in batch if known is None]

        timed = self._device.evaluate_batches(self._spec, self._problem, unknown(), to_beat_us=self._to_beat_us)
        for outcomes in timed:
            yield list(_answered(waiting, iter(outcomes)))
        yield list(_answered(waiting, iter(())))

    def _predict_us(self, configs: Sequence[Config]) -> Sequence[float | None] | None:
        return self._device.predict_us(self._spec, self._problem, configs)

    def _predict(self, configs: Sequence[Config]) -> None:
        """Ask the device's model, if it has one, to compare its order with the measured one later."""
        by_index = {index: c for c in configs if (index := self._space.index(c)) is not None}
        new = [index for index in by_index if index not in self._predicted]
        times = self._predict_us([by_index[index] for index in new])
        self._predicted.update(zip(new, times, strict=True) if times is not None else ())

    def _config(self, drawn: optuna.Trial) -> Config:
        index = self._space.index_of([drawn.params[name] for name in self._space.domains])
        assert index is not None, "samplers suggest configs of the space only"
        return self._space.configs[index]

    def _keep(self, tried: Sequence[_Tried], ordinals: Sequence[int | None]) -> list[Trial]:
        """Store these configs' trials together. One that would lead is verified first, when those before it are stored,
        and is stored before the next one is compared with it."""
        kept, together = list[Trial](), list[Trial]()
        for (config, outcome), ordinal in zip(tried, ordinals, strict=True):
            trial = self._trial(config, outcome, ordinal)
            if self._leads(trial):
                kept += self._commit(together) + self._commit([self._verified(trial)])
                together = []
            else:
                together.append(trial)
        return kept + self._commit(together)

    def _commit(self, trials: Sequence[Trial]) -> list[Trial]:
        """Store trials in one transaction. Only then does a verified one lead, and is the watcher told of them."""
        if not trials:
            return []
        now = time.monotonic()
        stored = [replace(trial, seconds=(now - self._clock) / len(trials)) for trial in trials]
        self._clock = now
        self._store.record(self.scope, stored)
        for trial in stored:
            self._unmodelled.count(trial)
            if trial.verified:
                if self._fresh and self._best is None:
                    self._store.retire(self.scope, self._began)
                self._best = trial
            self._watcher.tried(trial, self._best)
        return stored

    def _verified(self, trial: Trial) -> Trial:
        """Return the trial with the verdict on its output; warnings are told, or with `strict` are failures."""
        self._watcher.verifying(trial.config)
        verdict = self._device.verify(self._spec, self._problem, trial.config)
        if not verdict.agreed:
            return replace(trial, status=verdict.status, reason=verdict.reason)
        if not verdict.warnings:
            return replace(trial, verified=True)
        if self._strict:
            return replace(trial, status=Status.CORRECTNESS, reason=verdict.warnings[0])
        for text in verdict.warnings:
            if (kind := general(text)) not in self._warned:
                self._warned.add(kind)
                self._watcher.noticed(f"warning: {text}")
        return replace(trial, verified=True, facts={**trial.facts, WARNINGS: list(verdict.warnings)})

    def _leads(self, trial: Trial) -> bool:
        if trial.status is not Status.CORRECT:
            return False
        to_beat = self._best.ranking if self._best else None
        return trial.cost is not None and (to_beat is None or trial.cost < to_beat)

    def _to_beat_us(self) -> float | None:
        """Return the best time so far; None if configs are not ranked by time, since a slow one may win then."""
        return self._best.time_us if self._best and not self._spec.objective else None

    def _trial(self, config: Config, outcome: Outcome, ordinal: int | None) -> Trial:
        index = self._space.index(config)
        predicted = None if index is None else self._predicted.get(index)
        return trial_from_outcome(
            self._spec,
            self._problem,
            config,
            self._device.target,
            outcome,
            facts={} if predicted is None else {MODELLED: predicted},
            is_default=dict(config) == self._default,
            ordinal=ordinal,
            search=self._search,
            seed=self._seed,
        )

    # The end -----------------------------------------------------------------------------------------------------

    def _try_default(self) -> None:
        """Time the spec's default beside the winner. It comes last, so that it gives the search no hint."""
        if self._default is not None and all(dict(trial.config) != self._default for trial in self._counted()):
            for tried in self._evaluated(iter([[self._default]])):
                self._keep(tried, [None] * len(tried))

    def _conclude(self) -> Result:
        if self._best is None:
            if not (trials := self._counted()):
                raise NothingFeasible(
                    f"the budget of {self._budget.seconds} seconds ended before a config was tried; allow more"
                )
            if told := unmodelled_text(trials):
                raise NothingFeasible("; ".join([told, *_reasons(trials)]))
            raise NothingFeasible(f"none of {len(trials)} configs ran correctly; {'; '.join(_reasons(trials))}")
        return replace(self._store.result(self.scope), trials=tuple(self._store.trials(self.scope)))

    def _counted(self) -> list[Trial]:
        """Return the stored trials that count for this tuning: with `fresh`, only its own."""
        return self._store.trials(self.scope, since=self._began if self._fresh else 0)


def _check_objective(spec: KernelSpec, problem: Problem, device: Device) -> None:
    """Raise `UsageError` if the device cannot measure the objective, `BadSpec` if a better launch would cost more."""
    if not spec.objective:
        return
    if not device.measures_energy:
        raise UsageError(
            f"kernel {spec.name} ranks configs by {spec.objective}, but {device.id} does not measure energy; NVIDIA "
            "GPUs from Volta on do"
        )
    one, twice = (spec.metrics_of(problem, each, each)[spec.objective] for each in (100.0, 200.0))
    if not 0 < one < twice:
        raise BadSpec(
            f"metric {spec.objective!r} of kernel {spec.name} gives {one:.4g} for a launch of 100 us and 100 uJ and "
            f"{twice:.4g} for one of twice both; an objective must grow from above 0, as the smallest wins"
        )


def _default(spec: KernelSpec, problem: Problem, target: Target, space: Space) -> dict[str, Value] | None:
    """Return the spec's default, if it has one. Its values may lie outside the space; its parameters may not."""
    default = dict(spec.default(problem, target))
    if not default and spec.configs is not None:
        return None
    if default.keys() != space.domains.keys():
        names = f"{', '.join(default) or 'no parameter'}; expected {', '.join(space.domains)}"
        raise BadSpec(f"the default of kernel {spec.name} on {target.name} gives {names}")
    return default


def _answered(waiting: deque[tuple[Config, Outcome | None]], new: Iterator[Outcome]) -> Iterator[_Tried]:
    """Take from the front the configs whose outcome is known or among the new ones."""
    while waiting and (outcome := waiting[0][1] or next(new, None)) is not None:
        yield waiting.popleft()[0], outcome


def _reasons(trials: Sequence[Trial]) -> list[str]:
    """Return one reason per status of failed trials: that of the trial that came nearest to fitting on chip."""
    judged = (t for t in trials if t.status not in (Status.CORRECT, Status.UNMODELLED))
    failed = sorted(judged, key=_bits_required, reverse=True)
    return sorted(f"{status}: {reason}" for status, reason in {t.status: t.reason for t in failed}.items())


def _bits_required(trial: Trial) -> int:
    return int(trial.facts.get("on_chip_bits", {}).get("required", 0))


def _spent(trials: Sequence[Trial]) -> dict[str, Outcome]:
    """Return, by config key, the outcomes of configs that have cost two processes on this toolchain.

    That is evidence enough: a fresh tuning does not try them again either.
    """
    return {
        trial.config_key: Outcome(trial.status, trial.reason, facts=trial.facts)
        for trial in trials
        if trial.facts.get(FAULTS, 0) > 1
    }


def _tell(study: optuna.Study, asked: optuna.Trial, trial: Trial) -> None:
    asked.set_user_attr(FAILED, trial.status is not Status.CORRECT)
    study.tell(asked, _objective(trial))


def _objective(trial: Trial) -> float:
    """Return the value that the sampler minimises: the logarithm of the cost, or `PENALTY`."""
    return float(np.log(trial.cost)) if trial.status is Status.CORRECT and trial.cost else PENALTY
