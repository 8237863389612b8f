"""Products as other projects write them execute as compiled: operands that stay on chip, biases, and chosen columns."""

import pytest
from places import HELPERS

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model.executor.verification import compile_config, verify_compiled
from tilewise.tuner.devices.ascend_model.ir.element_loops import ElementLoop
from tilewise.tuner.devices.ascend_model.model_config import model_config

CONFIG = {"BLOCK_M": 32, "BLOCK_N": 64}
NAMES = ("RESIDENT", "BIASED", "CLAMPED")


@pytest.fixture(scope="module")
def compiled(target, cache_folder):
    """Each product's spec, problem and functions, at an odd size."""
    made = {}
    for name in NAMES:
        spec = registry.load(f"{HELPERS / 'others_products.py'}:{name}")
        problem = Problem(spec.name, {"M": 45, "N": 51 if name == "RESIDENT" else 101}, "float16")
        made[name] = spec, problem, compile_config(spec, problem, CONFIG, target, cache_folder)
    return made


def products(functions):
    return [op.segments() for function in functions for op in function.walk() if op.name == "hivm.hir.mmadL1"]


def test_each_is_compiled_to_what_it_is_here_for(compiled):
    (*_, events, _, _), (*_, bias) = (products(compiled[name][2])[0] for name in ("RESIDENT", "BIASED"))
    assert (events, len(bias)) == ((), 1)
    loops = [ElementLoop.of(op) for op in compiled["CLAMPED"][2][0].walk()]
    assert any(loop and loop.stored for loop in loops)


@pytest.mark.parametrize("name", NAMES)
def test_it_agrees_with_float64(compiled, name, target, cache_folder):
    spec, problem, _ = compiled[name]
    found = verify_compiled(spec, problem, CONFIG, target, cache_folder)
    assert found.agreed, found.reason


def test_columns_that_are_chosen_one_by_one_have_a_time_of_little_trust(compiled, target, cache_folder):
    spec, problem, _ = compiled["CLAMPED"]
    outcome, _ = model_config(spec, problem, CONFIG, target, cache_folder)
    assert outcome.facts["trust"] == {"class": "element-wise", "low": 0.3, "high": 3.0}
