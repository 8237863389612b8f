"""The micro-kernels of calibration under Triton's interpreter: each does the work whose time it is to tell."""

import importlib.util
import os
import sys

import numpy as np
import pytest
from places import HELPERS

from tilewise.kernels.spec import Problem
from tilewise.tuner.diagnostics import micro_kernels
from tilewise.tuner.workers.worker import Worker

if any(importlib.util.find_spec(name) is None for name in ("torch", "triton")):
    pytest.skip("needs torch and triton", allow_module_level=True)


@pytest.fixture(scope="module")
def launched():
    """A function that launches a micro-kernel and returns its tensors, having checked that it touched no others."""
    path = os.pathsep.join([str(HELPERS), *sys.path])
    worker = Worker("watched_kernels:values", env={"TRITON_INTERPRET": "1", "PYTHONPATH": path})

    def launch(attribute, config=None, **dims):
        spec = getattr(micro_kernels, attribute)
        problem = Problem(spec.name, dims, "float32")
        tensors, strays = worker.call(spec.origin, problem, {"multibuffer": True, **(config or {})}, timeout=60.0)
        assert strays == {}
        return tensors

    yield launch
    worker.close()


def test_micro_kernels_empty_programs_store_ones(launched):
    assert launched("EMPTY", programs=3, WIDTH=8)["out_ptr"].tolist() == [1.0] * 24


def test_micro_kernels_loads_add_up_every_tile_as_often_as_it_is_read(launched):
    found = launched("LOAD", programs=2, TILES=3, REPEATS=2, ROWS=4, COLS=8, PITCH=10)
    x = found["x_ptr"].reshape(2, 3, 4, 10)[..., :8]
    np.testing.assert_allclose(found["out_ptr"].reshape(2, 4), 2 * x.sum(axis=(1, 3)), rtol=1e-5)


def test_micro_kernels_stores_fill_every_tile(launched):
    assert launched("STORE", programs=2, TILES=3, REPEATS=2, WIDTH=8)["out_ptr"].tolist() == [1.0] * 48


def test_micro_kernels_copies_are_copies(launched):
    found = launched("COPY", programs=2, TILES=3, WIDTH=8)
    np.testing.assert_array_equal(found["out_ptr"], found["x_ptr"])


STEPS = {
    "scale": lambda x, y: x * np.float32(1.0001),
    "add": lambda x, y: x + y,
    "exp": lambda x, y: np.exp(x),
    "log": lambda x, y: np.log(x),
    "sqrt": lambda x, y: np.sqrt(x),
    "divide": lambda x, y: y / x,
    "cast": lambda x, y: x.astype(np.float16).astype(np.float32) + y,
    "select": lambda x, y: np.where(x > y, y, x),
}


@pytest.mark.parametrize("operation", micro_kernels.OPERATIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of overflows and logarithms of negative numbers
def test_micro_kernels_chains_apply_their_operation_once_a_trip(launched, operation):
    found = launched("CHAIN", {"OP": operation}, programs=1, TRIPS=2, WIDTH=64)
    y = x = found["x_ptr"]
    for _ in range(2):
        x = STEPS[operation](x, y)
    np.testing.assert_allclose(found["out_ptr"], x, rtol=1e-5)


def test_micro_kernels_products_are_added_up_once_a_trip_and_squared_by_an_epilogue(launched):
    for epilogue in (False, True):
        found = launched("PRODUCT", {"EPILOGUE": epilogue}, programs=1, TRIPS=3, M=16, N=16, K=32)
        a, b = (found[name].astype(np.float64) for name in ("a_ptr", "b_ptr"))
        wanted = 3 * a.reshape(16, 32) @ b.reshape(32, 16)
        np.testing.assert_allclose(
            found["out_ptr"].reshape(16, 16), wanted**2 if epilogue else wanted, rtol=1e-2, atol=1e-2
        )


def test_micro_kernels_operands_are_every_tile_as_often_as_it_is_read(launched):
    found = launched("OPERAND", programs=2, TILES=3, REPEATS=2, M=16, N=16, K=16, PITCH=20)
    a = found["a_ptr"].astype(np.float64).reshape(2, 3, 16, 20)[..., :16]
    wanted = 2 * a.sum(axis=1) @ found["b_ptr"].astype(np.float64).reshape(16, 16)
    np.testing.assert_allclose(found["out_ptr"].reshape(2, 16, 16), wanted, rtol=1e-2, atol=1e-2)


def test_micro_kernels_results_are_one_product_at_many_places(launched):
    found = launched("RESULT", programs=2, TILES=3, M=16, N=16, K=16)
    a, b = (found[name].astype(np.float64).reshape(16, 16) for name in ("a_ptr", "b_ptr"))
    np.testing.assert_allclose(found["out_ptr"].reshape(6, 16, 16), np.stack([a @ b] * 6), rtol=1e-2, atol=1e-2)


def test_micro_kernels_atomics_add_every_programs_sum_to_one_place(launched):
    found = launched("ATOMIC", programs=5, WIDTH=64)
    np.testing.assert_allclose(found["out_ptr"], [5 * found["x_ptr"].sum()], rtol=1e-4)
