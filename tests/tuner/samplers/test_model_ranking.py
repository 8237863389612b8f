"""Ranking by a model of the device, and its agreement with measured times."""

import math
from functools import partial

import numpy as np
import pytest

from tilewise.db.records import Clock, Status, Trial
from tilewise.kernels.spec import Problem
from tilewise.tuner.samplers.model_ranking import CONFIRMED, MODELLED, RANKED, agreement, rank_by_model
from tilewise.tuner.space.search_space import enumerate_space
from tilewise.tuner.tuning.loop import Budget, Tuning, prior_table

PROBLEM = Problem("bowl", {"M": 64}, "float32")


def trials(pairs):
    return [
        Trial({"TILE": index}, Status.CORRECT, time_us=measured, facts={MODELLED: modelled})
        for index, (modelled, measured) in enumerate(pairs)
    ]


@pytest.mark.parametrize(
    ("pairs", "kendall", "spearman", "cost"),
    [
        ([(1, 10), (2, 20), (3, 30), (4, 40)], 1, 1, 1),
        ([(1, 40), (2, 30), (3, 20), (4, 10)], -1, -1, 4),
        ([(1, 10), (2, 30), (3, 20), (4, 40)], 2 / 3, 0.8, 1),  # one pair of six is reversed
        ([(1, 12), (2, 10), (2, 20), (4, 40)], 3 / math.sqrt(30), 3 / math.sqrt(22.5), 1.2),  # a tie in the model
    ],
)
def test_agreement_is_that_of_the_two_orders(pairs, kendall, spearman, cost):
    found = agreement(trials(pairs))
    assert found.configs == len(pairs)
    assert found.kendall == pytest.approx(kendall)
    assert found.spearman == pytest.approx(spearman)
    assert found.cost_of_pick == pytest.approx(cost)


def test_only_correct_trials_with_both_times_count():
    good = trials([(1, 10), (2, 20), (3, 30), (4, 40)])
    others = [
        Trial({"TILE": 9}, Status.CORRECT, time_us=5.0),
        Trial({"TILE": 8}, Status.COMPILE, facts={MODELLED: 1.0}),
        Trial({"TILE": 7}, Status.CORRECTNESS, time_us=1.0, facts={MODELLED: 9.0}),
    ]
    assert agreement([*good, *others]) == agreement(good)


def test_too_few_or_equal_times_agree_on_nothing():
    assert agreement([]) is None
    assert agreement(trials([(1, 10), (2, 20), (3, 30)])) is None
    assert agreement(trials([(1, 10), (1, 20), (1, 30), (1, 40)])) is None


def test_agreement_is_told_in_words_and_numbers():
    found = agreement(trials([(1, 10), (2, 30), (3, 20), (4, 40)]))
    assert found.to_json() == {"configs": 4, "kendall": 0.6667, "spearman": 0.8, "cost_of_pick": 1.0}
    assert found.text() == (
        "The model's order of 4 configs against the measured one: Kendall 0.67, Spearman 0.80; its pick takes 1.00x "
        "the best."
    )


@pytest.fixture
def modelled_bowl(bowl):
    """Return a measured bowl with a model of itself, off by 10% and some noise, that cannot predict WIDTH 8."""

    class Device(bowl.FormulaDevice):
        clock = Clock.MEASURED
        asked = 0

        def predict_us(self, spec, problem, configs):
            Device.asked += len(configs)
            return [self.model(config) for config in configs]

        def model(self, config):
            if config["WIDTH"] == 8:
                return None
            return 1.1 * bowl.time_us(config) + 0.01 * (config["TILE"] % 3)

    return Device()


def test_the_configs_that_the_prior_likes_are_ranked_by_the_model(bowl, modelled_bowl):
    space = enumerate_space(bowl.SPEC, PROBLEM, bowl.TARGET)
    table, _ = prior_table(bowl.SPEC, PROBLEM, space, bowl.TARGET)
    found = rank_by_model(partial(modelled_bowl.predict_us, bowl.SPEC, PROBLEM), space, table)
    assert modelled_bowl.asked == min(RANKED, len(space))
    assert list(found.values()) == sorted(found.values())
    assert all(space.configs[index]["WIDTH"] != 8 for index in found)
    best_penalty = np.sort(table.sum(axis=1))[:RANKED].max()
    assert all(table[index].sum() <= best_penalty for index in found)


def test_a_device_without_a_model_ranks_nothing(bowl):
    space = enumerate_space(bowl.SPEC, PROBLEM, bowl.TARGET)
    table, _ = prior_table(bowl.SPEC, PROBLEM, space, bowl.TARGET)
    assert rank_by_model(partial(bowl.FormulaDevice().predict_us, bowl.SPEC, PROBLEM), space, table) == {}
    assert rank_by_model(partial(bowl.FormulaDevice().predict_us, bowl.SPEC, PROBLEM), space, None) == {}


def test_a_tuning_confirms_the_models_favourites_first_and_keeps_what_it_foresaw(bowl, modelled_bowl, store):
    tuning = Tuning(bowl.SPEC, PROBLEM, modelled_bowl, store, budget=Budget(12))
    result = tuning.run()
    space = enumerate_space(bowl.SPEC, PROBLEM, bowl.TARGET)
    table, _ = prior_table(bowl.SPEC, PROBLEM, space, bowl.TARGET)
    favourites = [
        space.configs[index]
        for index in rank_by_model(partial(modelled_bowl.predict_us, bowl.SPEC, PROBLEM), space, table)
    ]
    drawn = [trial for trial in store.trials(tuning.scope) if trial.ordinal is not None]
    assert [dict(trial.config) for trial in drawn[:CONFIRMED]] == favourites[:CONFIRMED]
    for trial in drawn:
        assert trial.facts.get(MODELLED) == modelled_bowl.model(trial.config)
    found = agreement(drawn)
    assert found.configs >= CONFIRMED
    assert found.kendall > 0.9
    assert result.winner.time_us == min(trial.time_us for trial in drawn)


def test_a_tuning_on_a_device_without_a_model_has_no_agreement(bowl, store):
    tuning = Tuning(bowl.SPEC, PROBLEM, bowl.FormulaDevice(), store, budget=Budget(8))
    tuning.run()
    assert all(MODELLED not in trial.facts for trial in store.trials(tuning.scope))
    assert agreement(store.trials(tuning.scope)) is None
