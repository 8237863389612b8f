"""Values of every kernel in Triton's interpreter, at small problems that differ in what its code may treat apart."""

import importlib.util

import drawn_launches
import pytest

from tilewise.kernels import registry

if importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch and triton", allow_module_level=True)

NAMES = [name for name in registry.names() if name != "block_fp8_gemm"]
"""It needs 8-bit floats, which the interpreter fills nowhere beyond a tail: its own tests draw what runs."""

FEW, CASES = 2, 4
"""Cases of kernels that share their code with others, or that take long and have more tests of their own; of others."""

SHARED = ("gelu_", "max_", "prod_", "sum_", "relu_", "vector_add", "fused_moe")


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_is_right_whatever_its_tails_variants_and_flags(interpreter, name):
    cases = drawn_launches.drawn(name, count := FEW if name.startswith(SHARED) else CASES)
    assert len(cases) == count
    for problem, config in cases:
        verdict = interpreter.verify(registry.load(name), problem, config)
        assert verdict.agreed, f"{problem} {config}: {verdict.reason}"
