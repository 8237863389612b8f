"""A tuning: its budget, the choice of the best, the stored trials, and a second tuning that resumes from them."""

import dataclasses
import itertools
import math
import random
import socket
import time
from datetime import datetime, timedelta, tzinfo

import bowl as bowl_file
import pytest
from noise import Noise

from tilewise.db import records
from tilewise.db.records import Clock, Status, Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import BadDimension, BadSpec, NothingFeasible, StoreError, UsageError
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.spread import SpreadDevice
from tilewise.tuner.measure.outcome import Outcome
from tilewise.tuner.samplers.guided import GuidedSampler
from tilewise.tuner.tuning.loop import (
    DEFAULT_TRIALS,
    LEAST_PER_PARAMETER,
    SEARCHES,
    Budget,
    Tuning,
    Watcher,
    default_trials,
)

PROBLEM = Problem("bowl", {"M": 64}, "float32")
SPACE = 104


class Recorder(Watcher):
    """A watcher that records all its calls, in order."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.plan = None
        self.trials: list[Trial] = []

    def started(self, plan):
        self.plan = plan
        self.heard.append("started")

    def tried(self, trial, best):
        self.trials.append(trial)
        self.heard.append("tried")

    def verifying(self, config):
        self.heard.append("verifying")

    def finished(self):
        self.heard.append("finished")


@pytest.fixture
def tuning(bowl, store):
    """Return a function that makes a tuning of the bowl into the store."""

    def make(trials: int | None = 20, device=None, *, seconds=None, spec=None, problem=PROBLEM, **options) -> Tuning:
        budget = Budget(trials, seconds)
        return Tuning(spec or bowl.SPEC, problem, device or bowl.FormulaDevice(), store, budget=budget, **options)

    return make


def outcomes(device):
    """Return a device's configs as hashable values, in the order of their evaluation."""
    return [tuple(config.values()) for config in device.evaluated]


# --- the budget -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", SEARCHES)
def test_a_tuning_tries_as_many_configs_as_its_budget_allows_and_the_default(bowl, tuning, store, search):
    device = bowl.FormulaDevice()
    result = tuning(17, device, search=search).run()
    assert result.counts == {Status.CORRECT: 17 + (tuple(bowl.DEFAULT.values()) not in outcomes(device)[:17])}
    assert len(outcomes(device)) == len(set(outcomes(device))) == sum(result.counts.values())


def test_all_of_the_space_is_tried_where_no_number_is_given(bowl, tuning):
    device = bowl.FormulaDevice()
    result = tuning(None, device, search="exhaustive").run()
    assert len(device.evaluated) == len(set(outcomes(device))) == SPACE
    assert result.winner is not None
    assert (result.winner.config, result.winner.time_us) == (bowl.BEST, 10.0)


def test_a_budget_beyond_the_space_ends_with_it(bowl, tuning):
    device = bowl.FormulaDevice()
    tuning(10**6, device, search="random").run()
    assert len(device.evaluated) == SPACE


def test_seconds_end_the_search_after_the_batch_that_is_running(bowl, tuning, monkeypatch):
    now = itertools.count(0.0, 1.0)
    monkeypatch.setattr("tilewise.tuner.tuning.loop.time.monotonic", lambda: next(now))
    device = bowl.FormulaDevice()
    result = tuning(None, device, seconds=12, search="random").run()
    searched = len(device.evaluated) - 1
    assert searched in (8, 12)
    assert searched % device.batch == 0
    assert result.winner is not None


@pytest.mark.parametrize(
    ("trials", "seconds", "message"),
    [
        (0, None, "a budget of 0 trials; expected 1 or more"),
        (-1, None, "a budget of -1 trials"),
        (5, 0.0, "a budget of 0.0 seconds; expected more than 0"),
        (5, -2, "a budget of -2 seconds"),
        (5, math.nan, "a budget of nan seconds"),
    ],
)
def test_a_budget_that_allows_nothing_is_refused(trials, seconds, message):
    with pytest.raises(UsageError, match=message):
        Budget(trials, seconds)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_is_no_seed_is_refused(bowl, tuning, seed):
    with pytest.raises(UsageError, match=f"a seed of {seed}; expected 0 or more, below 2\\^63"):
        tuning(5, seed=seed)


def test_where_nobody_says_only_the_exhaustive_search_tries_everything():
    assert {search: default_trials(search) for search in SEARCHES} == {
        "guided": DEFAULT_TRIALS,
        "tpe": DEFAULT_TRIALS,
        "random": DEFAULT_TRIALS,
        "exhaustive": None,
    }


# --- the choice of the best -----------------------------------------------------------------------------------------


def test_the_winner_is_the_fastest_and_verified_and_says_why(bowl, tuning, store):
    result = tuning(SPACE, search="random").run()
    winner = result.winner
    assert winner is not None and winner.verified
    assert winner.config == bowl.BEST
    fastest = min(trial.time_us for trial in store.trials(result.scope))
    assert winner.time_us == fastest == 10.0
    assert winner.why == f"13 programs on 8 cores in 2 waves, no tail rows, {winner.facts['gb_s'] / 1e3:.2f} TB/s"
    assert winner.facts["waves"] == 2
    assert result.scope.clock is Clock.MODELLED


