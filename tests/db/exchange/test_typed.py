"""Typed reading of JSON: the bounds of numbers, and the words for what is wrong."""

import math

import pytest

from tilewise.db.exchange.typed import Count, Number, Size, typed


@pytest.mark.parametrize(
    ("kind", "value"),
    [(Count, 0), (Count, 2**63 - 1), (Size, 1), (Size, 2**63 - 1), (Number, 0), (Number, -1.5)],
)
def test_a_number_within_its_bounds_is_read_as_it_is(kind, value):
    assert typed(value, kind) == value


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (Count, -1, "expected a whole number of 0 or more, found -1"),
        (Count, 2**63, "expected a whole number below 2^63, found 9223372036854775808"),
        (Count, 1.5, "expected a whole number, found 1.5"),
        (Count, True, "expected a whole number, found True"),
        (Size, 0, "expected a whole number of 1 or more, found 0"),
        (Size, 2**63, "expected a whole number below 2^63, found 9223372036854775808"),
        (Number, math.inf, "expected a finite number, found inf"),
        (Number, "1", "expected a number, found '1'"),
    ],
)
def test_a_number_out_of_bounds_is_refused_with_what_was_expected(kind, value, message):
    with pytest.raises(ValueError, match=r"\w") as refused:
        typed(value, kind)
    assert str(refused.value) == message
