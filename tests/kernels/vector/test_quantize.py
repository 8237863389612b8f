"""Quantisation: values worked out on paper, float8 by target, and what verification allows of a rounded integer."""

import importlib.util

import pytest

if any(importlib.util.find_spec(name) is None for name in ("torch", "triton")):
    pytest.skip("needs torch and triton", allow_module_level=True)

import dataclasses

import torch

from tilewise.errors import NothingFeasible
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.kernels.vector.quantize import GROUP
from tilewise.tuner.measure.comparison import compare
from tilewise.tuner.space.search_space import enumerate_space

FLOAT8 = {"to": "float8_e4m3fn"}
KERNELS = ("per_token_quant", "per_block_quant")
X = torch.tensor([[127.0, -0.5, 1.5, 2.4], [-254.0, 5.0, 3.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
WANTED = [[127, 0, 2, 2], [-127, 2, 2, 0], [0, 0, 0, 0]]
"""The scales are 1, 2 and the least; ties go to the even number."""

TOKEN = [("one_load", 4), ("one_load", 8), ("looped", 2)]


@pytest.mark.parametrize(("variant", "cols"), TOKEN, ids=["one_load", "padded", "looped"])
def test_rows_are_divided_by_their_scale_and_rounded_to_nearest(normalisations, variant, cols):
    tiles = {"BLOCK_SIZE_M": 2, "SUB_BLOCK_SIZE_M": 1, "BLOCK_SIZE_N": cols, "multibuffer": True}
    problem = Problem("per_token_quant", {"M": 3, "N": 4}, "float32")
    found = normalisations("on", "per_token_quant", problem, {"VARIANT": variant, **tiles}, {"x_ptr": X})
    assert found["out_ptr"].tolist() == WANTED
    assert found["scale_ptr"].flatten().tolist() == pytest.approx([1.0, 2.0, 0.0])


def test_each_block_of_a_row_has_its_own_scale(normalisations):
    x = torch.zeros(3, GROUP + 4)
    x[:, :4], x[:, GROUP:] = X, 10 * X.flip(0)
    tiles = {"BLOCK_SIZE_M": 2, "SUB_BLOCK_SIZE_M": 2, "BLOCK_SIZE_N": GROUP, "multibuffer": True}
    problem = Problem("per_block_quant", {"M": 3, "N": GROUP + 4}, "float32")
    found = normalisations("on", "per_block_quant", problem, tiles, {"x_ptr": x})
    assert found["out_ptr"][:, :4].tolist() == WANTED
    assert found["out_ptr"][:, GROUP:].tolist() == WANTED[::-1]
    assert found["scale_ptr"].flatten().tolist() == pytest.approx([1.0, 0.0, 2.0, 20.0, 0.0, 10.0])


@pytest.mark.parametrize(
    ("m", "rows"), [(3, 2), (4, 4), (3, 4)], ids=["two steps", "one step", "a step taller than the rows"]
)
@pytest.mark.parametrize(
    ("name", "variant", "n", "cols", "scales", "reads"),
    [
        ("per_token_quant", {"VARIANT": "one_load"}, 8, 8, 1, 1),
        ("per_token_quant", {"VARIANT": "one_load"}, 5, 8, 1, 1),
        ("per_token_quant", {"VARIANT": "looped"}, 16, 8, 1, 2),
        ("per_block_quant", {}, GROUP, GROUP, 1, 1),
        ("per_block_quant", {}, 2 * GROUP, GROUP, 2, 1),
        ("per_block_quant", {}, GROUP + 4, GROUP, 2, 1),
        ("per_block_quant", {}, GROUP - 4, GROUP, 1, 1),
    ],
)
def test_nothing_beyond_the_rows_and_columns_is_read_or_written(
    normalisations, name, variant, n, cols, scales, reads, m, rows
):
    """The second step of two rows is moved back by one, so that the second of three rows is read and written twice."""
    tiles = {"BLOCK_SIZE_M": 4, "SUB_BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": cols, "multibuffer": True}
    problem = Problem(name, {"M": m, "N": n}, "float32")
    loaded, loads, stored, stores = normalisations("moved", name, problem, variant | tiles, None)
    done = 4 if rows == 2 else m
    assert (loaded, loads) == (m * n, reads * done * n)
    assert (stored, stores) == (m * (n + scales), done * (n + scales))


@pytest.mark.parametrize(("rows", "fits_m"), [(1, True), (4, True), (8, False)])
@pytest.mark.parametrize(
    ("name", "variant", "n", "cols", "fits_n"),
    [
        ("per_token_quant", {"VARIANT": "one_load"}, 8, 8, {"FITS_N": True}),
        ("per_token_quant", {"VARIANT": "one_load"}, 7, 8, {"FITS_N": False}),
        ("per_token_quant", {"VARIANT": "looped"}, 16, 8, {"EVEN_N": True}),
        ("per_token_quant", {"VARIANT": "looped"}, 17, 8, {"EVEN_N": False}),
        ("per_block_quant", {}, GROUP, GROUP, {"FITS_N": True}),
        ("per_block_quant", {}, 3 * GROUP, 2 * GROUP, {"FITS_N": True}),  # its last block is moved back
        ("per_block_quant", {}, 3 * GROUP + 1, 2 * GROUP, {"FITS_N": False}),
        ("per_block_quant", {}, GROUP - 1, GROUP, {"FITS_N": False}),
        ("per_block_quant", {}, GROUP, 2 * GROUP, {"FITS_N": False}),
    ],
)
def test_a_launch_goes_without_masks_where_tiles_are_within_the_data(name, variant, n, cols, fits_n, rows, fits_m):
    tiles = {"BLOCK_SIZE_M": 8, "SUB_BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": cols}
    (launch,) = registry.load(name).plan(variant | tiles, Problem(name, {"M": 4, "N": n}, "float32"))
    assert launch.constants.items() >= ({"FITS_M": fits_m} | fits_n).items()


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_float8_is_right_on_nvidia(interpreter, nvidia, name, dtype):
    spec, problem = registry.load(name), Problem(name, {"M": 5, "N": 139}, dtype, FLOAT8)
    verdict = interpreter.verify(spec, problem, spec.default(problem, nvidia))
    assert verdict.agreed, verdict.reason


@pytest.mark.parametrize("name", KERNELS)
def test_float8_is_refused_where_there_is_none(ascend, nvidia, name):
    problem = Problem(name, {"M": 8, "N": 256}, "bfloat16", FLOAT8)
    for target in (ascend, dataclasses.replace(nvidia, capability=80)):
        with pytest.raises(NothingFeasible, match=r"to=float8_e4m3fn needs an NVIDIA GPU of compute capability 8\.9"):
            enumerate_space(registry.load(name), problem, target)
    for capability in (0, 89, 90):
        assert len(enumerate_space(registry.load(name), problem, dataclasses.replace(nvidia, capability=capability)))


@pytest.mark.parametrize("name", KERNELS)
def test_eager_torch_rounds_as_the_kernel_does(name):
    spec, problem = registry.load(name), Problem(name, {"M": 3, "N": 4}, "float32")
    assert spec.reference_of(problem)({"x_ptr": X})["out_ptr"].tolist() == WANTED


@pytest.mark.parametrize(
    ("integer", "exact", "agreed"),
    [(3, 2.5001, True), (2, 2.5001, True), (2, 2.51, False), (3, 2.49, False), (127, 127.0, True), (126, 127.0, False)],
)
def test_an_integer_may_be_either_neighbour_of_a_tie_and_no_other(integer, exact, agreed):
    spec, problem = registry.load("per_token_quant"), Problem("per_token_quant", {"M": 1, "N": 1}, "float32")
    got, wanted = (
        {"out_ptr": torch.tensor([[integer]], dtype=torch.int8)},
        {"out_ptr": torch.tensor([[exact]]).double()},
    )
    assert compare(got, wanted, buffers=spec.buffers(problem)).agreed is agreed


@pytest.mark.parametrize(("n", "cols"), [(100, 128), (200, 128), (256, 256), (300, 256), (512, 512), (5000, 1024)])
def test_the_default_of_blocks_takes_a_few_whole_groups(target, n, cols):
    spec = registry.load("per_block_quant")
    assert spec.default(Problem("per_block_quant", {"M": 64, "N": n}, "float32"), target)["BLOCK_SIZE_N"] == cols
