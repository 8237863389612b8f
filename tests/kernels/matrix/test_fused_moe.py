"""A layer of experts: spaces, the reference by hand, and values with any routing and quantisation."""

from __future__ import annotations

import importlib.util
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT
from table_readers import READERS, Vllm, wheel

from tilewise.db.exchange.foreign.tables.sglang import SGLANG_TABLES
from tilewise.db.exchange.foreign.tables.size_tables import LADDER, encode_tables
from tilewise.db.exchange.foreign.tables.vllm import VLLM_TABLES
from tilewise.db.records import Clock, Result, Scope, Status, Trial
from tilewise.errors import NothingFeasible
from tilewise.kernels import registry
from tilewise.kernels.matrix.fused_moe import _slices
from tilewise.kernels.spec import Target
from tilewise.tuner.devices.cuda import device as cuda
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.space.search_space import check_config, check_tilings, enumerate_space

MOE = registry.load("fused_moe")
TARGETS = {
    "ascend": Target("ascend", "Ascend910B4", 40, 196608, 32, 65535),
    "older": Target("nvidia", "NVIDIA A100-SXM4-80GB", 108, 164 * 1024, 16, 2**31 - 1, 80),
    "hopper": Target("nvidia", "NVIDIA H200", 132, 233472, 16, 2**31 - 1, 90),
}
FP8, INT8 = "fp8_w8a8_128x128", "int8_w8a8"
QUANTS = ("none", FP8, INT8)

needs_torch = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")), reason="needs torch and triton"
)


def problem(m, e, n, k, topk, dtype="bfloat16", **flags):
    return make_problem(MOE, {"M": m, "E": e, "N": n, "K": k, "TOPK": topk, **flags}, dtype)


# Spaces ----------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.data())
@pytest.mark.parametrize("name", TARGETS)
def test_the_default_is_in_the_space_whatever_the_shape(name, data):
    target = TARGETS[name]
    experts = data.draw(st.integers(1, 300), "E")
    sizes = [data.draw(st.sampled_from([1, 7, 64, 100, 2048, 14336]), size) for size in "MNK"]
    quant = data.draw(st.sampled_from(QUANTS if target.has_float8 else ("none", INT8)), "quant")
    skewed, topk = data.draw(st.booleans(), "skewed"), data.draw(st.integers(1, min(experts, 16)), "TOPK")
    anything = problem(sizes[0], experts, *sizes[1:], topk, quant=quant, skewed=skewed)
    assert check_config(MOE, anything, target, MOE.default(anything, target)) == ""