def test_only_configs_that_would_lead_are_verified(bowl, tuning):
    device, watcher = bowl.FormulaDevice(), Recorder()
    tuning(None, device, search="random", watcher=watcher).run()
    leading, best = [], math.inf
    for trial in watcher.trials:
        if trial.time_us < best:
            best = trial.time_us
            leading.append(dict(trial.config))
        assert trial.verified == (trial.time_us == best and trial.config == leading[-1])
    assert device.verified == leading


@pytest.mark.parametrize(
    ("best", "time_us", "leads"),
    [
        ({}, 11.0, True),
        ({}, 12.0, False),
        ({"time_to_beat_us": 10.0}, 11.0, False),
        ({"time_to_beat_us": 10.0}, 10.0, False),
        ({"time_to_beat_us": 10.0}, 9.0, True),
        (None, 99.0, True),
        (None, None, False),
    ],
)
def test_a_config_leads_if_it_beats_all_that_the_best_was_declared_over(bowl, tuning, best, time_us, leads):
    made = tuning()
    made._best = None if best is None else Trial(bowl.BEST, Status.CORRECT, time_us=12.0, verified=True, **best)
    assert made._leads(Trial(bowl.DEFAULT, Status.CORRECT, time_us=time_us)) is leads
    assert not made._leads(Trial(bowl.DEFAULT, Status.RUNTIME, time_us=time_us))


def test_a_config_with_a_wrong_output_never_becomes_best_and_the_next_one_does(bowl, tuning, store):
    device = bowl.FormulaDevice(wrong=lambda config: config["fast"] and config["TILE"] == 5)
    result = tuning(None, device, search="exhaustive").run()
    times = {bowl.time_us(c) for c in device.evaluated if not (c["fast"] and c["TILE"] == 5)}
    assert result.winner is not None
    assert result.winner.time_us == min(times) == 12.0
    assert result.winner.verified
    wrong = [trial for trial in store.trials(result.scope) if trial.status is Status.CORRECTNESS]
    assert wrong
    assert all(trial.config["TILE"] == 5 and trial.reason == "x_ptr: off by 1.0" for trial in wrong)
    assert all(trial.time_us < 1000 and not trial.verified for trial in wrong)


def test_the_search_hears_of_a_wrong_output_as_a_failure(bowl, tuning):
    """All fast configs are wrong: a guided search that believed their times would try nothing else."""
    device = bowl.FormulaDevice(wrong=lambda config: config["fast"])
    result = tuning(60, device).run()
    assert result.winner is not None
    assert result.winner.time_us == 12.0


def test_failures_are_kept_with_their_reasons(bowl, tuning, store):
    kinds = [Status.COMPILE, Status.RUNTIME, Status.TIMEOUT, None]

    def failing(config):
        return kinds[config["TILE"] % 4] or bowl.time_us(config)

    result = tuning(None, bowl.FormulaDevice(failing), search="exhaustive").run()
    kept = {trial.status: trial.reason for trial in store.trials(result.scope)}
    assert kept == {
        Status.COMPILE: "it is compile",
        Status.RUNTIME: "it is runtime",
        Status.TIMEOUT: "it is timeout",
        Status.CORRECT: "",
    }
    assert sum(result.counts.values()) == SPACE


@pytest.mark.in_part(3)
@pytest.mark.parametrize(
    ("time", "search"),
    [*((math.nan, search) for search in SEARCHES), (math.inf, "random"), (0.0, "random"), (-1.0, "random")],
)
def test_a_time_that_cannot_be_is_a_failure(bowl, tuning, store, time, search):
    device = bowl.FormulaDevice(lambda config: time if config["fast"] else bowl.time_us(config))
    result = tuning(None, device, search=search).run()
    strange = [trial for trial in store.trials(result.scope) if trial.config["fast"]]
    assert strange
    assert {(t.status, t.reason) for t in strange} == {(Status.RUNTIME, f"the device reported a time of {time} us")}
    assert result.winner is not None
    assert result.winner.time_us == 12.0


def test_nothing_feasible_says_how_many_were_tried_and_why_they_failed(bowl, tuning, store):
    device = bowl.FormulaDevice(lambda config: Status.COMPILE if config["fast"] else Status.RUNTIME)
    failed = tuning(10, device, search="random")
    with pytest.raises(NothingFeasible) as caught:
        failed.run()
    kept = len(store.trials(failed.scope))
    assert str(caught.value) == f"none of {kept} configs ran correctly; compile: it is compile; runtime: it is runtime"


