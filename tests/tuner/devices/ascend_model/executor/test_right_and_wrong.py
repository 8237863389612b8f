"""Verification on a modelled part refuses kernels with mistakes that normal inputs hide, and no right kernel."""

import pytest
from places import HELPERS

from tilewise.benchmarks.model.verification.right import ODD_DIMS, configs_of
from tilewise.db.records import Status
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model.executor.verification import verify_compiled

DTYPES = ["float32", "float16", "bfloat16"]
WRONG = ["MAX_FROM_ZERO", "MAX_OTHER_ZERO", "MAX_WITHOUT_OTHER", "MAX_ONE_COLUMN_SHORT", "SOFTMAX_WITHOUT_MAX"]


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


@pytest.mark.parametrize(("m", "agreed"), [(30001, True), (40009, False)])
def test_an_index_too_narrow_for_a_problem_that_is_not_executed_whole_is_refused(verdict, m, agreed):
    found = verdict(wrong_kernel("DOUBLE_BY_16_BITS"), {"M": m, "N": 601}, "float32")
    assert found.agreed is agreed, found.reason
    assert agreed or "uses element -" in found.reason


@pytest.mark.full
def test_an_index_wide_enough_is_not(verdict):
    found = verdict(wrong_kernel("DOUBLE"), {"M": 40009, "N": 601}, "float32")
    assert found.agreed, found.reason


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
    found = verdict(spec, ODD_DIMS[spec.dims][-2], dtype)
    assert found.agreed, found.reason


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", registry.vector_names())
def test_right_kernels_are_right_in_odd_shapes(verdict, target, name, dtype):
    spec = registry.load(name)
    for dims in ODD_DIMS[spec.dims]:
        for config in configs_of(spec, Problem(name, dims, dtype), target):
            found = verdict(spec, dims, dtype, config)
            assert found.agreed or found.status is Status.COMPILE, f"{dims} {config}: {found.reason}"
