"""Answers over 4 KB are compressed for clients that accept zstd or gzip, whole and streamed; others are left alone."""

from __future__ import annotations

import asyncio
import gzip

import pytest
import zstandard
from starlette.responses import Response, StreamingResponse

from tilewise.api.http import compression
from tilewise.api.http.compression import Compression

LONG = b"0123456789abcdef" * 1000


def answer(response, accepted: str | None = "gzip", **scope):
    """Return the head's headers and the parts of the body."""
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        await asyncio.sleep(60)

    headers = [] if accepted is None else [(b"accept-encoding", accepted.encode())]
    asyncio.run(Compression(response)({"type": "http", "method": "GET", "headers": headers, **scope}, receive, send))
    assert [message["type"] for message in sent] == ["http.response.start"] + ["http.response.body"] * (len(sent) - 1)
    return dict(sent[0]["headers"]), [message.get("body", b"") for message in sent[1:]]


def test_a_long_answer_is_compressed_and_its_tag_is_weak():
    headers, body = answer(Response(LONG, media_type="application/json", headers={"etag": '"x"'}))
    assert gzip.decompress(b"".join(body)) == LONG
    assert headers[b"content-length"] == str(len(body[0])).encode()
    assert (headers[b"content-encoding"], headers[b"vary"], headers[b"etag"]) == (b"gzip", b"accept-encoding", b'W/"x"')


def test_a_very_long_answer_is_the_same():
    _, body = answer(Response(LONG * 100, media_type="text/html"))
    assert gzip.decompress(body[0]) == LONG * 100


def test_a_stream_is_compressed_part_by_part():
    parts = [LONG, b"x" * 100_000, b"end"]

    async def stream():
        for part in parts:
            yield part

    headers, body = answer(StreamingResponse(stream(), media_type="application/x-ndjson"))
    assert b"content-length" not in headers
    unpacked = gzip.zlib.decompressobj(wbits=31)
    assert unpacked.decompress(body[0]) == LONG  # at once, not with the next part
    assert unpacked.decompress(b"".join(body[1:])) == b"".join(parts[1:])
    assert unpacked.eof


def test_zstd_is_the_same_whole_and_part_by_part():
    headers, body = answer(Response(LONG, media_type="application/json", headers={"etag": '"x"'}), "zstd")
    assert zstandard.decompress(body[0]) == LONG
    assert (headers[b"content-encoding"], headers[b"etag"]) == (b"zstd", b'W/"x"')
    parts = [LONG, b"x" * 100_000, b"end"]

    async def stream():
        for part in parts:
            yield part

    headers, body = answer(StreamingResponse(stream(), media_type="application/x-ndjson"), "zstd")
    unpacked = zstandard.ZstdDecompressor().decompressobj()
    assert unpacked.decompress(body[0]) == LONG  # at once, not with the next part
    assert unpacked.decompress(b"".join(body[1:])) == b"".join(parts[1:])
    assert unpacked.eof


@pytest.mark.parametrize("accepted", ["gzip", "zstd", "identity", None])
@pytest.mark.parametrize("body", [LONG, b"short"])
def test_caches_are_told_that_the_answer_depends_on_the_client_whoever_asks(body, accepted):
    headers, _ = answer(Response(body, media_type="application/json"), accepted)
    assert headers[b"vary"] == b"accept-encoding"
    assert answer(Response(status_code=304), accepted)[0][b"vary"] == b"accept-encoding"
    assert b"vary" not in answer(Response(body, media_type="image/png"), accepted)[0]