def reported_as(status, reason):
    """Return a device whose configs all have this outcome; numbers in the reason differ."""

    class Device(bowl_file.FormulaDevice):
        def evaluate(self, spec, problem, configs, *, to_beat_us=lambda: None):
            for config in configs:
                self.evaluated.append(dict(config))
                yield Outcome(status, reason.format(len(self.evaluated)))

    return Device()


def test_a_search_that_meets_only_what_the_model_cannot_judge_stops_and_says_why(tuning, store):
    device = reported_as(Status.UNMODELLED, "the model does not know vmystery (operation {})")
    stopped = tuning(None, device, search="guided")
    with pytest.raises(NothingFeasible) as caught:
        stopped.run()
    kept = store.trials(stopped.scope)
    assert {trial.status for trial in kept} == {Status.UNMODELLED}
    assert len([trial for trial in kept if trial.ordinal is not None]) == 8
    assert str(caught.value).startswith(f"the model could not judge {len(kept)} of {len(kept)} configs: the model does")
    assert "vmystery" in str(caught.value)


def test_a_resumed_search_does_not_meet_it_eight_times_again(tuning, store):
    for _ in range(2):
        device = reported_as(Status.UNMODELLED, "the model does not know vmystery")
        stopped = tuning(None, device)
        with pytest.raises(NothingFeasible):
            stopped.run()
    assert len([trial for trial in store.trials(stopped.scope) if trial.ordinal is not None]) == 8


def test_different_failures_and_a_search_with_a_time_go_on(bowl, tuning, store):
    failing = tuning(None, bowl.FormulaDevice(lambda config: Status.COMPILE), search="random")
    with pytest.raises(NothingFeasible, match="none of"):
        failing.run()
    assert len(store.trials(failing.scope)) >= SPACE
    partly = bowl.FormulaDevice(lambda config: Status.UNMODELLED if config["TILE"] > 4 else bowl.time_us(config))
    result = tuning(None, partly, search="exhaustive", fresh=True).run()
    assert result.winner is not None
    assert result.counts[Status.UNMODELLED] > 8
    assert result.to_json()["trials"]["unmodelled"] == result.counts[Status.UNMODELLED]


class WarningDevice(bowl_file.FormulaDevice):
    """A device that verifies every config with a warning."""

    def verify(self, spec, problem, config):
        warning = f"load (k.py:3) uses element -{config['TILE']} of x_ptr, which has 64; a mask throws it away"
        return dataclasses.replace(super().verify(spec, problem, config), warnings=(warning,))


class Noticing(Watcher):
    def __init__(self):
        self.texts = []

    def noticed(self, text):
        self.texts.append(text)


def test_a_warning_is_told_once_and_kept_with_the_trial(tuning, store):
    watcher = Noticing()
    result = tuning(20, WarningDevice(), watcher=watcher).run()
    assert result.winner.verified
    assert result.winner.facts["warnings"][0].startswith("load (k.py:3) uses element -")
    assert len(watcher.texts) == 1 and watcher.texts[0].startswith("warning: load (k.py:3)")


def test_with_strict_a_warning_is_an_error(tuning, store):
    strict = tuning(5, WarningDevice(), strict=True)
    with pytest.raises(NothingFeasible, match=r"correctness: load .* uses element"):
        strict.run()


def test_of_configs_that_overflow_the_one_that_came_nearest_to_fitting_is_named(bowl, tuning):
    class Overflowing(bowl.FormulaDevice):
        def evaluate(self, spec, problem, configs, **options):
            for config in configs:
                bits = 1000 * config["TILE"] * config["WIDTH"]
                yield Outcome(Status.COMPILE, f"{bits} bits", facts={"on_chip_bits": {"required": bits}})

    with pytest.raises(NothingFeasible, match=r"; compile: 8000 bits$"):
        tuning(None, Overflowing(), search="exhaustive").run()


# --- the default ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", SEARCHES)
def test_the_default_is_timed_last_and_gives_the_search_no_hint(bowl, tuning, search):
    device, watcher = bowl.FormulaDevice(), Recorder()
    undrawn = {"TILE": 7, "WIDTH": 100, "fast": True}
    spec = dataclasses.replace(bowl.SPEC, default=lambda problem, target: undrawn)
    result = tuning(10, device, spec=spec, search=search, watcher=watcher).run()
    assert device.evaluated[-1] == undrawn
    last = watcher.trials[-1]
    assert (last.is_default, last.ordinal) == (True, None)
    assert result.default == last
    assert [trial.ordinal for trial in watcher.trials[:-1]] == list(range(1, 11))


def test_a_resumed_search_is_not_told_the_default_either(bowl):
    """One default is next to the optimum: a search that knew of it would go there and take another course."""
    courses = []
    for default in ({"TILE": 5, "WIDTH": 64, "fast": False}, {"TILE": 10, "WIDTH": 8, "fast": False}):
        spec = dataclasses.replace(bowl.SPEC, default=lambda problem, target, d=default: d)
        with open_store("sqlite://") as store:  # a store of its own: the winners of one shape are hints for another
            for trials in (6, 12):
                device = bowl.FormulaDevice()
                Tuning(spec, PROBLEM, device, store, budget=Budget(trials)).run()
        courses.append(outcomes(device))
    assert courses[0] == courses[1]
    assert len(courses[0]) == 6


