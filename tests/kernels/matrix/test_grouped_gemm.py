"""Products of groups: spaces, the reference by hand, and values with groups of any sizes."""

from __future__ import annotations

import importlib.util

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT

from tilewise.db.records import Status
from tilewise.errors import NothingFeasible
from tilewise.kernels import registry
from tilewise.kernels.spec import ITEM_BYTES, Target
from tilewise.tuner.devices.cuda import device as cuda
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.space.search_space import check_config, check_tilings, enumerate_space

GROUPED = registry.load("grouped_gemm")
TARGETS = {
    "ascend": Target("ascend", "Ascend910B4", 40, 196608, 32, 65535),
    "older": Target("nvidia", "NVIDIA A100-SXM4-80GB", 108, 164 * 1024, 16, 2**31 - 1, 80),
    "hopper": Target("nvidia", "NVIDIA H200", 132, 233472, 16, 2**31 - 1, 90),
}

needs_torch = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")), reason="needs torch and triton"
)


def problem(m, n, k, g, dtype="bfloat16", **flags):
    return make_problem(GROUPED, {"M": m, "N": n, "K": k, "G": g, **flags}, dtype)


def takes(target, dtype):
    """Return whether the target's matrix units take this dtype."""
    if dtype in ("float32", "int8"):
        return target.family == "ascend"
    return ITEM_BYTES[dtype] > 1 or target.has_float8


# Spaces ----------------------------------------------------------------------------------------------------------

SIZE = st.one_of(st.integers(1, 300), st.sampled_from([512, 1000, 4096, 100_000]))


