"""Matrix products: spaces, references by hand, and values at any shape and with any flags."""

from __future__ import annotations

import importlib.util
import math
import types
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.errors import NothingFeasible
from tilewise.kernels import registry
from tilewise.kernels.spec import ITEM_BYTES, Target
from tilewise.tuner.measure.draws import Way
from tilewise.tuner.measure.verify import Arguments
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.space.search_space import broken_rule, check_config, check_tilings, enumerate_space

GEMM = registry.load("gemm")
HOPPER = Target("nvidia", "NVIDIA H200", 132, 233472, 16, 2**31 - 1, 90)
TARGETS = {
    "ascend": Target("ascend", "Ascend910B4", 40, 196608, 32, 65535),
    "older": Target("nvidia", "NVIDIA A100-SXM4-80GB", 108, 164 * 1024, 16, 2**31 - 1, 80),
    "hopper": HOPPER,
}

needs_torch = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")), reason="needs torch and triton"
)


def problem(m, n, k, dtype="bfloat16", **flags):
    return make_problem(GEMM, {"M": m, "N": n, "K": k, **flags}, dtype)


def takes(target, dtype):
    """Return whether the target's matrix units take this dtype."""
    if dtype in ("float32", "int8"):
        return target.family == "ascend"
    return ITEM_BYTES[dtype] > 1 or target.has_float8


# Spaces ----------------------------------------------------------------------------------------------------------

SIZE = st.one_of(st.integers(1, 300), st.sampled_from([512, 1000, 4096, 8192, 100_000]))