def test_the_default_is_the_baseline_even_where_it_fails(bowl, tuning):
    device = bowl.FormulaDevice(lambda c: Status.COMPILE if dict(c) == bowl.DEFAULT else bowl.time_us(c))
    result = tuning(5, device).run()
    assert result.default is not None
    assert (result.default.config, result.default.status) == (bowl.DEFAULT, Status.COMPILE)


def test_a_default_that_beats_all_that_was_tried_is_verified_and_wins(bowl, tuning):
    device = bowl.FormulaDevice()
    spec = dataclasses.replace(bowl.SPEC, default=lambda problem, target: dict(bowl.BEST))
    result = tuning(3, device, spec=spec, search="exhaustive").run()
    assert result.winner == result.default
    assert result.winner is not None and result.winner.verified and result.winner.is_default
    assert result.winner.ordinal is None


def test_a_default_drawn_by_the_search_is_not_timed_again(bowl, tuning):
    device = bowl.FormulaDevice()
    result = tuning(None, device, search="exhaustive").run()
    assert outcomes(device).count(tuple(bowl.DEFAULT.values())) == 1
    assert result.default is not None
    assert result.default.ordinal is not None


def test_a_default_outside_the_space_is_timed_as_it_is(bowl, tuning):
    outside = {"TILE": 7, "WIDTH": 100, "fast": True}
    spec = dataclasses.replace(bowl.SPEC, default=lambda problem, target: outside)
    result = tuning(3, spec=spec).run()
    assert result.default is not None
    assert result.default.config == outside
    assert result.default.time_us == bowl.time_us(outside)


@pytest.mark.parametrize("default", [{}, {"TILE": 1, "WIDTH": 8}, {"TILE": 1, "WIDTH": 8, "fast": True, "warps": 4}])
def test_a_default_with_other_parameters_is_refused_before_anything_runs(bowl, tuning, default):
    device = bowl.FormulaDevice()
    spec = dataclasses.replace(bowl.SPEC, default=lambda problem, target: default)
    with pytest.raises(BadSpec, match=r"^the default of kernel bowl on Bowl gives .*; expected TILE, WIDTH, fast$"):
        tuning(3, device, spec=spec)
    assert not device.evaluated


# --- a second tuning ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", SEARCHES)
def test_a_resumed_tuning_repeats_nothing_and_counts_all(bowl, tuning, search):
    first, second, watcher = bowl.FormulaDevice(), bowl.FormulaDevice(), Recorder()
    tuning(8, first, search=search).run()
    result = tuning(20, second, search=search, watcher=watcher).run()
    tried = set(outcomes(first)[:8])
    assert len(tried) == 8
    assert not tried & set(outcomes(second))
    assert watcher.plan is not None and (watcher.plan.resumed, watcher.plan.trials) == (8, 20)
    assert [trial.ordinal for trial in watcher.trials if trial.ordinal] == list(range(9, 21))
    assert sum(result.counts.values()) in (20, 21)


def test_a_tuning_with_nothing_left_to_do_runs_nothing_and_answers_the_same(bowl, tuning):
    first = tuning(12).run()
    device = bowl.FormulaDevice()
    assert tuning(12, device).run() == first
    assert tuning(5, device).run() == first
    assert device.evaluated == device.verified == []


def test_another_kind_of_search_resumes_as_well(bowl, tuning):
    first, second = bowl.FormulaDevice(), bowl.FormulaDevice()
    tuning(20, first, search="random").run()
    tuning(40, second, search="guided").run()
    assert not set(outcomes(first)[:20]) & set(outcomes(second))


def test_a_stored_leader_that_was_never_verified_is_verified_before_it_counts(bowl, tuning, store):
    scope = tuning().scope
    configs = [{"TILE": 5, "WIDTH": 64, "fast": True}, {"TILE": 5, "WIDTH": 64, "fast": False}]
    store.record(
        scope, [Trial(c, Status.CORRECT, time_us=bowl.time_us(c), ordinal=i) for i, c in enumerate(configs, 1)]
    )
    device = bowl.FormulaDevice(wrong=lambda config: config["fast"])
    result = tuning(2, device).run()
    assert device.verified == configs
    assert result.winner is not None
    assert (result.winner.config, result.winner.verified) == (configs[1], True)
    assert result.counts[Status.CORRECTNESS] == 1


@pytest.mark.parametrize("agrees", [True, False])
def test_what_only_the_default_verified_is_verified_anew_once_the_kernel_has_a_reference(bowl, tuning, agrees):
    alone = dataclasses.replace(bowl.SPEC, reference=None)
    before = tuning(12, spec=alone).run().winner
    assert before.verified_by == "self"
    again = bowl.FormulaDevice()
    assert tuning(12, again, spec=alone).run().winner == before and again.verified == []
    device = bowl.FormulaDevice(wrong=lambda config: config == before.config and not agrees)
    result = tuning(12, device).run()
    assert device.verified[0] == before.config
    assert result.winner.verified_by == "reference"
    assert (result.winner.config == before.config, result.counts.get(Status.CORRECTNESS, 0)) == (agrees, 1 - agrees)


