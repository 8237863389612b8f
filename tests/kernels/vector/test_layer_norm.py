"""Layer normalisation, forward and backward: values at any shape and config, accuracy, and the space."""

import importlib.util

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem, ceil_div
from tilewise.tuner.space.search_space import check_config, enumerate_space

FORWARD, BACKWARD = registry.load("layer_norm"), registry.load("layer_norm_backward")
SHAPES = [(1, 1), (1000, 1024), (1000, 8192), (131072, 1024), (3, 20000), (5000, 1_500_000), (70_000, 7)]
ROWS = st.one_of(st.sampled_from([1, 2, 3, 8, 31, 97, 128]), st.integers(1, 60))
COLUMNS = st.one_of(st.sampled_from([1, 2, 7, 63, 64, 65, 511, 512, 513, 1031, 1600]), st.integers(1, 300))
TRIPS = 30
"""The limit on trips of the inner loop over all programs: 0.1 s of interpreting."""

WITHOUT_TRITON = importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None
needs_triton = pytest.mark.skipif(WITHOUT_TRITON, reason="needs torch and triton")


def problem(spec, m, n, dtype="float32"):
    return Problem(spec.name, {"M": m, "N": n}, dtype)


def tiles(variant, rows, sub, cols, **more):
    config = {"VARIANT": variant, "BLOCK_SIZE_M": rows, "SUB_BLOCK_SIZE_M": sub, "BLOCK_SIZE_N": cols}
    return {**config, "multibuffer": True, **more}


def gradients(variant, rows, sub, cols, step_m=4, step_n=256):
    return tiles(variant, rows, sub, cols, STEP_M=step_m, STEP_N=step_n)


# Values ----------------------------------------------------------------------------------------------------------


@needs_triton
@pytest.mark.parametrize("spec", [FORWARD, BACKWARD], ids=lambda spec: spec.name)
@settings(max_examples=10)
@given(data=st.data())
def test_any_config_of_the_space_is_right_at_any_shape(interpreter, target, spec, data):
    m, n, dtype = data.draw(ROWS, "M"), data.draw(COLUMNS, "N"), data.draw(st.sampled_from(spec.dtypes), "dtype")
    configs = enumerate_space(spec, problem(spec, m, n), target).configs
    variant = data.draw(st.sampled_from(sorted({str(c["VARIANT"]) for c in configs})), "variant")
    configs = [c for c in configs if c["VARIANT"] == variant]
    config = configs[data.draw(st.integers(0, len(configs) - 1), "config")]
    tiling = spec.tiling(config, problem(spec, m, n))
    assume(tiling.programs * tiling.trips <= TRIPS)
    verdict = interpreter.verify(spec, problem(spec, m, n, dtype), config)
    assert verdict.agreed, f"M={m} N={n} {dtype} {config}: {verdict.reason}"


@pytest.mark.in_part(2)
@needs_triton
@pytest.mark.parametrize("dtype", FORWARD.dtypes)
@pytest.mark.parametrize(
    ("spec", "m", "n", "config"),
    [
        (FORWARD, 37, 1000, tiles("one_load", 8, 3, 1000)),
        (FORWARD, 37, 1000, tiles("one_load", 8, 8, 1024)),  # padded, as on NVIDIA
        (FORWARD, 11, 2048, tiles("looped", 4, 4, 512)),
        (FORWARD, 11, 2047, tiles("looped", 5, 2, 512)),
        (BACKWARD, 37, 1000, gradients("fused_atomic", 8, 3, 1000)),
        (BACKWARD, 37, 1000, gradients("fused_parts", 8, 8, 1024)),
        (BACKWARD, 70, 1100, gradients("split", 10, 4, 512, 16, 256)),
        (BACKWARD, 3, 1100, gradients("split", 1, 1, 512, 4, 1024)),
    ],
    ids=lambda value: value["VARIANT"] if isinstance(value, dict) else None,
)
def test_every_variant_is_right_with_tails_of_rows_and_columns(interpreter, spec, m, n, config, dtype):
    verdict = interpreter.verify(spec, problem(spec, m, n, dtype), config)
    assert verdict.agreed, verdict.reason


