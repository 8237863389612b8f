"""`POST /v1/lookup`: many look-ups at once."""

from __future__ import annotations

import json

import pytest

from tilewise.api.http.body_limit import LARGEST_BODY

QUERY = {"kernel": "row_reduce", "dims": {"M": 1000, "N": 8192}, "dtype": "float32", "device": "Ascend910B4"}
ELSEWHERE = QUERY | {"dims": {"M": 1001, "N": 8192}}


def look_up(client, *queries):
    body = json.dumps({"queries": queries})  # ASCII, since the client refuses to send a lone surrogate
    return client.post("/v1/lookup", content=body, headers={"content-type": "application/json"})


def test_results_come_in_the_order_of_the_queries_with_misses_among_them(client, tune):
    tune()
    unknown = QUERY | {"kernel": "never_heard_of"}
    response = look_up(client, ELSEWHERE, QUERY, unknown)
    assert response.status_code == 200
    near, hit, nothing = response.json()["results"]
    assert hit == client.get("/v1/configs/row_reduce?M=1000&N=8192&device=Ascend910B4").json()
    assert near == {
        **ELSEWHERE,
        "match": "exact",
        "config": None,
        "why": "row_reduce M=1001,N=8192 float32 is not tuned for Ascend910B4; nearest tuned shapes: M=1000,N=8192",
        "type": "urn:tilewise:problem:not-tuned",
    }
    assert (nothing["kernel"], nothing["config"]) == ("never_heard_of", None)
    assert nothing["type"] == "urn:tilewise:problem:unknown-kernel"


def test_no_queries_have_no_results(client):
    assert look_up(client).json() == {"results": []}


def test_the_dtype_is_float32_unless_given(client, tune):
    tune()
    assert look_up(client, {key: QUERY[key] for key in ("kernel", "dims", "device")}).json()["results"][0]["config"]


def test_a_thousand_queries_are_answered_and_one_more_is_refused(client, tune, problem_of):
    tune()
    assert len(look_up(client, *[QUERY] * 1000).json()["results"]) == 1000
    problem = problem_of(look_up(client, *[QUERY] * 1001), 422)
    assert problem["errors"][0]["pointer"] == "#/queries"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"dims": {"M": 1}}, "kernel row_reduce needs M, N; N is missing"),
        ({"dtype": "float64"}, "kernel row_reduce does not take 'float64'; it takes float32, float16, bfloat16"),
    ],
)
def test_a_query_its_kernel_cannot_have_spoils_no_other(client, tune, changes, why):
    tune()
    bad, good = look_up(client, QUERY | changes, QUERY).json()["results"]
    assert bad == QUERY | changes | {
        "match": "exact",
        "config": None,
        "why": why,
        "type": "urn:tilewise:problem:bad-request",
    }
    assert good["config"]


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        (QUERY | {"dims": {"M": 1000.5, "N": 1}}, "#/queries/0/dims/M"),
        (QUERY | {"dims": {"M": 1e300, "N": 1}}, "#/queries/0/dims/M"),
        (QUERY | {"dims": {"M": float("inf"), "N": 1}}, "#/queries/0/dims/M"),
        (QUERY | {"dims": {"M": "1000", "N": 1}}, "#/queries/0/dims/M"),
        (QUERY | {"dims": {"M": "", "N": 1}}, "#/queries/0/dims/M"),
        (QUERY | {"dims": {"M": 0, "N": 1}}, "#/queries/0/dims/M"),
        (QUERY | {"dims": {"M": 2**31, "N": 1}}, "#/queries/0/dims/M"),
        (QUERY | {"match": "best"}, "#/queries/0/match"),
        (QUERY | {"devise": "A"}, "#/queries/0/devise"),
        ({"kernel": "row_reduce", "dims": {"M": 1, "N": 1}}, "#/queries/0/device"),
        (QUERY | {"kernel": "\ud800"}, "#/queries/0/kernel"),
        (None, "#/queries/0"),
    ],
)
def test_a_query_of_another_form_is_refused_by_its_place_and_spoils_no_other(client, tune, query, pointer):
    tune()
    bad, good = look_up(client, query, QUERY).json()["results"]
    assert [fault["pointer"] for fault in bad["errors"]] == [pointer]
    assert pointer in bad["why"]
    assert (bad["config"], bad["type"]) == (None, "urn:tilewise:problem:bad-request")
    assert good["config"]


def test_the_place_of_a_later_query_counts_from_the_first(client):
    _, bad = look_up(client, QUERY, {**QUERY, "fl/ag": 1}).json()["results"]
    assert [fault["pointer"] for fault in bad["errors"]] == ["#/queries/1/fl~1ag"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"queries": 1}', b'{"quer": []}'])
def test_a_body_that_is_no_request_is_refused(client, problem_of, body):
    problem = problem_of(client.post("/v1/lookup", content=body, headers={"content-type": "application/json"}), 422)
    assert problem["errors"]


def test_of_what_is_no_json_the_pointer_is_the_whole(client, problem_of):
    response = client.post("/v1/lookup", content=b'{"queries": x}', headers={"content-type": "application/json"})
    assert problem_of(response, 422)["errors"] == [{"pointer": "#", "detail": "JSON decode error"}]


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"queries": [{"dims": {"M": ' + b"9" * 5000 + b"}}]}"])
def test_a_body_that_python_cannot_read_is_refused(client, problem_of, body):
    problem_of(client.post("/v1/lookup", content=body, headers={"content-type": "application/json"}), 422)


def test_a_whole_number_with_a_point_is_one(client, tune):
    tune()
    [result] = look_up(client, QUERY | {"dims": {"M": 1000.0, "N": 8192}}).json()["results"]
    assert result["dims"] == {"M": 1000, "N": 8192}
    assert result["config"]


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_over_the_limit_is_refused_whether_announced_or_streamed(client, problem_of, announced):
    body = b'{"queries": []}' + b" " * LARGEST_BODY
    content = body if announced else iter([body[:1000], body[1000:]])
    problem = problem_of(client.post("/v1/lookup", content=content, headers={"content-type": "application/json"}), 413)
    assert str(LARGEST_BODY) in problem["detail"]


def test_a_body_at_the_limit_is_read(client):
    body = b'{"queries": []}'.ljust(LARGEST_BODY)
    assert client.post("/v1/lookup", content=body, headers={"content-type": "application/json"}).json() == {
        "results": []
    }
