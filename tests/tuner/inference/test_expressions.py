"""Expressions found for recorded numbers."""

from __future__ import annotations

import pytest

from tilewise.kernels.spec import ceil_div
from tilewise.tuner.inference.expressions import Fit, by_thresholds, condition, expression, quotient_by_number

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


def test_a_program_may_take_several_blocks_of_one_size_or_of_a_product_of_three():
    samples = [({"n": n, "B": b}, ceil_div(n, 4 * b)) for n in (4000, 10_000, 70_001) for b in (256, 512)]
    assert expression(samples, ["n"], ["B"]).text == "ceil_div(n, 4 * B)"
    images = [{"n": n, "h": h, "B": b} for n, h in ((2, 30), (3, 17)) for b in (32, 64)]
    samples = [(given, ceil_div(given["n"] * given["h"] ** 2, given["B"])) for given in images]
    assert expression(samples, ["n", "h"], ["B"]).text == "ceil_div(n * h * h, B)"


def test_a_number_that_divides_a_size_and_thresholds_in_one():
    sizes = [{"m": m, "n": n} for m, n in ((512, 7), (1000, 7), (4096, 9))]
    assert quotient_by_number([(s, ceil_div(s["m"], 16)) for s in sizes], ["n", "m"]).text == "ceil_div(m, 16)"
    assert quotient_by_number([(s, 4) for s in sizes], ["m"]) is None
    assert by_thresholds([(s, 512 if s["m"] > 1000 else 256) for s in sizes], ["m"]).text == "256 if m <= 1000 else 512"
    assert by_thresholds([(s, s["m"] % 3) for s in sizes], ["n"]) is None  # two values for one size


def test_an_expression_stands_in_place_of_a_name():
    block = Fit("256 if n <= 9 else 512", frozenset("n"))
    grid = Fit("ceil_div(m, 4 * BLOCK)", frozenset(("m", "BLOCK"))).within({"BLOCK": block, "other": Fit("1")})
    assert grid.names == {"m", "n"} and grid.value({"m": 4096, "n": 10}) == 2


def test_a_stride_is_a_product_of_names_sooner_than_of_one_rounded_up():
    given = {"length": 192, "heads": 4, "width": 64}
    assert expression([(given, 192 * 4 * 64)], tuple(given)).text == "length * heads * width"
