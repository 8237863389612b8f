"""Records of clients, which are kept as JSON text."""

from __future__ import annotations

import pytest

from tilewise.api.http.schemas import LONGEST_TEXT, _as_text


def nested(depth):
    record = {}
    for _ in range(depth):
        record = {"a": record}
    return record


@pytest.mark.parametrize(
    ("record", "text"),
    [({}, "{}"), ({"a": "é", "b": [1, None]}, '{"a": "é", "b": [1, null]}'), (nested(2), '{"a": {"a": {}}}')],
)
def test_a_record_is_kept_as_plain_json(record, text):
    assert _as_text(record) == text


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ([], "^is not an object$"),
        ("x", "^is not an object$"),
        ({"a": float("nan")}, "^is no JSON that can be kept: Out of range"),
        ({"a": float("-inf")}, "^is no JSON that can be kept: Out of range"),
        ({"a": "\ud800"}, "^is no JSON that can be kept: .* surrogates not allowed"),
        (nested(100_000), "^is no JSON that can be kept: maximum recursion depth"),
    ],
)
def test_what_no_json_holds_is_refused(record, why):
    with pytest.raises(ValueError, match=why):
        _as_text(record)


@pytest.mark.parametrize(("character", "size"), [("x", 1), ("é", 2)])
def test_a_record_may_have_as_many_bytes_as_the_limit(character, size):
    most = character * ((LONGEST_TEXT - len('{"a": ""}') - 1) // size)
    assert LONGEST_TEXT - 2 <= len(_as_text({"a": most}).encode()) <= LONGEST_TEXT - 1
    assert len(_as_text({"a": "x" * (LONGEST_TEXT - len('{"a": ""}'))})) == LONGEST_TEXT
    with pytest.raises(ValueError, match=f"^has more than {LONGEST_TEXT} bytes as JSON$"):
        _as_text({"a": most + character + "x"})
