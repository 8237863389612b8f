"""Typed reading of JSON: the bounds of numbers, and the words for what is wrong."""

import math

import msgspec
import pytest

from tilewise.db.exchange.typed import Config, Count, Moment, Name, Number, Shape, Size, Text, _at, typed
from tilewise.db.records import Clock


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


class _Inner(msgspec.Struct):
    size: int


class _Outer(msgspec.Struct):
    kind: Clock
    inner: _Inner
    items: list[_Inner]
    dims: Shape
    config: Config
    moment: Moment


WHOLE = {
    "kind": "measured",
    "inner": {"size": 1},
    "items": [{"size": 1}, {"size": 2}],
    "dims": {"M": 8},
    "config": {"B": 1},
    "moment": "2026-11-01T00:00:00+00:00",
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inner": {}}, "inner.size is missing"),
        ({"inner": 5}, "inner is 5; expected an object"),
        ({"inner": None}, "inner is null; expected an object"),
        ({"items": {}}, "items is an object; expected a list"),
        ({"items": [{"size": 1}, {"size": "x"}]}, "items[1].size is 'x'; expected a whole number"),
        ({"kind": "guessed"}, "kind is 'guessed'; expected one of measured, modelled"),
        (
            {"config": {"A": 1, "B": [1]}},
            "config.B is a list; expected true or false, a whole number, a num",
        ),
        ({"config": {"A": 1, "B": math.inf}}, "config.B is inf; expected a finite number"),
        ({"moment": "today"}, "moment is 'today'; expected"),
        ({"moment": "2026-11-01T00:00:00"}, "moment is '2026-11-01T00:00:00'; expected"),
        ({"inner": {"size": "x" * 60}}, "inner.size is '" + "x" * 39 + "; expected a whole number"),
    ],
)
def test_the_place_of_a_wrong_value_is_named(changes, message):
    with pytest.raises(ValueError, match=r"\w") as refused:
        typed(WHOLE | changes, _Outer)
    assert str(refused.value).startswith(message)


def test_a_whole_document_is_read():
    assert typed(WHOLE, _Outer).items == [_Inner(1), _Inner(2)]


def test_what_lacks_a_field_or_is_no_object_is_refused():
    for value, message in ([], "expected an object, found a list"), ({}, "kind is missing"):
        with pytest.raises(ValueError, match=r"\w") as refused:
            typed(value, _Outer)
        assert str(refused.value) == message


@pytest.mark.parametrize(("kind", "most"), [(Name, 200), (Text, 10_000)])
def test_a_text_has_a_longest_length(kind, most):
    assert typed("x" * most, kind) == "x" * most
    with pytest.raises(ValueError, match=f"expected a string of at most {most} characters, found '{'x' * 39}$"):
        typed("x" * (most + 1), kind)


@pytest.mark.parametrize(
    ("field", "item", "beyond", "message"),
    [
        ("dims", {"M" * 200: 1}, {"M" * 201: 1}, "a name in dims is '" + "M" * 39),
        (
            "dims",
            {"kind": "x" * 64},
            {"kind": "x" * 65},
            "dims.kind is '" + "x" * 39 + "; expected a string of letters",
        ),
        ("dims", {"kind": "a.b+c-d_1"}, {"kind": "a b"}, "dims.kind is 'a b'; expected a string of letters"),
        ("dims", {"kind": "a"}, {"kind": ""}, "dims.kind is ''; expected a string of letters"),
        (
            "config",
            {"B": "x" * 200},
            {"B": "x" * 201},
            "config.B is '" + "x" * 39 + "; expected a string of at most 200",
        ),
        ("config", {"B" * 200: 1}, {"B" * 201: 1}, "a name in config is '" + "B" * 39),
    ],
)
def test_names_flags_and_values_have_longest_lengths(field, item, beyond, message):
    assert getattr(typed(WHOLE | {field: item}, _Outer), field) == item
    with pytest.raises(ValueError, match=r"\w") as refused:
        typed(WHOLE | {field: beyond}, _Outer)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("value", "path", "found"),
    [
        ({"a": [1, 2]}, ".a[1]", 2),
        ({"a": {"b": 2}}, ".a.b", 2),
        ([5], "[0]", 5),
        ({"a": 1}, "", {"a": 1}),
        ({"a": [1]}, ".a[3]", [1]),
        ({"a": 1}, ".b", {"a": 1}),
        ({"a": 1, "c": 2}, ".b.c", {"a": 1, "c": 2}),
        ({"a": 1}, ".a.b", 1),
    ],
)
def test_a_path_is_followed_as_far_as_it_goes(value, path, found):
    assert _at(value, path) == found