@pytest.mark.full  # vLLM's package is large
@pytest.mark.parametrize(
    ("quant", "dtype", "block"), [("none", None, None), (FP8, "fp8_w8a8", [128, 128]), (INT8, "int8_w8a8", None)]
)
def test_the_default_is_what_vllm_launches_without_a_table(quant, dtype, block):
    vllm = wheel("vllm")
    assert vllm is not None, "make build/readers/vllm/VERSION"
    for rung, (e, n, k) in itertools.product(LADDER, ((8, 14336, 4096), (128, 768, 2048))):
        theirs = Vllm(vllm, READERS, "NVIDIA H200").default(e, n, k, dtype, rung, block)
        ours = {**MOE.default(problem(rung, e, n, k, 2, quant=quant), TARGETS["hopper"])}
        assert ours.pop("GROUP_SIZE_M") <= theirs["GROUP_SIZE_M"], "of fewer blocks than a group, all are in it"
        assert ours.items() <= theirs.items(), rung


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("hopper", (1, 64, 1408, 2048, 6)),
        ("hopper", (4096, 8, 14336, 4096, 2)),
        ("older", (37, 5, 40, 70, 3)),
    ],
)
def test_both_projections_have_programs_for_all_blocks_that_there_can_be(name, sizes):
    m, e, n, k, topk = sizes
    space = enumerate_space(MOE, problem(*sizes), TARGETS[name])
    assert 1 <= len(space) <= 3000
    sample = list(space.configs[:: max(1, len(space) // 100)])
    check_tilings(MOE, problem(*sizes), sample)
    for config in sample:
        single = min(m * topk, e)
        blocks = single + (m * topk - single) // config["BLOCK_SIZE_M"]
        grids = {launch.function.rpartition(":")[2]: launch.grid for launch in MOE.plan(config, problem(*sizes))}
        assert grids["moe_up_kernel"] == (blocks * math.ceil(2 * n / config["BLOCK_SIZE_N"]),)
        assert grids["moe_down_kernel"] == (blocks * math.ceil(k / config["BLOCK_SIZE_N"]),)


@pytest.mark.parametrize(
    ("name", "sizes", "flags", "reason"),
    [
        ("ascend", (64, 8, 64, 64, 2), {"quant": FP8}, "8-bit floats need an NVIDIA GPU of compute capability 8.9"),
        ("older", (64, 8, 64, 64, 2), {"quant": FP8}, "8-bit floats need an NVIDIA GPU of compute capability 8.9"),
        ("ascend", (64, 600, 64, 64, 2), {}, "at most 512 experts on Ascend"),
        ("hopper", (64, 8, 64, 64, 9), {"skewed": True}, "TOPK is at most E"),
    ],
)
def test_a_problem_that_no_config_can_do_is_refused_with_the_reason(name, sizes, flags, reason):
    with pytest.raises(NothingFeasible, match=reason):
        enumerate_space(MOE, problem(*sizes, **flags), TARGETS[name])


@pytest.mark.in_part(4)
@pytest.mark.parametrize("quant", ["none", INT8])
@pytest.mark.parametrize(
    "sizes", [(37, 5, 40, 70, 3), (4096, 8, 14336, 4096, 2), (1, 1, 1, 1, 1), (8, 300, 768, 96, 8)]
)
def test_on_ascend_both_projections_are_cube_kernels_that_programs_share(sizes, quant):
    m, e, n, k, topk = sizes
    space = enumerate_space(MOE, problem(*sizes, quant=quant), TARGETS["ascend"])
    assert 1 <= len(space) <= 6000
    check_tilings(MOE, problem(*sizes, quant=quant), list(space.configs))
    for config in space.configs[:: max(1, len(space) // 50)]:
        single = min(m * topk, e)
        blocks = single + (m * topk - single) // config["BLOCK_SIZE_M"]
        launches = {
            launch.function.rpartition(":")[2]: launch for launch in MOE.plan(config, problem(*sizes, quant=quant))
        }
        tiles = [blocks * math.ceil(cols / config["BLOCK_SIZE_N"]) for cols in (2 * n, k)]
        grids = [launches[f"moe_sorted_{name}_kernel"].grid for name in ("up", "down")]
        assert grids == [(min(each, config["PROGRAMS"] or each),) for each in tiles]
        assert ("moe_requantize_kernel" in launches) == (quant == INT8)
        assert 4 * config["BLOCK_SIZE_M"] * config["BLOCK_SIZE_N"] <= 128 << 10


@pytest.mark.parametrize(("pairs", "slices"), [(1, 1), (16, 1), (17, 2), (1024, 64), (1025, 33), (24576, 64)])
def test_slices_have_whole_steps_and_none_is_empty(pairs, slices):
    count, size = _slices(problem(pairs, 8, 64, 64, 1))
    assert (count, size % 16) == (slices, 0)
    assert (count - 1) * size < pairs <= count * size


def test_a_block_of_k_has_one_scale():
    anything = problem(64, 8, 2048, 2048, 2, quant=FP8)
    assert max(enumerate_space(MOE, anything, TARGETS["hopper"]).domains["BLOCK_SIZE_K"]) == 128


def test_only_experts_that_are_expected_to_be_hit_count_as_read():
    all_hit, one = problem(100_000, 8, 32, 64, 2), problem(1, 8, 32, 64, 2)
    matrices = 3 * 32 * 64 * 2
    assert MOE.buffers(all_hit)["w2_ptr"].least_bytes == 8 * 64 * 32 * 2
    assert MOE.bytes(one) == 2 * matrices + 2 * 64 * 2 + 2 * (4 + 4)
    small = problem(1, 8, 32, 64, 2, quant=FP8)
    assert MOE.bytes(small) == matrices + 2 * (1 + 1) * 4 + 2 * 64 * 2 + 2 * (4 + 4)
    few = [MOE.bytes(problem(4, 64, 1408, 2048, 6, skewed=skewed)) for skewed in (False, True)]
    assert few[1] < 0.9 * few[0]
    assert MOE.flops(one) == 2 * 3 * 2 * 32 * 64


def test_products_are_in_the_dtype_of_the_matrices():
    dtypes = [MOE.matrix_dtype(problem(1, 8, 32, 64, 2, "float16", quant=quant)) for quant in QUANTS]
    assert dtypes == ["float16", "float8_e4m3fn", "int8"]


@pytest.mark.parametrize(
    ("quant", "vllm", "sglang"),
    [
        ("none", "", ""),
        (FP8, ",dtype=fp8_w8a8,block_shape=[128,128]", ",dtype=fp8_w8a8,block_shape=[128, 128]"),
        (INT8, "", ",dtype=int8_w8a8"),
    ],
)
def test_a_tuned_config_is_a_row_of_the_tables_of_vllm_and_sglang(quant, vllm, sglang):
    anything = problem(64, 8, 14336, 4096, 2, quant=quant)
    config = MOE.default(anything, TARGETS["hopper"])
    scope = Scope(anything, "a1", "NVIDIA H200", Clock.MEASURED, "triton 3.6.0, torch 2.11.0, cuda 12.9", 132)
    result = Result(scope, Trial(config, Status.CORRECT, time_us=9.0, verified=True), None, {}, 0.0)
    (name,) = encode_tables([result], VLLM_TABLES, "M", (64,))
    assert name == f"E=8,N=14336,device_name=NVIDIA_H200{vllm}.json"
    (name,) = encode_tables([result], SGLANG_TABLES, "M", (64,))
    assert name == f"configs/triton_3_6_0/E=8,N=14336,device_name=NVIDIA_H200{sglang}.json"


# Values ----------------------------------------------------------------------------------------------------------


@needs_torch
@pytest.mark.parametrize("skewed", [False, True])
def test_tokens_have_different_experts_and_weights_that_add_up_to_one(skewed):
    import torch

    anything = problem(500, 8, 16, 16, 3, skewed=skewed)
    tensors = {"topk_ids_ptr": torch.empty(500, 3, dtype=torch.int32), "topk_weights_ptr": torch.empty(500, 3)}
    MOE.fill(tensors, anything, torch.Generator().manual_seed(1))
    assert all(len(set(row)) == 3 for row in tensors["topk_ids_ptr"].tolist())
    assert torch.allclose(tensors["topk_weights_ptr"].sum(-1), torch.ones(500))
    assert tensors["topk_weights_ptr"].min() > 0


@needs_torch
def test_the_reference_is_what_one_gets_by_hand():
    import torch

    inputs = {
        "x_ptr": torch.tensor([[1.0, 2.0], [3.0, 0.0]]).double(),
        "w13_ptr": torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [2.0, 0.0]]]).double(),
        "w2_ptr": torch.tensor([[[1.0], [0.0]], [[3.0], [-1.0]]]).double(),
        "topk_weights_ptr": torch.tensor([[0.5, 0.5], [1.0, 0.0]]).double(),
        "topk_ids_ptr": torch.tensor([[1, 0], [0, 1]]),
    }
    first = 1 / (1 + math.exp(-1)) * 2  # of expert 0: silu(1) * 2
    second = 2 / (1 + math.exp(-2)) * 2  # of expert 1: silu(2) * 2
    found = MOE.reference_of(problem(2, 2, 1, 2, 2))(inputs)["out_ptr"]
    assert found.tolist() == [pytest.approx([0.5 * first + 1.5 * second, -0.5 * second]), [0.0, 0.0]]


@needs_torch
@pytest.mark.parametrize("quant", [FP8, INT8])
def test_the_reference_quantises_the_inputs_of_both_projections(quant):
    import torch

    m, n, k = 6, 130, 200
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    shapes = {FP8: ((1, 3, 2), (1, 2, 2)), INT8: ((1, 2 * n), (1, k))}[quant]
    exact = {"x_ptr": draw(m, k), "w13_ptr": draw(1, 2 * n, k).round(), "w2_ptr": draw(1, k, n).round()}
    exact |= {"topk_weights_ptr": torch.ones(m, 1), "topk_ids_ptr": torch.zeros(m, 1, dtype=torch.int64)}
    scales = {"w13_scale_ptr": torch.full(shapes[0], 2.0), "w2_scale_ptr": torch.full(shapes[1], 0.5)}
    found = MOE.reference_of(problem(m, 1, n, k, 1, quant=quant))({**exact, **scales})["out_ptr"]
    doubled = {**exact, "w13_ptr": 2 * exact["w13_ptr"], "w2_ptr": exact["w2_ptr"] / 2}
    wanted = MOE.reference_of(problem(m, 1, n, k, 1))(doubled)["out_ptr"]
    error = float((found - wanted).square().mean().sqrt() / wanted.square().mean().sqrt())
    assert {FP8: 0.02, INT8: 0.004}[quant] < error < {FP8: 0.1, INT8: 0.03}[quant]


TILES = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 4}


@pytest.mark.in_part(2)
@needs_torch
@pytest.mark.parametrize(
    ("sizes", "tiles", "dtype", "flags"),
    [
        ((40, 5, 40, 70, 2), {}, "float16", {"skewed": True}),
        ((9, 20, 33, 64, 3), {"BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64}, "bfloat16", {}),
        ((70, 2, 32, 64, 2), {"BLOCK_SIZE_M": 32, "GROUP_SIZE_M": 1}, "float16", {}),
        ((1, 1, 1, 1, 1), {"GROUP_SIZE_M": 1}, "bfloat16", {}),
        ((20, 5, 128, 64, 2), {"BLOCK_SIZE_K": 64}, "bfloat16", {"quant": FP8}),
        ((20, 3, 256, 256, 2), {"BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 128}, "float16", {"quant": FP8, "skewed": True}),
        ((20, 5, 40, 70, 3), {"BLOCK_SIZE_K": 64}, "float16", {"quant": INT8}),
    ],
)
def test_any_routing_and_quantisation_is_right(interpreter, sizes, tiles, dtype, flags):
    verdict = interpreter.verify(MOE, problem(*sizes, dtype, **flags), {**TILES, **tiles})
    assert verdict.agreed, verdict.reason
    assert verdict.error <= verdict.tolerance


SORTED = {"VARIANT": "sorted", **TILES}


@needs_torch
@pytest.mark.parametrize(
    ("sizes", "programs", "flags"),
    [((18, 3, 40, 70, 2), 0, {"skewed": True}), ((9, 70, 33, 20, 3), 4, {}), ((7, 3, 40, 70, 3), 0, {"quant": INT8})],
)
def test_sorted_rows_are_right_for_few_experts_many_and_8_bit_products(interpreter, sizes, programs, flags):
    verdict = interpreter.verify(MOE, problem(*sizes, "float16", **flags), {**SORTED, "PROGRAMS": programs})
    assert verdict.agreed, verdict.reason
    assert verdict.error <= verdict.tolerance


WRONG = {
    "the expert of a block": ("tl.store(experts_ptr + block, expert)", "tl.store(experts_ptr + block, expert // 2)"),
    "the pairs of later steps": (", pairs, mask=own > 0)", ", pairs - start, mask=own > 0)"),
    "the rows that fill a block": ("dtype=tl.int32) + M * TOPK, mask=rest", "dtype=tl.int32), mask=rest"),
    "the row of a token": ("rows = pairs // SHARING", "rows = pairs % SHARING"),
    "the matrix of an expert": (
        "w_ptr + expert * COLS * DEPTH,\n                PAIRS",
        "w_ptr,\n                PAIRS",
    ),
    "the weight of a pair": ("total *= tl.load(weight_ptr + pairs, mask=pairs < PAIRS, other=0.0)[:, None]", "pass"),
    "the activation": ("gate / (1.0 + tl.exp(-gate)) * factor", "gate * factor"),
    "the last part of a token": ("for part in range(TOPK)", "for part in range(TOPK - 1)"),
}
"""Mistakes: the right words of `fused_moe.py`, and the wrong ones in their place."""


@pytest.mark.in_part(2)
@needs_torch
@pytest.mark.parametrize("mistake", WRONG)
def test_a_twin_with_one_mistake_is_refused(interpreter, tmp_path, mistake):
    right, wrong = WRONG[mistake]
    text = (ROOT / "kernels/jit/matrix/fused_moe.py").read_text()
    assert text.count(right) == 1
    module = f"wrong_moe_{list(WRONG).index(mistake)}"
    (tmp_path / f"{module}.py").write_text(text.replace(right, wrong))
    spec = (ROOT / "kernels/matrix/fused_moe.py").read_text()
    spec = spec.replace("import functools", f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport functools", 1)
    spec = spec.replace("_STEP = 1024", "_STEP = 32")
    file = tmp_path / "wrong.py"
    file.write_text(spec.replace("tilewise.kernels.jit.matrix.fused_moe:", f"{module}:"))
    anything = problem(40, 3, 40, 70, 2, "float16", skewed=True)
    verdict = interpreter.verify(registry.load(f"{file}:SPEC"), anything, TILES)
    assert (verdict.agreed, verdict.status) == (False, Status.CORRECTNESS), verdict.reason


# On a GPU --------------------------------------------------------------------------------------------------------


@pytest.mark.needs_gpu
@pytest.mark.parametrize("quant", QUANTS)
def test_every_quantisation_is_right_on_a_gpu(quant):
    with cuda.CudaDevice(jobs=4) as device:
        for sizes, skewed in (((300, 8, 704, 520, 2), True), ((17, 64, 320, 1000, 6), False)):
            anything = problem(*sizes, quant=quant, skewed=skewed)
            configs = enumerate_space(MOE, anything, device.target).configs
            chosen = {each["BLOCK_SIZE_M"]: each for each in configs[:: max(1, len(configs) // 20)]}
            for each in (MOE.default(anything, device.target), *chosen.values()):
                verdict = device.verify(MOE, anything, each)
                assert verdict.agreed, f"{anything} {each}: {verdict.reason}"


@needs_torch
@pytest.mark.parametrize(("quant", "size"), [("none", 0.25 / 16), (FP8, 1.0), (INT8, 32.0)])
def test_matrices_are_drawn_so_that_products_are_small_in_every_dtype(quant, size):
    import torch

    buffer = MOE.buffers(problem(4, 8, 64, 256, 2, quant=quant))["w13_ptr"]
    tensor = torch.empty(600, 600, dtype=getattr(torch, buffer.dtype))
    buffer.draw(tensor, torch.Generator().manual_seed(1))
    values = tensor.float()
    assert float(values.std()) == pytest.approx(size, rel=0.05)
    if quant == INT8:
        assert (int(values.min()), int(values.max())) == (-127, 127)  # clamped, for four deviations are 128
        assert values.unique().numel() > 200
    else:
        assert float(values.abs().max()) < 6 * size


@needs_torch
@pytest.mark.parametrize(("quant", "size"), [(FP8, 1.0), (INT8, 32.0)])
def test_scales_undo_the_size_of_the_drawn_matrices(quant, size):
    import torch

    buffer = MOE.buffers(problem(4, 8, 64, 256, 2, quant=quant))["w13_scale_ptr"]
    scales = torch.empty(2000)
    buffer.draw(scales, torch.Generator().manual_seed(1))
    usual = 0.25 / 16 / size
    assert 0.5 * usual <= float(scales.min()) < 0.52 * usual
    assert 1.48 * usual < float(scales.max()) <= 1.5 * usual


@pytest.mark.parametrize(("quant", "requantised"), [("none", 0.0), (FP8, 0.25), (INT8, 0.13)])
@pytest.mark.parametrize(("dtype", "bits"), [("bfloat16", 8), ("float16", 11)])
def test_what_is_rounded_and_quantised_on_the_way_widens_the_tolerance(quant, requantised, dtype, bits):
    found = MOE.buffers(problem(4, 8, 64, 256, 2, dtype, quant=quant))["out_ptr"].tolerance
    assert found == pytest.approx(5.0 * 2.0**-bits + requantised)
