"""The choices that samplers share: valid configs near a suggestion, what a study held before, and Optuna's view."""

from __future__ import annotations

import itertools
import math
from random import Random

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, IntDistribution

from tilewise.tuner.samplers.base import (
    FAILED,
    PENALTY,
    ExhaustiveSampler,
    History,
    NearestSampler,
    RandomSampler,
    distributions,
    quiet_study,
)
from tilewise.tuner.space.search_space import Space


class Wishes(NearestSampler):
    """A sampler that suggests what it is told to, one after the other."""

    def __init__(self, space, wishes, seed=0):
        super().__init__(space, seed)
        self._wishes = iter(wishes)

    def suggest(self, study, trial):
        return next(self._wishes)


DOMAINS = {"A": (1, 2, 4, 8, 16), "B": ("x", "y", "z"), "C": (True, False), "D": (7,)}


def space_of(domains, keep=lambda config: True):
    configs = (dict(zip(domains, values, strict=True)) for values in itertools.product(*domains.values()))
    return Space(domains, [config for config in configs if keep(config)])


def asked(sampler, count):
    """Return the value indices of the next suggestions, told as they come."""
    study, found = quiet_study(sampler), []
    for _ in range(count):
        trial = study.ask(fixed_distributions=distributions(sampler.space))
        found.append(tuple(trial.params[name] for name in sampler.space.domains))
        study.tell(trial, 1.0)
    return found


def test_numbers_in_rising_order_are_whole_numbers_for_optuna_and_others_categories():
    found = distributions(space_of(DOMAINS))
    assert found == {
        "A": IntDistribution(0, 4),
        "B": CategoricalDistribution([0, 1, 2]),
        "C": CategoricalDistribution([0, 1]),
        "D": IntDistribution(0, 0),
    }


def distance(space, index, wish):
    """Return how far a config is from a wish: a share of an ordered parameter's range, and 1 for another category."""
    away = 0.0
    for name, values in space.domains.items():
        at = space.value_indices_of(space.configs[index])[list(space.domains).index(name)]
        if space.is_ordered(name):
            away += abs(at - wish[name]) / max(1, len(values) - 1)
        else:
            away += at != wish[name]
    return away


def test_the_nearest_config_not_tried_is_chosen_and_of_equals_the_first():
    random = Random("wishes")
    space = space_of(DOMAINS, lambda config: random.random() < 0.6)
    wishes = [{name: random.randrange(len(values)) for name, values in DOMAINS.items()} for _ in range(len(space))]
    free = list(range(len(space)))
    for wish, found in zip(wishes, asked(Wishes(space, wishes), len(space)), strict=True):
        nearest = min(free, key=lambda index: (round(distance(space, index, wish), 9), index))
        assert space.index_of(found) == nearest
        free.remove(nearest)


@pytest.mark.parametrize(
    ("tried", "wish", "found"),
    [
        ([2], 2, 1),  # one step down or up is as far
        ([2, 1], 2, 3),
        ([4], 4, 3),
        ([0], 0, 1),
        ([0, 1, 2], 0, 3),
    ],
)
def test_along_one_parameter_neighbours_are_nearest(tried, wish, found):
    space = space_of({"A": DOMAINS["A"]})
    *_, last = asked(Wishes(space, [{"A": index} for index in (*tried, wish)]), len(tried) + 1)
    assert last == (found,)


def test_a_step_of_a_parameter_of_many_values_is_shorter_than_one_of_few():
    space = space_of({"A": DOMAINS["A"], "E": (1, 2)}, lambda config: config != {"A": 1, "E": 1})
    assert asked(Wishes(space, [{"A": 0, "E": 0}]), 1) == [(1, 0)]
    other = space_of({"E": (1, 2), "A": DOMAINS["A"]}, lambda config: config != {"A": 1, "E": 1})
    assert asked(Wishes(other, [{"A": 0, "E": 0}]), 1) == [(0, 1)]


def test_without_a_wish_a_config_is_drawn_by_the_seed():
    space = space_of(DOMAINS)
    first, again, other = (asked(Wishes(space, itertools.repeat({}), seed), 12) for seed in (0, 0, 1))
    assert first == again != other
    assert len(set(first)) == 12


@pytest.mark.parametrize("make", [ExhaustiveSampler, RandomSampler])
def test_what_a_study_held_before_is_not_suggested_again(make):
    space = space_of({"A": DOMAINS["A"]})
    study = quiet_study(sampler := make(space))

    def add(index, value, **attributes):
        trial = optuna.trial.create_trial(
            params={"A": index}, distributions=distributions(space), value=value, user_attrs=attributes
        )
        study.add_trial(trial)

    add(1, 0.5)
    add(2, PENALTY, **{FAILED: True})
    add(3, math.inf)
    assert sampler.told(study) == 3
    assert sampler.history == History({1: 0.5, 2: None, 3: None})
    assert sampler.history.values() == {1: 0.5}
    found = []
    for _ in range(2):
        trial = study.ask(fixed_distributions=distributions(space))
        assert sampler.history.pending == {trial.params["A"]}
        found.append(trial.params["A"])
        study.tell(trial, 2.0)
        assert sampler.history.pending == set()
    assert found == [0, 4] if make is ExhaustiveSampler else sorted(found) == [0, 4]
    with pytest.raises(LookupError, match="every config of the space was tried"):
        study.ask(fixed_distributions=distributions(space))
    assert sampler.told(study) == 5


def test_a_space_whose_last_configs_are_pending_has_no_more(monkeypatch):
    space = space_of({"A": (1, 2)})
    study = quiet_study(ExhaustiveSampler(space))
    trials = [study.ask(fixed_distributions=distributions(space)) for _ in range(2)]
    assert [trial.params["A"] for trial in trials] == [0, 1]
    with pytest.raises(LookupError):
        study.ask(fixed_distributions=distributions(space))


def test_a_parameter_that_a_space_does_not_have_is_refused():
    study = quiet_study(ExhaustiveSampler(space_of({"A": (1, 2)})))
    with pytest.raises(ValueError, match="OTHER is not a parameter of this space"):
        study.ask().suggest_int("OTHER", 0, 3)


def test_an_order_by_a_seed_is_the_same_each_time_and_another_for_another_seed():
    space = space_of(DOMAINS)
    first, again, other = (asked(RandomSampler(space, seed), len(space)) for seed in (0, 0, 1))
    assert first == again != other
    assert len(set(first)) == len(space) == 30
