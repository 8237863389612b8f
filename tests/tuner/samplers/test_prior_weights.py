"""Weights of the prior's penalties, learnt from other shapes' trials."""

import dataclasses
import math

import numpy as np
import pytest

from tilewise.kernels.spec import Problem
from tilewise.tuner.prior.penalties import penalties
from tilewise.tuner.samplers.prior_weights import learnt_weights
from tilewise.tuner.samplers.warm_start import Neighbour
from tilewise.tuner.space.search_space import enumerate_space

PROBLEM = Problem("bowl", {"M": 64}, "float32")


@pytest.fixture
def spec(bowl):
    """Return the bowl with so much work that its division among programs matters."""
    return dataclasses.replace(bowl.SPEC, flops=lambda problem: 100 * 512 * problem.dims["M"])


@pytest.fixture
def space(bowl, spec):
    return enumerate_space(spec, PROBLEM, bowl.TARGET)


@pytest.fixture
def neighbour(bowl, spec, space):
    """Make a shape where one penalty counts `factor` times as much and a config takes `wrong(config)` times as long."""

    def make(name="", factor=1.0, *, m=72, away=0.1, configs=None, wrong=lambda config: 1.0, **changes):
        problem = Problem("bowl", {"M": m}, "float32")
        times = []
        for config in configs or space.configs:
            factors = penalties(spec, problem, config, bowl.TARGET)
            log_time = sum(math.log(value) * (factor if at == name else 1) for at, value in factors.items())
            times.append((config, 7 * math.exp(log_time) * wrong(config)))
        winner = min(times, key=lambda pair: pair[1])[0]
        return dataclasses.replace(Neighbour(away, problem, bowl.TARGET.name, winner, times), **changes)

    return make


@pytest.fixture
def weights(bowl, spec, space):
    """Return a function that learns the weights, by penalty name."""

    def learn(*known):
        learnt = learnt_weights(known, spec, bowl.TARGET, space)
        names = penalties(spec, PROBLEM, space.configs[0], bowl.TARGET)
        return None if learnt is None else dict(zip(names, learnt, strict=True))

    return learn


def test_where_the_prior_was_right_its_penalties_keep_their_weight(weights, neighbour):
    assert all(weight == pytest.approx(1.0, abs=0.01) for weight in weights(neighbour()).values())


@pytest.mark.parametrize(("name", "factor"), [("waves", 0.3), ("loop_trips", 2.0)])
def test_a_penalty_that_counts_otherwise_is_found(weights, neighbour, name, factor):
    learnt = weights(neighbour(name, factor))
    assert learnt[name] == pytest.approx(factor, abs=0.25)
    assert all(weight == pytest.approx(1.0, abs=0.3) for other, weight in learnt.items() if other != name)


def test_a_penalty_that_never_differs_keeps_its_weight(weights, neighbour):
    assert weights(neighbour("waves", 0.3))["traffic"] == 1.0


def test_the_unit_of_time_does_not_matter(weights, neighbour):
    one = neighbour("waves", 0.5)
    thousandfold = dataclasses.replace(one, times=[(config, 1000 * time) for config, time in one.times])
    assert weights(thousandfold) == pytest.approx(weights(one))


def test_the_nearer_of_two_that_disagree_is_believed_more(weights, neighbour):
    near, far = neighbour("waves", 0.5, away=0.1), neighbour("waves", 2.0, away=6.0)
    assert weights(near)["waves"] < weights(near, far)["waves"] < 1.0


@pytest.mark.parametrize("times", [1 / 100, 100.0])
def test_slow_configs_say_little(bowl, spec, weights, neighbour, times):
    """Of two rules, that of the configs which take a hundredth of the others' time is learnt."""

    def other_rule(config):
        found = penalties(spec, Problem("bowl", {"M": 72}, "float32"), config, bowl.TARGET)
        return times * found["waves"] ** 1.5 if config["WIDTH"] in (8, 32) else 1.0

    learnt = weights(neighbour("waves", 0.5, wrong=other_rule))
    assert learnt["waves"] == pytest.approx(0.5 if times > 1 else 2.0, abs=0.15)


def test_neighbours_that_cannot_be_compared_say_nothing(weights, neighbour, space):
    known = space.configs[0]
    assert weights() is None
    assert weights(neighbour(device="another")) is None
    assert weights(neighbour(times=[(known, 5.0)])) is None
    others = [{**config, "more": 1} for config in space.configs]
    assert weights(neighbour(times=[(config, 5.0) for config in others])) is None
    gone = [({**config, "fast": "maybe"}, 5.0) for config in space.configs]
    assert weights(neighbour(times=gone)) is None


def test_a_kernel_without_a_prior_has_no_weights(bowl, space, neighbour):
    spec = dataclasses.replace(
        bowl.SPEC, tiling=lambda config, problem: dataclasses.replace(bowl.SPEC.tiling(config, problem), axes=())
    )
    assert learnt_weights([neighbour()], spec, bowl.TARGET, space) is None


def test_weights_are_finite_for_times_all_alike(weights, neighbour, space):
    learnt = weights(neighbour(times=[(config, 5.0) for config in space.configs]))
    assert np.isfinite(list(learnt.values())).all()


def test_a_neighbour_alone_counts_alike_however_far_away_it_is(weights, neighbour):
    near, far = (weights(neighbour("waves", 1.5, away=away)) for away in (0.1, 2.0))
    assert near["waves"] > 1.1
    assert far == pytest.approx(near)