@settings(max_examples=40)
@given(st.data())
@pytest.mark.parametrize("name", TARGETS)
def test_the_default_is_in_the_space_whatever_the_shape(name, data):
    target = TARGETS[name]
    dtypes = [dtype for dtype in GROUPED.dtypes if takes(target, dtype)]
    flags = {flag.name: data.draw(st.booleans(), flag.name) for flag in GROUPED.flags}
    sizes = [data.draw(SIZE, size) for size in "MNK"]
    anything = problem(*sizes, data.draw(st.integers(1, 1024), "G"), data.draw(st.sampled_from(dtypes)), **flags)
    assert check_config(GROUPED, anything, target, GROUPED.default(anything, target)) == ""


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("sizes", [(8192, 4096, 4096, 64), (300, 100, 2000, 3), (5, 64, 64, 8), (1, 1, 1, 1)])
def test_there_are_programs_for_as_many_tiles_as_there_can_be(name, sizes):
    space = enumerate_space(GROUPED, problem(*sizes), TARGETS[name])
    assert 1 <= len(space) <= 8000
    sample = list(space.configs[:: max(1, len(space) // 200)])
    check_tilings(GROUPED, problem(*sizes), sample)
    for config in sample:
        *_, launch = GROUPED.plan(config, problem(*sizes))
        assert launch.descriptors == (config["VARIANT"] == "descriptors")
        assert launch.grid[0] == config.get("PROGRAMS", 0) or not config.get("PROGRAMS", 0)


@pytest.mark.parametrize(
    ("sizes", "flags", "described"),
    [
        ((64, 64, 64), {}, True),
        ((64, 60, 64), {}, False),  # rows of b
        ((64, 60, 64), {"column_major": True}, True),  # stores go through pointers
        ((64, 64, 60), {"column_major": True}, False),
    ],
)
def test_descriptors_are_for_rows_of_whole_16_bytes(sizes, flags, described):
    for name, expected in (("hopper", described), ("older", False), ("ascend", False)):
        found = enumerate_space(GROUPED, problem(*sizes, 4, **flags), TARGETS[name]).domains["VARIANT"]
        assert ("descriptors" in found) == expected


@pytest.mark.parametrize(
    ("name", "groups", "dtype", "reason"),
    [
        ("ascend", 4, "float8_e4m3fn", r"8-bit floats need an NVIDIA GPU of compute capability 8.9 or later$"),
        ("older", 4, "float8_e5m2", r"8-bit floats need an NVIDIA GPU of compute capability 8.9 or later$"),
        ("hopper", 1025, "bfloat16", r"at most 1024 groups$"),
        ("hopper", 4, "int8", r"float32 and int8 products are for Ascend's cube cores$"),
    ],
)
def test_a_problem_that_no_config_can_do_is_refused_with_the_reason(name, groups, dtype, reason):
    with pytest.raises(NothingFeasible, match=reason):
        enumerate_space(GROUPED, problem(64, 64, 64, groups, dtype), TARGETS[name])


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_tiles_on_ascend_fit_the_memories_of_a_cube_core(dtype):
    for config in enumerate_space(GROUPED, problem(4096, 4096, 4096, 4, dtype), TARGETS["ascend"]).configs:
        rows, cols, depth = (config[f"BLOCK_{name}"] for name in "MNK")
        assert config["VARIANT"] == "masked"
        assert 4 * rows * cols <= 128 << 10
        assert ITEM_BYTES[dtype] * (rows + cols) * depth <= 512 << 10


@pytest.mark.parametrize(
    ("sizes", "tile", "programs"),
    [
        ((4096, 4096, 4096, 8), (128, 256), 20),
        ((64, 2048, 7168, 32), (16, 64), 20),  # two rows each, whose tiles fill the cores only if all groups count
        ((64, 64, 64, 1), (16, 64), 0),
    ],
)
def test_the_default_on_ascend_keeps_the_cube_cores_busy_with_the_tiles_of_all_groups(sizes, tile, programs):
    chosen = GROUPED.default(problem(*sizes, "float16"), TARGETS["ascend"])
    assert ((chosen["BLOCK_M"], chosen["BLOCK_N"]), chosen["PROGRAMS"]) == (tile, programs)


def test_only_matrices_of_groups_with_rows_count_as_read():
    assert GROUPED.flops(problem(100, 200, 300, 4)) == 2 * 100 * 200 * 300
    assert GROUPED.bytes(problem(100, 200, 300, 4)) == 2 * (100 * 300 + 4 * 300 * 200 + 100 * 200) + 4 * 5
    few = problem(3, 200, 300, 64)
    assert GROUPED.bytes(few) == 2 * (3 * 300 + 3 * 300 * 200 + 3 * 200) + 4 * 65
    assert GROUPED.bytes(problem(64, 200, 300, 64, skewed=True)) < GROUPED.bytes(problem(64, 200, 300, 64))


# Values ----------------------------------------------------------------------------------------------------------


@needs_torch
@pytest.mark.parametrize("skewed", [False, True])
def test_offsets_divide_the_rows_in_any_order(skewed):
    import torch

    tensors = {"offsets_ptr": torch.empty(9, dtype=torch.int32)}
    drawn = set()
    for seed in range(4):
        GROUPED.fill(tensors, problem(1000, 16, 16, 8, skewed=skewed), torch.Generator().manual_seed(seed))
        sizes = tensors["offsets_ptr"].diff().tolist()
        assert (int(tensors["offsets_ptr"][0]), sum(sizes)) == (0, 1000)
        assert max(sizes) == (368 if skewed else 125)
        drawn.add(tuple(sizes))
    assert len(drawn) == (4 if skewed else 1)


@needs_torch
def test_the_reference_is_what_one_gets_by_hand():
    import torch

    inputs = {
        "a_ptr": torch.tensor([[1.0, 2.0], [3.0, -4.0], [0.0, 1.0]], dtype=torch.float64),
        "b_ptr": torch.tensor([[[1.0], [2.0]], [[9.0], [9.0]], [[-1.0], [5.0]]], dtype=torch.float64),
        "offsets_ptr": torch.tensor([0, 1, 1, 3]),
    }
    assert GROUPED.reference_of(problem(3, 1, 2, 3))(inputs)["out_ptr"].tolist() == [[5.0], [-23.0], [5.0]]


@needs_torch
def test_sums_of_8_bit_integers_do_not_wrap():
    import torch

    inputs = {
        "a_ptr": torch.full((3, 300), 100, dtype=torch.int8),
        "b_ptr": torch.stack([torch.full((300, 1), value, dtype=torch.int8) for value in (100, -100)]),
        "offsets_ptr": torch.tensor([0, 2, 3]),
    }
    found = GROUPED.reference_of(problem(3, 1, 300, 2, "int8"))(inputs)["out_ptr"]
    assert found.tolist() == [[3_000_000], [3_000_000], [-3_000_000]]


TILES = {"VARIANT": "pointers", "GROUP_M": 4, "PROGRAMS": 0}


MASKED = {"VARIANT": "masked", "BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32, "PROGRAMS": 3}


@pytest.mark.in_part(3)
@needs_torch
@pytest.mark.parametrize(
    ("sizes", "tiles", "dtype", "flags"),
    [
        ((70, 70, 100, 3), {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32}, "float16", {"skewed": True}),
        ((70, 33, 100, 3), {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 64}, "bfloat16", {"column_major": True}),
        ((64, 64, 64, 2), {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32}, "bfloat16", {}),
        ((90, 40, 70, 5), {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 32, "PROGRAMS": 3}, "float16", {"skewed": True}),
        ((25, 40, 64, 37), {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32}, "bfloat16", {"column_major": True}),
        ((60, 40, 64, 3), {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32}, "float8_e4m3fn", {"column_major": True}),
        ((1, 1, 1, 1), {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP_M": 1}, "float16", {}),
        ((60, 40, 50, 3), MASKED, "float16", {"column_major": True}),
        ((70, 45, 50, 4), MASKED, "bfloat16", {"skewed": True}),
    ],
)
def test_groups_of_any_sizes_are_right(interpreter, sizes, tiles, dtype, flags):
    verdict = interpreter.verify(GROUPED, problem(*sizes, dtype, **flags), {**TILES, **tiles})
    assert verdict.agreed, verdict.reason
    assert verdict.error <= verdict.tolerance


WRONG = {
    "the group of a tile": ("before = sums <= tile_m", "before = sums < tile_m"),
    "the group's first tile": (" + (tile_m - tl.max(tl.where(before, sums, 0), 0)) * BLOCK_M", ""),
    "the end of a group's rows": ("mask=(rows < last)[:, None] & ", "mask=(rows < last + 1)[:, None] & "),
    "the matrix of a group": ("b_ptr + group.to(tl.int64) * K * N", "b_ptr"),
    "the tiles of the last groups": (
        "mask=groups < G, other=0)\n    return",
        "mask=groups < G - 1, other=0)\n    return",
    ),
}
"""Mistakes: the right words of `grouped_gemm.py`, and the wrong ones in their place."""


@pytest.mark.in_part(1)
@needs_torch
@pytest.mark.parametrize("mistake", WRONG)
def test_a_twin_with_one_mistake_is_refused(interpreter, tmp_path, mistake):
    right, wrong = WRONG[mistake]
    text = (ROOT / "kernels/jit/matrix/grouped_gemm.py").read_text()
    assert text.count(right) == 1
    module = f"wrong_grouped_{list(WRONG).index(mistake)}"
    (tmp_path / f"{module}.py").write_text(text.replace(right, wrong))
    spec = (ROOT / "kernels/matrix/grouped_gemm.py").read_text()
    spec = spec.replace("import itertools", f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport itertools")
    file = tmp_path / "wrong.py"
    file.write_text(spec.replace("tilewise.kernels.jit.matrix.grouped_gemm:", f"{module}:"))
    anything = problem(70, 40, 70, 3, "float16", skewed=True)
    config = {**TILES, "BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32}
    assert interpreter.verify(GROUPED, anything, config).agreed
    verdict = interpreter.verify(registry.load(f"{file}:SPEC"), anything, config)
    assert (verdict.agreed, verdict.status) == (False, Status.CORRECTNESS), verdict.reason


# On a GPU --------------------------------------------------------------------------------------------------------


@pytest.mark.needs_gpu
@pytest.mark.parametrize("dtype", [dtype for dtype in GROUPED.dtypes if takes(TARGETS["hopper"], dtype)])
def test_both_variants_are_right_on_a_gpu(dtype):
    with cuda.CudaDevice(jobs=4) as device:
        for sizes, flags in (((1000, 528, 704, 7), {}), ((300, 256, 128, 64), {"column_major": True, "skewed": True})):
            anything = problem(*sizes, dtype, **flags)
            configs = enumerate_space(GROUPED, anything, device.target).configs
            chosen = {(each["VARIANT"], each["PROGRAMS"]): each for each in configs[:: len(configs) // 50]}
            assert len(chosen) == 4
            for each in (GROUPED.default(anything, device.target), *chosen.values()):
                verdict = device.verify(GROUPED, anything, each)
                assert verdict.agreed, f"{anything} {each}: {verdict.reason}"
