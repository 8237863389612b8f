"""Batch normalisation: values at any shape and config, accuracy, and the space."""

import importlib.util
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.space.search_space import check_config, enumerate_space

SPEC = registry.load("batch_norm")
SHAPES = [
    (1, 1, 1),
    (3, 5, 49),
    (32, 64, 3136),
    (32, 2048, 49),
    (8, 3, 50176),
    (4096, 1000, 1),
    (4096, 1, 1),
    (1, 2, 1_100_001),
    (2, 70_000, 9),
]
IMAGES = st.one_of(st.sampled_from([1, 2, 5, 16, 17]), st.integers(1, 40))
CHANNELS = st.one_of(st.sampled_from([1, 2, 3, 7, 41]), st.integers(1, 12))
PIXELS = st.one_of(st.sampled_from([1, 2, 7, 49, 255, 256, 257, 1031]), st.integers(1, 600))
TRIPS = 40
"""The limit on trips of all programs: 0.2 s of interpreting."""

WITHOUT_TRITON = importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None
needs_triton = pytest.mark.skipif(WITHOUT_TRITON, reason="needs torch and triton")


def problem(n, c, hw, dtype="float32"):
    return Problem("batch_norm", {"N": n, "C": c, "HW": hw}, dtype)


def tiles(variant, block_n, block_c, block_hw, part_n, part_hw):
    blocks = {"BLOCK_SIZE_N": block_n, "BLOCK_SIZE_C": block_c, "BLOCK_SIZE_HW": block_hw}
    return {"VARIANT": variant, **blocks, "PART_N": part_n, "PART_HW": part_hw, "multibuffer": True}


WHOLE, BY_IMAGE, BY_PIXEL = (2, 3, 64, 5, 200), (1, 2, 128, 2, 200), (2, 1, 32, 3, 70)


# Values ----------------------------------------------------------------------------------------------------------


@needs_triton
@settings(max_examples=8)
@given(data=st.data())
def test_any_config_of_the_space_is_right_at_any_shape(interpreter, target, data):
    n, c, hw = data.draw(IMAGES, "N"), data.draw(CHANNELS, "C"), data.draw(PIXELS, "HW")
    dtype = data.draw(st.sampled_from(SPEC.dtypes), "dtype")
    configs = enumerate_space(SPEC, problem(n, c, hw), target).configs
    config = configs[data.draw(st.integers(0, len(configs) - 1), "config")]
    tiling = SPEC.tiling(config, problem(n, c, hw))
    assume(tiling.programs * tiling.trips <= TRIPS)
    verdict = interpreter.verify(SPEC, problem(n, c, hw, dtype), config)
    assert verdict.agreed, f"N={n} C={c} HW={hw} {dtype} {config}: {verdict.reason}"


@pytest.mark.in_part(2)
@needs_triton
@pytest.mark.parametrize("dtype", SPEC.dtypes)
@pytest.mark.parametrize("variant", ["two_passes", "three_passes"])
@pytest.mark.parametrize("blocks", [WHOLE, BY_IMAGE, BY_PIXEL], ids=["whole", "by image", "by pixel"])
def test_every_variant_is_right_with_tails_on_every_axis(interpreter, variant, blocks, dtype):
    verdict = interpreter.verify(SPEC, problem(5, 7, 200, dtype), tiles(variant, *blocks))
    assert verdict.agreed, verdict.reason


@pytest.mark.in_part(1)
@needs_triton
@pytest.mark.parametrize("variant", ["two_passes", "three_passes"])
@pytest.mark.parametrize("blocks", [WHOLE, BY_IMAGE], ids=["whole", "parts"])
def test_far_from_zero_it_is_at_least_as_accurate_as_torch_in_float32(normalisations, variant, blocks):
    import torch

    x = 1e4 + torch.randn(5, 7, 200, generator=torch.Generator().manual_seed(1))
    inputs = {"x_ptr": x, "w_ptr": torch.ones(7), "b_ptr": torch.zeros(7)}
    wanted = SPEC.reference({name: tensor.double() for name, tensor in inputs.items()})
    eager = SPEC.reference(inputs)
    got = normalisations("on", "batch_norm", problem(5, 7, 200), tiles(variant, *blocks), inputs)
    for output in wanted:
        roundings = 4 * 2**-24 * float(wanted[output].abs().max())  # torch accumulates in float64 on a CPU
        assert off(got, wanted, output) <= max(roundings, off(eager, wanted, output))
    assert off(got, wanted, "y_ptr") < 1e-5  # torch: 1e-3, since its mean is rounded to float32