@settings(max_examples=40)
@given(st.data())
@pytest.mark.parametrize("name", TARGETS)
def test_the_default_is_in_the_space_whatever_the_shape(name, data):
    target = TARGETS[name]
    dtypes = [dtype for dtype in GEMM.dtypes if takes(target, dtype)]
    flags = {"column_major": data.draw(st.booleans(), "column_major")}
    dtype = data.draw(st.sampled_from(dtypes), "dtype")
    anything = problem(*(data.draw(SIZE, size) for size in "MNK"), dtype, **flags)
    assert check_config(GEMM, anything, target, GEMM.default(anything, target)) == ""


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("sizes", [(8192, 8192, 8192), (16, 8192, 8192), (300, 100, 2000), (1, 1, 1)])
def test_the_tiling_has_as_many_programs_as_a_launch(name, sizes):
    space = enumerate_space(GEMM, problem(*sizes), TARGETS[name])
    assert 1 <= len(space) <= 6000
    check_tilings(GEMM, problem(*sizes), list(space.configs[:: max(1, len(space) // 200)]))
    for config in space.configs[:: len(space) // 100 + 1]:
        assert GEMM.bytes(problem(*sizes)) > 0
        assert all(
            launch.descriptors == (config["VARIANT"] == "descriptors") for launch in GEMM.plan(config, problem(*sizes))
        )


@pytest.mark.parametrize(
    ("sizes", "flags", "dtype", "described"),
    [
        ((512, 512, 512), {}, "float16", True),
        ((512, 512, 500), {}, "float16", False),
        ((512, 500, 512), {"column_major": True}, "float16", False),  # rows of the output
        ((512, 504, 512), {"column_major": True}, "float8_e4m3fn", True),
        ((512, 504, 512), {}, "float8_e4m3fn", False),  # rows of b
    ],
)
def test_descriptors_are_for_rows_of_whole_16_bytes(sizes, flags, dtype, described):
    found = {config["VARIANT"] for config in enumerate_space(GEMM, problem(*sizes, dtype, **flags), HOPPER).configs}
    hopper = {"hopper"} if dtype == "float16" else set()
    assert found == ({"pointers", "descriptors"} | hopper if described else {"pointers"})
    if dtype == "float16":
        older = enumerate_space(GEMM, problem(*sizes, dtype, **flags), TARGETS["older"])
        assert {config["VARIANT"] for config in older.configs} == {"pointers"}


@pytest.mark.parametrize("name", ["ascend", "older"])
def test_8_bit_floats_are_refused_where_there_are_none(name):
    with pytest.raises(NothingFeasible, match=r"8-bit floats need an NVIDIA GPU of compute capability 8.9 or later$"):
        enumerate_space(GEMM, problem(64, 64, 64, "float8_e4m3fn"), TARGETS[name])


def test_sums_are_divided_only_where_tiles_are_few_and_no_part_is_empty():
    few = problem(16, 4096, 1000)
    parts = {config["SPLIT_K"]: config for config in enumerate_space(GEMM, few, HOPPER).configs}
    assert {1, 2, 4} <= parts.keys()
    for split, config in parts.items():
        whole = math.ceil(1000 / config["BLOCK_K"] / split) * config["BLOCK_K"]
        assert (split - 1) * whole < 1000
        assert [len(launch.grid) for launch in GEMM.plan(config, few)] == ([2, 2] if split > 1 else [1])
        assert [buffer.shape for buffer in GEMM.scratch(config, few).values()] == [(split, 16, 4096)] * (split > 1)
    many = enumerate_space(GEMM, problem(8192, 8192, 8192), HOPPER)
    assert many.domains["SPLIT_K"] == (1,)


def test_a_warp_specialised_tile_may_be_twice_as_large():
    space = enumerate_space(GEMM, problem(8192, 8192, 8192), HOPPER).configs
    configs = [config for config in space if config["VARIANT"] != "hopper"]
    sums = {
        specialised: max(
            c["BLOCK_M"] * c["BLOCK_N"] / c["num_warps"] for c in configs if c["WARP_SPECIALIZE"] == specialised
        )
        for specialised in (False, True)
    }
    assert sums == {False: 4096, True: 8192}


def test_stages_fit_in_shared_memory_with_the_tile_to_be_stored():
    for config in enumerate_space(GEMM, problem(8192, 8192, 8192), HOPPER).configs:
        operands = 2 * config["num_stages"] * (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"]
        stored = 2 * config["BLOCK_M"] * config["BLOCK_N"] // config["PARTS_N"] * (config["VARIANT"] == "descriptors")
        assert operands + stored <= 227 * 1024


def test_eight_bit_operands_that_are_transposed_are_not_loaded_by_warps_of_their_own():
    for column_major in (False, True):
        configs = enumerate_space(
            GEMM, problem(4096, 4096, 4096, "float8_e4m3fn", column_major=column_major), HOPPER
        ).configs
        assert any(config["WARP_SPECIALIZE"] for config in configs) == column_major


ASCEND = TARGETS["ascend"]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_float32_and_int8_are_for_cube_cores(dtype):
    assert enumerate_space(GEMM, problem(512, 512, 512, dtype), ASCEND).configs
    with pytest.raises(NothingFeasible, match="cube cores"):
        enumerate_space(GEMM, problem(512, 512, 512, dtype), HOPPER)


def test_tiles_on_ascend_fit_the_memories_of_a_cube_core():
    for config in enumerate_space(GEMM, problem(4096, 4096, 4096, "float32"), ASCEND).configs:
        rows, cols, depth = (config[f"BLOCK_{name}"] for name in "MNK")
        assert config["VARIANT"] == "masked"
        assert 4 * rows * cols <= 128 << 10
        assert 4 * (rows + cols) * depth <= 512 << 10


@pytest.mark.parametrize(
    ("sizes", "tile", "programs"),
    [((4096, 4096, 4096), (128, 256), 20), ((256, 4096, 512), (128, 256), 20), ((16, 4096, 4096), (16, 64), 20)],
)
def test_the_default_on_ascend_is_the_largest_tile_that_keeps_the_cube_cores_busy(sizes, tile, programs):
    chosen = GEMM.default(problem(*sizes, "float16"), ASCEND)
    assert (chosen["BLOCK_M"], chosen["BLOCK_N"]) == tile
    assert chosen["PROGRAMS"] == programs


def test_bytes_and_operations_are_counted_once():
    usual = problem(100, 200, 300)
    assert GEMM.flops(usual) == 2 * 100 * 200 * 300
    assert GEMM.bytes(usual) == 2 * (100 * 300 + 300 * 200 + 100 * 200)
    small = problem(100, 200, 300, "float8_e5m2", bias=True, scaled=True)
    assert GEMM.bytes(small) == 100 * 300 + 300 * 200 + 2 * 100 * 200 + 2 * 200 + 4 * (100 + 200)


def test_eight_bit_sums_left_to_the_tensor_cores_may_be_off_by_more():
    tolerances = [
        GEMM.buffers(problem(100, 200, 8192, dtype, **flags))["out_ptr"].tolerance
        for dtype, flags in (
            ("float16", {}),
            ("float8_e4m3fn", {}),
            ("float8_e4m3fn", {"fast_sums": True}),
        )
    ]
    assert tolerances == [0.0, 2.0**-11, 2.0**-5]


@pytest.mark.parametrize(
    ("sizes", "wide"),
    [
        ((2**16, 256, 2**15 - 8), False),
        ((2**16, 256, 2**15), True),  # a has 2^31 elements
        ((256, 2**16, 2**15), True),  # b
        ((2**16, 2**15, 256), True),  # the output
    ],
)
def test_matrices_of_2_to_the_31_elements_are_addressed_by_64_bits(sizes, wide):
    config = {**TILES, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
    (launch,) = GEMM.plan(config, problem(*sizes))
    assert launch.constants["WIDE"] is wide


@pytest.mark.parametrize(
    ("sizes", "tiles", "warps", "stages"),
    [
        ((8192, 8192), (128, 256), 8, 3),
        ((8256, 256), (256, 128), 8, 3),
        ((8192, 136), (128, 128), 4, 4),
        ((4224, 128), (64, 128), 4, 5),
    ],
)
def test_the_default_has_the_largest_tiles_that_fill_half_the_cores(sizes, tiles, warps, stages):
    found = GEMM.default(problem(*sizes, 4096), HOPPER)
    assert ((found["BLOCK_M"], found["BLOCK_N"]), found["num_warps"], found["num_stages"]) == (tiles, warps, stages)


@needs_torch
@pytest.mark.parametrize(
    ("eight_bits", "terms", "options"), [(True, 128, {"max_num_imprecise_acc": 128}), (True, 0, {}), (False, 128, {})]
)
def test_only_8_bit_products_are_added_up_exactly_and_only_if_that_is_wanted(monkeypatch, eight_bits, terms, options):
    from tilewise.kernels.jit import gemm

    monkeypatch.setattr(gemm, "tl", types.SimpleNamespace(dot=lambda a, b, total, **given: (a, b, total, given)))
    assert gemm._dot.fn("a", "b", "total", eight_bits, terms) == ("a", "b", "total", options)


@pytest.mark.parametrize(
    ("dtype", "flags", "tile", "warps", "held"),
    [
        ("float8_e4m3fn", {}, (64, 256), 4, False),  # 128 sums, and as many of an instruction of 64 rows
        ("float8_e4m3fn", {}, (64, 128), 4, True),
        ("float8_e4m3fn", {}, (128, 128), 4, True),  # 128 and 64 sums: 192
        ("float8_e4m3fn", {}, (128, 256), 8, False),
        ("float8_e4m3fn", {"fast_sums": True}, (64, 256), 4, True),
        ("bfloat16", {}, (64, 256), 4, True),
        ("bfloat16", {}, (128, 256), 4, False),
        ("bfloat16", {}, (16, 16), 4, True),  # two sums per thread
        ("bfloat16", {}, (16, 16), 8, False),
    ],
)
def test_sums_are_kept_in_registers_with_those_of_an_exact_instruction(dtype, flags, tile, warps, held):
    (rule,) = (each for each in GEMM.constraints if each.rule == "2 to 128 sums of a tile per thread")
    config = {"VARIANT": "pointers", "BLOCK_M": tile[0], "BLOCK_N": tile[1], "num_warps": warps}
    assert rule.holds(config, problem(4096, 4096, 4096, dtype, **flags), HOPPER) is held
    assert rule.holds(config, problem(4096, 4096, 4096, dtype, **flags), TARGETS["ascend"])


@cache
def hopper(sizes, **flags):
    """The configs of `hopper` for a problem."""
    configs = enumerate_space(GEMM, problem(*sizes, **flags), HOPPER).configs
    return [config for config in configs if config["VARIANT"] == "hopper"]


@pytest.mark.in_part(3)
@pytest.mark.parametrize(
    ("sizes", "tile", "swapped", "groups"),
    [
        ((16, 8192, 8192), (16, 64), True, 1),
        ((32, 8192, 8192), (32, 128), True, 2),
        ((64, 8192, 8192), (64, 256), False, 1),
        ((256, 8192, 8192), (128, 128), False, 2),
        ((8192, 8192, 8192), (128, 256), False, 2),
    ],
)
def test_hopper_has_a_group_of_warps_for_64_rows_or_two_of_them_and_turns_lower_tiles(sizes, tile, swapped, groups):
    config = next(each for each in hopper(sizes) if (each["BLOCK_M"], each["BLOCK_N"]) == tile)
    (launch,) = GEMM.plan(config, problem(*sizes))
    assert (launch.constants["SWAP"], launch.constants["GROUPS"]) == (swapped, groups)
    assert launch.blocks == {"a_ptr": (tile[0], config["BLOCK_K"]), "b_ptr": (config["BLOCK_K"], tile[1])}
    axes = GEMM.tiling(config, problem(*sizes)).axes
    assert [axis.name for axis in axes] == (["N", "K", "M"] if swapped else ["M", "K", "N"])


def test_hopper_takes_tiles_of_64_rows_or_columns_whose_sums_and_operands_a_core_holds():
    for sizes in ((16, 8192, 8192), (40, 4096, 512), (8192, 8192, 8192)):
        for config in hopper(sizes):
            rows, cols = sorted((config["BLOCK_M"], config["BLOCK_N"]))
            assert cols >= 64 and rows * cols <= 128 * 256
            operands = 2 * config["num_stages"] * config["BLOCK_K"] * (rows + cols)
            assert operands + (rows * cols if config["BLOCK_M"] >= 64 else 0) <= 227 * 1024
    assert {config["PROGRAMS"] for config in hopper((8192, 8192, 8192))} == {0, 132}


SOUND = {
    "hopper": {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "PARTS_N": 1, "WARP_SPECIALIZE": False, "num_warps": 4}
    | {"num_stages": 3, "PROGRAMS": 0, "SPLIT_K": 1, "GROUP_M": 1},
    "descriptors": {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "PARTS_N": 1, "WARP_SPECIALIZE": True}
    | {"num_warps": 4, "num_stages": 4, "PROGRAMS": 132, "SPLIT_K": 1, "GROUP_M": 1},
    "pointers": {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "PARTS_N": 1, "WARP_SPECIALIZE": False, "num_warps": 4}
    | {"num_stages": 2, "PROGRAMS": 0, "SPLIT_K": 1, "GROUP_M": 1},
}


@pytest.mark.parametrize(
    ("variant", "changes", "rule"),
    [
        ("hopper", {}, ""),
        ("hopper", {"PARTS_N": 2}, "hopper takes"),
        ("hopper", {"WARP_SPECIALIZE": True}, "WARP_SPECIALIZE needs"),
        ("hopper", {"num_warps": 8}, "hopper takes"),
        ("hopper", {"BLOCK_K": 32}, "hopper takes"),
        ("hopper", {"BLOCK_K": 128}, ""),
        ("hopper", {"num_stages": 2}, "hopper takes"),
        ("hopper", {"BLOCK_M": 32}, ""),  # turned, its columns are the rows
        ("hopper", {"BLOCK_M": 32, "BLOCK_N": 64}, ""),
        ("hopper", {"BLOCK_M": 32, "BLOCK_N": 32}, "hopper takes"),
        ("hopper", {"PROGRAMS": 132}, ""),
        ("descriptors", {}, ""),
        ("descriptors", {"num_stages": 5}, "WARP_SPECIALIZE needs"),
        ("descriptors", {"num_warps": 8}, "WARP_SPECIALIZE needs"),
        ("descriptors", {"PARTS_N": 2}, "WARP_SPECIALIZE needs"),
        ("descriptors", {"BLOCK_M": 64}, "WARP_SPECIALIZE needs"),
        ("descriptors", {"WARP_SPECIALIZE": False, "PARTS_N": 2, "num_stages": 5, "BLOCK_M": 64}, ""),
        ("descriptors", {"WARP_SPECIALIZE": False, "PARTS_N": 2, "BLOCK_N": 32}, ""),
        ("descriptors", {"WARP_SPECIALIZE": False, "PARTS_N": 2, "BLOCK_N": 16}, "PROGRAMS, PARTS_N and"),
        ("descriptors", {"PROGRAMS": 2048}, "PROGRAMS is less"),
        ("descriptors", {"PROGRAMS": 2047}, ""),
        ("pointers", {}, ""),
        ("pointers", {"PROGRAMS": 132}, "PROGRAMS, PARTS_N and"),
        ("pointers", {"PARTS_N": 2}, "PROGRAMS, PARTS_N and"),
        ("pointers", {"GROUP_M": 64}, ""),
        ("pointers", {"GROUP_M": 65}, "GROUP_M is at most"),
        ("pointers", {"SPLIT_K": 2}, "SPLIT_K needs pointers"),
    ],
)
def test_a_config_breaks_a_rule_by_one_value(variant, changes, rule):
    config = {"VARIANT": variant, **SOUND[variant], **changes}
    assert broken_rule(GEMM, problem(4096, 8192, 4096), HOPPER, config).startswith(rule)
    assert bool(rule) == bool(broken_rule(GEMM, problem(4096, 8192, 4096), HOPPER, config))


# Values ----------------------------------------------------------------------------------------------------------


@needs_torch
def test_the_reference_is_what_one_gets_by_hand():
    import torch

    inputs = {
        "a_ptr": torch.tensor([[1.0, 2.0], [3.0, -4.0]], dtype=torch.float64),
        "b_ptr": torch.tensor([[1.0, 0.0, -1.0], [2.0, 1.0, 0.0]], dtype=torch.float64),
        "bias_ptr": torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64),
        "a_scale_ptr": torch.tensor([1.0, 2.0], dtype=torch.float64),
        "b_scale_ptr": torch.tensor([1.0, 3.0, 0.5], dtype=torch.float64),
    }
    plain = GEMM.reference_of(problem(2, 3, 2))(inputs)["out_ptr"]
    assert plain.tolist() == [[5.0, 2.0, -1.0], [-5.0, -4.0, -3.0]]
    flags = {"bias": True, "scaled": True, "activation": "relu"}
    scaled = GEMM.reference_of(problem(2, 3, 2, "float8_e5m2", **flags))(inputs)["out_ptr"]
    assert scaled.tolist() == [[6.0, 6.0, 0.0], [0.0, 0.0, 0.0]]
    silu = GEMM.reference_of(problem(2, 3, 2, activation="silu"))(inputs)["out_ptr"]
    assert silu[0, 0].item() == pytest.approx(5 / (1 + math.exp(-5)))


TILES = {"VARIANT": "pointers", "GROUP_M": 4, "SPLIT_K": 1}


@needs_torch
@pytest.mark.parametrize(("dtype", "value", "error"), [("int8", 100, 0), ("float8_e4m3fn", 24.0, 2**-8)])
def test_sums_of_8_bit_numbers_do_not_wrap(dtype, value, error):
    """Those of floats are rounded to bfloat16."""
    import torch

    inputs = {
        "a_ptr": torch.full((2, 300), value).to(getattr(torch, dtype)),
        "b_ptr": torch.full((300, 3), value).to(getattr(torch, dtype)),
    }
    found = GEMM.reference_of(problem(2, 3, 300, dtype))(inputs)["out_ptr"]
    assert found.shape == (2, 3)
    assert found.flatten().tolist() == pytest.approx([300 * value**2] * 6, rel=error)


ALL = {"bias": True, "activation": "gelu", "scaled": True}
SPLIT = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32, "SPLIT_K": 4}
MASKED = {"VARIANT": "masked", "BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32, "PROGRAMS": 3}


@pytest.mark.in_part(3)
@needs_torch
@pytest.mark.parametrize(
    ("sizes", "tiles", "dtype", "flags"),
    [
        ((33, 70, 100), {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32}, "float16", {}),
        ((33, 70, 100), {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 64}, "bfloat16", {"column_major": True}),
        ((64, 64, 64), {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}, "bfloat16", {"bias": True}),
        ((70, 33, 90), {"BLOCK_M": 32, "BLOCK_N": 16, "BLOCK_K": 32}, "float16", {"activation": "silu"}),
        ((17, 40, 300), SPLIT, "float16", ALL),  # the gate runs this one, the first and the last
        ((5, 300, 128), {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 32, "SPLIT_K": 2}, "bfloat16", {"bias": True}),
        ((1, 1, 1), {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16}, "float16", {"activation": "relu", "scaled": True}),
        ((33, 70, 100), MASKED, "bfloat16", {}),
        ((33, 45, 50), MASKED, "float16", {**ALL, "column_major": True}),
    ],
)
def test_products_of_odd_sizes_are_right(interpreter, sizes, tiles, dtype, flags):
    verdict = interpreter.verify(GEMM, problem(*sizes, dtype, **flags), {**TILES, **tiles})
    assert verdict.agreed, verdict.reason
    assert verdict.error <= verdict.tolerance


@needs_torch
def test_scales_leave_as_many_sums_of_large_inputs_in_the_range_of_float16():
    """The few that random factors would leave are those that cancel, which a right kernel may compute otherwise."""

    def finite(**flags):
        arguments = Arguments(GEMM, problem(64, 128, 1000, "float16", **flags))
        arguments.draw(Way.LARGE, {})
        return float(arguments.expected()["out_ptr"].half().isfinite().float().mean())

    assert finite(scaled=True) > 0.8 * finite() > 0.0


@needs_torch
def test_without_gluon_hopper_is_there_and_refuses_to_compile_in_one_clear_line():
    from tilewise.tuner.measure.launch import resolve_function

    function = resolve_function(GEMM, GEMM.functions()[-1])
    body = function.src.split('"""', 2)[2].lstrip()
    assert body.startswith('gl.static_assert(HAS_GLUON, "the variant hopper needs upstream Triton 3.6 or newer')


@pytest.mark.needs_gpu
@pytest.mark.parametrize("column_major", [False, True])
@pytest.mark.parametrize(
    ("sizes", "dtype", "flags"),
    [
        ((13, 200, 328), "bfloat16", {}),
        ((13, 200, 328), "float16", {"bias": True, "activation": "silu"}),
        ((300, 456, 1000), "bfloat16", {"bias": True, "activation": "gelu", "scaled": True}),
        ((300, 456, 1000), "float16", {"activation": "relu"}),
        ((300, 456, 1000), "float16", {"scaled": True}),
        ((3000, 1504, 160), "bfloat16", {"scaled": True}),  # programs with several tiles
    ],
)
def test_hopper_is_right_on_a_gpu(sizes, dtype, flags, column_major):
    from tilewise.tuner.devices.cuda.device import CudaDevice

    anything = problem(*sizes, dtype, column_major=column_major, **flags)
    with CudaDevice(jobs=8) as device:
        configs = [c for c in enumerate_space(GEMM, anything, device.target).configs if c["VARIANT"] == "hopper"]
        tiles = {(c["BLOCK_M"], c["BLOCK_N"], c["PROGRAMS"]): c for c in configs}
        assert tiles
        for config in tiles.values():
            verdict = device.verify(GEMM, anything, config)
            assert verdict.agreed, f"{config}: {verdict.reason}"
