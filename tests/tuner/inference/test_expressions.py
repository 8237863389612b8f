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


@pytest.mark.parametrize(
    ("value", "text"), [(15, "15"), (21, "A * B"), (35, "35"), (64 * 101, "64 * C"), (65 * 101, "6565")]
)
def test_small_numbers_and_large_multiples_are_constants(value, text):
    """35 is 5 times B, which is too small to be told from chance."""
    assert expression([({"A": 3, "B": 7, "C": 101}, value)], ("A", "B", "C")).text == text


@pytest.mark.parametrize(("factor", "found"), [(2, True), (4, True), (8, True), (16, True), (3, False), (32, False)])
def test_a_program_takes_a_few_blocks_or_as_many_as_a_power_of_two_up_to_16(factor, found):
    samples = [({"n": n, "B": b}, ceil_div(n, factor * b)) for n in (40_001, 100_007, 700_001) for b in (64, 256)]
    fit = expression(samples, ["n"], ["B"])
    assert (fit and fit.text) == (f"ceil_div(n, {factor} * B)" if found else None)


@pytest.mark.parametrize(("number", "found"), [(2, True), (65_536, True), (131_072, False), (3, False)])
def test_a_size_is_divided_by_powers_of_two_up_to_65536(number, found):
    samples = [({"n": n}, ceil_div(n, number)) for n in (1_000_000, 7_654_321)]
    assert (quotient_by_number(samples, ["n"]) is not None) == found


@pytest.mark.parametrize(("count", "found"), [(1, False), (2, True), (8, True), (9, False)])
def test_a_size_has_up_to_eight_ranges(count, found):
    """Two sizes lie in each range, so that each ends at its second one."""
    fit = by_thresholds([({"n": n}, 100 + n // 2) for n in range(2 * count)], ["n"])
    assert (fit is not None) == found
    if count == 2:
        assert fit.text == "100 if n <= 1 else 101" and fit.names == {"n"}


@pytest.mark.parametrize(
    ("test", "text"),
    [
        (lambda n, b: n % b == 0, "n % b == 0"),
        (lambda n, b: n % b != 0, "n % b != 0"),
        (lambda n, b: n <= b, "n <= b"),
        (lambda n, b: n > b, "n > b"),
        (lambda n, b: n < b, None),
        (lambda n, b: False, "False"),
    ],
)
def test_a_condition_is_a_multiple_or_a_bound(test, text):
    samples = [({"n": n, "b": b}, test(n, b)) for n in (4, 8, 12, 20) for b in (4, 8)]
    found = condition(samples, ("n",), ("b",))
    assert (found and found.text) == text
    assert found is None or found.names == ({"n", "b"} if "n" in found.text else set())


def test_a_constant_is_not_named_after_a_block_that_equals_it():
    assert expression([({"n": 300, "B": 8}, 8)], ["n"], ["B"]).text == "8"
    assert expression([({"n": 8, "B": 5}, 8)], ["n"], ["B"]).text == "n"
    assert expression([({"n": 1, "B": 5}, 1)], ["n"], ["B"]).text == "1"


def test_a_product_of_quotients_and_of_three_names_and_a_cap():
    given = [{"n": n, "m": m, "k": k, "B": b} for n, m, k, b in ((70, 30, 11, 8), (700, 50, 13, 16), (310, 90, 17, 32))]
    cases = {
        "n * m * k": [one["n"] * one["m"] * one["k"] for one in given],
        "n * ceil_div(m, B)": [one["n"] * ceil_div(one["m"], one["B"]) for one in given],
        "n * k * ceil_div(m, B)": [one["k"] * one["n"] * ceil_div(one["m"], one["B"]) for one in given],
        "3 * n * ceil_div(m, B)": [3 * one["n"] * ceil_div(one["m"], one["B"]) for one in given],
        "min(n, 310)": [70, 310, 310],
    }
    for text, values in cases.items():
        assert expression(list(zip(given, values, strict=True)), ("n", "m", "k"), ("B",)).text == text


def test_longer_names_are_replaced_first_and_whole_words_only():
    fit = Fit("N * NB + B", frozenset(("N", "NB", "B")))
    inner = fit.within({"NB": Fit("x + 1", frozenset("x")), "N": Fit("y", frozenset("y"))})
    assert inner.text == "y * (x + 1) + B"
    assert (inner.names, inner.value({"x": 2, "y": 5, "B": 4})) == ({"x", "y", "B"}, 19)
