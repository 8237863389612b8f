"""The guided sampler: it trusts its prior until the times contradict it, and avoids regions where configs fail."""

import itertools
import math
import statistics
from types import SimpleNamespace

import numpy as np
import pytest

from tilewise.tuner.samplers import guided
from tilewise.tuner.samplers.base import FAILED, PENALTY, distributions, quiet_study
from tilewise.tuner.samplers.guided import GuidedSampler, Outlook, _Belief, _eighths, _normal_cdf
from tilewise.tuner.space.search_space import Space

ROWS, COLUMNS, FLAGS = tuple(range(16)), tuple(2**i for i in range(8)), (True, False)
CONFIGS = tuple({"A": a, "B": b, "F": f} for a, b, f in itertools.product(ROWS, COLUMNS, FLAGS))
SPACE = Space({"A": ROWS, "B": COLUMNS, "F": FLAGS}, CONFIGS)
SEEDS = range(12)


def landscape(a, b, per_a=0.35, per_b=0.5):
    """Return log penalties by parameter, which are 0 at A = a, B = 2^b; their sum is the log time."""
    rows = [(per_a * abs(c["A"] - a), per_b * abs(math.log2(c["B"]) - b), 0.3 * (not c["F"])) for c in CONFIGS]
    return np.array(rows)


TRUE = landscape(11, 5)


def course(log_time, seed, count, *, prior=None, likely=None, until=frozenset()):
    """Return the config indices tried; `log_time(index)` is None for a config that fails."""
    study = quiet_study(GuidedSampler(SPACE, seed, log_penalties=prior, likely=likely))
    indices = []
    for _ in range(count):
        trial = study.ask(fixed_distributions=distributions(SPACE))
        index = SPACE.index_of([trial.params[name] for name in SPACE.domains])
        assert index is not None
        value = log_time(index)
        trial.set_user_attr(FAILED, value is None)
        study.tell(trial, PENALTY if value is None else value)
        indices.append(index)
        if index in until:
            break
    return indices


def evaluations_to_2_percent(log_time, count=60, **options):
    """Return the median over the seeds."""
    every = [log_time(index) for index in range(len(SPACE))]
    near = min(value for value in every if value is not None) + math.log(1.02)
    good = {index for index, value in enumerate(every) if value is not None and value <= near}
    courses = [course(log_time, seed, count, until=good, **options) for seed in SEEDS]
    return statistics.median(len(c) if c[-1] in good else math.inf for c in courses)


def times(table):
    return lambda index: float(table[index].sum())


@pytest.mark.parametrize("weight", [1.0, 0.5, 2.0])
def test_a_prior_that_ranks_rightly_needs_one_evaluation(weight):
    assert evaluations_to_2_percent(times(TRUE), 3, prior=weight * TRUE) == 1


def test_a_prior_that_says_the_opposite_is_overcome_within_12_evaluations():
    assert evaluations_to_2_percent(times(TRUE), 20, prior=TRUE.max(axis=0) - TRUE) <= 12


def test_a_prior_of_noise_is_overcome_within_30_evaluations():
    noise = np.random.default_rng(0).permutation(TRUE)
    assert evaluations_to_2_percent(times(TRUE), prior=noise) <= 30


def test_without_a_prior_the_best_of_256_takes_15_evaluations():
    assert evaluations_to_2_percent(times(TRUE)) <= 15


def test_the_scale_and_unit_of_time_do_not_matter():
    shifted = [course(lambda n, by=by: float(TRUE[n].sum()) + by, 3, 30, prior=TRUE / 2) for by in (0.0, 5.0)]
    assert shifted[0] == shifted[1]


def test_configs_unlikely_to_fit_do_not_come_first():
    unlikely = np.array([c["A"] > 7 for c in CONFIGS])  # where the prior's best is
    first = course(lambda index: None, 0, 3, prior=TRUE, likely=~unlikely)
    assert not any(unlikely[index] for index in first)


