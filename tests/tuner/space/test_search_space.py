"""Spaces: their configs, and a one-line error for a config outside."""

import dataclasses
import itertools

import numpy as np
import pytest

from tilewise.errors import BadConfig, BadSpec, NothingFeasible
from tilewise.kernels.spec import Constraint, Launch, Parameter, Problem, Tiling
from tilewise.tuner.space import search_space
from tilewise.tuner.space.search_space import Space, broken_rule, check_config, check_tilings, enumerate_space

PROBLEM = Problem("bowl", {"M": 64}, "float32")


@pytest.fixture
def space(bowl):
    return enumerate_space(bowl.SPEC, PROBLEM, bowl.TARGET)


def with_parameters(bowl, *parameters, constraints=()):
    made = tuple(Parameter(name, lambda problem, target, v=values: v) for name, values in parameters)
    return dataclasses.replace(bowl.SPEC, parameters=made, constraints=constraints, grid=lambda config, problem: (1,))


def test_a_space_holds_every_valid_combination_once(space):
    combinations = itertools.product(range(1, 11), [8, 16, 32, 64, 128, 256], [True, False])
    valid = {(tile, width, fast) for tile, width, fast in combinations if tile * width <= 1024}
    assert {tuple(config.values()) for config in space.configs} == valid
    assert len(space) == len(valid)


def test_a_config_is_found_by_its_values_and_by_its_position(space):
    for index, config in enumerate(space.configs):
        assert space.index(config) == index
        assert space.index_of(space.value_indices_of(config)) == index


@pytest.mark.parametrize(
    "config",
    [
        {"TILE": 10, "WIDTH": 256, "fast": True},  # breaks the rule
        {"TILE": 11, "WIDTH": 8, "fast": True},
        {"TILE": 1, "WIDTH": 8},
        {"TILE": 1, "WIDTH": 8, "fast": True, "more": 1},
        {},
    ],
)
def test_a_config_outside_has_no_number(space, config):
    assert space.index(config) is None


def test_configs_are_made_when_they_are_asked_for(space):
    assert space.value_indices.nbytes == 2 * 3 * len(space)
    assert [dict(config) for config in space.configs[3:9:2]] == [dict(space.configs[n]) for n in (3, 5, 7)]
    assert space.configs[-1] == space.configs[len(space) - 1]
    with pytest.raises(IndexError):
        space.configs[len(space)]


def test_spaces_with_more_combinations_than_64_bits_count_are_told_apart():
    domains = {f"P{n}": tuple(range(16)) for n in range(20)}  # 2^80 combinations
    configs = [{name: (7 * n + at) % 16 for at, name in enumerate(domains)} for n in range(16)]
    space = Space(domains, configs)
    assert [space.index(config) for config in configs] == list(range(16))
    assert space.index({**configs[0], "P19": (configs[0]["P19"] + 1) % 16}) is None


def test_a_space_given_config_by_config_holds_just_these(bowl):
    recorded = [{"TILE": 3, "WIDTH": 8, "fast": True}, {"TILE": 10, "WIDTH": 256, "fast": False}]
    spec = dataclasses.replace(bowl.SPEC, configs=lambda problem, target: recorded)
    assert list(enumerate_space(spec, PROBLEM, bowl.TARGET).configs) == recorded


def test_numbers_in_rising_order_are_ordered_and_all_else_is_not(bowl):
    spec = with_parameters(
        bowl, ("up", [1, 2.5, 4]), ("down", [3, 1]), ("flag", [False, True]), ("text", ["a", "b"]), ("one", [7])
    )
    space = enumerate_space(spec, PROBLEM, bowl.TARGET)
    assert {name: space.is_ordered(name) for name in space.domains} == {
        "up": True,
        "down": False,
        "flag": False,
        "text": False,
        "one": True,
    }


