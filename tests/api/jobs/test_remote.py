"""A worker without a database: it asks a server for jobs, kernels and trials, and stores trials there."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx2
import pytest
from empty_database import place_empty_database
from service_fixtures import TILEWISE
from sqlalchemy import func, select

from tilewise.api.jobs import remote
from tilewise.api.jobs.operations import OPERATIONS
from tilewise.api.jobs.remote import Link, Server
from tilewise.db.jobs import Jobs, Request, State
from tilewise.db.sql import models
from tilewise.db.sql.sql_store import open_store
from tilewise.db.tokens import Right, Tokens
from tilewise.errors import Forbidden, StoreError, Unauthorized, Unavailable

JOB = Request("vector_add", "a1", [{"N": 123_457}], "float32", "model:Ascend910B4", trials=12, search="random")


def until(condition, seconds=120):
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it took too long"
        time.sleep(0.05)


@pytest.fixture
def link(client, token_of):
    """A function that links to the application in this process, with a token of some right, through a transport."""

    def make(right="work", send=None, **options):
        made = Link(Server("http://test", None), **options)
        header = token_of(right) if right else {}
        made._client._http = client if send is None else send(client)
        made._client._http.headers = httpx2.Headers(header)
        return made

    return make


@pytest.fixture
def site():
    """A server of another kind on the loopback, that answers each request with this body."""
    body = {"info": {"title": "tilewise", "version": "0.0.9"}, "paths": {"/v1/jobs": {}}}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", body
    server.shutdown()
    server.server_close()


def test_a_server_that_is_older_or_none_or_away_is_told_in_a_line(site):
    url, body = site
    with pytest.raises(Unavailable, match=r"is older than this worker \(tilewise 0.0.9, here .*; upgrade the server"):
        Link(Server(url, "t")).check()
    body["info"]["title"] = "another"
    with pytest.raises(Unavailable, match="is no tilewise server"):
        Link(Server(url, "t")).check()
    with pytest.raises(Unavailable, match="cannot reach"):
        Link(Server("http://127.0.0.1:1", "t")).check()


def test_only_a_token_with_the_right_to_work_is_let_in(link):
    link().check()
    with pytest.raises(Forbidden, match="has the right admin; the request needs work"):
        link("admin").check()
    with pytest.raises(Unauthorized, match="a token is needed"):
        link(None).check()


def test_a_write_whose_answer_is_lost_is_sent_again_and_counts_once(link, client, records, monkeypatch):
    class Lossy:
        """Carries each request out, and loses the answer of every other one."""

        def __init__(self, inner):
            self.inner, self.headers, self.lost = inner, {}, 0

        def request(self, *given, **named):
            named.pop("timeout", None)
            answer = self.inner.request(*given, **{**named, "headers": {**named["headers"], **self.headers}})
            if "store.record" in given[1] and not self.lost:
                self.lost += 1
                raise httpx2.ReadError("gone")
            return answer

        def close(self):
            pass

    monkeypatch.setattr(remote, "_FIRST_PAUSE_SECONDS", 0.01)
    database = client.app.state.service.writer.database
    jobs = Jobs(database)
    lease = jobs.claim(jobs.submit(JOB)[0], "me")
    lossy = link(send=Lossy, patience=60)
    scope = tuned_scope()
    remote.store_of(lossy, lease).record(scope, [records[0]])
    assert lossy._client._http.lost == 1
    with open_store(client.app.state.service._url) as store:
        rows = store.database.fetch(select(func.count()).select_from(models.trials))
        assert (rows[0][0], jobs.get(lease.job).stored) == (1, 1)
        remote.store_of(lossy, lease).record(scope, [records[1]])
        assert len(store.trials(scope)) == 2


def tuned_scope():
    from service_fixtures import SCOPE

    return SCOPE


def test_a_store_without_a_lease_writes_nothing_and_one_asks_only_for_what_a_tuning_needs(link, records):
    store = remote.store_of(link())
    with pytest.raises(StoreError, match="stores trials of its jobs only"):
        store.record(tuned_scope(), [records[0]])
    with pytest.raises(StoreError, match="only for what a tuning needs"):
        store.merge([])


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_arguments_of_another_version_are_refused_in_a_line(client, token_of, operation, problem_of):
    answer = client.post(f"/v1/work/{operation}", json={"arguments": {"unknown": 1}}, headers=token_of("work"))
    assert problem_of(answer, 400)["detail"].startswith(f"arguments of {operation}: ")


@pytest.mark.full
def test_a_server_that_is_killed_during_a_job_costs_no_trial_and_doubles_none(store_url, servers, address, tmp_path):
    place_empty_database(store_url)
    with open_store(store_url) as store:
        jobs, token = Jobs(store.database), Tokens(store.database).create("worker", Right.WORK)
        job = jobs.submit(JOB)[0]

        def stored():
            return store.database.fetch(select(func.count()).select_from(models.trials))[0][0]

        with servers(store_url) as serve:
            first = serve("--no-jobs", "--log-level", "error")
            url = address(first)
            words = [TILEWISE, "worker", "--devices", "model:Ascend910B4", "--server", url, "--token", token]
            with (tmp_path / "log").open("w") as log:
                worker = subprocess.Popen(words, stderr=log)
            try:
                until(lambda: stored() >= 3)
                first.kill()
                first.wait()
                before = stored()
                assert jobs.get(job.id).state is State.RUNNING
                time.sleep(2)
                assert stored() == before
                address(serve("--no-jobs", "--log-level", "error", "--port", url.rpartition(":")[2]))
                until(lambda: jobs.get(job.id).state.is_final)
                ended = jobs.get(job.id)
                assert (ended.state, ended.attempts) == (State.DONE, 1), (ended.reason, (tmp_path / "log").read_text())
                [scope] = store.scopes()
                drawn = [trial.ordinal for trial in store.trials(scope) if trial.ordinal is not None]
                assert sorted(drawn) == list(range(1, 13))
                worker.terminate()
                assert worker.wait(60) == 0
            finally:
                worker.kill()
                worker.wait()
