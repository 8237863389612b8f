"""Export files read entry by entry, however they are cut into pieces, in bounded memory."""

from __future__ import annotations

import gzip
import io
import json
import re
import tracemalloc

import pytest
from scopes import changed
from service_fixtures import SCOPE, WINNER

from tilewise.db.exchange.native import entry_stream
from tilewise.db.exchange.native.export_file import (
    encode,
    export_native,
    read_native,
    stream_native,
    stream_native_offers,
)
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import BadImport


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """An export of three problems, one of which another program spoilt."""
    with open_store(f"sqlite:///{tmp_path_factory.mktemp('stream')}/tiles.db", create=True) as store:
        for m in (1, 2, 3):
            store.record(changed(SCOPE, dims={"M": m, "N": 8}), [WINNER])
        yield store, export_native(store, store.scopes())


def streamed(data):
    return list(stream_native_offers(io.BytesIO(data)))


@pytest.mark.parametrize("piece", [1, 7, 1 << 18])
def test_a_file_is_read_alike_in_pieces_and_whole(document, monkeypatch, piece):
    store, whole = document
    monkeypatch.setattr(entry_stream, "_PIECE", piece)
    offers = list(read_native(encode(whole)).offers)
    for data in (
        encode(whole),
        b"".join(stream_native(store, store.scopes())),
        gzip.compress(encode(whole)),
        b"\xef\xbb\xbf" + json.dumps(dict(reversed(whole.items()))).encode(),
    ):
        assert streamed(data) == offers
    assert streamed(encode(export_native(store, []))) == []


def broken(whole, **members):
    return json.dumps(whole | members).encode()


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda whole: b"", "it is not JSON"),
        (lambda whole: encode(whole)[:-20], "it is not JSON"),
        (lambda whole: encode(whole) + b"{}", "something follows the document"),
        (lambda whole: b"[" + encode(whole) + b"]", "instead of '{'"),
        (lambda whole: gzip.compress(encode(whole))[:-20], "compressed data is damaged"),
        (lambda whole: encode(whole).replace(b"row_reduce", b"row_\xff"), "not UTF-8"),
        (lambda whole: encode(whole).replace(b'"M"', b'"N"'), "holds 'N' twice"),
        (lambda whole: encode(whole).replace(b'"sha256"', b'"format"'), "holds 'format' twice"),
        (lambda whole: encode(whole).replace(b"31.5", b"30.5"), "checksum does not match"),
        (lambda whole: encode(whole).replace(b"31.5", b"NaN"), "NaN, which is not JSON"),
        (lambda whole: encode(whole).replace(b"guided", b"\\ud800"), "surrogate"),
        (lambda whole: broken(whole, sha256=None), "checksum does not match"),
        (lambda whole: broken(whole, format="other"), "its format is 'other'"),
        (lambda whole: broken(whole, version=2), "its version is 2"),
        (lambda whole: broken(whole, entries={"a": 1}), "instead of"),
        (lambda whole: json.dumps({"format": "tilewise"}).encode(), "entries is missing"),
        (lambda whole: b'{"entries": [' + b"[" * 100_000, "nested too deep"),
    ],
)
def test_a_damaged_file_is_refused_as_a_whole_one_is(document, spoil, complaint):
    data = spoil(document[1])
    with pytest.raises(BadImport, match=complaint):
        streamed(data)
    with pytest.raises(BadImport):
        read_native(data)


def test_memory_holds_an_entry_and_not_the_file(document):
    store, _ = document

    def peak(times):
        store_scopes = [scope for scope in store.scopes() for _ in range(times)]
        data = b"".join(stream_native(store, store_scopes))
        tracemalloc.start()
        try:
            assert sum(1 for _ in stream_native_offers(io.BytesIO(data))) == 3 * times
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1)
    assert peak(400) < 3_000_000  # of a file of 1.2 MB, whose objects would take 5


def test_an_entry_has_a_limit(document, monkeypatch):
    monkeypatch.setattr(entry_stream, "_LARGEST_VALUE", 1000)
    monkeypatch.setattr(entry_stream, "_PIECE", 64)
    with pytest.raises(BadImport, match="an entry of more than"):
        streamed(encode(document[1]).replace(b"guided", b"x" * 3000))


def test_an_entry_that_would_take_much_memory_is_refused_before_it_is_parsed():
    data = b'{"entries": [[' + b"[]," * 3_000_000 + b"[]]]}"
    tracemalloc.start()
    try:
        with pytest.raises(BadImport, match="more than 200000 lists and objects"):
            streamed(data)
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_has_a_limit_that_it_may_reach(document, monkeypatch, pack):
    text = encode(document[1])
    size = len(text.decode())
    monkeypatch.setattr(entry_stream, "_PIECE", 64)
    monkeypatch.setattr(entry_stream, "LARGEST", size)
    assert len(streamed(pack(text))) == 3
    monkeypatch.setattr(entry_stream, "LARGEST", size - 1)
    with pytest.raises(BadImport, match="it is more than 0 MiB when decompressed"):
        streamed(pack(text))


def test_the_limits_of_an_entry_and_of_a_file_are_told_in_mib(document, monkeypatch):
    monkeypatch.setattr(entry_stream, "_PIECE", 1 << 22)
    entry = b'{"entries": ["' + b"x" * ((10 << 20) + 1)
    with pytest.raises(BadImport, match="it holds an entry of more than 10 MiB"):
        streamed(entry)
    monkeypatch.setattr(entry_stream, "LARGEST", 3 << 20)
    with pytest.raises(BadImport, match="it is more than 3 MiB when decompressed"):
        streamed(entry)


@pytest.mark.parametrize("piece", [1, 1 << 18])
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (" \t\r\n", "it is not JSON (found 'its end' instead of '{')"),
        ("[]", "it is not JSON (found '[' instead of '{')"),
        ('\r\n{\t"format" 1}', "it is not JSON (found '1' instead of ':')"),
        ('{"format"', "it is not JSON (found 'its end' instead of ':')"),
        ('{"format": "tilewise" "version": 1}', "it is not JSON (found '\"' instead of '}')"),
        ('{"format": "tilewise" ', "it is not JSON (found 'its end' instead of '}')"),
        ('{"entries": [{} {}]}', "it is not JSON (found '{' instead of ']')"),
        ('{"entries": [1', "it is not JSON (found 'its end' instead of ']')"),
        ('{"entries": [] }\n}', "it is not JSON (something follows the document)"),
        ('{"a": 1, "a": 2}', "an object holds 'a' twice or as a name"),
        ("{1: 2}", "an object holds '1' twice or as a name"),
        (f'{{["{"x" * 50}"]: 2}}', f'an object holds "[\'{"x" * 38}" twice or as a name'),
    ],
)
def test_a_file_that_is_not_json_is_refused_with_what_is_found_and_what_is_expected(
    monkeypatch, piece, text, complaint
):
    monkeypatch.setattr(entry_stream, "_PIECE", piece)
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}$"):
        list(entry_stream.stream_entries(io.BytesIO(text.encode()), {}))