def test_trials_of_another_source_dtype_or_toolchain_are_not_resumed(bowl, tuning):
    tuning(8).run()
    device = bowl.FormulaDevice()
    device.toolchain = "formula 2"
    assert sum(tuning(8, device).run().counts.values()) == len(device.evaluated) >= 8
    device = bowl.FormulaDevice()
    other = tuning(8, device, problem=Problem("bowl", {"M": 64}, "float16")).run()
    assert sum(other.counts.values()) == len(device.evaluated) >= 8


def test_stored_trials_outside_the_space_are_kept_and_not_counted_on(bowl, tuning, store):
    scope = tuning().scope
    gone = Trial({"TILE": 3, "WIDTH": 48, "fast": True}, Status.CORRECT, time_us=99.0, ordinal=1)
    store.record(scope, [gone])
    device = bowl.FormulaDevice()
    tuning(6, device).run()
    assert len(device.evaluated) == 7
    assert gone.config in [trial.config for trial in store.trials(scope)]


def test_fresh_tries_again_and_its_result_counts_only_its_own(bowl, tuning):
    first, second = bowl.FormulaDevice(), bowl.FormulaDevice(lambda config: 2 * bowl.time_us(config))
    tuning(12, first, search="random").run()
    result = tuning(12, second, search="random", fresh=True).run()
    assert outcomes(second) == outcomes(first)
    assert sum(result.counts.values()) == 13
    assert result.winner is not None
    assert result.winner.time_us == min(2 * bowl.time_us(config) for config in second.evaluated)


def test_a_fresh_tuning_whose_first_config_stays_its_best_replaces_an_older_and_faster_result(bowl, tuning):
    tuning(12, search="random").run()
    device = bowl.FormulaDevice(lambda config: 1000.0 + len(device.evaluated))
    result = tuning(3, device, search="exhaustive", fresh=True).run()
    assert sum(result.counts.values()) == 3
    assert result.winner is not None
    assert result.winner.config == device.evaluated[0]


def test_a_tuning_after_one_that_found_nothing_keeps_the_trials_that_failed(bowl, tuning):
    with pytest.raises(NothingFeasible):
        tuning(5, bowl.FormulaDevice(lambda config: Status.RUNTIME), search="exhaustive").run()
    result = tuning(10, search="exhaustive").run()
    assert (result.counts[Status.RUNTIME], sum(result.counts.values())) == (5, 10)


def test_a_clock_set_back_during_a_fresh_tuning_loses_none_of_its_trials(bowl, tuning, monkeypatch):
    tuning(12, bowl.FormulaDevice(), search="random").run()
    ago = itertools.count(1)

    class SetBack(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) - timedelta(hours=next(ago))

    monkeypatch.setattr(records, "datetime", SetBack)
    result = tuning(12, bowl.FormulaDevice(), search="random", fresh=True).run()
    assert sum(result.counts.values()) == 13


def test_a_fresh_tuning_that_finds_nothing_says_so_and_leaves_the_old_winner(bowl, tuning, store):
    old = tuning(None, search="exhaustive").run()
    device = bowl.FormulaDevice(lambda config: Status.RUNTIME)
    with pytest.raises(NothingFeasible, match=r"^none of 5 configs ran correctly; runtime: it is runtime$"):
        tuning(5, device, search="exhaustive", fresh=True).run()
    assert store.result(old.scope).winner == old.winner


@pytest.mark.parametrize("search", SEARCHES)
def test_the_same_seed_takes_the_same_course(bowl, search):
    courses = []
    for _ in range(2):
        device = bowl.FormulaDevice()
        with open_store("sqlite://") as store:
            Tuning(bowl.SPEC, PROBLEM, device, store, budget=Budget(15), search=search, seed=7).run()
        courses.append(outcomes(device))
    assert courses[0] == courses[1]


@pytest.mark.in_part(3)
@pytest.mark.parametrize("search", ["guided", "random", "exhaustive"])
@pytest.mark.parametrize("stops", [4, 8, 12, 16])
def test_resuming_after_any_batch_gives_what_an_unbroken_run_gives(bowl, search, stops):
    def course(*budgets):
        tried = []
        with open_store("sqlite://") as store:
            for trials in budgets:
                device = bowl.FormulaDevice(lambda c: Status.COMPILE if c["WIDTH"] == 256 else bowl.time_us(c))
                watcher = Recorder()
                Tuning(
                    bowl.SPEC, PROBLEM, device, store, budget=Budget(trials), search=search, seed=2, watcher=watcher
                ).run()
                tried += [tuple(trial.config.values()) for trial in watcher.trials if trial.ordinal]
        return tried

    assert course(stops, 20) == course(20)


