"""The headline kernel's values in Triton's interpreter: any shape, any config, NaN and infinity."""

import importlib.util
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.space.search_space import enumerate_space

if importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch and triton", allow_module_level=True)

SPEC = registry.load("row_reduce")
ROWS = st.one_of(st.sampled_from([1, 2, 3, 8, 31, 97, 128]), st.integers(1, 60))
COLUMNS = st.one_of(st.sampled_from([1, 2, 7, 8, 63, 64, 65, 127, 257, 521]), st.integers(1, 300))
TRIPS = 60
"""The limit on trips of the inner loop over all programs: 0.1 s of interpreting."""


@settings(max_examples=12)
@given(st.data())
def test_any_config_of_the_space_is_right_at_any_shape(interpreter, target, data):
    m, n, dtype = data.draw(ROWS, "M"), data.draw(COLUMNS, "N"), data.draw(st.sampled_from(SPEC.dtypes), "dtype")
    problem = Problem("row_reduce", {"M": m, "N": n}, dtype)
    configs = enumerate_space(SPEC, problem, target).configs
    config = configs[data.draw(st.integers(0, len(configs) - 1), "config")]
    tiling = SPEC.tiling(config, problem)
    assume(tiling.programs * tiling.trips <= TRIPS)
    verdict = interpreter.verify(SPEC, problem, config)
    assert verdict.agreed, f"{problem} {config}: {verdict.reason}"
    assert verdict.error <= verdict.tolerance < 0.05


SPECIAL = """
import json, sys
import torch
from tilewise.benchmarks.model import interpreter_fixes
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.measure.launch import launch

interpreter_fixes.install()
spec = registry.load("row_reduce")
inf, nan = float("inf"), float("nan")
problem = Problem("row_reduce", {"M": 7, "N": 70}, "float32")
x = torch.randn(7, 70, generator=torch.Generator().manual_seed(1))
x[0, 3], x[1, 69], x[2, 0], x[3, 5], x[3, 6], x[4, :] = inf, -inf, nan, inf, -inf, -inf
w = torch.randn(70, generator=torch.Generator().manual_seed(2))
rows = []
for special_w in (0.0, inf, -inf, nan):
    w[9] = special_w
    for tiles in ((7, 7, 64), (4, 3, 128), (1, 1, 64)):
        config = dict(zip(("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_N"), tiles), multibuffer=True)
        tensors = {"x_ptr": x, "w_ptr": w, "out_ptr": torch.full((7,), 123.0)}
        launch(spec, problem, config, tensors)
        wanted = spec.reference({"x_ptr": x.double(), "w_ptr": w.double()})["out_ptr"]
        rows.append([tensors["out_ptr"].tolist(), wanted.tolist()])
print(json.dumps(rows))
"""

FAR = """
import torch
from triton.runtime import interpreter
from tilewise.benchmarks.model import interpreter_fixes
from tilewise.kernels.jit.row_reduce import row_reduce_kernel

interpreter_fixes.install()
rows, columns = 2**25 + 1, 64  # the last row starts at element 2^31; untouched pages cost no memory
x, w, out = (torch.empty(size, dtype=torch.float16) for size in (rows * columns, columns, rows))
x[-columns:], w[:] = 0.5, 0.25
before = interpreter.InterpreterBuilder.create_get_program_id
def last(self, axis):
    handle = before(self, axis)
    handle.data[:] = rows - 1
    return handle
interpreter.InterpreterBuilder.create_get_program_id = last
row_reduce_kernel[(1,)](x, w, out, rows, columns, BLOCK_SIZE_M=1, SUB_BLOCK_SIZE_M=1, BLOCK_SIZE_N=64)
print(float(out[-1]))
"""


def test_nan_and_infinity_propagate_as_in_torch(interpreted):
    rows = interpreted(SPECIAL)
    assert len(rows) == 12
    assert any(math.isnan(value) for _, wanted in rows for value in wanted)
    for got, wanted in rows:
        assert got == pytest.approx(wanted, rel=1e-5, nan_ok=True)


def test_an_element_beyond_2_to_the_31_is_found(interpreted):
    assert interpreted(FAR) == pytest.approx(64 / (1 + math.exp(-1.25)), rel=1e-3)