def test_a_value_listed_twice_is_one_value(bowl):
    space = enumerate_space(with_parameters(bowl, ("a", [1, 2, 1])), PROBLEM, bowl.TARGET)
    assert [dict(config) for config in space.configs] == [{"a": 1}, {"a": 2}]


def test_a_parameter_without_values_does_not_exist_on_the_target(bowl):
    space = enumerate_space(with_parameters(bowl, ("a", [1]), ("b", [])), PROBLEM, bowl.TARGET)
    assert [dict(config) for config in space.configs] == [{"a": 1}]


def test_configs_that_launch_too_many_programs_are_left_out(bowl):
    few = dataclasses.replace(bowl.TARGET, max_programs=16)
    assert {config["TILE"] for config in enumerate_space(bowl.SPEC, PROBLEM, few).configs} == set(range(4, 11))


def test_a_space_without_a_config_is_an_error_that_says_where(bowl):
    never = Constraint("never", lambda config, problem, target: False)
    with pytest.raises(NothingFeasible, match=r"^no config of bowl satisfies its constraints at M=64 on Bowl: never$"):
        enumerate_space(dataclasses.replace(bowl.SPEC, constraints=(never,)), PROBLEM, bowl.TARGET)


def test_spaces_are_alike_if_their_values_are(bowl, space):
    assert space.key == enumerate_space(bowl.SPEC, PROBLEM, bowl.TARGET).key
    other = enumerate_space(with_parameters(bowl, ("TILE", [1, 2])), PROBLEM, bowl.TARGET)
    assert other.key != space.key


# --- check_config ---------------------------------------------------------------------------------------------------


def test_a_config_of_the_space_breaks_no_rule(bowl, space):
    assert all(check_config(bowl.SPEC, PROBLEM, bowl.TARGET, config) == "" for config in space.configs)


def test_the_broken_rule_is_told(bowl):
    config = {"TILE": 10, "WIDTH": 256, "fast": True}
    assert check_config(bowl.SPEC, PROBLEM, bowl.TARGET, config) == "TILE * WIDTH <= 1024"
    few = dataclasses.replace(bowl.TARGET, max_programs=16)
    rule = check_config(bowl.SPEC, PROBLEM, few, {"TILE": 1, "WIDTH": 8, "fast": True})
    assert rule == "no more programs than the device launches at once"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"WIDTH": None, "fast": None}, "the config lacks WIDTH, fast; bowl has TILE, WIDTH, fast on Bowl"),
        ({"num_warps": 4}, "bowl has no parameter num_warps on Bowl; it has TILE, WIDTH, fast"),
        ({"WIDTH": 9}, "WIDTH=9 is outside the space; it may be 8, 16, 32, 64, 128, 256"),
        ({"WIDTH": -8}, "WIDTH=-8 is outside the space"),
        ({"WIDTH": 8.0}, "WIDTH=8.0 is outside the space"),
        ({"WIDTH": "8"}, "WIDTH=8 is outside the space"),
        ({"WIDTH": float("nan")}, "WIDTH=nan is outside the space"),
        ({"TILE": True}, "TILE=True is outside the space; it may be 1, 2"),
        ({"fast": 1}, "fast=1 is outside the space; it may be True, False"),
        ({"fast": 0}, "fast=0 is outside the space"),
        ({"fast": "True"}, "fast=True is outside the space"),
    ],
)
def test_what_is_no_config_of_the_space(bowl, changes, message):
    config = {"TILE": 1, "WIDTH": 8, "fast": True} | changes
    config = {name: value for name, value in config.items() if value is not None}
    with pytest.raises(BadConfig) as caught:
        check_config(bowl.SPEC, PROBLEM, bowl.TARGET, config)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


# --- check_tilings --------------------------------------------------------------------------------------------------


def test_a_tiling_with_other_programs_than_the_grid_is_refused(bowl, space):
    lying = dataclasses.replace(bowl.SPEC, grid=lambda config, problem: (7,))
    with pytest.raises(BadSpec) as caught:
        check_tilings(lying, PROBLEM, space.configs)
    assert str(caught.value) == (
        "tiling(config, problem) of kernel bowl has 64 programs (64 along M, 1 along N) for TILE=1, WIDTH=8, "
        "fast=True; its grid has 7"
    )


