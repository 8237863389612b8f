"""Timing until the interval is narrow, and dropping what is clearly behind, without spoiling the confidence."""

import itertools

import numpy as np
import pytest
from noise import INDEPENDENT, MOVING, Noise, recorded

from tilewise.tuner.measure.adaptive_timing import ERROR, LOOKS, MARGIN, PRECISION, summarise, time_adaptively


def of(noise, true_us):
    return lambda count: noise.times(true_us, count)


def test_a_quiet_kernel_needs_the_fewest_samples():
    timing = time_adaptively(of(Noise("even", 0, scale=0.0005), 10.0))
    assert (timing.samples, timing.dropped) == (LOOKS[0], False)
    assert timing.low_us <= timing.p20_us <= timing.time_us <= timing.p80_us <= timing.high_us


def test_a_noisy_one_is_timed_until_its_interval_is_narrow():
    timing = time_adaptively(of(Noise("even", 0, scale=0.01), 10.0))
    assert LOOKS[0] < timing.samples < LOOKS[-1]
    assert timing.high_us - timing.low_us <= 2 * PRECISION * timing.time_us


def test_a_hopelessly_noisy_one_ends_with_the_last_look():
    timing = time_adaptively(of(Noise("even", 0, scale=0.2), 10.0))
    assert timing.samples == LOOKS[-1]
    assert timing.high_us - timing.low_us > 2 * PRECISION * timing.time_us


def test_time_that_is_up_ends_it_after_the_look(monkeypatch):
    now = itertools.count(0.0, 1.0)
    monkeypatch.setattr("tilewise.tuner.measure.adaptive_timing.time.monotonic", lambda: next(now))
    assert time_adaptively(of(Noise("even", 0, scale=0.2), 10.0), seconds=2).samples == LOOKS[1]


def test_what_is_clearly_behind_is_dropped_with_its_estimate():
    timing = time_adaptively(of(Noise("even", 0, scale=0.02), 15.0), to_beat_us=10.0)
    assert (timing.samples, timing.dropped) == (LOOKS[0], True)
    assert timing.time_us == pytest.approx(15.0, rel=0.03)


def test_what_is_a_little_behind_is_timed_like_a_contender():
    assert not time_adaptively(of(Noise("even", 1, scale=0.004), 10.0 * (1 + MARGIN / 2)), to_beat_us=10.0).dropped


def test_what_is_faster_is_never_dropped_however_early():
    assert not any(
        time_adaptively(of(Noise(kind, seed, scale=0.03), 9.9), to_beat_us=10.0).dropped
        for kind in (*INDEPENDENT, *MOVING)
        for seed in range(100)
    )


@pytest.mark.parametrize("kind", INDEPENDENT)
def test_stopping_on_what_one_sees_does_not_make_the_interval_miss_more_often(kind):
    """The noise levels end timing at every look; stopping on samples that happen to agree must not bias it."""
    missed = 0
    for seed in range(300):
        scale = 0.002 * 1.35 ** (seed % 9)
        timing = time_adaptively(of(Noise(kind, seed, scale), 10.0))
        missed += not timing.low_us <= 10.0 * 1.0005 or not timing.high_us >= 10.0 * 0.9995
    assert missed / 300 <= ERROR


def test_on_recorded_repetitions_fewer_than_one_in_a_hundred_contenders_is_dropped():
    """The true best is timed against a lucky estimate of itself."""
    random, dropped, samples, runs = np.random.default_rng(7), 0, 0, 0
    for times in recorded("sum_rows-16384x1024", 60):
        best = min(time_adaptively(lambda n, t=times: random.choice(t, n).tolist()).time_us for _ in range(3))
        for _ in range(5):
            timing = time_adaptively(lambda n, t=times: random.choice(t, n).tolist(), to_beat_us=best)
            dropped, samples, runs = dropped + timing.dropped, samples + timing.samples, runs + 1
    assert dropped / runs < 0.01
    assert samples / runs < LOOKS[-1] / 2


def test_a_summary_is_the_median_the_outer_fifths_and_its_interval():
    timing = summarise([float(n) for n in range(1, 12)])
    assert (timing.p20_us, timing.time_us, timing.p80_us, timing.samples) == (3.0, 6.0, 9.0, 11)
    assert (timing.low_us, timing.high_us) == (1.0, 11.0)


def test_some_single_times_are_kept_evenly_spread_over_all():
    assert summarise([3.0, 1.0, 2.0] * 4).times_us == (3.0, 1.0, 2.0) * 4
    many = summarise([float(n) for n in range(1, 1001)])
    assert (many.samples, len(many.times_us)) == (1000, 32)
    assert many.times_us[:3] == (1.0, 32.0, 63.0)


def test_single_times_are_kept_to_a_tenth_of_a_nanosecond():
    assert summarise([1.23456, 2.00004]).times_us == (1.2346, 2.0)
