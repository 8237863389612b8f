"""Combinations are passed over only where they break a rule."""

import copy
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.kernels.spec import Constraint, Problem, Target
from tilewise.tuner.space.combinations import valid_combinations

PROBLEM = Problem("anything", {"N": 1}, "float32")
TARGET = Target("nvidia", "a GPU", 1, 1, 1, 1)
RANGES = {"A": (1, 2, 3), "B": (4, 8), "C": ("x", "y"), "D": (False, True)}


def valid(ranges, *holds):
    rules = [Constraint(f"rule {number}", holds) for number, holds in enumerate(holds)]
    return list(valid_combinations(rules, ranges, PROBLEM, TARGET))


def one_by_one(ranges, *holds):
    every = [dict(zip(ranges, values, strict=True)) for values in itertools.product(*ranges.values())]
    return [number for number, config in enumerate(every) if all(rule(config, PROBLEM, TARGET) for rule in holds)]


@given(st.lists(st.tuples(st.lists(st.sampled_from(list(RANGES)), unique=True), st.integers(0, 2**32)), max_size=4))
def test_they_are_those_that_satisfy_every_rule(drawn):
    """A drawn rule reads a value, and by what that is decides whether it reads another."""

    def rule(names, seed):
        def holds(config, problem, target):
            state = seed
            for name in names:
                state = (state * 31 + list(RANGES[name]).index(config[name]) + 7) % 65521
                if state % 3 == 0:
                    return state % 2 == 0
            return state % 5 != 0

        return holds

    rules = [rule(names, seed) for names, seed in drawn]
    assert valid(RANGES, *rules) == one_by_one(RANGES, *rules)


@pytest.mark.parametrize(
    "last",
    [
        lambda config: config["D"],
        lambda config: config.get("D"),
        lambda config: dict(config)["D"],
        lambda config: {**config}["D"],
        lambda config: dict(**config)["D"],
        lambda config: (config | {"E": 1})["D"],
        lambda config: ({"E": 1} | config)["D"],
        lambda config: copy.copy(config)["D"],
        lambda config: copy.deepcopy(config)["D"],
        lambda config: config.copy()["D"],
        lambda config: list(config.values())[-1],
        lambda config: dict(config.items())["D"],
        lambda config: [config[name] for name in config][-1],
        lambda config: next(config[name] for name in reversed(config)),
        lambda config: config == config | {"D": True},
        lambda config: "True" in repr(config),
        lambda config: config.pop("D"),
        lambda config: config.setdefault("D", None),
    ],
)
def test_a_rule_may_read_a_config_in_any_way(last):
    assert valid(RANGES, lambda config, *_: last(config)) == [*range(1, 24, 2)]


def test_a_broken_rule_is_asked_once_for_all_that_differ_beyond_what_it_read():
    asked = []

    def holds(config, problem, target):
        asked.append((config["B"], config["A"]))
        return config["A"] == 2 and "C" not in {"B": config["B"]}

    assert valid(RANGES, holds) == [*range(8, 16)]
    assert asked == [(4, 1), (8, 1)] + [(4, 2)] * 4 + [(8, 2)] * 4 + [(4, 3), (8, 3)]


def test_what_another_rule_read_before_does_not_count():
    asked = []

    def second(config, problem, target):
        asked.append(config["A"])
        return False

    assert valid(RANGES, lambda config, *_: config["D"] in (False, True), second) == []
    assert asked == [1, 2, 3]


def test_a_rule_that_reads_nothing_decides_on_all():
    asked = []
    assert valid(RANGES, lambda *_: bool(asked.append(1))) == []
    assert asked == [1]


def test_a_name_that_is_no_parameter_is_as_in_any_config():
    assert valid(RANGES, lambda config, *_: "E" not in config and config.get("E", 5) == 5) == [*range(24)]


def test_a_space_without_parameters_has_one_combination():
    assert valid({}) == [0]
    assert valid({}, lambda config, *_: not config) == [0]
    assert valid({}, lambda *_: False) == []