def test_a_guided_search_ends_when_it_expects_next_to_nothing(bowl, tuning):
    device = bowl.FormulaDevice()
    ended = tuning(None, device)
    result = ended.run()
    assert result.winner is not None and result.winner.config == bowl.BEST
    assert 20 <= len(device.evaluated) < SPACE
    assert ended.outlook is not None and ended.outlook.expected < 0.001
    again = bowl.FormulaDevice()
    assert tuning(None, again).run() == result
    assert again.evaluated == []


def test_where_times_are_noisy_a_search_tries_more_before_it_ends_by_itself(bowl, store):
    device = bowl.NoisyDevice(Noise("even", 1, 0.001))
    Tuning(bowl.SPEC, PROBLEM, device, store, budget=Budget(None)).run()
    assert 3 * LEAST_PER_PARAMETER <= len(device.evaluated) < SPACE


@pytest.mark.in_part(1)
@pytest.mark.parametrize("stop", [8, 16, 20, 24])
def test_a_search_that_was_stopped_and_resumed_ends_where_an_unbroken_one_does(bowl, stop):
    def ended(*budgets):
        with open_store("sqlite://") as store:
            for trials in budgets:
                tuning = Tuning(bowl.SPEC, PROBLEM, bowl.FormulaDevice(), store, budget=Budget(trials), seed=5)
                tuning.run()
            return {
                trial.ordinal: trial.config for trial in store.trials(tuning.scope) if trial.ordinal
            }, tuning.outlook

    configs, outlook = ended(None)
    assert outlook.is_over and outlook.trials < SPACE and stop < outlook.trials
    assert ended(stop, None) == (configs, outlook)


def test_what_won_for_the_next_shape_is_tried_early(bowl, tuning):
    tuning(None, search="exhaustive", problem=Problem("bowl", {"M": 64}, "float32")).run()
    device = bowl.FormulaDevice()
    tuning(4, device, problem=Problem("bowl", {"M": 72}, "float32")).run()
    assert bowl.BEST in device.evaluated[:4]
    alone = bowl.FormulaDevice()
    tuning(4, alone, problem=Problem("bowl", {"M": 80}, "float32"), fresh=True, seed=1).run()
    assert outcomes(alone) != outcomes(device)


def test_winners_of_another_kernel_are_not_transferred(bowl, tuning, store):
    tuning(None, search="exhaustive").run()
    other = dataclasses.replace(bowl.SPEC, name="other")
    first, second = bowl.FormulaDevice(), bowl.FormulaDevice()
    tuning(8, first, spec=other, problem=Problem("other", {"M": 64}, "float32")).run()
    with open_store("sqlite://") as empty:
        Tuning(other, Problem("other", {"M": 64}, "float32"), second, empty, budget=Budget(8)).run()
    assert outcomes(first) == outcomes(second)


# --- chips ------------------------------------------------------------------------------------------------------------


def test_trials_of_a_chip_name_it_and_its_host(bowl, tuning, store):
    device = bowl.NoisyDevice(Noise("even", seed=0))
    device.serial = "GPU-1"
    tuning(8, device, search="random").run()
    [scope] = store.scopes()
    place = {"chip": "noisy", "host": socket.gethostname(), "serial": "GPU-1"}
    assert all(trial.facts.items() >= place.items() for trial in store.trials(scope))


def test_a_tuning_that_goes_on_on_a_slower_chip_has_the_times_of_the_first(bowl, tuning, store):
    def chip(serial, slower):
        device = bowl.NoisyDevice(Noise("even", seed=0, scale=1e-6), lambda config: slower * bowl.time_us(config))
        device.serial = serial
        return device

    tuning(8, chip("GPU-1", 1.0), search="random").run()
    tuning(24, chip("GPU-2", 1.1), search="random").run()
    [scope] = store.scopes()
    trials = store.trials(scope)
    assert {trial.facts["serial"] for trial in trials} == {"GPU-1", "GPU-2"}
    assert [t.time_us for t in trials] == pytest.approx([bowl.time_us(t.config) for t in trials], rel=1e-3)


# --- batches that are drawn ahead -------------------------------------------------------------------------------------


@pytest.fixture
def chips(bowl):
    """Return a function that makes a device of three chips, which take their turns at random."""

    def timed(config):
        time.sleep(random.random() / 1000)
        return Status.COMPILE if config["WIDTH"] == 256 else bowl.time_us(config)

    return lambda: SpreadDevice([bowl.FormulaDevice(timed) for _ in range(3)])


