"""Documents from elsewhere: compressed data, and characters that databases cannot store."""

from __future__ import annotations

import gzip
import json

import pytest

from tilewise.db.exchange import jsonfile
from tilewise.db.exchange.jsonfile import one_line, parse, text_of, unpacked


def test_compressed_data_that_ends_early_is_damaged_unless_it_may_end_early():
    whole = gzip.compress(bytes(range(256)) * 64)
    assert unpacked(whole) == bytes(range(256)) * 64
    with pytest.raises(ValueError, match="ends early"):
        unpacked(whole[:-20])
    assert bytes(range(256)) in unpacked(whole[:-8], cut=True)


def test_compressed_data_beyond_the_limit_is_refused_with_the_limit(monkeypatch):
    monkeypatch.setattr(jsonfile, "LARGEST", 2 << 20)
    with pytest.raises(ValueError, match="it is more than 2 MiB when decompressed"):
        unpacked(gzip.compress(b" " * (3 << 20)))


@pytest.mark.parametrize(
    ("text", "complaint"), [(r'"\ud800"', "half of a surrogate pair"), (r'{"a": ["\u0000"]}', "a NUL character")]
)
def test_characters_that_databases_cannot_store_are_refused(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        parse(text)


def test_a_file_of_many_megabytes_is_read():
    """The limit on what a few kilobytes may expand to is a gigabyte."""
    assert jsonfile.LARGEST == 1 << 30
    assert len(unpacked(gzip.compress(b" " * (20 << 20)))) == 20 << 20


def test_a_file_may_end_within_a_character_only_where_it_may_be_cut():
    data = '{"a": "é'.encode()[:-1]
    with pytest.raises(ValueError, match="not UTF-8"):
        text_of(data)
    assert text_of(data, cut=True) == '{"a": "'
    with pytest.raises(ValueError, match="ends early"):
        text_of(gzip.compress(b"text" * 100)[:-9])


def test_a_mark_of_the_byte_order_is_no_part_of_the_text():
    assert text_of(b"\xef\xbb\xbf{}") == "{}"


@pytest.mark.parametrize(
    ("text", "line"),
    [("a\nb\t c", "a b c"), ("x" * 200, "x" * 200), ("x" * 201, "x" * 197 + "..."), ("a\x1bb", r"a\x1bb")],
)
def test_a_message_becomes_one_printable_line_of_at_most_200_characters(text, line):
    assert one_line(ValueError(text)) == line


@pytest.mark.parametrize("text", [r'"\\u0000"', r'"\\ud800"', '"é"', r'"\ud83d\ude00"'])
def test_characters_that_only_look_odd_are_kept(text):
    assert parse(text) == json.loads(text)
