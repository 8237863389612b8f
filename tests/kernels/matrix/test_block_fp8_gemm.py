"""Products with block scales: the space, the reference by hand, and values at odd sizes; `hopper` on a GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.errors import NothingFeasible
from tilewise.kernels import registry
from tilewise.kernels.spec import Target
from tilewise.tuner.devices.cuda import device as cuda
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.space.search_space import check_config, check_tilings, enumerate_space

SPEC = registry.load("block_fp8_gemm")
ROOT = Path(__file__).resolve().parents[3]
HOPPER = Target("nvidia", "NVIDIA H200", 132, 233472, 16, 2**31 - 1, 90)
LATER = Target("nvidia", "NVIDIA L40S", 142, 102400, 16, 2**31 - 1, 89)
OLDER = Target("nvidia", "NVIDIA A100-SXM4-80GB", 108, 164 * 1024, 16, 2**31 - 1, 80)

needs_torch = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")), reason="needs torch and triton"
)


def problem(m, n, k):
    return make_problem(SPEC, {"M": m, "N": n, "K": k}, "float8_e4m3fn")


SIZE = st.one_of(st.integers(1, 300), st.sampled_from([512, 1000, 4096, 8192, 100_000]))


@settings(max_examples=30)
@given(st.tuples(SIZE, SIZE, SIZE))
@pytest.mark.parametrize("target", [HOPPER, LATER], ids=lambda target: target.name)
def test_the_default_is_in_the_space_whatever_the_shape(target, sizes):
    anything = problem(*sizes)
    assert check_config(SPEC, anything, target, SPEC.default(anything, target)) == ""


@pytest.mark.parametrize("sizes", [(8192, 8192, 8192), (16, 7168, 4096), (300, 100, 2000), (1, 1, 16)])
def test_the_tiling_has_as_many_programs_as_a_launch(sizes):
    space = enumerate_space(SPEC, problem(*sizes), HOPPER)
    assert 1 <= len(space) <= 2000
    check_tilings(SPEC, problem(*sizes), list(space.configs[:: max(1, len(space) // 200)]))


def test_hopper_is_for_its_capability_and_for_rows_of_whole_16_bytes():
    for sizes, known in (((512, 512, 512), True), ((512, 512, 500), False), ((512, 516, 512), False)):
        assert ("hopper" in enumerate_space(SPEC, problem(*sizes), HOPPER).domains["VARIANT"]) == known
    assert enumerate_space(SPEC, problem(512, 512, 512), LATER).domains["VARIANT"] == ("plain",)
    with pytest.raises(NothingFeasible, match=r"8-bit floats need"):
        enumerate_space(SPEC, problem(512, 512, 512), OLDER)


@needs_torch
def test_the_reference_is_what_one_gets_by_hand():
    import torch

    inputs = {
        "a_ptr": torch.ones(1, 130, dtype=torch.float64),
        "b_ptr": torch.ones(129, 130, dtype=torch.float64),
        "a_scale_ptr": torch.tensor([[2.0, 3.0]], dtype=torch.float64),
        "b_scale_ptr": torch.tensor([[1.0, 10.0], [5.0, 0.5]], dtype=torch.float64),
    }
    out = SPEC.reference_of(problem(1, 129, 130))(inputs)["out_ptr"][0]
    assert out[:128].tolist() == [128 * 2 + 2 * 3 * 10] * 128
    assert out[128].item() == 128 * 2 * 5 + 2 * 3 * 0.5


TILES = {"VARIANT": "plain", "GROUP_M": 4}


@needs_torch
@pytest.mark.parametrize(
    ("sizes", "tiles"),
    [
        ((70, 150, 320), {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 64}),
        ((40, 140, 256), {"BLOCK_M": 16, "BLOCK_N": 128, "BLOCK_K": 128, "GROUP_M": 1}),
        ((33, 300, 128), {"BLOCK_M": 32, "BLOCK_N": 256, "BLOCK_K": 128, "GROUP_M": 1}),
        ((1, 1, 64), {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 64, "GROUP_M": 1}),
        ((20, 150, 200), {"BLOCK_M": 16, "BLOCK_N": 256, "BLOCK_K": 128, "GROUP_M": 1}),
    ],
)
def test_products_of_odd_sizes_are_right(interpreter, sizes, tiles):
    verdict = interpreter.verify(SPEC, problem(*sizes), {**TILES, **tiles})
    assert verdict.agreed, verdict.reason
    assert verdict.error <= verdict.tolerance


WRONG = {
    "the scale of the rows": ("rows * groups + group, mask", "rows * groups, mask"),
    "the scale of the columns": ("b_scale_ptr + col // GROUP * groups + group", "b_scale_ptr + group"),
    "the group of a trip": ("trip * BLOCK_K // GROUP", "trip"),
}
"""Mistakes: the right words of `scaled_sums.py`, and the wrong ones in their place."""


@pytest.mark.in_part(1)
@needs_torch
@pytest.mark.parametrize("mistake", WRONG)
def test_a_twin_with_one_mistake_is_refused(interpreter, tmp_path, mistake):
    right, wrong = WRONG[mistake]
    module = f"wrong_sums_{list(WRONG).index(mistake)}"
    sums = (ROOT / "kernels/jit/matrix/scaled_sums.py").read_text()
    assert sums.count(right) == 1
    (tmp_path / f"{module}.py").write_text(sums.replace(right, wrong))
    jit = (ROOT / "kernels/jit/matrix/block_fp8_gemm.py").read_text()
    (tmp_path / f"{module}_gemm.py").write_text(jit.replace("tilewise.kernels.jit.matrix.scaled_sums", module))
    spec = (ROOT / "kernels/matrix/block_fp8_gemm.py").read_text()
    spec = spec.replace("import functools", f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport functools")
    file = tmp_path / "wrong.py"
    file.write_text(spec.replace("tilewise.kernels.jit.matrix.block_fp8_gemm:", f"{module}_gemm:"))
    config = {**TILES, "BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 64}
    assert interpreter.verify(SPEC, problem(70, 150, 320), config).agreed
    assert not interpreter.verify(registry.load(f"{file}:SPEC"), problem(70, 150, 320), config).agreed


@pytest.mark.needs_gpu
def test_both_variants_are_right_on_a_gpu():
    with cuda.CudaDevice(jobs=4) as device:
        for sizes in ((1000, 520, 704), (64, 128, 128), (300, 7168, 2048), (200, 1000, 352)):
            configs = enumerate_space(SPEC, problem(*sizes), device.target).configs
            chosen = {(c["VARIANT"], c.get("PROGRAMS"), c["num_stages"]): c for c in configs[:: len(configs) // 40 + 1]}
            for config in (SPEC.default(problem(*sizes), device.target), *chosen.values()):
                verdict = device.verify(SPEC, problem(*sizes), config)
                assert verdict.agreed, f"{sizes} {config}: {verdict.reason}"
