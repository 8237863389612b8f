"""Searches on the modelled device, with the real compiler: what holds on a formula holds here."""

import dataclasses

import pytest

from tilewise.db.records import Status
from tilewise.db.sql_store import open_store
from tilewise.errors import NothingFeasible
from tilewise.kernels import registry
from tilewise.kernels.spec import Constraint, Problem
from tilewise.tuner.devices.model.device import ModelDevice
from tilewise.tuner.search import SEARCHES, Budget, Tuning, Watcher
from tilewise.tuner.space import enumerate_space

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


def only(spec, holds):
    """The spec with those configs that `holds` alone; the default is one of them."""
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


@pytest.mark.parametrize("search", SEARCHES)
def test_every_search_tries_each_config_of_the_space_once(device, store, search):
    every = {tuple(config.values()) for config in enumerate_space(SPEC, SMALL, device.target).configs}
    tried, result = course(device, store, len(every), search=search)
    assert len(tried) == len(set(tried)) == 20  # guided ends when it is sure, but not before
    assert set(tried) == every
    assert result.winner is not None and result.winner.verified


@pytest.mark.parametrize("stops", [4, 8, 12, 16])
def test_resuming_after_any_batch_gives_what_an_unbroken_run_gives(device, stops):
    with open_store("sqlite://") as store, open_store("sqlite://") as other:
        broken, resumed = course(device, store, stops, 20)
        unbroken, result = course(device, other, 20)
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
    """Two tiles of 12 by 1024 floats and what is made of them are more than 192 KiB, which the prior cannot know."""

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