@needs_triton
@pytest.mark.parametrize("config", [tiles("one_load", 2, 2, 1500), tiles("looped", 2, 2, 512)], ids=["one", "looped"])
def test_far_from_zero_it_is_at_least_as_accurate_as_torch_in_float32(normalisations, config):
    import torch

    x = 1e4 + torch.randn(6, 1500, generator=torch.Generator().manual_seed(1))
    inputs = {"x_ptr": x, "w_ptr": torch.ones(1500), "b_ptr": torch.zeros(1500)}
    wanted = FORWARD.reference({name: tensor.double() for name, tensor in inputs.items()})
    eager = FORWARD.reference(inputs)
    got = normalisations("on", "layer_norm", problem(FORWARD, 6, 1500), config, inputs)
    for output in wanted:
        roundings = 4 * 2**-24 * float(wanted[output].abs().max())  # torch accumulates in float64 on a CPU
        assert off(got, wanted, output) <= max(roundings, off(eager, wanted, output))
    assert off(got, wanted, "y_ptr") < 1e-5  # torch: 1e-3, since its mean is rounded to float32


def off(got, wanted, output):
    return float((got[output].double() - wanted[output]).abs().max())


@needs_triton
def test_one_outlier_at_the_start_of_a_row_does_not_spoil_its_variance(normalisations):
    import torch

    x = torch.randn(2, 1500, generator=torch.Generator().manual_seed(1))
    x[:, 0] = 1e4
    inputs = {"x_ptr": x, "w_ptr": torch.ones(1500), "b_ptr": torch.zeros(1500)}
    wanted = FORWARD.reference({name: tensor.double() for name, tensor in inputs.items()})
    for config in (tiles("one_load", 1, 1, 1500), tiles("looped", 1, 1, 512)):
        got = normalisations("on", "layer_norm", problem(FORWARD, 2, 1500), config, inputs)
        torch.testing.assert_close(got["rstd_ptr"].double(), wanted["rstd_ptr"], rtol=2e-6, atol=0)


@needs_triton
@pytest.mark.parametrize("config", [tiles("one_load", 2, 2, 700), tiles("looped", 3, 3, 512)], ids=["one", "looped"])
def test_nan_and_infinity_make_their_row_nan_and_no_other(normalisations, config):
    import torch

    x = torch.randn(6, 700, generator=torch.Generator().manual_seed(1))
    x[0, 0], x[1, 699], x[2, 3], x[3, 650] = float("nan"), float("nan"), float("inf"), float("-inf")
    inputs = {"x_ptr": x, "w_ptr": torch.ones(700), "b_ptr": torch.zeros(700)}
    got = normalisations("on", "layer_norm", problem(FORWARD, 6, 700), config, inputs)
    eager = FORWARD.reference(inputs)
    assert got["y_ptr"].isnan().equal(eager["y_ptr"].isnan())
    assert got["rstd_ptr"].isnan().tolist() == [True] * 4 + [False] * 2


@needs_triton
@pytest.mark.parametrize("variant", ["fused_atomic", "split"])
def test_gradients_of_weights_need_their_accumulators_reset(normalisations, variant):
    config = gradients(variant, 4, 2, 100)
    right = normalisations("twice", "layer_norm_backward", problem(BACKWARD, 9, 100), config, True)
    assert right.agreed, right.reason
    doubled = normalisations("twice", "layer_norm_backward", problem(BACKWARD, 9, 100), config, False)
    assert not doubled.agreed
    assert doubled.reason.startswith(("dw_ptr", "db_ptr"))


@needs_triton
def test_gradients_through_parts_need_no_reset(normalisations):
    config = gradients("fused_parts", 4, 2, 100)
    verdict = normalisations("twice", "layer_norm_backward", problem(BACKWARD, 9, 100), config, False)
    assert verdict.agreed, verdict.reason


@needs_triton
def test_the_gradients_are_those_of_autograd():
    import torch

    generator = torch.Generator().manual_seed(1)
    x, dy = (torch.randn(5, 30, generator=generator, dtype=torch.float64) for _ in range(2))
    w, b = (torch.randn(30, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2))
    x.requires_grad_()
    forward = FORWARD.reference({"x_ptr": x, "w_ptr": w, "b_ptr": b})
    forward["y_ptr"].backward(dy)
    with torch.no_grad():
        saved = {"mean_ptr": forward["mean_ptr"], "rstd_ptr": forward["rstd_ptr"]}
        got = BACKWARD.reference({"dy_ptr": dy, "x_ptr": x, "w_ptr": w, **saved})
    for output, gradient in (("dx_ptr", x.grad), ("dw_ptr", w.grad), ("db_ptr", b.grad)):
        torch.testing.assert_close(got[output], gradient)


