"""Intervals that hold with the promised probability, whatever the noise."""

import math
from math import comb

import numpy as np
import pytest
from noise import INDEPENDENT, Noise, recorded

from tilewise.tuner.measure.robust_stats import chances_of_being_fastest, median_interval, quantile, ratio_interval


def test_quantiles_interpolate():
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([1.0, 2.0], 0.25) == 1.25
    assert quantile([5.0], 0.8) == 5.0


@pytest.mark.parametrize(("count", "rank"), [(5, 0), (6, 1), (8, 1), (9, 2), (10, 2), (20, 6), (100, 40), (2000, 956)])
def test_the_ends_are_the_order_statistics_that_tables_of_the_sign_test_give(count, rank):
    samples = [float(n) for n in range(1, count + 1)]
    interval = median_interval(samples[::-1], 0.05)
    assert interval.median == (count + 1) / 2
    assert (interval.low, interval.high) == ((rank, count + 1 - rank) if rank else (-math.inf, math.inf))


@pytest.mark.parametrize("error", [0.05, 0.01, 0.05 / 6])
@pytest.mark.parametrize("count", [10, 11, 40, 160, 320, 1500])
def test_the_interval_is_the_narrowest_that_keeps_its_promise(count, error):
    interval = median_interval([float(n) for n in range(1, count + 1)], error)
    rank = int(interval.low)

    def missed(k):
        return 2 * sum(comb(count, i) for i in range(k)) / 2**count

    assert missed(rank) <= error < missed(rank + 1)


@pytest.mark.parametrize("kind", INDEPENDENT)
def test_it_holds_the_median_as_often_as_it_says(kind):
    held = 0
    for seed in range(400):
        interval = median_interval(Noise(kind, seed).times(10.0, 15), 0.1)
        held += interval.low <= 10.0 * (1.001 if kind == "quantised" else 1) and interval.high >= 10.0 * 0.999
    assert held >= 0.9 * 400 - 3 * math.sqrt(400 * 0.1 * 0.9)


def test_it_holds_the_median_of_recorded_repetitions_as_often_as_it_says():
    random, held, intervals = np.random.default_rng(1), 0, 0
    for times in recorded("row_reduce-16384x1024", 100):
        true = float(np.median(times))
        for _ in range(5):
            interval = median_interval(random.choice(times, 20).tolist(), 0.1)
            held, intervals = held + (interval.low <= true <= interval.high), intervals + 1
    assert held / intervals >= 0.9


def test_drift_that_moves_both_is_not_in_the_ratio():
    drift = np.linspace(1.0, 1.5, 60)
    noise = Noise("even", 3, scale=0.002)
    a, b = (np.array(noise.times(us, 60)) * drift for us in (10.0, 10.2))
    interval = ratio_interval(a.tolist(), b.tolist())
    assert interval.low < 10.0 / 10.2 < interval.high < 0.985
    alone = [median_interval(times.tolist()) for times in (a, b)]
    assert alone[0].high > alone[1].low, "one by one they could not be told apart"


def test_the_chances_add_up_and_equals_share_them():
    noise = Noise("even", 5)
    columns = [noise.times(us, 40) for us in (10.0, 10.0, 10.4)]
    chances = chances_of_being_fastest(np.array(columns).T)
    assert chances.sum() == pytest.approx(1.0)
    assert chances[2] < 0.001
    assert min(chances[:2]) > 0.01
    same = np.array(columns[:1] * 3).T
    assert chances_of_being_fastest(same) == pytest.approx([1 / 3] * 3)


def test_the_chances_are_the_same_every_time():
    rounds = np.array([Noise("skewed", seed).times(10.0, 30) for seed in range(4)]).T
    assert list(chances_of_being_fastest(rounds)) == list(chances_of_being_fastest(rounds))
