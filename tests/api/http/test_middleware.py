"""The headers of every answer, and the answers to HEAD."""

from __future__ import annotations

import logging
import re
from types import SimpleNamespace

import pytest

from tilewise.api.http import middleware

ASKED = "/v1/configs/row_reduce?M=1000&N=8192&device=Ascend910B4"
JOB = {"kernel": "vector_add", "shapes": [{"N": 100}], "device": "model:Ascend910B4"}
OF_ONE_REQUEST = ("x-request-id", "content-length", "transfer-encoding")


@pytest.mark.parametrize(
    "path", [ASKED, "/v1/configs/row_reduce?M=1", "/v1/kernels", "/v1/export", "/metrics", "/healthz", "/", "/nowhere"]
)
def test_head_is_get_without_the_body(client, tune, path):
    tune()
    if path == "/metrics":  # each method's first request makes them longer, and so perhaps compressed
        client.get(path), client.head(path)
    for _ in range(2):  # the second look-up comes from memory
        got, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (got.status_code, b"")
        assert {name: value for name, value in head.headers.items() if name not in OF_ONE_REQUEST} == {
            name: value for name, value in got.headers.items() if name not in OF_ONE_REQUEST
        }


def test_head_takes_the_entity_tag(client, tune):
    tune()
    tag = client.head(ASKED).headers["etag"]
    assert client.head(ASKED, headers={"if-none-match": tag}).status_code == 304


def test_head_of_a_stream_ends(client, token_of):
    job = client.post("/v1/jobs", json=JOB, headers=token_of("submit")).json()
    head = client.head(f"/v1/jobs/{job['id']}/events")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"].startswith("text/event-stream")
    assert len(client.app.state.service.limits.anonymous_streams) == 0


@pytest.mark.parametrize("path", [ASKED, "/v1/jobs", "/v1/nowhere", "/", "/healthz", "/static/style.css"])
def test_nobody_between_keeps_an_answer_unasked(client, path):
    """Caches may keep a 404 on their own, and would hide a later tuning for hours."""
    assert client.get(path).headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("path", [ASKED, "/v1/kernels"])
def test_the_log_gives_a_requests_time_in_milliseconds(client, tune, path, monkeypatch, caplog):
    tune()
    client.get(path)  # the second look-up comes from memory
    moments = iter((7.0, 7.0123456))
    monkeypatch.setattr(middleware, "time", SimpleNamespace(perf_counter=lambda: next(moments)))
    with caplog.at_level(logging.DEBUG, "tilewise.access"):
        client.get(path)
    [line] = [record for record in caplog.records if record.name == "tilewise.access"]
    assert line.ms == 12.346


def test_a_request_without_an_id_is_given_one_that_no_other_process_gives(client):
    first, second = (client.get("/healthz").headers["x-request-id"] for _ in range(2))
    assert re.fullmatch("[0-9a-f]{8}-1", first)
    assert second == first[:-1] + "2"


def test_every_request_is_counted_once_with_its_time(client, tune, monkeypatch):
    """Look-ups that are answered before the router, routes, unknown paths and unknown methods."""
    tune()
    ticks = iter(range(0, 1000, 2))  # each request begins at one tick and ends at the next, two seconds later
    monkeypatch.setattr(middleware, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    for method, path in [
        ("GET", ASKED),
        ("GET", ASKED),
        ("GET", "/v1/configs/row_reduce?M=1"),
        ("GET", "/v1/kernels"),
        ("GET", "/v1/nowhere"),
        ("HEAD", "/v1/kernels"),
        ("BREW", "/v1/kernels"),
    ]:
        client.request(method, path)
    lines = client.get("/metrics").text.splitlines()
    counted = dict(line.rsplit(" ", 1) for line in lines if line.startswith("tilewise_requests_total"))
    counted = {tuple(re.findall('"([^"]*)"', labels)): float(count) for labels, count in counted.items()}
    assert counted == {
        ("GET", "/v1/configs/{kernel}", "200"): 2,
        ("GET", "/v1/configs/{kernel}", "400"): 1,
        ("GET", "/v1/kernels", "200"): 2,  # one of them as the answer to HEAD
        ("GET", "none", "404"): 1,
        ("other", "none", "401"): 1,
    }
    assert 'tilewise_request_seconds_sum{route="/v1/configs/{kernel}"} 6.0' in lines
    assert 'tilewise_request_seconds_count{route="/v1/kernels"} 2.0' in lines


@pytest.mark.parametrize(
    ("method", "status", "level"),
    [
        ("GET", 200, logging.DEBUG),
        ("HEAD", 304, logging.DEBUG),
        ("GET", 399, logging.DEBUG),
        ("GET", 400, logging.INFO),
        ("POST", 200, logging.INFO),
        ("DELETE", 499, logging.INFO),
        ("GET", 500, logging.ERROR),
        ("POST", 503, logging.ERROR),
    ],
)
def test_failures_are_logged_louder_than_reads(method, status, level):
    assert middleware._level(method, status) == level


def test_the_log_holds_no_more_than_500_characters_of_a_query(client, caplog):
    with caplog.at_level(logging.DEBUG, "tilewise.access"):
        client.get("/v1/kernels?" + "a" * 600)
    [line] = [record for record in caplog.records if record.name == "tilewise.access"]
    assert line.query == "a" * 500
    assert line.client == "testclient"


@pytest.mark.parametrize(
    ("given", "kept"), [("a.B-_9", True), ("x" * 64, True), ("x" * 65, False), ("a b", False), ("é", False)]
)
def test_a_request_keeps_its_id_if_that_is_short_and_plain(client, given, kept):
    answer = client.get("/healthz", headers={"x-request-id": given.encode()})
    assert (answer.headers["x-request-id"] == given) is kept
