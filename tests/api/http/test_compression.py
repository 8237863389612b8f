"""Answers over 4 KB are compressed for clients that accept gzip, whole and streamed; all others are as they were."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from starlette.responses import Response, StreamingResponse

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


@pytest.mark.parametrize("accepted", ["gzip", "identity", None])
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


@pytest.mark.parametrize("accepted", ["gzip;q=0.5", "deflate, GZIP", "*"])
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
