"""Winners timed on each other's shapes."""

from __future__ import annotations

import math

import pytest
from noise import Noise

from tilewise.db.records import Status, Trial
from tilewise.kernels.spec import Problem
from tilewise.tuner.measure.outcome import Outcome, Timing
from tilewise.tuner.portfolio.cross_evaluation import cross_evaluate
from tilewise.tuner.tuning.loop import Budget, Tuning


@pytest.fixture
def device(bowl):
    """A bowl whose best TILE grows with the shape: 1 at M=1, and one more for each factor of 16."""

    class Slope(bowl.FormulaDevice):
        def evaluate(self, spec, problem, configs, **options):
            best = 1 + math.log(problem.dims["M"], 16)
            for config in configs:
                self.evaluated.append((problem.dims["M"], dict(config)))
                away = abs(config["TILE"] - best) + abs(math.log2(config["WIDTH"]) - 6) + (not config["fast"])
                yield Outcome(Status.CORRECT, timing=Timing(10.0 + away))

    return Slope()


def tune(bowl, device, store, values_of_m, **options):
    problems = [Problem("bowl", {"M": m}, "float32") for m in values_of_m]
    for problem in problems:
        Tuning(bowl.SPEC, problem, device, store, budget=Budget(15), **options).run()
    return problems


def test_each_winner_is_timed_on_every_other_shape_once(bowl, device, store):
    problems = tune(bowl, device, store, (1, 256, 4096))
    winners = [store.result(device.scope(bowl.SPEC, p)).winner.config for p in problems]
    count = cross_evaluate(bowl.SPEC, problems, device, store)
    for problem in problems:
        tried = [dict(t.config) for t in store.trials(device.scope(bowl.SPEC, problem))]
        assert all(tried.count(dict(config)) == 1 for config in winners)
    crossed = [t for p in problems for t in store.trials(device.scope(bowl.SPEC, p)) if t.search == "crossing"]
    assert len(crossed) == count
    assert cross_evaluate(bowl.SPEC, problems, device, store) == 0


def test_what_is_good_on_one_shape_is_timed_on_another_though_it_won_on_none(bowl, device, store):
    here, there = (Problem("bowl", {"M": m}, "float32") for m in (16, 256))
    winner, close, slow = ({"TILE": 2, "WIDTH": width, "fast": True} for width in (64, 128, 8))
    known = [(winner, 10.0), (close, 10.5), (slow, 13.0)]
    trials = [Trial(config, Status.CORRECT, time_us=time, verified=True) for config, time in known]
    store.record(device.scope(bowl.SPEC, here), trials)
    store.record(device.scope(bowl.SPEC, there), trials[:1])
    cross_evaluate(bowl.SPEC, [here, there], device, store)
    crossed = [dict(t.config) for t in store.trials(device.scope(bowl.SPEC, there)) if t.search == "crossing"]
    assert close in crossed
    assert slow not in crossed


def test_a_winner_from_elsewhere_that_is_faster_is_verified_and_becomes_the_best(bowl, device, store):
    here = Problem("bowl", {"M": 1}, "float32")
    own = device.scope(bowl.SPEC, here)
    slow = {"TILE": 10, "WIDTH": 8, "fast": False}
    store.record(own, [Trial(slow, Status.CORRECT, time_us=99.0, verified=True)])
    problems = [here, *tune(bowl, device, store, (256,))]
    device.verified.clear()
    cross_evaluate(bowl.SPEC, problems, device, store)
    assert device.verified
    assert store.result(own).winner.search == "crossing"


def test_problems_without_a_winner_have_no_part(bowl, device, store):
    (problem,) = tune(bowl, device, store, (1,))
    assert cross_evaluate(bowl.SPEC, [problem, Problem("bowl", {"M": 7}, "float32")], device, store) == 0


def test_a_winner_from_elsewhere_keeps_its_interval_and_how_it_was_timed(bowl, store):
    device = bowl.NoisyDevice(Noise("even", 0, 0.01))
    problems = [
        p for m, seed in ((1, 0), (256, 1)) for p in tune(bowl, device, store, (m,), search="random", seed=seed)
    ]
    cross_evaluate(bowl.SPEC, problems, device, store)
    crossed = [t for p in problems for t in store.trials(device.scope(bowl.SPEC, p)) if t.search == "crossing"]
    timed = [trial for trial in crossed if trial.status is Status.CORRECT]
    assert timed
    for trial in timed:
        assert trial.low_us <= trial.time_us <= trial.high_us
        assert (trial.method, trial.l2) == ("noise", "cold")


def test_winners_are_timed_first_and_then_what_is_expected_to_lead(bowl, device, store):
    here, there = (Problem("bowl", {"M": m}, "float32") for m in (1, 256))
    one, other = ({"TILE": tile, "WIDTH": 64, "fast": True} for tile in (1, 3))
    for problem, config in ((here, one), (there, other)):
        trial = Trial(config, Status.CORRECT, time_us=10.0, verified=True)
        store.record(device.scope(bowl.SPEC, problem), [trial])
    heard = []
    count = cross_evaluate(
        bowl.SPEC, [here, there], device, store, progress=lambda line: heard.append((line, len(device.evaluated)))
    )
    assert device.evaluated[:2] == [(1, other), (256, one)]
    assert heard == [
        ("bowl: timing winners on shape 1 of 2", 0),
        ("bowl: timing winners on shape 2 of 2", 1),
        ("bowl: timing expected leaders on shape 1 of 2", 2),
        ("bowl: timing expected leaders on shape 2 of 2", 2 + (count - 2) // 2),
    ]
    assert count == len(device.evaluated) == 4  # the default is expected to lead too
    assert [m for m, config in device.evaluated if config == bowl.DEFAULT] == [1, 256]


def test_only_what_is_faster_than_the_winner_is_verified(bowl, device, store):
    problems = tune(bowl, device, store, (1, 256, 4096))
    winners = [store.result(device.scope(bowl.SPEC, problem)).winner.time_us for problem in problems]
    cross_evaluate(bowl.SPEC, problems, device, store)
    crossed = [
        (trial.verified, trial.time_us < time_us)
        for problem, time_us in zip(problems, winners, strict=True)
        for trial in store.trials(device.scope(bowl.SPEC, problem))
        if trial.search == "crossing"
    ]
    assert (False, False) in crossed
    assert all(verified == is_faster for verified, is_faster in crossed)
