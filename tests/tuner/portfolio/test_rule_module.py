"""Portfolios exported as Python functions."""

from __future__ import annotations

import dataclasses

import pytest
from scopes import changed

from tilewise.db.records import Clock, Problem, Scope
from tilewise.tuner.portfolio.decision_tree import Leaf, Split
from tilewise.tuner.portfolio.portfolio import HeldOut, Portfolio
from tilewise.tuner.portfolio.rule_module import rule_module

SCOPE = Scope(
    Problem("row_reduce", {"M": 1, "N": 1}, "float32"), "a1", "NVIDIA H200", Clock.MEASURED, "triton 3.6.0", 132
)
RULE = Split(("M", "N"), 1000, Leaf(0), Split(("N",), 64, Leaf(1), Leaf(0)))
CONFIGS = ({"BLOCK": 64, "EVICT": True, "VARIANT": "one"}, {"BLOCK": 128, "EVICT": False, "VARIANT": "it's"})
HELD_OUT = HeldOut(3, 0, 1.01, 1.2)
SHAPES = ({"M": 8, "N": 8},)
PORTFOLIO = Portfolio(SCOPE, 1.05, CONFIGS, RULE, SHAPES, CONFIGS, (0,), ({0: 1.0},), True, HELD_OUT, HELD_OUT)


def test_the_functions_pick_what_the_rule_picks():
    names: dict = {}
    exec(rule_module([PORTFOLIO]), names)
    for m, n in ((1, 1), (10, 100), (10, 101), (100, 64), (100, 65), (1000, 1)):
        assert names["row_reduce_float32_nvidia_h200"](m, n) == CONFIGS[RULE.pick({"M": m, "N": n})]


def test_two_portfolios_of_one_device_are_two_functions():
    names: dict = {}
    exec(rule_module([PORTFOLIO, PORTFOLIO]), names)
    assert callable(names["row_reduce_float32_nvidia_h200_older"])


@pytest.mark.parametrize("text", ['"""\nraise SystemExit\n"""', "a\\", "class", "1x", "", "x = 1; y"])
def test_names_from_elsewhere_cannot_become_code(text):
    scope = changed(SCOPE, kernel=text, device=text, toolchain=text, dims={text: 1})
    rule = Split((text,), 10, Leaf(0), Leaf(1))
    config = {text: text}
    portfolio = dataclasses.replace(PORTFOLIO, scope=scope, rule=rule, configs=(config, config), shapes=({text: 3},))
    names: dict = {}
    exec(rule_module([portfolio]), names)
    (function,) = (value for name, value in names.items() if name != "__builtins__" and callable(value))
    assert function(5) == config


def test_a_config_keeps_the_order_of_its_parameters():
    configs = ({"TILE": 64, "BLOCK": 2}, {"TILE": 32, "BLOCK": 1})
    assert "return {'TILE': 64, 'BLOCK': 2}" in rule_module([dataclasses.replace(PORTFOLIO, configs=configs)])


def test_problems_with_other_flags_are_functions_of_their_own():
    flagged = dataclasses.replace(PORTFOLIO, scope=changed(SCOPE, flags={"causal": True}))
    names: dict = {}
    exec(rule_module([PORTFOLIO, flagged]), names)
    assert callable(names["row_reduce_float32_nvidia_h200"])
    assert "row_reduce with causal=True" in names["row_reduce_causal_true_float32_nvidia_h200"].__doc__


@pytest.mark.parametrize("count", [1, 6, 7, 9])
def test_a_function_says_how_many_configs_serve_which_shapes_and_at_what_cost(count):
    shapes = tuple({"M": m, "N": 8} for m in range(1, count + 1))
    names: dict = {}
    exec(rule_module([dataclasses.replace(PORTFOLIO, shapes=shapes)]), names)
    listed = "; ".join(f"M={m},N=8" for m in range(1, min(count, 6) + 1))
    assert [line.strip() for line in names["row_reduce_float32_nvidia_h200"].__doc__.splitlines()] == [
        "row_reduce, float32 on NVIDIA H200; measured times.",
        "",
        f"2 configs keep {count} tuned shapes within 5% of their best.",
        "3 shapes, each left out in turn, took 1.010x their best on average, 1.200x at worst.",
        "Source a1, triton 3.6.0.",
        "",
        f"Tuned: {listed}" + (f" and {count - 6} more." if count > 6 else "."),
        "",
    ]


@pytest.mark.parametrize("held", [HeldOut(0, 0, None, None), HeldOut(3, 0, 1.01, None)])
def test_a_cost_that_is_not_known_is_said_to_be_unknown(held):
    text = rule_module([dataclasses.replace(PORTFOLIO, rule_held_out=held)])
    assert "    The cost at untuned shapes is unknown.\n" in text


@pytest.mark.parametrize(
    ("dim", "name"), [("1x", "_1x"), ("class", "_class"), ("M N", "M_N"), ("é", "_"), ("x1", "x1")]
)
def test_dimensions_become_names_of_arguments(dim, name):
    scope = changed(SCOPE, dims={dim: 1})
    names: dict = {}
    exec(rule_module([dataclasses.replace(PORTFOLIO, scope=scope, rule=Leaf(1), shapes=({dim: 3},))]), names)
    assert names["row_reduce_float32_nvidia_h200"](**{name: 5}) == CONFIGS[1]
