"""Documents from elsewhere: compressed data, and characters that databases cannot store."""

from __future__ import annotations

import gzip

import pytest

from tilewise.db.exchange import jsonfile
from tilewise.db.exchange.jsonfile import parse, unpacked


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