def off(got, wanted, output):
    return float((got[output].double() - wanted[output]).abs().max())


@pytest.mark.in_part(1)
@needs_triton
@pytest.mark.parametrize("variant", ["two_passes", "three_passes"])
def test_one_outlier_at_the_start_of_a_channel_does_not_spoil_its_variance(normalisations, variant):
    import torch

    x = torch.randn(20, 2, 100, generator=torch.Generator().manual_seed(1))
    x[0, :, 0] = 1e4
    inputs = {"x_ptr": x, "w_ptr": torch.ones(2), "b_ptr": torch.zeros(2)}
    wanted = SPEC.reference({name: tensor.double() for name, tensor in inputs.items()})
    config = tiles(variant, 1, 1, 100, 20, 100)
    got = normalisations("on", "batch_norm", problem(20, 2, 100), config, inputs)
    torch.testing.assert_close(got["rstd_ptr"].double(), wanted["rstd_ptr"], rtol=2e-5, atol=0)


@pytest.mark.in_part(1)
@needs_triton
@pytest.mark.parametrize("variant", ["two_passes", "three_passes"])
@pytest.mark.parametrize("blocks", [WHOLE, BY_PIXEL], ids=["whole", "parts"])
def test_nan_and_infinity_make_their_channel_nan_and_no_other(normalisations, variant, blocks):
    import torch

    x = torch.randn(5, 7, 200, generator=torch.Generator().manual_seed(1))
    x[0, 0, 0], x[4, 1, 199], x[2, 3, 7], x[4, 4, 198] = float("nan"), float("nan"), float("inf"), float("-inf")
    inputs = {"x_ptr": x, "w_ptr": torch.ones(7), "b_ptr": torch.zeros(7)}
    got = normalisations("on", "batch_norm", problem(5, 7, 200), tiles(variant, *blocks), inputs)
    eager = SPEC.reference(inputs)
    assert got["y_ptr"].isnan().equal(eager["y_ptr"].isnan())
    assert got["rstd_ptr"].isnan().equal(eager["rstd_ptr"].isnan())


# The space -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", SPEC.dtypes)
@pytest.mark.parametrize("sizes", SHAPES)
def test_the_default_is_in_the_space_at_every_shape(target, sizes, dtype):
    at = problem(*sizes, dtype)
    assert check_config(SPEC, at, target, SPEC.default(at, target)) == ""


@pytest.mark.parametrize("sizes", [(32, 64, 3136), (64, 64, 12544), (32, 2048, 49)])
def test_a_space_has_some_hundreds_to_some_thousands_of_configs(target, sizes):
    assert 200 <= len(enumerate_space(SPEC, problem(*sizes), target)) <= 5000


@pytest.mark.parametrize("sizes", SHAPES)
def test_every_launch_has_the_programs_of_the_tiling(target, sizes):
    at = problem(*sizes)
    for config in enumerate_space(SPEC, at, target).configs[::23]:
        programs = SPEC.tiling(config, at).programs
        assert {math.prod(launch.grid) for launch in SPEC.plan(config, at)} == {programs}


def test_few_channels_are_cut_into_parts_for_every_core(target):
    for sizes in ((8, 3, 50176), (1, 2, 1_100_001)):
        config = SPEC.default(problem(*sizes), target)
        assert SPEC.tiling(config, problem(*sizes)).programs >= target.cores / 2


