"""Values of every kernel in Triton's interpreter, at small problems that differ in what its code may treat apart, and
the elements that it loads and stores for them."""

import importlib.util
import json
import os

import drawn_launches
import pytest
from places import ROOT

from tilewise.kernels import registry

if importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch and triton", allow_module_level=True)

NAMES = [name for name in registry.names() if name != "block_fp8_gemm"]
"""It needs 8-bit floats, which none of the drawn targets has: its own tests draw what runs."""

FEW, CASES = 2, 3
"""Cases of kernels that share their code with others, or that take long and have more tests of their own; of others,
and of all where loads and stores are counted."""

SHARED = ("gelu_", "max_", "prod_", "sum_", "relu_", "vector_add", "fused_moe")

TABLE = ROOT / "tests/golden/moves.json"
"""`WRITE_MOVES=1 pytest -n 0` on this file writes it anew, if a change is meant."""


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_is_right_whatever_its_tails_variants_and_flags(interpreter, normalisations, name):
    """Work that is done twice leaves the same values, so the elements that are loaded and stored are counted too."""
    cases = drawn_launches.drawn(name, CASES)
    assert len(cases) == CASES
    for problem, config in cases[: FEW if name.startswith(SHARED) else CASES]:
        verdict = interpreter.verify(registry.load(name), problem, config)
        assert verdict.agreed, f"{problem} {config}: {verdict.reason}"
    moves = [normalisations("moved", name, problem, config, None) for problem, config in cases]
    table = json.loads(TABLE.read_text())
    if os.environ.get("WRITE_MOVES"):
        table[name] = moves
        TABLE.write_text("{\n" + ",\n".join(f'"{each}": {table[each]}' for each in sorted(table)) + "\n}\n")
    assert moves == table[name]
