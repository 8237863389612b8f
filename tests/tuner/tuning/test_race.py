"""Candidates timed in turns: which are behind, which are tied, and how rarely that is wrong."""

from types import SimpleNamespace

import numpy as np
import pytest
from noise import INDEPENDENT, MOVING, Noise

from tilewise.tuner.measure.robust_stats import Interval
from tilewise.tuner.tuning import race as race_module
from tilewise.tuner.tuning.race import ROUNDS, TIE, run_race


def race(true_us, noise):
    """Return the results for these true times, and the calls; noise is drawn run by run, in the order of the runs."""
    calls = []

    def rounds(candidates, count):
        calls.append((tuple(candidates), count))
        times = [[noise.times(true_us[n], 1)[0] for n in candidates] for _ in range(count)]
        return [list(column) for column in zip(*times, strict=True)]

    return run_race(len(true_us), rounds), calls


def test_a_clear_winner_is_declared_after_the_fewest_rounds():
    results, calls = race([11.0, 10.0, 10.5], Noise("even", 0, 0.005))
    assert [s.behind for s in results] == [True, False, True]
    assert not any(s.tied for s in results)
    assert results[1].chance > 0.99
    assert results[0].ratio == pytest.approx(1.1, rel=0.01)
    assert results[1].ratio == 1.0
    assert calls == [((0, 1, 2), ROUNDS[0])]


def test_who_is_clearly_behind_leaves_and_the_others_go_on():
    results, calls = race([10.0, 10.07, 14.0], Noise("even", 0, 0.02))
    assert calls[0] == ((0, 1, 2), ROUNDS[0])
    assert calls[1] == ((0, 1), ROUNDS[1] - ROUNDS[0])
    assert results[2].behind
    assert len(results[2].times_us) == ROUNDS[0]


@pytest.mark.in_part(2)
@pytest.mark.parametrize("kind", [*INDEPENDENT, *MOVING])
def test_equals_are_tied_whatever_the_noise(kind):
    apart = 0
    for seed in range(40):
        results, _ = race([10.0, 10.0, 10.0], Noise(kind, seed))
        apart += not all(s.tied for s in results)
    assert apart <= 4, "one in twenty is allowed, two standard deviations more is 4 of 40"


def test_a_real_difference_below_half_a_percent_is_a_tie_however_sure_it_is():
    results, _ = race([10.0, 10.0 * (1 + TIE / 2)], Noise("even", 0, 0.0003))
    assert results[1].ratio_low > 1
    assert all(s.tied for s in results)


def test_a_difference_inside_the_noise_is_a_tie_with_honest_chances():
    results, calls = race([10.0, 10.1], Noise("even", 2, 0.15))
    assert sum(count for _, count in calls) == ROUNDS[-1]
    assert all(s.tied for s in results)
    assert min(s.chance for s in results) > 0.02
    assert sum(s.chance for s in results) == pytest.approx(1.0)


@pytest.mark.in_part(2)
@pytest.mark.parametrize("kind", [*INDEPENDENT, *MOVING])
def test_the_faster_by_two_percent_wins_outright(kind):
    wins = 0
    for seed in range(40):
        results, _ = race([10.2, 10.0], Noise(kind, seed))
        wins += results[0].behind and not results[1].tied
        assert not results[1].behind
    assert wins >= 38


def test_one_that_fails_is_out_and_the_others_are_compared():
    def rounds(candidates, count):
        return [[] if index == 0 else [10.0 + index] * count for index in candidates]

    results = run_race(3, rounds)
    assert [s.behind for s in results] == [True, False, True]
    assert results[0].times_us == ()
    assert results[1].chance == 1.0


def test_if_all_fail_nobody_wins():
    results = run_race(2, lambda candidates, count: [[] for _ in candidates])
    assert all(s.behind and s.chance == 0.0 for s in results)


def test_a_contest_takes_the_same_course_with_the_same_times():
    times = np.array([Noise("skewed", seed).times(10.0, ROUNDS[-1]) for seed in range(3)])

    def run():
        taken = [0, 0, 0]

        def rounds(candidates, count):
            found = [times[n][taken[n] : taken[n] + count].tolist() for n in candidates]
            for n in candidates:
                taken[n] += count
            return found

        return run_race(3, rounds)

    assert run() == run()


@pytest.mark.parametrize(("count", "pairs"), [(2, 1), (3, 3), (4, 6), (5, 10)])
def test_the_chance_of_an_error_is_divided_among_all_pairs_and_looks(monkeypatch, count, pairs):
    allowed = []

    def interval(times, fastest, error):
        allowed.append(error)
        return Interval(1.0, 0.9, 1.1)

    monkeypatch.setattr(race_module, "ratio_interval", interval)
    race([10.0 + n for n in range(count)], Noise("even", 0, 0.01))
    assert allowed == [pytest.approx(0.05 / pairs / len(ROUNDS))] * (count - 1) * len(ROUNDS)


def test_after_its_time_a_race_makes_no_further_comparison(monkeypatch):
    now = iter([100.0, 129.9, 130.0])
    monkeypatch.setattr(race_module, "time", SimpleNamespace(monotonic=lambda: next(now)))
    results, calls = race([10.0, 10.05], Noise("even", 2, 0.15))
    assert [count for _, count in calls] == [ROUNDS[0], ROUNDS[1] - ROUNDS[0]]
    assert all(result.tied for result in results)


def test_who_fails_has_no_chance_and_alone_nobody_is_tied():
    results = run_race(2, lambda running, rounds: [[10.0] * rounds, []][: len(running)])
    assert [(result.behind, result.tied) for result in results] == [(False, False), (True, False)]
    assert [result.chance for result in results] == [1.0, 0.0]
    assert results[1].times_us == ()