def fails(index):
    """Return whether a config lies in a corner of 28% of the space."""
    config = CONFIGS[index]
    return config["A"] * math.log2(config["B"] + 1) > 40


def test_an_optimum_is_found_beside_a_corner_that_fails():
    inside = times(landscape(5, 3))
    assert evaluations_to_2_percent(lambda n: None if fails(n) else inside(n)) <= 25


def test_an_optimum_is_found_although_the_prior_points_into_a_corner_that_fails():
    rising = np.array([[-0.2 * c["A"] - 0.3 * math.log2(c["B"])] for c in CONFIGS])
    towards = times(rising + 0.3 * np.array([[not c["F"]] for c in CONFIGS]))
    assert evaluations_to_2_percent(lambda n: None if fails(n) else towards(n), prior=rising) <= 30


def test_the_first_batch_is_no_set_of_twins():
    flat = np.zeros((len(SPACE), 1))
    study = quiet_study(GuidedSampler(SPACE, 0, log_penalties=flat))
    batch = [study.ask(fixed_distributions=distributions(SPACE)).params for _ in range(4)]
    for left, right in itertools.combinations(batch, 2):
        assert abs(left["A"] - right["A"]) / 15 + abs(left["B"] - right["B"]) / 7 + (left["F"] != right["F"]) > 0.3


@pytest.mark.parametrize("prior", [None, TRUE.max(axis=0) - TRUE])
def test_a_winner_from_elsewhere_has_a_share_of_the_first_evaluations_and_no_more(prior):
    won = [17, 200, 33]
    sampler = GuidedSampler(SPACE, 0, log_penalties=prior, elsewhere=won)
    study = quiet_study(sampler)
    first = []
    for _ in range(8):
        trial = study.ask(fixed_distributions=distributions(SPACE))
        first.append(SPACE.index_of([trial.params[name] for name in SPACE.domains]))
    assert first[0 if prior is None else 1] == 17
    assert 1 < len(set(first) & set(won)) <= 3
    assert len(set(first)) == 8


def weighted_course(true, prior, weights, seed, count):
    """Return the config indices tried if another shape's winner (far from the best here) and its weights are known."""
    study = quiet_study(GuidedSampler(SPACE, seed, log_penalties=prior, weights=weights, elsewhere=[0]))
    indices = []
    for _ in range(count):
        trial = study.ask(fixed_distributions=distributions(SPACE))
        indices.append(SPACE.index_of([trial.params[name] for name in SPACE.domains]))
        study.tell(trial, float(true[indices[-1]].sum()))
    return indices


def test_weights_learnt_elsewhere_are_tried_at_once():
    """The prior is wrong by a factor in each penalty, and another shape has shown these factors."""
    factors = np.array([0.1, 1.5, -2.0])
    prior = TRUE / factors
    best = int(np.argmin(TRUE.sum(axis=1)))
    assert all(best in weighted_course(TRUE, prior, factors, seed, 2) for seed in SEEDS)


@pytest.mark.full
def test_wrong_weights_from_elsewhere_cost_little_where_the_prior_is_right():
    best = int(np.argmin(TRUE.sum(axis=1)))
    wrong = np.array([-1.0, -1.0, -1.0])
    assert all(best in weighted_course(TRUE, TRUE, wrong, seed, 2) for seed in SEEDS)
    off = landscape(9, 3)  # neither the prior nor the weights know where the best is
    needed = [weighted_course(TRUE, off, wrong, seed, 40).index(best) for seed in SEEDS]
    assert statistics.median(needed) < 20


@pytest.mark.full
def test_a_bad_winner_from_elsewhere_costs_little():
    def needed(elsewhere):
        counts = []
        for seed in SEEDS:
            study = quiet_study(GuidedSampler(SPACE, seed, elsewhere=elsewhere))
            reached = False
            count = 0
            while not reached and count < 40:
                trial = study.ask(fixed_distributions=distributions(SPACE))
                index = SPACE.index_of([trial.params[name] for name in SPACE.domains])
                study.tell(trial, float(TRUE[index].sum()))
                reached, count = TRUE[index].sum() < 0.02, count + 1
            counts.append(count)
        return statistics.median(counts)

    worst = np.argsort(-TRUE.sum(axis=1))[:3].tolist()
    assert needed(worst) <= needed([]) + 6


