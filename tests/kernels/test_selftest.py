"""The kernels of the self-test under Triton's interpreter: right without a shift, and wrong with one."""

import importlib.util

import pytest

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.diagnostics import selftest

if any(importlib.util.find_spec(name) is None for name in ("torch", "triton")):
    pytest.skip("needs torch and triton", allow_module_level=True)


@pytest.mark.parametrize(
    ("name", "dims", "config"),
    [
        ("SPEC", {"N": 1100}, {"BLOCK": 512, "SUB_BLOCK": 128}),
        ("PRODUCT", {"M": 37, "N": 45, "K": 40}, {"BLOCK": 32}),
    ],
    ids=["doubled", "product"],
)
def test_a_shift_alone_makes_the_values_wrong(interpreter, name, dims, config):
    spec = registry.load(f"{selftest.__file__}:{name}")
    problem = Problem(spec.name, dims, spec.dtypes[0])
    found = [interpreter.verify(spec, problem, {**config, "SHIFT": shift}) for shift in (0, 1)]
    assert [verdict.agreed for verdict in found] == [True, False], found[0].reason
