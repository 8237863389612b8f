"""Rights, and the refusals of requests that lack them."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from tilewise.api.app import create_app
from tilewise.api.http.auth import required_right
from tilewise.api.service.service import Options
from tilewise.db.tokens import Right, Tokens

ASKED = "/v1/configs/row_reduce?M=1000&N=8192&device=Ascend910B4"


def test_what_is_not_named_is_closed():
    assert required_right("GET", "/anything/new") is Right.READ
    assert required_right("POST", "/anything/new") is Right.SUBMIT
    assert required_right("BREW", "/v1/configs/row_reduce") is Right.SUBMIT
    assert required_right("POST", "/v1/import") is Right.ADMIN
    assert required_right("POST", "/v1/work/jobs.claim") is required_right("GET", "/v1/work/x") is Right.WORK
    assert required_right("GET", "/v1/workers") is Right.READ
    assert required_right("GET", "/healthz") is None


@pytest.mark.parametrize("right", [None, "read", "submit", "admin"])
def test_an_import_takes_an_admins_token(client, tune, token_of, problem_of, right):
    tune()
    data = client.get("/v1/export").content
    response = client.post("/v1/import", content=data, headers=token_of(right) if right else {})
    if right == "admin":
        assert response.json() == {"added": 0, "updated": 0, "unchanged": 3, "bests_changed": 0, "refused": []}
    elif right:
        problem = problem_of(response, 403)
        assert problem["detail"] == f"this token has the right {right}; the request needs admin"
    else:
        assert problem_of(response, 401)["detail"].startswith("a token is needed; send `Authorization")
        assert response.headers["www-authenticate"] == "Bearer"


def test_a_revoked_token_is_refused_at_once(client, token_of, problem_of):
    header = token_of("admin")
    assert client.post("/v1/import", content=b"{}", headers=header).status_code == 400
    tokens = Tokens(client.app.state.service.writer.database)
    tokens.revoke(tokens.list()[-1].id)
    problem_of(client.post("/v1/import", content=b"{}", headers=header), 401)


def test_closed_reads_take_a_token_and_memory_is_no_way_around(store_url, tune, problem_of):
    tune()
    with TestClient(create_app(store_url, Options(reads_open=False))) as client:
        token = Tokens(client.app.state.service.writer.database).create("reader", Right.READ)
        for _ in range(2):
            assert client.get(ASKED, headers={"authorization": f"bearer {token}"}).status_code == 200
            problem_of(client.get(ASKED), 401)
        for path in ("/", "/v1/export", "/v1/trials", "/metrics", "/v1/nowhere"):
            assert client.get(path).status_code == 401
        assert client.get("/healthz").status_code == client.get("/openapi.json").status_code == 200


def test_a_password_opens_a_closed_page_to_its_reader_and_writes_nothing(store_url, tune, problem_of):
    tune()
    with TestClient(create_app(store_url, Options(reads_open=False, run_jobs=False))) as client:
        token = Tokens(client.app.state.service.writer.database).create("reader", Right.ADMIN)
        assert 'Basic realm="' in client.get("/").headers["www-authenticate"]
        assert client.get(ASKED).headers["www-authenticate"] == "Bearer"
        for path in ("/", "/jobs", ASKED):
            assert client.get(path, auth=("anybody", token)).status_code == 200
            for header in ("Basic", "Basic %", "Basic dG9rZW4=", f"Basic {token}"):
                assert client.get(path, headers={"authorization": header}).status_code == 401
        job = {"kernel": "vector_add", "shapes": [{"N": 1}], "device": "model:Ascend910B4"}
        problem_of(client.post("/v1/jobs", json=job, auth=("anybody", token)), 401)
        assert client.post("/v1/jobs", json=job, headers={"authorization": f"Bearer {token}"}).status_code == 201


def test_writes_are_counted_a_token(store_url, problem_of):
    with TestClient(create_app(store_url, Options(writes_a_minute=3))) as client:
        tokens = Tokens(client.app.state.service.writer.database)
        one, other = (tokens.create(name, Right.ADMIN) for name in ("one", "other"))

        def write(token):
            return client.post("/v1/import", content=b"{}", headers={"authorization": f"Bearer {token}"})

        answers = [write(one) for _ in range(5)]
        assert [answer.status_code for answer in answers] == [400, 400, 400, 429, 429]
        assert {answer.headers["ratelimit-policy"] for answer in answers} == {'"writes";q=3;w=60'}
        assert [answer.headers["ratelimit"].split(";")[1] for answer in answers] == ["r=2", "r=1", "r=0", "r=0", "r=0"]
        assert "ratelimit" not in client.get("/v1/kernels").headers
        assert 1 <= int(write(one).headers["retry-after"]) <= 20
        assert write(other).status_code == 400


def test_an_import_is_checked_before_anything_becomes_a_best(client, tune, admin, tune_into, tmp_path):
    other = f"sqlite:///{tmp_path}/other.db"
    tune_into(other, kernel="never_heard_of")
    with TestClient(create_app(other)) as theirs:
        data = theirs.get("/v1/export").content
    answer = client.post("/v1/import", content=data, headers=admin).json()
    assert answer["added"] == 0 or answer["bests_changed"] == 0
    assert any("never_heard_of" in refused["reason"] for refused in answer["refused"])


def test_responses_carry_the_headers_that_browsers_heed(client, tune):
    tune()
    for path in (ASKED, ASKED, "/v1/nowhere", "/", "/healthz"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"
    assert "script-src 'self'" in client.get("/").headers["content-security-policy"]


def test_tokens_are_kept_as_hashes_only(client, token_of, tmp_path):
    text = token_of("read")["authorization"].removeprefix("Bearer ")
    kept = b"".join(file.read_bytes() for file in tmp_path.glob("tilewise.db*"))
    assert text.split("_", 2)[2].encode() not in kept


def test_wrong_tokens_are_counted_a_host_whatever_the_port(store_url):
    app = create_app(store_url, Options(run_jobs=False))
    wrong = {"authorization": "Bearer wrong"}

    def failures(host, ports):
        return {
            TestClient(app, client=(host, port)).post("/v1/jobs", json={}, headers=wrong).status_code for port in ports
        }

    with TestClient(app):
        assert failures("10.0.0.1", range(1000, 1200)) == {401, 429}
        assert failures("10.0.0.2", [1]) == {401}