@pytest.mark.parametrize(
    ("response", "accepted"),
    [
        (Response(LONG[:4095], media_type="application/json"), "gzip"),
        (Response(LONG, media_type="application/json"), None),
        (Response(LONG, media_type="application/json"), "br, gzip;q=0"),
        (Response(LONG, media_type="application/json"), "identity"),
        (Response(LONG, media_type="application/octet-stream"), "gzip"),
        (Response(LONG, media_type="text/event-stream"), "gzip"),
        (Response(LONG, media_type="text/html", status_code=206), "gzip"),
        (Response(LONG, media_type="text/html", headers={"content-encoding": "br"}), "gzip"),
    ],
)
def test_other_answers_are_left_alone(response, accepted):
    headers, body = answer(response, accepted)
    assert b"".join(body) == response.body
    assert headers.get(b"content-encoding") in (None, b"br")


@pytest.mark.parametrize("accepted", ["gzip;q=0.5", "deflate, GZIP", "*, zstd;q=0.1"])
def test_gzip_is_recognized_as_clients_write_it(accepted):
    headers, _ = answer(Response(LONG, media_type="text/css"), accepted)
    assert headers[b"content-encoding"] == b"gzip"


def test_the_service_compresses_what_is_long_and_knows_its_tag_again(client):
    answer = client.get("/openapi.json", headers={"accept-encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.json()["openapi"].startswith("3.1")
    listed = client.get("/v1/kernels", headers={"accept-encoding": "gzip"})
    assert listed.headers["etag"].startswith("W/")
    again = client.get("/v1/kernels", headers={"if-none-match": listed.headers["etag"]})
    assert again.status_code == 304


@pytest.mark.parametrize(("size", "encoding"), [(4095, None), (4096, b"gzip")])
def test_answers_of_4_kilobytes_and_more_are_compressed(size, encoding):
    headers, body = answer(Response(LONG[:size], media_type="image/svg+xml"))
    assert headers.get(b"content-encoding") == encoding
    assert len(body) == 1 and (len(body[0]) < size) == (encoding is not None)


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip;q=0", None),
        ("gzip;q=0.0", None),
        ("gzip;q=0.001", b"gzip"),
        ("gzip;q=1", b"gzip"),
        ("br;q=1, *;q=0", None),
        ("br; q=0, gzip ; q=1", b"gzip"),
        ("gzipped", None),
        ("", None),
        ("gzip, deflate, br, zstd", b"zstd"),
        ("zstd;q=0.5, gzip;q=0.8", b"gzip"),
        ("gzip;q=0.5, zstd;q=0.8", b"zstd"),
        ("*", b"zstd"),
        ("*, zstd;q=0", b"gzip"),
        ("gzip;q=what", b"gzip"),
    ],
)
def test_the_encoding_is_the_one_that_a_client_likes_best(accepted, encoding):
    headers, _ = answer(Response(LONG, media_type="text/html"), accepted)
    assert headers.get(b"content-encoding") == encoding


@pytest.mark.parametrize(("size", "in_thread"), [(65_536, 0), (65_537, 1)])
def test_only_long_bodies_take_a_thread(size, in_thread, monkeypatch):
    threads, run_sync = [], compression.to_thread.run_sync

    async def counted(function, body):
        threads.append(len(body))
        return await run_sync(function, body)

    monkeypatch.setattr(compression.to_thread, "run_sync", counted)
    _, body = answer(Response(b"x" * size, media_type="text/html"))
    assert gzip.decompress(body[0]) == b"x" * size
    assert threads == [size] * in_thread


def test_the_length_and_ranges_of_the_plain_body_are_gone_and_a_weak_tag_stays():
    plain = Response(LONG, media_type="text/html", headers={"etag": 'W/"x"', "accept-ranges": "bytes", "x-other": "1"})
    headers, body = answer(plain)
    assert (headers[b"etag"], headers[b"x-other"]) == (b'W/"x"', b"1")
    assert b"accept-ranges" not in headers
    assert headers[b"content-length"] == b"%d" % len(body[0])


def test_other_than_requests_pass_through():
    seen = []

    async def app(scope, receive, send):
        seen.append((scope["type"], receive, send))

    asyncio.run(Compression(app)({"type": "lifespan"}, 1, 2))
    assert seen == [("lifespan", 1, 2)]
