"""Expressions found for recorded numbers."""

from __future__ import annotations

import pytest

from tilewise.kernels.spec import ceil_div
from tilewise.tuner.inference.expressions import condition, expression

SIZES = [{"m": m, "n": n, "b": b, "c": c} for m, n in ((1823, 781), (512, 2000)) for b in (16, 64) for c in (32, 128)]


def found(function, samples=SIZES, sizes=("m", "n"), blocks=("b", "c")):
    fit = expression([(given, function(**given)) for given in samples], sizes, blocks)
    return fit and fit.text


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda m, n, b, c: m, "m"),
        (lambda m, n, b, c: 1, "1"),
        (lambda m, n, b, c: 400, "400"),
        (lambda m, n, b, c: m * n, "m * n"),
        (lambda m, n, b, c: ceil_div(n, c), "ceil_div(n, c)"),
        (lambda m, n, b, c: ceil_div(m, b) * ceil_div(n, c), "ceil_div(m, b) * ceil_div(n, c)"),
        (lambda m, n, b, c: ceil_div(m, b * c), "ceil_div(m, b * c)"),
        (lambda m, n, b, c: min(ceil_div(m, b), 48), "min(ceil_div(m, b), 48)"),
        (lambda m, n, b, c: 8 * b * c, "8 * b * c"),
        (lambda m, n, b, c: 1 << (n - 1).bit_length(), "next_power_of_two(n)"),
        (lambda m, n, b, c: m % b + 3, None),
    ],
)
def test_the_simplest_expression_that_gives_every_sample(function, text):
    assert found(function, [dict(given) for given in SIZES]) == text


def test_the_expression_names_what_it_needs():
    fit = expression([(given, ceil_div(given["m"], given["b"])) for given in SIZES], ("m", "n"), ("b", "c"))
    assert fit.names == {"m", "b"}


@pytest.mark.parametrize(
    ("value", "text"),
    [(1823 * 781, "M * N"), (1024, "next_power_of_two(N)"), (781, "N"), (49, "ceil_div(N, 16)"), (8, "8")],
)
def test_one_sample_gives_a_number_unless_a_name_explains_a_large_one(value, text):
    fit = expression([({"M": 1823, "N": 781, "16": 16}, value)], ("M", "N"), ("16",))
    assert fit.text == text


def test_conditions_of_sizes_and_blocks():
    samples = [({"N": n, "B": b}, n % b == 0) for n in (64, 96) for b in (32, 64)]
    assert condition(samples, ("N",), ("B",)).text == "N % B == 0"
    assert condition([({"N": 1, "B": 2}, True)], ("N",), ("B",)).text == "True"
    assert condition([({"N": n, "B": 7}, n in (3, 9)) for n in (3, 5, 9)], ("N",), ("B",)) is None


def test_small_numbers_explain_no_large_one_by_their_multiples_and_squares():
    given = {"B": 2, "H": 8, "T": 1000}
    for value, text in ((132, "132"), (64, "64"), (16, "B * H"), (4000, "4 * T"), (8000, "H * T")):
        assert expression([(given, value)], ("B", "H", "T")).text == text


def test_a_product_of_sizes_is_divided_and_no_chance_cap_explains_two_values():
    samples = [({"D": d, "R": 300, "B": 2048}, ceil_div(d * 300, 2048)) for d in (500, 2000)]
    assert expression(samples, ("D", "R"), ("B",)).text == "ceil_div(D * R, B)"
    assert expression([({"D": d}, 512 * d) for d in (512, 2048)], ("D",)) is None


def test_a_constant_is_the_quotient_of_two_that_change_rather_than_an_equal_size():
    samples = [({"T": t, "D": 128, "BT": b}, 128) for t, b in ((512, 4), (2048, 16))]
    assert expression(samples, ("T", "D"), ("BT",)).text == "ceil_div(T, BT)"
    assert expression([(given, 128) for given, _ in samples[:1]], ("T", "D"), ("BT",)).text == "D"