def test_eighths_are_of_equal_size_and_the_first_of_different_halves_and_quarters():
    parts = _eighths(SPACE.value_indices, np.random.default_rng(0))
    assert [len(part) for part in parts] == [len(SPACE) // 8] * 8
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(SPACE)))
    widest = [SPACE.value_indices[part, 0] for part in parts]  # A takes the most values, and half of them the next most
    lower = [part.max() < 8 for part in widest]
    assert lower == [part.min() < 8 for part in widest]
    assert lower[0] != lower[1] and sum(lower[:4]) == sum(lower[4:]) == 2
    places = {
        (tuple(np.unique(SPACE.value_indices[part, 0] // 8)), tuple(np.unique(part % 16 // 8))) for part in parts[:4]
    }
    assert len(places) == 4


@pytest.mark.parametrize("size", [1, 3, 8, 9])
def test_a_space_of_few_configs_has_as_many_parts(size):
    parts = _eighths(np.arange(size)[:, None], np.random.default_rng(0))
    assert len(parts) == min(size, 8)
    assert sorted(np.concatenate(parts).tolist()) == list(range(size))


def test_a_config_from_each_eighth_is_as_good_as_a_random_one_and_together_they_are_better():
    """Whatever the landscape: here the best eighth of the configs is one corner."""
    is_best = np.argsort(np.argsort(TRUE.sum(axis=1))) < len(SPACE) // 8
    drawn = np.empty((400, 8), dtype=bool)
    for seed, row in enumerate(drawn):
        random = np.random.default_rng(seed)
        row[:] = [is_best[random.choice(part)] for part in _eighths(SPACE.value_indices, random)]
    assert drawn.mean(axis=0) == pytest.approx(1 / 8, abs=0.06)  # 3.6 standard deviations
    missed = (~np.maximum.accumulate(drawn, axis=1)).mean(axis=0)
    assert (missed <= (7 / 8) ** np.arange(1, 9) + 0.08).all() and missed[-1] < (7 / 8) ** 8 - 0.1


def test_slow_corners_cost_an_opening_without_a_prior_little():
    """The best configs lie in the middle, so that the configs farthest apart are the slowest."""
    middle = np.abs(landscape(7.5, 3.5).sum(axis=1))
    opened = [min(float(middle[i]) for i in course(lambda i: float(middle[i]), seed, 4)) for seed in range(60)]
    drawn = np.random.default_rng(0).choice(middle, (5000, 4))
    assert statistics.fmean(opened) < 1.25 * float(drawn.min(axis=1).mean())


def test_the_outlook_is_open_at_first_and_closed_in_the_end():
    sampler = GuidedSampler(SPACE, 0)
    study = quiet_study(sampler)
    assert sampler.outlook(study) is None
    outlooks = []
    for count in range(1, 61):
        trial = study.ask(fixed_distributions=distributions(SPACE))
        index = SPACE.index_of([trial.params[name] for name in SPACE.domains])
        study.tell(trial, float(TRUE[index].sum()))
        if count in (8, 60):
            outlooks.append(sampler.outlook(study))
    early, late = outlooks
    assert early.chance > 0.2 and early.gain > 0.05
    assert late.expected < 0.001


def told(*values):
    """Return the outlook after trials with these log times; None is a failure."""
    sampler = GuidedSampler(SPACE, 0)
    study = quiet_study(sampler)
    for value in values:
        trial = study.ask(fixed_distributions=distributions(SPACE))
        trial.set_user_attr(FAILED, value is None)
        study.tell(trial, PENALTY if value is None else value)
    return sampler.outlook(study)


def test_the_outlook_says_after_how_many_trials_nothing_better_came():
    better, hardly_better = math.log(0.99), math.log(0.997)
    assert told(*[0.0] * 10).found == 1
    assert told(None, 0.5, None, 0.0, *[0.2] * 6).found == 4
    assert told(0.0, *[0.2] * 5, better, *[0.2] * 3).found == 7
    assert told(0.0, *[0.2] * 5, hardly_better, *[0.2] * 3).found == 1
    assert told(*[0.2] * 9, 0.0).trials == 10


def test_a_search_is_over_when_little_is_expected_and_two_thirds_of_it_brought_nothing():
    assert Outlook(0.0, 0.0, 20, 6).is_over
    assert not Outlook(0.0, 0.0, 19, 1).is_over
    assert not Outlook(0.0, 0.0, 47, 16).is_over
    assert Outlook(0.1, 0.04, 48, 16).is_over
    assert not Outlook(0.1, 0.06, 48, 16).is_over


@pytest.mark.full
def test_a_million_configs_are_searched_within_bounded_memory():
    counts = (10,) * 6
    value_indices = np.array(np.unravel_index(np.arange(10**6), counts)).T.astype(np.uint16)
    space = Space({f"P{n}": tuple(range(10)) for n in range(6)}, value_indices=value_indices)
    sampler = GuidedSampler(space, 0)
    study = quiet_study(sampler)
    best = math.inf
    for _ in range(32):
        trial = study.ask(fixed_distributions=distributions(space))
        index = space.index_of([trial.params[name] for name in space.domains])
        value = 0.2 * float(np.abs(value_indices[index].astype(int) - 6).sum())
        best = min(best, value)
        study.tell(trial, value)
    assert best <= 0.8  # one random config in a thousand
    held = sampler._belief._views[0].posterior
    assert held._cross.size < 60 * 5000


def test_failures_where_the_prior_leads_do_not_turn_the_search_from_what_it_favours():
    """F = True is twice as fast, as the prior says, but half of those configs fail: the prior's favourites."""
    table = np.column_stack([0.7 * (~np.array([c["F"] for c in CONFIGS])), landscape(11, 5, 0.02, 0.02)[:, :2]])
    favoured = np.array([c["F"] and abs(c["A"] - 11) <= 3 for c in CONFIGS])

    def log_time(index):
        return None if favoured[index] else float(table[index].sum())

    assert evaluations_to_2_percent(log_time, prior=table) <= 16


def test_the_normal_distribution_is_that_of_the_tables():
    assert _normal_cdf(np.array([-1.96, 0.0, 1.0])) == pytest.approx([0.025, 0.5, 0.8413], abs=1e-4)


def test_a_config_like_all_that_failed_keeps_a_chance_of_one_in_fifty():
    sampler = GuidedSampler(SPACE, 0, log_penalties=TRUE)
    tried = np.arange(0, 64)
    chance = sampler._chance(tried, tried >= 56, np.arange(4, 12))
    assert chance is not None
    assert chance.min() == 0.02


def test_a_space_that_is_exhausted_promises_nothing():
    configs = [{"A": a} for a in range(10)]
    space = Space({"A": tuple(range(10))}, configs)
    study = quiet_study(sampler := GuidedSampler(space, 0))
    for _ in configs:
        trial = study.ask(fixed_distributions=distributions(space))
        trial.set_user_attr(FAILED, False)
        study.tell(trial, abs(trial.params["A"] - 4) / 10)
    outlook = sampler.outlook(study)
    assert (outlook.chance, outlook.gain, outlook.trials, outlook.expected) == (0.0, 0.0, 10, 0.0)


@pytest.mark.parametrize(
    ("chance", "gain", "trials", "found", "over"),
    [
        (0.1, 0.04, 20, 5, True),
        (0.1, 0.06, 20, 5, False),  # more than half a percent is expected
        (0.5, 0.01, 20, 5, False),
        (0.1, 0.04, 19, 5, False),
        (0.1, 0.04, 29, 10, False),
        (0.1, 0.04, 30, 10, True),
    ],
)
def test_a_search_is_over_when_little_is_expected_and_it_was_patient(chance, gain, trials, found, over):
    assert Outlook(chance, gain, trials, found).is_over is over


@pytest.mark.parametrize(
    ("times", "found"),
    [
        ([10.0], 1),
        ([10.0, 9.0, 8.0], 3),
        ([10.0, 8.0, 9.0], 2),
        ([None, 8.03, 8.0], 2),  # 0.4% slower than the best
        ([None, 8.05, 8.0], 3),
    ],
)
def test_the_best_is_found_with_the_first_trial_that_none_beats_by_half_a_percent(times, found):
    assert guided._found([None if time is None else math.log(time) for time in times]) == found


def test_of_many_trials_half_the_limit_are_the_best_and_the_others_span_the_run():
    np.testing.assert_array_equal(guided._most_telling(np.arange(400.0)[::-1]), np.arange(400))
    falling = guided._most_telling(np.arange(1000.0)[::-1])
    assert len(falling) == 400
    assert list(falling[-200:]) == [*range(800, 1000)]  # the last 200 are the best
    others = falling[:-200]
    assert (others[0], others[-1]) == (0, 799) and set(np.diff(others)) == {4, 5}


def test_failures_count_as_slow_as_the_slowest_success():
    assert list(guided._imputed(np.array([1.0, math.nan, 3.0, 2.0]))) == [1.0, 3.0, 3.0, 2.0]


def test_sums_of_penalties_that_tell_no_config_from_another_are_left_out():
    penalties = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
    weighted = guided._sums(penalties, np.array([2.0, 1.0]))
    assert [list(each) for each in weighted] == [[1.0, 2.0, 1.5]]  # the plain sums are all 1
    assert [list(each) for each in guided._sums(penalties * 2 + [0, 1], None)] == []
    assert [list(each) for each in guided._sums(penalties[:, :1], None)] == [[0.0, 1.0, 0.5]]
    assert guided._sums(None, np.array([1.0])) == []


@pytest.mark.parametrize(("told", "share"), [(1, 1.0), (3, 1.0), (4, 1.0), (8, 0.5), (40, 0.1)])
def test_the_evidence_of_more_than_four_trials_counts_as_that_of_four(told, share):
    views = [SimpleNamespace(evidence=evidence) for evidence in (-3.0, -1.0)]
    shares = _Belief(told, np.arange(3), views, 0.0)._shares
    assert math.log(shares[1] / shares[0]) == pytest.approx(2 * share)
    assert shares.sum() == pytest.approx(1.0)


def test_of_a_large_space_4000_configs_are_weighed_with_the_neighbours_of_the_best():
    configs = tuple({"A": a, "B": b} for a, b in itertools.product(range(100), range(100)))
    sampler = GuidedSampler(Space({"A": tuple(range(100)), "B": tuple(range(100))}, configs), 0)
    pool = sampler._pool(np.array([0]), np.array([1.0]), np.random.default_rng(0))
    assert 4000 <= len(pool) <= 4000 + 2 * 99
    near = {index for index in range(10_000) if (index < 100) != (index % 100 == 0)}
    assert near <= {int(index) for index in pool}


@pytest.mark.parametrize(
    ("values", "count", "lowest"),
    [
        ([3.0, 1.0, 2.0], 3, [0, 1, 2]),
        ([3.0, 1.0, 2.0], 2, [1, 2]),
        ([2.0, 1.0, 2.0, 2.0], 2, [0, 1]),
        ([2.0 + 1e-12, 1.0, 2.0, 2.0], 3, [0, 1, 2]),
        ([2.0, 2.0, 1.0, 2.0 - 1e-12], 2, [0, 2]),
        ([5.0, 5.0, 5.0, 5.0], 1, [0]),
    ],
)
def test_the_lowest_are_in_their_own_order_and_of_ties_the_first(values, count, lowest):
    assert guided._lowest(np.array(values), count).tolist() == lowest