def searched(bowl, chips, *budgets, search="guided"):
    """Return the configs and times of a search on such a device that was stopped after these numbers of trials."""
    with open_store("sqlite://") as store:
        for trials in budgets:
            with chips() as device:
                tuning = Tuning(bowl.SPEC, PROBLEM, device, store, budget=Budget(trials), search=search, seed=2)
                tuning.run()
        trials = sorted((t for t in store.trials(tuning.scope) if t.ordinal), key=lambda t: t.ordinal)
        return [(t.config, t.status, t.time_us) for t in trials]


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_that_draws_ahead_takes_one_course_whichever_chip_is_first(bowl, chips, search):
    once = searched(bowl, chips, 48, search=search)
    assert len({tuple(config.values()) for config, *_ in once}) == 48
    assert searched(bowl, chips, 48, search=search) == once


@pytest.mark.parametrize("stops", [(12,), (24,), (36,), (12, 24, 36)])
def test_a_search_that_drew_ahead_and_is_resumed_goes_on_as_an_unbroken_one(bowl, chips, stops):
    assert searched(bowl, chips, *stops, 60) == searched(bowl, chips, 60)


def test_a_search_that_draws_ahead_learns_from_all_but_the_last_half_batch(bowl, chips, monkeypatch):
    told_of, choose = {}, GuidedSampler.choose

    def noted(sampler, study, trial):
        told_of[trial.number] = (len(sampler.history.told), len(sampler.history.pending))
        return choose(sampler, study, trial)

    monkeypatch.setattr(GuidedSampler, "choose", noted)
    searched(bowl, chips, 48)
    assert [told_of[first] for first in (0, 12, 24, 36)] == [(0, 0), (6, 6), (18, 6), (30, 6)]


# --- outcomes that are known together ---------------------------------------------------------------------------------


@pytest.fixture
def together(bowl):
    """Return a function that makes a device all of whose outcomes of a batch are known at the same time."""

    class Together(bowl.FormulaDevice):
        def evaluate_batches(self, spec, problem, batches, **options):
            for configs in batches:
                yield list(self.evaluate(spec, problem, configs, **options))

    return lambda *args, **options: Together(*args, batch=26, **options)


@pytest.fixture
def commits(store, monkeypatch):
    """Return the list of how many trials each transaction stored."""
    stored, record = [], store.record

    def counted(scope, trials):
        record(scope, trials)
        stored.append(len(trials))

    monkeypatch.setattr(store, "record", counted)
    return stored


def test_outcomes_known_together_take_the_course_of_those_that_come_one_by_one(bowl, together):
    results = []
    for make in (together, lambda: bowl.FormulaDevice(batch=26)):
        with open_store("sqlite://") as own:
            Tuning(bowl.SPEC, PROBLEM, make(), own, budget=Budget(52), search="random").run()
            scope = next(iter(own.scopes()))
            results.append([(t.config, t.status, t.time_us, t.verified, t.ordinal) for t in own.trials(scope)])
    assert results[0] == results[1]


def test_a_transaction_holds_all_trials_between_two_that_lead(bowl, tuning, together, commits):
    device = together()
    tuning(52, device, search="random").run()
    leads = len(device.verified)
    assert sum(commits) == len(device.evaluated)
    assert leads <= len(commits) <= 2 * leads + 52 // 26 + 1


def test_a_config_that_would_lead_is_verified_when_all_before_it_are_stored(bowl, tuning, together, store, monkeypatch):
    device, missing = together(), []
    verify = device.verify

    def verified(spec, problem, config):
        before = device.evaluated[: device.evaluated.index(dict(config))]
        stored = [dict(trial.config) for scope in store.scopes() for trial in store.trials(scope)]
        missing.extend(each for each in before if each not in stored)
        return verify(spec, problem, config)

    monkeypatch.setattr(device, "verify", verified)
    tuning(52, device, search="random").run()
    assert len(device.verified) > 1
    assert missing == []


def test_nothing_is_decided_on_trials_whose_transaction_failed(bowl, tuning, together, store, monkeypatch):
    recorder, record = Recorder(), store.record

    def fails(scope, trials):
        if len(trials) > 1:
            raise StoreError("the disk is full")
        record(scope, trials)

    monkeypatch.setattr(store, "record", fails)
    with pytest.raises(StoreError, match="the disk is full"):
        tuning(52, together(), search="random", watcher=recorder).run()
    stored = [trial.config for scope in store.scopes() for trial in store.trials(scope)]
    assert [trial.config for trial in recorder.trials] == stored
    assert len(stored) < 26


# --- interruptions --------------------------------------------------------------------------------------------------


def test_ctrl_c_in_the_middle_of_a_batch_keeps_what_is_finished(bowl, tuning, store):
    def pressed(config):
        if len(device.evaluated) == 6:
            raise KeyboardInterrupt
        return bowl.time_us(config)

    device, watcher = bowl.FormulaDevice(pressed), Recorder()
    interrupted = tuning(20, device, search="random", watcher=watcher)
    with pytest.raises(KeyboardInterrupt):
        interrupted.run()
    assert [tuple(trial.config.values()) for trial in store.trials(interrupted.scope)] == outcomes(device)[:5]
    assert watcher.heard[-1] == "finished"
    second = bowl.FormulaDevice()
    tuning(20, second, search="random").run()
    assert not set(outcomes(device)[:5]) & set(outcomes(second))
    assert len(second.evaluated) == 15 + 1


