"""Searches on the modelled device with the real compiler: properties that hold on a formula hold here."""

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.db.records import Status
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import NothingFeasible
from tilewise.kernels import registry
from tilewise.kernels.spec import Constraint, Problem
from tilewise.tuner.devices.ascend_model.device import ModelDevice
from tilewise.tuner.devices.base import Device
from tilewise.tuner.space.search_space import enumerate_space
from tilewise.tuner.tuning.loop import SEARCHES, Budget, Tuning, Watcher

SPEC = registry.load("row_reduce")
SMALL = Problem("row_reduce", {"M": 8, "N": 64}, "float32")
LARGE = Problem("row_reduce", {"M": 300, "N": 1024}, "float32")


class Tried(Watcher):
    """The configs in the order in which the search drew them."""

    def __init__(self):
        self.configs = []

    def tried(self, trial, best):
        if trial.ordinal is not None:
            self.configs.append(tuple(trial.config.values()))


@pytest.fixture(scope="module")
def device(cache_folder):
    with ModelDevice("Ascend910B4", jobs=1) as device:
        yield device


@pytest.fixture(scope="module")
def known(device):
    """The modelled device's outcome and verdict for each config of the small problem, evaluated once."""
    configs = enumerate_space(SPEC, SMALL, device.target).configs
    outcomes = device.evaluate(SPEC, SMALL, configs)
    verdict = device.verify(SPEC, SMALL, configs[0])
    return {tuple(config.values()): (outcome, verdict) for config, outcome in zip(configs, outcomes, strict=True)}


class Strange(Device):
    """The modelled device with other times for some configs; one config interrupts the search."""

    def __init__(self, device, known, times, silent_at):
        self.id, self.clock, self.target = device.id, device.clock, device.target
        self.toolchain, self.batch = device.toolchain, device.batch
        self.real, self.known, self.times, self.silent_at, self.begun = device, known, times, silent_at, 0

    def evaluate(self, spec, problem, configs, *, to_beat_us=lambda: None):
        for key in (tuple(config.values()) for config in configs):
            self.begun += 1
            if self.begun == self.silent_at:
                raise KeyboardInterrupt
            outcome, _ = self.known[key]
            time = self.times[key]
            timing = outcome.timing if time is None else dataclasses.replace(outcome.timing, time_us=time)
            yield dataclasses.replace(outcome, timing=timing)

    def verify(self, spec, problem, config):
        return self.known[tuple(config.values())][1]

    def memory_bytes(self):
        return self.real.memory_bytes()


@pytest.fixture
def replayed(device, known):
    """The modelled device with outcomes of the real compiler, each compiled once for all tests."""
    return Strange(device, known, dict.fromkeys(known), silent_at=0)


def only(spec, holds):
    """Return the spec limited to configs for which `holds` is true; its default is one of them."""
    limited = dataclasses.replace(spec, constraints=(*spec.constraints, Constraint("as the test wants", holds)))

    def default(problem, target):
        return enumerate_space(limited, problem, target).configs[0]

    return dataclasses.replace(limited, default=default)


def course(device, store, *budgets, search="guided", spec=SPEC, problem=SMALL):
    tried = []
    for trials in budgets:
        watcher = Tried()
        budget = Budget(trials)
        result = Tuning(spec, problem, device, store, budget=budget, search=search, seed=1, watcher=watcher).run()
        tried += watcher.configs
    return tried, result


@pytest.mark.full
@pytest.mark.parametrize("search", SEARCHES)
def test_every_search_tries_each_config_of_the_space_once(replayed, store, search):
    every = set(replayed.known)
    tried, result = course(replayed, store, len(every), search=search)
    assert len(tried) == len(set(tried)) == 20  # a guided search may end early, but not before it is sure
    assert set(tried) == every
    assert result.winner is not None and result.winner.verified


@pytest.mark.parametrize("stops", [4, 8, 12, 16])
def test_resuming_after_any_batch_gives_what_an_unbroken_run_gives(replayed, stops):
    with open_store("sqlite://") as store, open_store("sqlite://") as other:
        broken, resumed = course(replayed, store, stops, 20)
        unbroken, result = course(replayed, other, 20)
    assert broken == unbroken
    assert resumed.winner.config == result.winner.config


@pytest.mark.parametrize("search", SEARCHES)
def test_a_space_of_one_config_is_tuned(device, store, search):
    wanted = enumerate_space(SPEC, SMALL, device.target).configs[3]
    tried, result = course(device, store, 10, search=search, spec=only(SPEC, lambda c, p, t: dict(c) == wanted))
    assert tried == [tuple(wanted.values())]
    assert result.winner.config == wanted


@pytest.mark.parametrize("search", SEARCHES)
def test_where_no_config_fits_the_message_says_what_the_compiler_wanted(device, store, search):
    """Two tiles of 12 by 1024 floats and their temporaries exceed 192 KiB, which the prior cannot know."""

    def too_large(config, problem, target):
        return (config["BLOCK_SIZE_M"], config["SUB_BLOCK_SIZE_M"], config["BLOCK_SIZE_N"]) == (16, 12, 1024)

    spec = only(SPEC, too_large)
    with pytest.raises(
        NothingFeasible,
        match=r"^none of 2 configs ran correctly; compile: UB overflow: \d+ bits required, \d+ available$",
    ):
        course(device, store, 10, search=search, spec=spec, problem=LARGE)
    (scope,) = store.scopes("row_reduce")
    assert {trial.status for trial in store.trials(scope)} == {Status.COMPILE}


@pytest.mark.in_part(2)
@pytest.mark.parametrize("search", SEARCHES)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_ties_times_that_are_none_and_a_trial_never_reported_lose_and_repeat_nothing(device, known, search, data):
    every = list(known)
    strange_times = st.sampled_from([None, None, 9.5, 9.5, math.nan, math.inf, 0.0])
    times = dict(zip(every, data.draw(st.lists(strange_times, min_size=len(every), max_size=len(every))), strict=True))
    strange = Strange(device, known, times, silent_at=data.draw(st.integers(1, len(every))))
    with open_store("sqlite://") as store:
        tried = Tried()
        for _ in range(2):  # until the interrupt, then resumed
            budget = Budget(len(every))
            tuning = Tuning(SPEC, SMALL, strange, store, budget=budget, search=search, seed=1, watcher=tried)
            try:
                result = tuning.run()
            except (KeyboardInterrupt, NothingFeasible):
                result = None
        trials = store.trials(tuning.scope)
    assert len(tried.configs) == len(set(tried.configs))
    assert set(tried.configs) == {tuple(trial.config.values()) for trial in trials} == set(every)
    right = [trial.time_us for trial in trials if trial.status is Status.CORRECT]
    finite = [time for time in times.values() if time is None or 0 < time < math.inf]
    assert len(right) == len(finite)
    assert (result and result.winner.time_us) == (min(right) if right else None)
