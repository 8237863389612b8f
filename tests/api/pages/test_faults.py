"""A fault is a page for a browser, and a problem document for others."""

from __future__ import annotations

import json

import pytest
from starlette.requests import Request
from starlette.responses import Response

from tilewise.api.http.problems import MEDIA_TYPE
from tilewise.api.pages.faults import _as_page


def request(path="/nowhere", accept="text/html,*/*"):
    headers = [(b"accept", accept.encode())]
    return Request({"type": "http", "path": path, "headers": headers, "state": {"request_id": "r-7"}})


def problem(status, media_type=MEDIA_TYPE):
    body = json.dumps({"title": "Gone", "detail": "it is <gone>"})
    return Response(body, status, {"retry-after": "7", "allow": "GET"}, media_type)


@pytest.mark.parametrize(
    ("status", "title"),
    [
        (400, "Not understood"),
        (404, "Not found"),
        (405, "Not possible here"),
        (429, "Too many requests"),
        (410, "Gone"),
        (499, "Gone"),
        (500, "The server failed"),
        (503, "The server failed"),
    ],
)
def test_a_browser_is_shown_the_title_of_a_fault_its_text_and_its_headers(status, title):
    shown = _as_page(request(), problem(status))
    text = bytes(shown.body).decode()
    assert (shown.status_code, shown.media_type) == (status, "text/html")
    assert f"<h1>{title}</h1>" in text and "It is &lt;gone&gt;." in text and "r-7" in text
    assert (shown.headers["retry-after"], shown.headers["allow"]) == ("7", "GET")
    assert int(shown.headers["content-length"]) == len(shown.body)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (request(accept="application/json"), problem(404)),
        (request(path="/v1/nowhere"), problem(404)),
        (request(), problem(404, "text/plain")),
    ],
)
def test_other_clients_other_paths_and_other_answers_stay_as_they_are(asked, answer):
    assert _as_page(asked, answer) is answer
