"""Cycles of products in L1 and of the vector cores after them, by the cost table's figures."""

from __future__ import annotations

import pytest

from tilewise.kernels.spec import Dot
from tilewise.tuner.prior.cube_products import COST, CubeProducts, in_vector_repeats, vector_half


@pytest.fixture(autouse=True)
def round_figures(monkeypatch):
    """The table's own figures, but for those that would not show in a sum."""
    figures = {"mad_start": 6, "mad_float32": 2, "mte1_start": 43, "l0a_bytes": 256, "l0b_bytes": 128, "flag": 10}
    for name, value in {**figures, "cross_flag": 100, "l2_read_bytes": 64}.items():
        monkeypatch.setitem(COST, name, value)


@pytest.mark.parametrize(
    ("item_bytes", "products", "cycles"), [(2, 4096, 1), (4, 2048, 2), (1, 8192, 1), (2, 6144, 1.5)]
)
def test_a_fractal_is_16_by_16_by_32_bytes_and_takes_a_cycle_or_two_of_float32(item_bytes, products, cycles):
    assert CubeProducts(item_bytes).in_even_shares(products) == cycles


@pytest.mark.parametrize(
    ("item_bytes", "dot", "parts"),
    [
        (2, Dot(128, 256, 64), 1),  # 256 columns of 64 numbers of 16 bits fill half of L0
        (2, Dot(128, 256, 65), 2),
        (2, Dot(256, 16, 65), 2),
        (2, Dot(16, 16, 1024), 1),
        (2, Dot(16, 16, 1025), 2),
        (4, Dot(16, 16, 513), 2),
        (1, Dot(16, 16, 1024), 1),  # bytes lie in rows of 32
        (2, Dot(2048, 16, 33), 3),  # one fractal at least
    ],
)
def test_a_depth_is_cut_into_parts_that_fit_half_of_l0(item_bytes, dot, parts):
    assert CubeProducts(item_bytes).parts(dot) == parts


@pytest.mark.parametrize(
    ("item_bytes", "dot", "cycles"),
    [(2, Dot(16, 16, 16), 1 + 6), (2, Dot(17, 33, 20), 2 * 3 * 2 + 6), (4, Dot(16, 16, 9), 2 * 2 + 6),
     (2, Dot(128, 256, 128), 8 * 16 * 8 + 2 * 6)],
)  # fmt: skip
def test_a_product_takes_whole_fractals_and_the_starts_of_its_parts(item_bytes, dot, cycles):
    assert CubeProducts(item_bytes).cycles(dot) == cycles


def test_operands_take_what_the_product_does_not_hide():
    """Two parts have four loads of 43 cycles and eight flags of 10, and bring 256 bytes for each of 128 rows at 256 a
    cycle and of 256 columns at 128: 892 cycles in all."""
    dot = Dot(128, 256, 128)
    assert CubeProducts(2).operand_loads(dot, 1000.0) == 0
    assert CubeProducts(2).operand_loads(dot, 792.0) == 100
    assert CubeProducts(2).operand_loads(Dot(128, 256, 64), 0.0) == 2 * 43 + 4 * 10 + 128 * 2.5


def test_each_vector_core_takes_half_of_a_tile_in_repeats_of_64_numbers():
    assert in_vector_repeats(16, 64) == 8
    assert vector_half(16, 64, 3.0) == 16 * 64 * 2 / 64 + 8 * 3 + 100