def test_ctrl_c_during_verification_keeps_what_is_finished(bowl, tuning, store):
    class Pressed(bowl.FormulaDevice):
        def verify(self, spec, problem, config):
            if self.verified:
                raise KeyboardInterrupt
            return super().verify(spec, problem, config)

    device = Pressed()
    interrupted = tuning(20, device, search="random")
    with pytest.raises(KeyboardInterrupt):
        interrupted.run()
    kept = store.trials(interrupted.scope)
    assert len(kept) == len(device.evaluated) - 1
    assert [trial.verified for trial in kept].count(True) == 1


# --- the watcher ----------------------------------------------------------------------------------------------------


def test_a_watcher_hears_the_plan_each_trial_and_the_end(tuning):
    watcher = Recorder()
    tuning(6, search="random", watcher=watcher).run()
    assert watcher.heard[0] == "started"
    assert watcher.heard[-1] == "finished"
    assert watcher.heard.count("tried") == 7
    plan = watcher.plan
    assert plan is not None
    assert (plan.device_id, plan.search, plan.space, plan.trials, plan.resumed) == ("formula", "random", SPACE, 6, 0)


def test_a_problem_beyond_the_devices_memory_is_refused_before_anything_runs(tuning):
    with pytest.raises(BadDimension, match="GiB of buffers"):
        tuning(problem=Problem("bowl", {"M": 2**31 - 1}, "float32"))


# Other spaces of the kernel


def test_a_winner_of_other_parameters_wins_no_more_and_is_tried_again_where_they_return(bowl, tuning, store):
    first = tuning(None, search="exhaustive").run()
    fewer = dataclasses.replace(
        bowl.SPEC,
        parameters=bowl.SPEC.parameters[:2],
        default=lambda problem, target: {"TILE": 1, "WIDTH": 8},
    )
    timed = bowl.FormulaDevice(lambda config: bowl.time_us({**config, "fast": False}))
    result = tuning(None, timed, spec=fewer, search="exhaustive").run()
    assert (result.winner.config, result.winner.time_us) == ({"TILE": 5, "WIDTH": 64}, 12.0)
    again = tuning(None, search="exhaustive").run()
    assert again.winner.config == first.winner.config == bowl.BEST and again.winner.time_us == 10.0


def test_a_config_that_a_program_has_dropped_wins_no_more(bowl, tuning, store):
    narrowed = dataclasses.replace(bowl.SPEC.parameters[0], values=lambda problem, target: [1, 2, 3])
    parameters = (narrowed, *bowl.SPEC.parameters[1:])
    for inferred, tile in ((False, 5), (True, 3)):  # a space written by hand may be narrowed only to search less
        tuning(None, search="exhaustive").run()
        spec = dataclasses.replace(bowl.SPEC, parameters=parameters, inferred=inferred)
        assert tuning(None, spec=spec, search="exhaustive").run().winner.config["TILE"] == tile


def test_the_smallest_budget_is_one_trial():
    assert Budget(trials=1).trials == 1
    with pytest.raises(UsageError, match="a budget of 0 trials; expected 1 or more"):
        Budget(trials=0)


def test_a_device_is_warm_before_its_first_config_and_knows_what_times_are_compared_with(bowl, store):
    calls = []

    class Told(bowl.FormulaDevice):
        def compare_with(self, problem, trials):
            calls.append(("compare with", problem, len(trials)))

        def warm_up(self):
            calls.append("warm up")

        def evaluate(self, *given, **named):
            calls.append("evaluate")
            return super().evaluate(*given, **named)

    for trials in (3, 6):
        Tuning(bowl.SPEC, PROBLEM, Told(), store, budget=Budget(trials)).run()
        first, second, *rest = calls
        assert (first[:2], second) == (("compare with", PROBLEM), "warm up")
        assert set(rest) == {"evaluate"}
        assert (first[2] > 0) == (trials == 6)  # the second resumes the first
        calls.clear()


def test_the_best_is_stored_as_it_is_timed_again_if_it_still_runs(bowl, store):
    device = bowl.FormulaDevice()
    tuning = Tuning(bowl.SPEC, PROBLEM, device, store, budget=Budget(12))
    best = tuning.run().winner
    scope = device.scope(bowl.SPEC, PROBLEM)
    slower = bowl.FormulaDevice(lambda config: best.time_us + 7)
    tuning._device = slower
    tuning._time_best_again()
    again = next(trial for trial in store.trials(scope) if trial.config_key == best.config_key)
    assert (again.time_us, again.verified, again.search, again.ordinal) == (
        best.time_us + 7,
        True,
        best.search,
        best.ordinal,
    )
    assert tuning._best.time_us == best.time_us + 7
    tuning._device = bowl.FormulaDevice(lambda config: Status.RUNTIME)
    tuning._time_best_again()
    assert next(trial for trial in store.trials(scope) if trial.config_key == best.config_key) == again
