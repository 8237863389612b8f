"""Query strings are read strictly: known names, once each, plain digits, and one line per fault."""

from __future__ import annotations

import pytest

from tilewise.api.http.parameters import Parameters
from tilewise.api.http.schemas import _size_or_flag
from tilewise.errors import BadDimension, UsageError

LONG = "x" * 60


def refusal(function, *arguments, error=UsageError, **named):
    with pytest.raises(error) as refused:
        function(*arguments, **named)
    return str(refused.value)


def test_what_is_taken_is_gone():
    given = Parameters([("a", "1"), ("b", "yes"), ("c", "7")])
    assert given.names == ["a", "b", "c"]
    assert (given.take("b"), given.take("b"), given.take("z")) == ("yes", None, None)
    assert given.take_choice("a", ["0", "1"]) == "1" and given.take_choice("a", ["0"]) is None
    assert given.take_number("c", 5, least=7, most=7) == 7
    assert given.take_number("c", 5, least=7, most=7) == 5
    assert given.names == []
    given.finish("a or b")


def test_names_are_given_once_and_with_a_value():
    assert refusal(Parameters, [(LONG, "1"), (LONG, "2")]) == f"{LONG[:40]!r} is given more than once; give it once"
    assert refusal(Parameters([("a", "")]).take, "a") == "a is empty; give it a value or leave it out"
    assert refusal(Parameters([("a", "1"), (LONG, "")]).finish, "b") == "unknown parameter 'a'; expected b"
    assert refusal(Parameters([(LONG, "")]).finish, "b") == f"unknown parameter {LONG[:40]!r}; expected b"


@pytest.mark.parametrize(("choices", "words"), [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c")])
def test_choices_are_listed(choices, words):
    given = Parameters([("kind", LONG)])
    assert refusal(given.take_choice, "kind", choices) == f"kind is {LONG[:40]!r}; expected {words}"


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("10", 10), ("999999999999999999", 999999999999999999), ("1" + "0" * 18, 10**18)]
)
def test_plain_digits_are_a_number(text, number):
    assert Parameters([("n", text)]).take_number("n", 1, least=0, most=10**18) == number


@pytest.mark.parametrize("text", ["", "-1", "+1", "01", "1_0", " 1", "1.0", "\u0663", "1e3", "2", "6", "1" + "0" * 19])
def test_other_texts_and_numbers_out_of_bounds_are_none(text):
    given = Parameters([("n", text)])
    expected = f"n is {text!r}; expected a whole number from 3 to 5"
    assert refusal(given.take_number, "n", 4, least=3, most=5) == expected


@pytest.mark.parametrize(("length", "shown"), [(40, "9" * 40), (41, "9" * 40 + "...")])
def test_long_numbers_and_names_are_cut(length, shown):
    given = Parameters([(LONG, "9" * length)])
    expected = f"{LONG[:40]} is {shown!r}; expected a whole number from 1 to 2147483647"
    assert refusal(given.take_shape, error=BadDimension) == expected


def test_the_rest_is_a_shape():
    given = Parameters([("M", "1"), ("N", "2147483647"), ("causal", "true"), ("layout", "heads")])
    assert given.take_shape() == {"M": 1, "N": 2147483647, "causal": True, "layout": "heads"}
    assert given.names == []
    for text in ("0", "2147483648", ""):
        refusal(Parameters([("M", text)]).take_shape, error=BadDimension)


@pytest.mark.parametrize("value", [1, 2**31 - 1, True, "causal"])
def test_a_body_gives_sizes_up_to_the_largest_and_flags(value):
    assert _size_or_flag(value) == value


@pytest.mark.parametrize("value", [0, -1, 2**31, 1.5, "", "a b", None])
def test_other_sizes_of_a_body_are_refused(value):
    with pytest.raises(ValueError, match="expected a whole number from 1 to 2147483647"):
        _size_or_flag(value)