def test_a_tiling_that_is_that_of_some_launch_or_not_known_is_taken(bowl, space):
    def launches(config, problem):
        (own,) = bowl.SPEC.plan(config, problem)
        return [own, Launch(own.function, (1,))]

    check_tilings(
        dataclasses.replace(bowl.SPEC, function=(bowl.bowl,), grid=None, launches=launches), PROBLEM, space.configs
    )
    unknown = dataclasses.replace(
        bowl.SPEC, tiling=lambda config, problem: Tiling((), 0, 0), grid=lambda config, problem: (7,)
    )
    check_tilings(unknown, PROBLEM, space.configs)


def test_configs_whose_keys_are_equal_are_told_apart(space, monkeypatch):
    monkeypatch.setattr(search_space, "_keys", lambda rows: np.full(len(rows), 7, dtype=np.uint64))
    alike = Space(space.domains, [space.configs[index] for index in range(len(space))])
    assert [alike.index(config) for config in space.configs] == list(range(len(space)))
    part = Space(space.domains, [space.configs[index] for index in range(3)])
    assert part.index(space.configs[3]) is None


@pytest.mark.parametrize(("count", "is_taken"), [(2**16, True), (2**16 + 1, False)])
def test_a_parameter_has_as_many_values_as_16_bits_count(count, is_taken):
    domains = {"A": range(count)}
    if is_taken:
        assert Space(domains, [{"A": count - 1}]).index({"A": count - 1}) == 0
        return
    with pytest.raises(ValueError, match="a parameter has more than 65536 values"):
        Space(domains)


def test_a_space_is_like_no_other_thing(space):
    assert space != "a space" and space != Space({}, [])


def test_of_many_configs_an_even_sample_of_tilings_is_checked(bowl):
    checked = []

    def tiling(config, problem):
        checked.append(config["A"])
        return Tiling((), 0, 0)

    spec = dataclasses.replace(with_parameters(bowl, ("A", list(range(100)))), tiling=tiling)
    for count, expected in ((100, list(range(0, 100, 3))), (64, list(range(0, 64, 2))), (63, list(range(63)))):
        checked.clear()
        check_tilings(spec, PROBLEM, [{"A": number} for number in range(count)])
        assert checked == expected


def test_the_rule_that_no_config_can_meet_is_told(bowl):
    rules = (
        Constraint("A is small", lambda config, problem, target: config["A"] < 2),
        Constraint("A is none", lambda config, problem, target: False),
    )
    spec = with_parameters(bowl, ("A", [1, 2]), constraints=rules)
    with pytest.raises(NothingFeasible, match=r"satisfies its constraints at M=64 on Bowl: A is none$"):
        enumerate_space(spec, PROBLEM, bowl.TARGET)
    odd = Constraint("A is odd", lambda config, problem, target: config["A"] == 1)
    even = Constraint("A is even", lambda config, problem, target: config["A"] == 2)
    with pytest.raises(NothingFeasible, match=r"satisfies its constraints at M=64 on Bowl$"):
        enumerate_space(with_parameters(bowl, ("A", [1, 2]), constraints=(odd, even)), PROBLEM, bowl.TARGET)


def test_the_broken_rule_is_the_first_one(bowl):
    rules = [Constraint(f"A is over {least}", lambda c, p, t, least=least: c["A"] > least) for least in (0, 1, 2)]
    spec = with_parameters(bowl, ("A", [1, 2, 3]), constraints=tuple(rules))
    assert [broken_rule(spec, PROBLEM, bowl.TARGET, {"A": a}) for a in (0, 1, 2, 3)] == [
        "A is over 0",
        "A is over 1",
        "A is over 2",
        "",
    ]
