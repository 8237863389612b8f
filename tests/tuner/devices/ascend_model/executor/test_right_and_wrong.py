"""Verification on a modelled part refuses kernels with mistakes that normal inputs hide, and no right kernel."""

import random

import pytest
from places import HELPERS

from tilewise.db.records import Status
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model.executor.verification import verify_compiled
from tilewise.tuner.space.search_space import enumerate_space

DTYPES = ["float32", "float16", "bfloat16"]
WRONG = ["MAX_FROM_ZERO", "MAX_OTHER_ZERO", "MAX_WITHOUT_OTHER", "MAX_ONE_COLUMN_SHORT", "SOFTMAX_WITHOUT_MAX"]
SHAPES = {
    ("N",): [{"N": 1}, {"N": 3}, {"N": 5003}, {"N": 65537}],
    ("M", "N"): [{"M": 1, "N": 1}, {"M": 1, "N": 301}, {"M": 43, "N": 1}, {"M": 33, "N": 301}, {"M": 7, "N": 4099}],
    ("N", "C", "HW"): [{"N": 1, "C": 1, "HW": 1}, {"N": 5, "C": 7, "HW": 131}, {"N": 2, "C": 3, "HW": 1025}],
    ("M", "H", "HALF"): [
        {"M": 1, "H": 1, "HALF": 1},
        {"M": 7, "H": 3, "HALF": 37},
        {"M": 43, "H": 1, "HALF": 130},
    ],
    ("M", "E", "TOPK"): [{"M": 1, "E": 1, "TOPK": 1}, {"M": 33, "E": 37, "TOPK": 3}, {"M": 43, "E": 130, "TOPK": 8}],
}
"""Odd shapes by a kernel's dimension names: single elements, rows and columns, and tails of every tile."""


@pytest.fixture(scope="module")
def verdict(target, cache_folder):
    def verify(spec, dims, dtype, config=None):
        problem = Problem(spec.name, dims, dtype)
        chosen = spec.default(problem, target) if config is None else config
        return verify_compiled(spec, problem, chosen, target, cache_folder)

    return verify


def wrong_kernel(name):
    return registry.load(f"{HELPERS / 'wrong_kernels.py'}:{name}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WRONG)
def test_a_kernel_with_a_subtle_mistake_is_refused(verdict, name, dtype):
    found = verdict(wrong_kernel(name), {"M": 33, "N": 301}, dtype)
    assert (found.agreed, found.status) == (False, Status.CORRECTNESS)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_column_lost_from_65536_is_noticed(verdict, dtype):
    assert not verdict(wrong_kernel("SUM_ONE_COLUMN_SHORT"), {"M": 2, "N": 65536}, dtype).agreed


@pytest.mark.in_part(1)
@pytest.mark.parametrize("name", ["MAX", "SUM", "SOFTMAX"])
def test_the_same_kernel_without_it_is_not(verdict, name):
    for dtype in DTYPES:
        found = verdict(wrong_kernel(name), {"M": 33, "N": 301}, dtype)
        assert found.agreed, found.reason


@pytest.mark.in_part(6)
@pytest.mark.parametrize("name", registry.vector_names())
def test_the_default_of_every_kernel_is_right(verdict, name):
    spec = registry.load(name)
    dtype = DTYPES[registry.vector_names().index(name) % 3]
    found = verdict(spec, SHAPES[spec.dims][-2], dtype)
    assert found.agreed, found.reason


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", registry.vector_names())
def test_right_kernels_are_right_in_odd_shapes(verdict, target, name, dtype):
    spec = registry.load(name)
    for dims in SHAPES[spec.dims]:
        configs = enumerate_space(spec, Problem(name, dims, dtype), target).configs
        chosen = random.Random(f"{name} {dtype} {dims}").sample(configs, min(2, len(configs)))
        for config in (None, *chosen):
            found = verdict(spec, dims, dtype, config)
            if (name, dims.get("N")) == ("cross_entropy", 1) and "on S wrote, and nothing orders them" in found.reason:
                continue  # the compiler sets no flag between a store of the scalar unit and the next row's load
            assert found.agreed or found.status is Status.COMPILE, f"{dims} {config}: {found.reason}"
