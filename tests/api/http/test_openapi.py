"""The OpenAPI document against the application's answers."""

from __future__ import annotations

import collections
import gzip
import json
import os

import hypothesis
import pytest
import schemathesis
from places import ROOT
from schemathesis import GenerationMode

from tilewise.api.app import create_app
from tilewise.api.http import body_limit
from tilewise.api.http.body_limit import LARGEST_BODY
from tilewise.api.http.parameters import Parameters
from tilewise.api.service.service import Options
from tilewise.benchmarks.service.conform import left_out
from tilewise.db.records import digest
from tilewise.db.sql.sql_store import open_store
from tilewise.db.tokens import Right, Tokens

METHODS = {"get", "post", "put", "delete", "patch"}
TUNED = "/v1/configs/row_reduce?M=1000&N=8192&device=Ascend910B4"
PROBLEM = {"application/problem+json"}
JSON = {"application/json"}
MEDIA = collections.defaultdict(lambda: PROBLEM, {"200": JSON, "201": JSON, "304": set()})
QUERY = {"kernel": "row_reduce", "dims": {"M": 1000, "N": 8192}, "device": "Ascend910B4"}

JOB = {"kernel": "row_reduce", "shapes": [{"M": 1000, "N": 8192}], "device": "model:Ascend910B4", "trials": 2}
RECORD = "/v1/jobs/{number}/record"
HELION = "/v1/helion/{key}"
KEPT = {"record": {"config": "{}"}, "device": "NVIDIA H200", "kernel": "add", "search_us": 12.5}
EXPLAIN = "/v1/explain/{kernel}"
REGISTRATION = {"owner": "h/1/me", "host": "h", "version": "1", "lanes": [], "kernels": []}
WORK = "/v1/work/{operation}"
ELSEWHERE = {
    ("/v1/jobs/{number}/events", "GET", 200),
    (EXPLAIN, "GET", 200),
    (HELION, "PUT", 400),
    (WORK, "POST", 409),
}
"""No JSON of a request here is a broken body, which is sent at random below. A stream ends only with its job, and
`test_jobs` reads one; an explanation takes a compiler, see `test_report`; `test_jobs` of the database loses leases."""
EMPTY = {"format": "tilewise", "version": 1, "created": "2026-11-20T00:00:00+00:00", "entries": []}
EMPTY["sha256"] = digest([])

