"""The nearest valid config of a space, for a config of the same space or of another shape's."""

from __future__ import annotations

import math
import random

import pytest

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem, Target
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.space.nearest_config import (
    _changed,
    adapt_config,
    closest_index,
    closest_indices,
    value_distance,
)
from tilewise.tuner.space.search_space import Space, check_config, enumerate_space

TARGETS = [known_target("Ascend910B4", 40), known_target("NVIDIA H200", 132)]


@pytest.mark.in_part(9)
@pytest.mark.parametrize(
    ("kernel", "target"),
    [
        pytest.param(name, target, id=f"{name}-{target.family}")
        for name in registry.names()
        for target in TARGETS
        if (name, target.family) != ("block_fp8_gemm", "ascend")  # has no 8-bit floats
    ],
)
def test_what_is_fitted_is_always_a_config_of_the_space(kernel, target: Target):
    spec = registry.load(kernel)
    small, large = (
        Problem(kernel, dict(zip(spec.dims, (size, 48, 24, 80, 20, 64), strict=False)), spec.dtypes[0])
        for size in (37, 1000)
    )
    for here, there in ((small, large), (large, small)):
        configs = enumerate_space(spec, here, target).configs
        chosen = random.Random(0).sample(range(len(configs)), min(12, len(configs)))
        for index in chosen:
            found = adapt_config(spec, there, target, configs[index])
            assert found is None or check_config(spec, there, target, found) == ""


def test_a_config_of_the_space_stays_as_it_is(bowl):
    problem = Problem("bowl", {"M": 8}, "float32")
    assert adapt_config(bowl.SPEC, problem, bowl.TARGET, bowl.BEST) == bowl.BEST


def test_values_move_to_the_nearest_and_another_is_changed_where_a_rule_breaks(bowl):
    problem = Problem("bowl", {"M": 8}, "float32")
    found = adapt_config(bowl.SPEC, problem, bowl.TARGET, {"TILE": 9, "WIDTH": 200, "fast": False})
    assert found == {"TILE": 4, "WIDTH": 256, "fast": False}


def test_a_config_of_other_parameters_has_no_place(bowl):
    problem = Problem("bowl", {"M": 8}, "float32")
    assert adapt_config(bowl.SPEC, problem, bowl.TARGET, {"TILE": 9}) is None


def test_a_row_in_one_load_goes_with_the_row():
    """The block that holds a row depends on the row's length."""
    spec = registry.load("softmax")
    target = known_target("NVIDIA H200", 132)
    config = dict(spec.default(Problem("softmax", {"M": 4096, "N": 1000}, "float32"), target))
    assert config["VARIANT"] == "one_load"
    for n in (600, 1024, 1100, 2000):
        found = adapt_config(spec, Problem("softmax", {"M": 4096, "N": n}, "float32"), target, config)
        assert found is not None


# The nearest config of a space --------------------------------------------------------------------------------

SPACE = Space(
    {"ROWS": (1, 4, 16, 64), "WIDTH": (0, 8, 32), "mode": ("a", "b")},
    [{"ROWS": r, "WIDTH": w, "mode": m} for r in (1, 4, 16, 64) for w in (0, 8, 32) for m in "ab" if r * w < 1000],
)


def config(rows, width, mode="a"):
    return {"ROWS": rows, "WIDTH": width, "mode": mode}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (config(16, 8), config(16, 8)),  # itself
        (config(20, 8), config(16, 8)),  # the nearest by ratio
        (config(33, 8), config(64, 8)),
        (config(16, 10, "b"), config(16, 8, "b")),
        (config(64, 32), config(16, 32)),  # not in the space: the nearest that is
        (config(1, 0, "c"), config(1, 0)),
    ],
)
def test_the_closest_config_is_that_of_the_nearest_values(given, found):
    index = closest_index(SPACE, given)
    assert index is not None and SPACE.configs[index] == found


@pytest.mark.parametrize("given", [{}, {"ROWS": 1}, {**config(1, 8), "more": 2}])
def test_a_config_of_other_parameters_is_near_nothing(given):
    assert closest_index(SPACE, given) is None


def test_twins_are_mapped_once_in_order():
    twins = [config(20, 8), {"other": 1}, config(1, 8), config(16, 9)]
    assert [SPACE.configs[n] for n in closest_indices(SPACE, twins)] == [config(16, 8), config(1, 8)]


def test_a_number_and_a_word_are_as_far_apart_as_two_words():
    assert value_distance(4, "rows") == value_distance("rows", 4) == value_distance("rows", "columns") == 1.0
    assert value_distance(True, 4) == 1.0
    assert value_distance(8, 4) == value_distance(4, 8) == pytest.approx(math.log(2))
    assert value_distance(0, 3) == 3.0


def test_one_value_is_changed_before_two_and_a_little_before_much():
    changed = [(config["a"], config["b"]) for config in _changed({"a": 1, "b": 1}, {"a": (1, 2, 8), "b": (1, 2, 16)})]
    assert set(changed[:2]) == {(2, 1), (1, 2)}
    assert changed[2:] == [(8, 1), (1, 16), (2, 2), (8, 2), (2, 16), (8, 16)]