def test_one_part_takes_one_launch_and_several_take_one_more_than_they_have_sums():
    at = problem(32, 64, 3136)
    assert len(SPEC.plan(tiles("two_passes", 1, 1, 3136, 32, 3136), at)) == 1
    assert len(SPEC.plan(tiles("two_passes", 1, 1, 3136, 8, 3136), at)) == 2
    assert len(SPEC.plan(tiles("three_passes", 1, 1, 3136, 8, 3136), at)) == 3


def test_the_tiling_says_how_often_the_data_passes():
    at = problem(32, 64, 3136)
    assert SPEC.tiling(tiles("two_passes", 1, 1, 3136, 32, 3136), at).traffic == 1.5
    assert SPEC.tiling(tiles("three_passes", 1, 1, 3136, 32, 3136), at).traffic == 2


def test_tiles_that_do_not_end_where_the_data_does_take_a_select_each_time_that_sums_are_made():
    at = problem(32, 64, 3136)

    def operations(variant, block):
        return SPEC.tiling(tiles(variant, 1, 1, block, 32, 3136), at).operations

    two, three = (operations(name, 2048) - operations(name, 1568) for name in ("two_passes", "three_passes"))
    assert three == 2 * two > 0


# On the modelled part --------------------------------------------------------------------------------------------


@pytest.mark.in_part(1)
@pytest.mark.parametrize(
    ("sizes", "config"),
    [
        ((32, 64, 12544), tiles("two_passes", 2, 2, 6272, 32, 12544)),
        ((33, 64, 12544), tiles("two_passes", 2, 1, 6272, 33, 12544)),
        ((32, 64, 12544), tiles("two_passes", 1, 1, 12000, 32, 12544)),
        ((32, 2048, 49), tiles("two_passes", 8, 32, 49, 32, 49)),
    ],
    ids=["even", "image tails", "pixel tails", "small planes"],
)
def test_on_chip_bytes_are_what_the_compiler_wants_for_a_tile_that_it_refuses(ascend, tmp_path, sizes, config):
    device = pytest.importorskip("tilewise.tuner.devices.ascend_model.device")
    if reason := device.toolchain.unavailable_reason():
        pytest.skip(reason)
    outcome, _ = device.model_config(SPEC, problem(*sizes), config, ascend, tmp_path)
    tiling = SPEC.tiling(config, problem(*sizes))
    estimated = (tiling.streamed_bytes + tiling.resident_bytes) * 8
    assert outcome.facts["on_chip_bits"]["required"] == pytest.approx(estimated, rel=0.1)


@pytest.mark.parametrize("hw", [255, 256, 16_384, 16_385, 20_000, 40_000, 400_000])
def test_an_ascend_tile_holds_a_plane_of_up_to_16384_pixels_or_a_smaller_share_of_it(hw):
    values = next(each.values for each in SPEC.parameters if each.name == "BLOCK_SIZE_HW")
    blocks = values(problem(8, 64, hw), known_target("Ascend910B4", 40))
    assert max(blocks) == hw if hw <= 16_384 else max(blocks) < 16_384
    assert blocks == sorted(set(blocks))
    assert all(256 <= block < hw for block in blocks if block != hw)
    assert {2048, 8192} <= set(blocks) or hw <= 8192


@pytest.mark.parametrize(("warps", "least", "most"), [(1, 512, 1024), (2, 512, 2048), (8, 512, 8192), (32, 1024, 8192)])
def test_a_thread_has_one_to_32_elements_of_a_tile(nvidia, warps, least, most):
    at = problem(64, 64, 12_544)
    configs = [config for config in enumerate_space(SPEC, at, nvidia).configs if config["num_warps"] == warps]
    elements = {config["BLOCK_SIZE_N"] * config["BLOCK_SIZE_C"] * config["BLOCK_SIZE_HW"] for config in configs}
    assert (min(elements), max(elements)) == (least, most)  # fewer than 512 are not worth a trip
    few = enumerate_space(SPEC, problem(1, 2, 16), nvidia).configs
    assert {config["num_warps"] for config in few} == {1}  # even one warp has more threads than elements