REQUESTS = [
    ("/v1/configs/{kernel}", "GET", 200, TUNED, None),
    ("/v1/configs/{kernel}", "GET", 400, "/v1/configs/row_reduce", None),
    ("/v1/configs/{kernel}", "GET", 404, TUNED.replace("8192", "8191"), None),
    ("/v1/configs/{kernel}", "GET", 503, TUNED, None),
    (EXPLAIN, "GET", 400, "/v1/explain/row_reduce", None),
    (EXPLAIN, "GET", 404, TUNED.replace("configs", "explain"), None),
    (EXPLAIN, "GET", 503, TUNED.replace("configs", "explain"), None),
    ("/v1/lookup", "POST", 200, "/v1/lookup", {"queries": [QUERY, QUERY | {"device": "elsewhere"}]}),
    ("/v1/lookup", "POST", 413, "/v1/lookup", {"queries": [], "padding": " " * (1 << 20)}),
    ("/v1/lookup", "POST", 422, "/v1/lookup", {"queries": {}}),
    ("/v1/lookup", "POST", 200, "/v1/lookup", {"queries": [{}]}),
    ("/v1/lookup", "POST", 503, "/v1/lookup", {"queries": [QUERY]}),
    ("/v1/import", "POST", 200, "/v1/import", EMPTY),
    ("/v1/import", "POST", 400, "/v1/import", {}),
    ("/v1/import", "POST", 413, "/v1/import", {"padding": " " * LARGEST_BODY}),
    ("/v1/import", "POST", 503, "/v1/import", EMPTY),
    ("/v1/jobs", "POST", 200, "/v1/jobs", JOB),
    ("/v1/jobs", "POST", 201, "/v1/jobs", JOB | {"seed": 1}),
    ("/v1/jobs", "POST", 400, "/v1/jobs", JOB | {"device": "npu:7"}),
    ("/v1/jobs", "POST", 404, "/v1/jobs", JOB | {"kernel": "row_redcue"}),
    ("/v1/jobs", "POST", 413, "/v1/jobs", JOB | {"padding": " " * LARGEST_BODY}),
    ("/v1/jobs", "POST", 422, "/v1/jobs", {}),
    ("/v1/jobs", "POST", 503, "/v1/jobs", JOB),
    ("/v1/jobs", "GET", 200, "/v1/jobs?limit=1", None),
    ("/v1/jobs", "GET", 400, "/v1/jobs?limit=0", None),
    ("/v1/jobs", "GET", 503, "/v1/jobs", None),
    ("/v1/jobs/{number}", "GET", 200, "/v1/jobs/1", None),
    ("/v1/jobs/{number}", "GET", 404, "/v1/jobs/99", None),
    ("/v1/jobs/{number}", "GET", 503, "/v1/jobs/1", None),
    ("/v1/jobs/{number}", "DELETE", 200, "/v1/jobs/1", None),
    ("/v1/jobs/{number}", "DELETE", 404, "/v1/jobs/99", None),
    ("/v1/jobs/{number}", "DELETE", 503, "/v1/jobs/1", None),
    ("/v1/jobs/{number}/retry", "POST", 200, "/v1/jobs/1/retry", None),
    ("/v1/jobs/{number}/retry", "POST", 404, "/v1/jobs/99/retry", None),
    ("/v1/jobs/{number}/retry", "POST", 503, "/v1/jobs/1/retry", None),
    (RECORD, "DELETE", 200, "/v1/jobs/1/record", None),
    (RECORD, "DELETE", 400, "/v1/jobs/1/record", None),
    (RECORD, "DELETE", 404, "/v1/jobs/99/record", None),
    (RECORD, "DELETE", 503, "/v1/jobs/1/record", None),
    (WORK, "POST", 200, "/v1/work/jobs.waiting", {"arguments": {"kernels": ["row_reduce"]}}),
    (WORK, "POST", 400, "/v1/work/jobs.waiting", {"arguments": {}}),
    (WORK, "POST", 404, "/v1/work/jobs.drop", {"arguments": {}}),
    (WORK, "POST", 413, "/v1/work/jobs.waiting", {"padding": " " * LARGEST_BODY}),
    (WORK, "POST", 422, "/v1/work/jobs.waiting", {"arguments": 1}),
    (WORK, "POST", 503, "/v1/work/workers.register", {"arguments": REGISTRATION}),
    ("/v1/workers", "GET", 200, "/v1/workers", None),
    ("/v1/workers", "GET", 503, "/v1/workers", None),
    ("/v1/helion", "GET", 200, "/v1/helion?limit=1", None),
    ("/v1/helion", "GET", 400, "/v1/helion?limit=0", None),
    ("/v1/helion", "GET", 503, "/v1/helion", None),
    (HELION, "GET", 200, "/v1/helion/" + "0" * 64, None),
    (HELION, "GET", 404, "/v1/helion/" + "1" * 64, None),
    (HELION, "GET", 404, "/v1/helion/%00", None),
    (HELION, "GET", 503, "/v1/helion/" + "0" * 64, None),
    (HELION, "PUT", 200, "/v1/helion/" + "0" * 64, KEPT),
    (HELION, "PUT", 413, "/v1/helion/" + "0" * 64, {"padding": " " * LARGEST_BODY}),
    (HELION, "PUT", 422, "/v1/helion/0", KEPT),
    (HELION, "PUT", 503, "/v1/helion/" + "0" * 64, KEPT),
    ("/v1/jobs/{number}/events", "GET", 404, "/v1/jobs/99/events", None),
    ("/v1/jobs/{number}/events", "GET", 503, "/v1/jobs/1/events", None),
    ("/v1/kernels", "GET", 200, "/v1/kernels", None),
    ("/v1/devices", "GET", 200, "/v1/devices", None),
    ("/v1/trials", "GET", 200, "/v1/trials?kernel=row_reduce&status=correct&limit=1", None),
    ("/v1/trials", "GET", 400, "/v1/trials?after=x", None),
    ("/v1/trials", "GET", 503, "/v1/trials", None),
    ("/v1/history/{kernel}", "GET", 200, TUNED.replace("configs", "history"), None),
    ("/v1/history/{kernel}", "GET", 400, "/v1/history/row_reduce", None),
    ("/v1/history/{kernel}", "GET", 404, TUNED.replace("configs", "history").replace("8192", "8191"), None),
    ("/v1/history/{kernel}", "GET", 503, TUNED.replace("configs", "history"), None),
    ("/v1/export", "GET", 200, "/v1/export", None),
    ("/v1/problems", "GET", 200, "/v1/problems?limit=1", None),
    ("/v1/problems", "GET", 400, "/v1/problems?after=1", None),
    ("/v1/problems", "GET", 503, "/v1/problems", None),
    ("/v1/export", "GET", 400, "/v1/export?kernal=row_reduce", None),
    ("/v1/export", "GET", 503, "/v1/export", None),
    ("/metrics", "GET", 200, "/metrics", None),
    ("/healthz", "GET", 200, "/healthz", None),
    ("/readyz", "GET", 200, "/readyz", None),
    ("/readyz", "GET", 503, "/readyz", None),
]
"""One request for every documented answer: path, method, status, what to send."""


