"""Peak rates by part and dtype, and whether memory or arithmetic sets a kernel's floor."""

import pytest

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.hardware.peaks import arithmetic, arithmetic_binds, peak_tflop_s

GEMM = registry.load("gemm")


@pytest.mark.parametrize(
    ("device", "dtype", "peak"),
    [
        ("NVIDIA H200", "bfloat16", 989.4),
        ("NVIDIA H100 80GB HBM3", "float8_e5m2", 1978.9),
        ("NVIDIA H100 PCIe", "float16", 756.0),
        ("NVIDIA H200 NVL", "float16", 835.0),
        ("NVIDIA A100-SXM4-80GB", "bfloat16", 312.0),
        ("NVIDIA A100-SXM4-80GB", "float8_e4m3fn", None),
        ("NVIDIA T4", "float16", None),
        ("Ascend910B4", "float16", 270.336),
        ("Ascend910B4", "float32", 67.584),
        ("Ascend910B1", "int8", 727.4496),
        ("Ascend910B4", "float8_e5m2", None),
    ],
)
def test_the_peak_of_a_part_is_that_of_its_name(device, dtype, peak):
    assert peak_tflop_s(device, dtype) == (peak if peak is None else pytest.approx(peak))


def problem(m, n, k, dtype="bfloat16"):
    return Problem("gemm", {"M": m, "N": n, "K": k}, dtype)


def test_arithmetic_binds_a_large_product_and_memory_that_of_a_few_rows():
    square = arithmetic_binds(GEMM, problem(8192, 8192, 8192), "NVIDIA H200")
    assert square.floor_us == pytest.approx(2 * 8192**3 / 989.4e6)
    assert square.text(2 * square.floor_us) == "494.7 TFLOP/s, 50.0% of the peak"
    assert arithmetic_binds(GEMM, problem(16, 8192, 8192), "NVIDIA H200") is None
    assert arithmetic(GEMM, problem(16, 8192, 8192), "NVIDIA H200").floor_us == pytest.approx(2.17, rel=0.01)
    assert arithmetic(GEMM, problem(16, 8192, 8192), "NVIDIA T4") is None


def test_a_kernel_without_matrix_products_has_no_arithmetic_floor():
    rows = registry.load("row_reduce")
    assert arithmetic(rows, Problem("row_reduce", {"M": 1000, "N": 8192}, "float16"), "NVIDIA H200") is None


PARTS = {
    "NVIDIA H100 80GB HBM3": (66.9, 494.7, 989.4, 1978.9, 1978.9),
    "NVIDIA H200": (66.9, 494.7, 989.4, 1978.9, 1978.9),
    "NVIDIA GH200 480GB": (66.9, 494.7, 989.4, 1978.9, 1978.9),
    "NVIDIA H100 NVL": (60.0, 417.5, 835.0, 1670.5, 1670.5),
    "NVIDIA H200 NVL": (60.0, 417.5, 835.0, 1670.5, 1670.5),
    "NVIDIA H100 PCIe": (51.2, 378.0, 756.0, 1513.0, 1513.0),
    "NVIDIA A100-SXM4-80GB": (19.5, 156.0, 312.0, None, 624.0),
}
"""Data sheets' peaks in 10**12 operations per second: float64, TF32, 16-bit floats, 8-bit floats and int8."""


@pytest.mark.parametrize("device", PARTS)
def test_peaks_are_those_of_the_data_sheets_and_like_dtypes_have_one_rate(device):
    double, single, half, eighth, integer = PARTS[device]
    wanted = {"float64": double, "float32": single, "float16": half, "bfloat16": half, "int8": integer}
    wanted |= {"float8_e4m3fn": eighth, "float8_e5m2": eighth, "uint8": integer}
    assert {dtype: peak_tflop_s(device, dtype) for dtype in wanted} == wanted
