"""Comparison with the reference: what is allowed in each dtype, long sums, overflow, and the reasons."""

import math

import pytest

from tilewise.errors import BadSpec
from tilewise.kernels.spec import Buffer
from tilewise.tuner.measure import comparison
from tilewise.tuner.measure.comparison import compare, tolerance
from tilewise.tuner.measure.draws import Way, draw

torch = pytest.importorskip("torch")


def test_the_error_is_the_largest_deviation_over_the_rms():
    expected = torch.tensor([3.0, -4.0, 3.0, -4.0], dtype=torch.float64)
    verdict = compare({"out": torch.tensor([3.0, -4.0, 4.0, -4.0])}, {"out": expected})
    assert verdict.error == pytest.approx(1 / math.sqrt(12.5))
    assert not verdict.agreed
    assert "out: 4 instead of 3 at [2]" in verdict.reason


@pytest.mark.parametrize(
    ("shape", "flat", "index"),
    [
        ((6,), 4, [4]),
        ((2, 3), 5, [1, 2]),
        ((2, 3, 4), 23, [1, 2, 3]),
        ((4, 3, 2), 9, [1, 1, 1]),
        ((5, 1, 7), 30, [4, 0, 2]),
    ],
)
def test_an_element_is_told_by_its_place_along_each_axis(shape, flat, index):
    expected = torch.zeros(shape, dtype=torch.float64)
    wrong = torch.zeros(shape)
    wrong.flatten()[flat] = 9.0
    verdict = compare({"out": wrong}, {"out": expected})
    assert f"out: 9 instead of 0 at {index}" in verdict.reason


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounding_to_the_outputs_dtype_is_allowed_and_a_few_times_that_is_not(dtype):
    expected = torch.randn(10_000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    rounded = expected.to(getattr(torch, dtype))
    assert compare({"out": rounded}, {"out": expected}).agreed
    peak = int(expected.abs().argmax())
    rounded[peak] *= 1 + {"float16": 2**-8, "bfloat16": 2**-5}[dtype]
    assert not compare({"out": rounded}, {"out": expected}).agreed


def test_one_column_lost_from_the_headline_sum_is_too_much_in_float32():
    x = torch.randn(50, 8192, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).sigmoid()
    assert compare({"out": x.sum(1).float()}, {"out": x.sum(1)}).agreed
    assert not compare({"out": x[:, :-1].sum(1).float()}, {"out": x.sum(1)}).agreed


def test_a_single_sum_that_happens_to_be_small_is_judged_by_the_size_it_has_by_rights():
    wanted, got = torch.tensor([1.3], dtype=torch.float64), torch.tensor([1.3 + 6e-5])
    assert not compare({"out": got}, {"out": wanted}).agreed
    assert compare({"out": got}, {"out": wanted}, {"out": 316.0}).agreed
    assert not compare({"out": got + 0.5}, {"out": wanted}, {"out": 316.0}).agreed  # one term of 100000 lost


def test_nan_and_infinity_must_stand_where_the_reference_has_them():
    expected = torch.tensor([math.nan, math.inf, -math.inf, 1.0], dtype=torch.float64)
    assert compare({"out": expected.float()}, {"out": expected}).agreed
    for index, wrong in ((0, 1.0), (1, -math.inf), (2, 5.0), (3, math.nan), (3, math.inf)):
        actual = expected.float()
        actual[index] = wrong
        assert not compare({"out": actual}, {"out": expected}).agreed


def test_an_overflow_of_the_outputs_dtype_is_right():
    expected = torch.tensor([1e6, 1.0], dtype=torch.float64)
    assert compare({"out": torch.tensor([math.inf, 1.0], dtype=torch.float16)}, {"out": expected}).agreed


def test_integers_must_be_equal():
    assert tolerance("int32", torch.ones(3), 1.0, reduced=False).tolist() == [0, 0, 0]
    expected = torch.tensor([1000, 2], dtype=torch.int64)
    assert compare({"out": torch.tensor([1000, 2], dtype=torch.int32)}, {"out": expected}).agreed
    assert not compare({"out": torch.tensor([1001, 2], dtype=torch.int32)}, {"out": expected}).agreed


def test_a_reference_of_zeros_is_compared_in_absolute_terms():
    zeros = torch.zeros(3, dtype=torch.float64)
    assert compare({"out": zeros.float()}, {"out": zeros}).agreed
    assert not compare({"out": zeros.float() + 1e-3}, {"out": zeros}).agreed


def test_the_worst_output_decides():
    expected = {"a": torch.ones(2, dtype=torch.float64), "b": torch.ones(2, dtype=torch.float64)}
    verdict = compare({"a": torch.ones(2), "b": torch.tensor([1.0, 1.5])}, expected)
    assert not verdict.agreed
    assert verdict.reason.startswith("b: ")


def test_a_reference_of_other_names_or_shapes_is_a_mistake_of_the_spec():
    ones = torch.ones(2, dtype=torch.float64)
    with pytest.raises(
        BadSpec, match="the reference gives b, the kernel's outputs are a; correct the spec's reference"
    ):
        compare({"a": ones.float()}, {"b": ones})
    with pytest.raises(BadSpec, match="the reference gives a the shape"):
        compare({"a": torch.ones(3)}, {"a": ones})


# --- 16 bits ---------------------------------------------------------------------------------------------------------


def sums(columns, dtype, rows=50):
    """Return the float64 sums of rows, and the inputs, which are exact in the dtype."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(rows, columns, dtype=torch.float64, generator=generator).to(getattr(torch, dtype))
    return x.double().sum(1), x


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("columns", [3, 301, 8192, 65536])
def test_a_float32_sum_rounded_once_agrees(dtype, columns):
    expected, x = sums(columns, dtype)
    got = x.float().sum(1).to(x.dtype)
    assert compare({"out": got}, {"out": expected}, inputs=x.numel()).agreed


def test_a_float16_sum_of_65536_columns_that_is_one_short_disagrees():
    expected, x = sums(65536, "float16")
    short = x[:, :-1].float().sum(1).to(x.dtype)
    assert not compare({"out": short}, {"out": expected}, inputs=x.numel()).agreed


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 2, 50])
def test_with_sparse_inputs_so_does_every_one_in_16_bits(dtype, rows):
    x = torch.empty(rows, 65536, dtype=getattr(torch, dtype))
    draw(x, Buffer((rows, 65536), dtype), torch.Generator().manual_seed(1), Way.SPARSE, {})
    expected, short = x.double().sum(1), x[:, :-1].float().sum(1).to(x.dtype)
    scales = {"out": 256.0}  # as the project's sums say
    assert compare({"out": x.float().sum(1).to(x.dtype)}, {"out": expected}, scales, inputs=x.numel()).agreed
    assert not compare({"out": short}, {"out": expected}, scales, inputs=x.numel()).agreed


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_sum_of_rounded_products_agrees_and_one_kept_in_16_bits_does_not(dtype):
    _, x = sums(8192, dtype)
    y = x.roll(1, 0)
    expected = (x.double() * y.double()).sum(1)
    got = (x * y).float().sum(1).to(x.dtype)
    assert compare({"out": got}, {"out": expected}, inputs=x.numel()).agreed
    running = torch.zeros(50, dtype=x.dtype)
    for column in (x * y).T:
        running += column
    assert not compare({"out": running}, {"out": expected}, inputs=x.numel()).agreed


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_elementwise_arithmetic_in_16_bits_agrees(dtype):
    _, x = sums(300, dtype)
    a, b = x, x.roll(1, 1)
    expected = a.double() * b.double() + a.double()
    assert compare({"out": a * b + a}, {"out": expected}, inputs=x.numel()).agreed


def test_small_rows_are_not_judged_by_large_ones():
    expected = torch.full((50, 300), 1.0, dtype=torch.float64)
    expected[0] = 1e4
    got = expected.half()
    assert compare({"out": got}, {"out": expected}).agreed
    got[0, 5] += 64
    assert not compare({"out": got}, {"out": expected}).agreed


def test_an_overflow_may_be_missed_by_as_much_as_a_value_may_be_off():
    expected = torch.tensor([65519.0, 65530.0, -65530.0, 1.0], dtype=torch.float64)
    for got in ([math.inf, 65504.0, -65504.0, 1.0], [65504.0, math.inf, -math.inf, 1.0]):
        assert compare({"out": torch.tensor(got, dtype=torch.float16)}, {"out": expected}).agreed
    for got in ([-math.inf, 65504.0, -65504.0, 1.0], [65504.0, 60000.0, -math.inf, 1.0]):
        assert not compare({"out": torch.tensor(got, dtype=torch.float16)}, {"out": expected}).agreed


def test_numbers_below_the_smallest_normal_one_lose_precision():
    expected = torch.linspace(1e-6, 2e-5, 999, dtype=torch.float64)
    assert compare({"out": expected.half()}, {"out": expected}).agreed
    assert not compare({"out": (expected + 4e-7).half()}, {"out": expected}).agreed


@pytest.mark.parametrize("size", [1.0, 8.0])
@pytest.mark.parametrize(("off", "agreed"), [(2.0**-16, True), (0.99 * 2.0**-15, True), (1.02 * 2.0**-15, False)])
def test_float32_may_be_off_by_two_to_the_minus_15_of_the_element_or_the_rms(size, off, agreed):
    expected = torch.full((100,), size, dtype=torch.float64)
    got = expected.float()
    got[7] = size * (1 + off)
    verdict = compare({"out": got}, {"out": expected})
    assert verdict.agreed is agreed
    assert verdict.error == pytest.approx(off, rel=0.01)
    assert verdict.tolerance == pytest.approx(2.0**-15, rel=0.01)  # in units of the RMS


@pytest.mark.parametrize(
    ("wanted", "got", "agreed"),
    [
        (65490.0, math.inf, True),  # the deviation that is allowed decides about the overflow
        (65530.0, 65504.0, True),
        (-65490.0, -math.inf, True),
        (65490.0, -math.inf, False),
        (65000.0, math.inf, False),
        (66000.0, 65504.0, False),
        (70000.0, math.inf, True),
        (65530.0, math.inf, True),
    ],
)
def test_near_the_largest_number_of_a_dtype_an_overflow_may_go_either_way(wanted, got, agreed):
    expected = torch.tensor([wanted, 1.0], dtype=torch.float64)
    verdict = compare({"out": torch.tensor([got, 1.0], dtype=torch.float16)}, {"out": expected}, inputs=2)
    assert verdict.agreed is agreed


@pytest.mark.parametrize(
    ("dtype", "bits"), [("float64", 53), ("float32", 24), ("float16", 11), ("bfloat16", 8), ("float8_e4m3fn", 4)]
)
def test_a_tolerance_is_made_of_arithmetic_rounding_and_what_came_before(dtype, bits):
    wanted = torch.tensor([[1.0, 4.0], [0.5, 0.0]], dtype=torch.float64)
    half = 2.0**-bits
    size = wanted.clamp(min=1.0)
    eight = dtype == "float8_e4m3fn"
    for terms, more in ((1, 1.0), (8192, 1.0), (4 * 8192, 2.0)):
        arithmetic = (2.0**-15 * more + 0.125) * size
        reduced = arithmetic + half * (1.25 * wanted + (0.0 if eight else 2.0))
        found = tolerance(dtype, wanted, 1.0, reduced=True, terms=terms, extra=0.125)
        torch.testing.assert_close(found, reduced, rtol=1e-6, atol=2e-3 if eight else 1e-6)
        rows = arithmetic + half * (1.25 * wanted + (0.0 if eight else torch.tensor([[4.0], [1.0]])))
        found = tolerance(dtype, wanted, 1.0, reduced=False, terms=terms, extra=0.125)
        torch.testing.assert_close(found, rows, rtol=1e-6, atol=2e-3 if eight else 1e-6)


@pytest.mark.in_part(6)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("shape", "inputs"), [((300, 500), 0), ((300, 500), 400_000), ((7,), 0), ((), 0)], ids=str)
def test_finite_outputs_are_judged_a_part_at_a_time_as_they_are_at_once(monkeypatch, dtype, shape, inputs):
    generator = torch.Generator().manual_seed(2)
    wanted = {"out": torch.randn(shape, dtype=torch.float64, generator=generator)}
    wrong = wanted["out"].clone()
    wrong.view(-1)[wrong.numel() * 3 // 4] += 0.5
    for values in (wanted["out"], wrong):
        got = {"out": values.to(getattr(torch, dtype))}
        parts = compare(got, wanted, inputs=inputs)
        with monkeypatch.context() as patched:
            patched.setattr(comparison, "_is_plain", lambda got, wanted: False)
            whole = compare(got, wanted, inputs=inputs)
        assert (parts.agreed, parts.reason) == (whole.agreed, whole.reason)
        assert (parts.error, parts.tolerance) == pytest.approx((whole.error, whole.tolerance))


@pytest.mark.parametrize(
    ("got", "agreed"),
    [
        ([5.0, 1.0], True),
        ([math.nan, 1.0], True),
        ([math.inf, 1.0], True),
        ([5.0, 1.5], False),
        ([5.0, math.inf], False),
    ],
)
def test_where_the_default_overflows_a_config_may_be_anything(got, agreed):
    expected = {"out": torch.ones(2, dtype=torch.float64)}
    default = {"out": torch.tensor([math.inf, 1.0], dtype=torch.float64)}
    found = compare({"out": torch.tensor(got, dtype=torch.float16)}, expected, default=default)
    assert found.agreed is agreed


@pytest.mark.parametrize(("off", "agreed"), [(0.0, True), (0.4, True), (0.41, False)])
def test_a_config_may_be_twice_as_far_off_as_the_default(off, agreed):
    expected = {"out": torch.full((4,), 64.0, dtype=torch.float64)}
    default = {"out": torch.full((4,), 64.2, dtype=torch.float64)}
    got = {"out": torch.tensor([64.0, 64.0 + off, 64.0, 64.0])}
    assert compare(got, expected, default=default).agreed is agreed
    assert compare(got, expected, rounded=default).agreed is agreed


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "bool", "float8_e4m3fn"])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)], ids=str)
def test_an_output_without_elements_agrees(dtype, shape):
    got = {"out": torch.empty(shape, dtype=getattr(torch, dtype))}
    verdict = compare(got, {"out": torch.empty(shape, dtype=torch.float64)})
    assert (verdict.agreed, verdict.error, verdict.tolerance, verdict.reason) == (True, 0.0, 0.0, "")


@pytest.mark.parametrize(
    ("dtype", "values", "plain"),
    [
        ("float32", [1.0, -2.0], True),
        ("float16", [1.0, 65503.0], True),
        ("float16", [1.0, 65504.0], False),  # at the limit of the dtype, where an overflow may go either way
        ("float16", [1.0, -65504.0], False),
        ("float32", [1.0, math.inf], False),
        ("float32", [1.0, math.nan], False),
        ("float32", [], False),
        ("float8_e4m3fn", [1.0, 2.0], False),
        ("int32", [1.0, 2.0], False),
    ],
)
def test_only_finite_floats_below_the_limit_of_their_dtype_are_compared_in_parts(dtype, values, plain):
    wanted = torch.tensor(values, dtype=torch.float64)
    assert comparison._is_plain(wanted.to(getattr(torch, dtype)), wanted) is plain


@pytest.mark.parametrize("wrong", [math.inf, math.nan])
def test_an_output_that_is_not_finite_where_the_reference_is_is_compared_as_a_whole(wrong):
    assert comparison._is_plain(torch.tensor([1.0, wrong]), torch.ones(2, dtype=torch.float64)) is False