@pytest.fixture(scope="module")
def database(tmp_path_factory, tune_into):
    url = f"sqlite:///{tmp_path_factory.mktemp('openapi')}/tilewise.db"
    tune_into(url)
    return url


@pytest.fixture(scope="module")
def schema(database):
    """The schema of a separate application, which schemathesis keeps running until the process ends."""
    return schemathesis.openapi.from_asgi(
        "/openapi.json", create_app(database, Options(writes_a_minute=100_000, run_jobs=False))
    )


@pytest.fixture(scope="module")
def headers(database):
    """The header of a token for a path: an operation of workers needs a right of its own."""
    with open_store(database) as store:
        tokens = {right: Tokens(store.database).create("tests", right) for right in (Right.ADMIN, Right.WORK)}
    return lambda path: {"Authorization": f"Bearer {tokens[Right.WORK if path == WORK else Right.ADMIN]}"}


def test_every_documented_answer_has_a_request_here(client):
    document = client.get("/openapi.json").json()
    documented = {
        (path, method.upper(), int(status))
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if method in METHODS
        for status in operation["responses"]
        if status not in ("304", "401", "403", "429")  # other tests cover these
    }
    assert documented - ELSEWHERE == {(path, method, status) for path, method, status, _, _ in REQUESTS}


@pytest.mark.parametrize(("path", "method", "status", "url", "body"), REQUESTS)
def test_every_documented_answer_is_as_documented(
    client, tune, schema, path, method, status, url, body, break_database, admin, token_of, monkeypatch
):
    monkeypatch.setattr(body_limit, "LARGEST_IMPORT", LARGEST_BODY)
    tune()
    sent = token_of("work") if path == WORK else admin
    if "jobs" in path:
        client.post("/v1/jobs", json=JOB, headers=admin)
    if path == HELION:
        client.put("/v1/helion/" + "0" * 64, json=KEPT, headers=admin)
    if (path, status) == (RECORD, 200):
        client.delete("/v1/jobs/1", headers=admin)
    if status == 503 and method != "GET" and path not in ("/v1/lookup", "/v1/import"):
        client.app.state.service.writer.close()  # only writing fails: the token must still be found
    elif status == 503:
        break_database()
    response = client.request(method, url, json=body, headers=sent)
    assert response.status_code == status
    schema[path][method].validate_response(response)


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize(
    ("path", "method"), sorted({(path, method) for path, method, *_ in REQUESTS if "events" not in path})
)
def test_whatever_is_sent_is_answered_as_documented(schema, headers, path, method, mode):
    operation = schema[path][method]
    if mode is GenerationMode.NEGATIVE and not (operation.query or operation.path_parameters or operation.body):
        return  # an operation without inputs has no invalid ones

    @hypothesis.settings(max_examples=5, derandomize=True, database=None, deadline=None)
    @hypothesis.given(case=schema[path][method].as_strategy(generation_mode=mode))
    def check(case):
        answer = case.call_and_validate(headers=headers(path), excluded_checks=left_out(path, mode))
        if (path, mode) == ("/v1/lookup", GenerationMode.NEGATIVE):  # a query that is wrong fails alone, in an answer
            assert answer.status_code != 200 or any("errors" in entry for entry in answer.json()["results"])

    check()


def test_the_document_names_no_media_type_but_the_two(client):
    document = client.get("/openapi.json").json()
    del document["paths"]["/metrics"], document["paths"]["/v1/jobs/{number}/events"]
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                assert set(response.get("content", {})) == MEDIA[status]


def test_the_document_needs_no_database(tmp_path):
    assert create_app(f"sqlite:///{tmp_path}/none.db").openapi()["info"]["title"] == "tilewise"
    assert list(tmp_path.iterdir()) == []


def test_a_number_that_is_not_given_is_the_documented_one_and_the_bounds_are_the_same(client, monkeypatch):
    taken, take = {}, Parameters.take_number

    def noted(given, name, default, *, least, most):
        taken[name] = {"default": default, "minimum": least, "maximum": most}
        return take(given, name, default, least=least, most=most)

    monkeypatch.setattr(Parameters, "take_number", noted)
    paged = set()
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        parameters = {one["name"]: one["schema"] for one in operations.get("get", {}).get("parameters", [])}
        if "limit" in parameters:
            taken.clear()
            assert client.get(path).status_code == 200
            for name, numbers in taken.items():
                documented = {"default": 2**63 - 1, **parameters[name]}  # of a place in a listing: from the newest on
                assert numbers == {key: documented[key] for key in numbers}, (path, name)
            paged.add((path, taken["limit"]["default"], taken["limit"]["maximum"]))
    fifty = {(path, 50, 200) for path in ("/v1/jobs", "/v1/helion", "/v1/problems")}
    assert paged == fifty | {("/v1/trials", 100, 1000)}