# The space -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [FORWARD, BACKWARD], ids=lambda spec: spec.name)
@pytest.mark.parametrize("dtype", FORWARD.dtypes)
@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_the_default_is_in_the_space_at_every_shape(target, spec, m, n, dtype):
    at = problem(spec, m, n, dtype)
    assert check_config(spec, at, target, spec.default(at, target)) == ""


@pytest.mark.parametrize("spec", [FORWARD, BACKWARD], ids=lambda spec: spec.name)
@pytest.mark.parametrize(("m", "n"), [(1000, 1024), (16384, 8192)])
def test_a_space_has_some_hundreds_to_some_thousands_of_configs(target, spec, m, n):
    assert 300 <= len(enumerate_space(spec, problem(spec, m, n), target)) <= 5000


@pytest.mark.parametrize("spec", [FORWARD, BACKWARD], ids=lambda spec: spec.name)
@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_the_tiling_has_the_programs_of_the_first_launch(target, spec, m, n):
    at = problem(spec, m, n)
    for config in enumerate_space(spec, at, target).configs[::97]:
        assert (spec.tiling(config, at).programs,) == spec.plan(config, at)[0].grid


@pytest.mark.parametrize("n", [1024, 30_000])
def test_rows_longer_than_the_chip_leave_only_the_looped_variants(ascend, n):
    def variants(spec):
        return {c["VARIANT"] for c in enumerate_space(spec, problem(spec, 500, n), ascend).configs}

    whole = n == 1024
    assert ("one_load" in variants(FORWARD), "looped" in variants(FORWARD)) == (whole, True)
    assert ("fused_atomic" in variants(BACKWARD), "split" in variants(BACKWARD)) == (whole, True)


def test_the_tiling_says_that_loops_read_again_and_how_often_w_and_b_are_read():
    at = problem(FORWARD, 1000, 1024)
    assert FORWARD.tiling(tiles("one_load", 25, 5, 1024), at).traffic == pytest.approx(1 + 1 / 25)
    assert FORWARD.tiling(tiles("looped", 25, 5, 512), at).traffic == pytest.approx(1.5 + 1 / 5)
    at = problem(BACKWARD, 1000, 1024)
    assert BACKWARD.tiling(gradients("fused_atomic", 25, 5, 1024), at).traffic == 1
    assert BACKWARD.tiling(gradients("split", 25, 5, 512), at).traffic == pytest.approx(5 / 3)


def test_the_second_launch_covers_all_rows_and_columns_with_about_as_many_programs():
    for m, n, rows, step_n in ((1000, 1024, 25, 64), (7, 100, 7, 1024), (131072, 8192, 3277, 256)):
        config = gradients("split", rows, 1, 512, 4, step_n)
        launch = BACKWARD.plan(config, problem(BACKWARD, m, n))[1]
        columns, parts = ceil_div(n, step_n), ceil_div(m, launch.constants["ROWS"])
        assert launch.constants["COLUMNS"] == columns
        assert launch.grid == (columns * parts,)
        assert launch.grid[0] <= max(ceil_div(m, rows), ceil_div(n, step_n))


# On the modelled part --------------------------------------------------------------------------------------------


@pytest.mark.in_part(1)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("spec", "n", "config"),
    [
        (FORWARD, 1024, tiles("one_load", 25, 24, 1024)),
        (FORWARD, 8192, tiles("looped", 25, 20, 1024)),
        (BACKWARD, 1024, gradients("fused_atomic", 25, 16, 1024)),
        (BACKWARD, 8192, gradients("split", 25, 16, 1024)),
        (BACKWARD, 8192, gradients("split", 25, 1, 1024, 16, 512)),
    ],
    ids=["one_load", "looped", "fused", "split", "second launch"],
)
def test_on_chip_bytes_are_what_the_compiler_wants_for_a_tile_that_it_refuses(ascend, tmp_path, spec, n, config, dtype):
    device = pytest.importorskip("tilewise.tuner.devices.ascend_model.device")
    if reason := device.toolchain.unavailable_reason():
        pytest.skip(reason)
    at = problem(spec, 1000, n, dtype)
    outcome, _ = device.model_config(spec, at, config, ascend, tmp_path)
    tiling = spec.tiling(config, at)
    estimated = (tiling.streamed_bytes + tiling.resident_bytes) * 8
    assert outcome.facts["on_chip_bits"]["required"] == pytest.approx(estimated, rel=0.1)