def test_dims_are_a_parameter_each(client):
    [dims] = [
        parameter
        for parameter in client.get("/openapi.json").json()["paths"]["/v1/configs/{kernel}"]["get"]["parameters"]
        if parameter["name"] == "dims"
    ]
    assert (dims["in"], dims["style"], dims["explode"]) == ("query", "form", True)


def documented_parameters(client):
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        for method, operation in operations.items():
            for parameter in operation.get("parameters", []):
                yield path, method, parameter


def test_only_what_a_request_needs_is_documented_as_required(client):
    required = collections.defaultdict(set)
    for path, _, parameter in documented_parameters(client):
        if parameter["required"]:
            required[path].add(parameter["name"])
    assert required == {
        "/v1/configs/{kernel}": {"kernel", "device", "dims"},
        "/v1/explain/{kernel}": {"kernel", "device", "dims"},
        "/v1/history/{kernel}": {"kernel", "device", "dims"},
        HELION: {"key"},
        "/v1/jobs/{number}": {"number"},
        "/v1/jobs/{number}/events": {"number"},
        "/v1/jobs/{number}/record": {"number"},
        "/v1/jobs/{number}/retry": {"number"},
        WORK: {"operation"},
    }


def test_numbers_are_taken_up_to_their_documented_bounds_and_not_beyond(client, tune):
    tune()
    checked = set()
    for path, method, parameter in documented_parameters(client):
        name, bounds = parameter["name"], parameter["schema"]
        if method != "get" or bounds.get("type") != "integer" or parameter["in"] != "query":
            continue
        for bound, beyond in (("minimum", -1), ("maximum", 1)):
            statuses = [client.get(f"{path}?{name}={bounds[bound] + off}").status_code for off in (0, beyond)]
            assert statuses == [200, 400], (path, name, bound)
            checked.add((path, name, bound))
    assert {("/v1/jobs", "before", "minimum"), ("/v1/jobs", "limit", "maximum")} <= checked


@pytest.mark.parametrize(
    ("number", "detail"),
    [
        (0, "unknown job '0'; expected a number"),
        (2**63 - 1, f"job {2**63 - 1} does not exist"),
        (2**63, f"unknown job '{2**63}'; expected a number"),
        (10**25, "; expected a number"),
        ("x", "unknown job 'x'; expected a number"),
    ],
)
def test_a_job_number_is_looked_for_if_a_job_can_have_it(client, number, detail):
    answer = client.get(f"/v1/jobs/{number}")
    assert answer.status_code == 404
    assert answer.json()["detail"].endswith(detail)


def test_metrics_are_documented_as_text(client):
    answer = client.get("/openapi.json").json()["paths"]["/metrics"]["get"]["responses"]["200"]
    assert answer["content"] == {"text/plain": {"schema": {"type": "string"}}}


def test_times_are_documented_as_positive(client):
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    times = [
        (name, field, option.get("exclusiveMinimum"))
        for name, schema in schemas.items()
        for field, described in schema.get("properties", {}).items()
        if field.endswith("_us")
        for option in described.get("anyOf", [described])
        if option.get("type") == "number"
    ]
    assert len(times) > 5
    assert {least for _, _, least in times} == {0}, times


def test_texts_are_documented_as_not_empty(client):
    schemas = [parameter["schema"] for _, _, parameter in documented_parameters(client)]
    lengths = [schema["minLength"] for schema in schemas if "minLength" in schema]
    assert len(lengths) > 5 and set(lengths) == {1}


def test_the_document_says_what_linters_ask_for(client):
    """Kept by hand what spectral and redocly check: they need Node, which the tests do not install."""
    document = client.get("/openapi.json").json()
    assert document["servers"] and document["info"]["description"] and document["info"]["contact"]["url"]
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert {tag for one in operations for tag in one["tags"]} == {tag["name"] for tag in document["tags"]}
    assert all("security" in one for one in operations)
    for one in operations:
        for answer in one["responses"].values():
            for media in answer.get("content", {}).values():
                assert all(name in ("schema", "example", "examples") or name.startswith("x-") for name in media)


DOCUMENT = ROOT / "tests/golden/openapi.json.gz"
"""`WRITE_OPENAPI=1 pytest` on this file writes it anew, if a change is meant."""


def test_the_document_is_that_of_the_kept_file(client):
    """Bounds, defaults and links of parameters are what generated clients go by."""
    document = client.get("/openapi.json").json()
    del document["info"]["version"]
    if os.environ.get("WRITE_OPENAPI"):
        DOCUMENT.write_bytes(gzip.compress(json.dumps(document, sort_keys=True).encode(), mtime=0))
    kept = json.loads(gzip.decompress(DOCUMENT.read_bytes()))
    assert document.keys() == kept.keys()
    for path, operations in document["paths"].items():
        assert operations == kept["paths"].get(path), path
    assert document == kept
