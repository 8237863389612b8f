"""A worker without a database: it asks a server for jobs, kernels and trials, and stores trials there."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import httpx2
import msgspec
import pytest
from empty_database import place_empty_database
from scopes import changed
from service_fixtures import TILEWISE
from sqlalchemy import func, select

from tilewise.api.jobs import liveness, remote, work_bounds
from tilewise.api.jobs.operations import OPERATIONS
from tilewise.api.jobs.remote import Link, Server
from tilewise.db.jobs import Job, Jobs, Lease, Request, State
from tilewise.db.sql import models
from tilewise.db.sql.sql_store import open_store
from tilewise.db.store import Wanted
from tilewise.db.tokens import Right, Tokens
from tilewise.errors import Busy, Forbidden, LeaseLost, NotFound, StoreError, Unauthorized, Unavailable, UsageError

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
    lossy = link(send=Lossy, patience=60)
    lease = remote.queue_of(lossy).claim(jobs.submit(JOB)[0], "me")
    scope = changed(tuned_scope(), kernel="vector_add")
    remote.store_of(lossy, lease).record(scope, [records[0]])
    assert lossy._client._http.lost == 1
    with open_store(client.app.state.service._url) as store:
        rows = store.database.fetch(select(func.count()).select_from(models.trials))
        assert (rows[0][0], jobs.get(lease.job).stored) == (1, 1)
        remote.store_of(lossy, lease).record(scope, [records[1]])
        assert len(store.trials(scope)) == 2


@pytest.fixture
def answered(monkeypatch):
    """`answered(answers, patience)` returns a link whose server gives these answers, and the pauses between requests.

    The time passes in the pauses only.
    """
    now, pauses = [0.0], []

    def sleep(seconds):
        pauses.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(remote, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))

    def make(answers, patience=60.0):
        made, answers = Link(Server("http://test", None), patience=patience), iter(answers)

        def work(name, arguments, **leased):
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return {"result": answer}

        monkeypatch.setattr(made._client, "work", work)
        return made, pauses

    return make


@pytest.mark.parametrize(
    ("patience", "paused"),
    [
        (0.0, []),
        (0.1, []),
        (0.2, [0.2]),
        (0.5, [0.2]),
        (21.0, [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]),
        (21.5, [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]),
    ],
)
@pytest.mark.parametrize("error", [Unavailable, Busy])
def test_a_request_is_sent_again_less_and_less_often_until_the_patience_ends(answered, patience, paused, error):
    link, pauses = answered((error(f"no answer {number}") for number in range(99)), patience)
    with pytest.raises(StoreError, match=f"no answer {len(paused)}$"):
        link.call(OPERATIONS["jobs.running"], {})
    assert pauses == pytest.approx(paused)


def test_the_log_tells_once_that_a_server_does_not_answer_and_once_that_it_does_again(answered, caplog):
    gone = [Unavailable("it is gone"), Busy("it is busy")]
    link, pauses = answered([[], *gone, [], [], *gone, []])
    for _ in range(4):
        assert link.call(OPERATIONS["jobs.running"], {}) == []
    assert caplog.messages == ["it is gone; trying again", "http://test answers again"] * 2
    assert pauses == pytest.approx([0.2, 0.4] * 2)


@pytest.mark.parametrize(
    ("error", "kind"), [(NotFound("no"), NotFound), (LeaseLost("no"), LeaseLost), (UsageError("no"), StoreError)]
)
def test_a_request_that_is_refused_is_not_sent_again(answered, error, kind):
    link, pauses = answered([error, []])
    with pytest.raises(kind, match=r"^no$"):
        link.call(OPERATIONS["jobs.running"], {})
    assert pauses == []


def test_a_link_that_was_closed_sends_nothing(answered):
    link, _ = answered([])
    link.close()
    with pytest.raises(StoreError, match="the store of http://test is closed; open it again"):
        link.call(OPERATIONS["jobs.running"], {})


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


@pytest.fixture
def two(client, token_of, link):
    """The queues and workers of two tokens with the right `work`, and the queue of the database."""

    class Own:
        """Sends with headers of its own."""

        def __init__(self, inner):
            self.inner, self.headers = inner, {}

        def request(self, *given, **named):
            named.pop("timeout", None)
            return self.inner.request(*given, **{**named, "headers": {**named["headers"], **self.headers}})

        def close(self):
            pass

    return link(send=Own), link(send=Own), Jobs(client.app.state.service.writer.database)


def claimed(mine, jobs, request=JOB):
    queue = remote.queue_of(mine)
    lease = queue.claim(queue.get(jobs.submit(request)[0].id), "host/7/me")
    assert lease == Lease(lease.job, "host/7/me", 1)
    assert queue.get(lease.job).owner == queue.running()[0].owner == "host/7/me"
    return queue, lease


def test_a_token_neither_ends_nor_writes_for_nor_returns_the_job_of_another(two, records):
    mine, other, jobs = two
    queue, lease = claimed(mine, jobs)
    theirs, seen = remote.queue_of(other), remote.queue_of(other).running()[0]
    assert seen.owner.startswith("host/7/work-")
    for owner in ("host/7/me", seen.owner):
        stolen = replace(lease, owner=owner)
        assert theirs.finish(stolen, State.FAILED, "mine now", {}) is False
        assert theirs.beat(stolen, {"shapes_done": 9}) is None
        theirs.begin(stolen, 7)
        with pytest.raises(StoreError, match="was taken from its process"):
            remote.store_of(other, stolen).record(changed(tuned_scope(), kernel="vector_add"), [records[0]])
    for read in (seen, replace(seen, fruitless=9, stored=0), replace(seen, cancelling=True)):
        assert theirs.take_back(read, "gone") is False
        assert theirs.give_back(read) is False
    after = jobs.get(lease.job)
    assert (after.state, after.attempts, after.beats, after.mark, after.progress) == (State.RUNNING, 1, 0, None, {})
    assert queue.beat(lease, {}).owner == "host/7/me"
    assert queue.finish(lease, State.DONE, "", {}) is True


def test_a_job_of_another_token_is_returned_once_this_server_has_seen_no_sign_of_it(two, monkeypatch):
    mine, other, jobs = two
    _, lease = claimed(mine, jobs)
    theirs = remote.queue_of(other)
    [seen] = theirs.running()
    assert theirs.take_back(seen, "gone") is False
    monkeypatch.setattr(liveness, "LEASE_SECONDS", -1.0)
    assert theirs.take_back(replace(seen, fruitless=9), "gone") is True
    after = jobs.get(lease.job)
    assert (after.state, after.fruitless) == (State.QUEUED, 1)  # as stored, not as the worker said


def test_a_worker_returns_its_own_job_at_once_and_ends_it_only_for_good(two):
    mine, _, jobs = two
    queue, lease = claimed(mine, jobs)
    with pytest.raises(StoreError, match="the state is 'queued'; a job ends as"):
        queue.finish(lease, State.QUEUED, "", {})
    assert queue.give_back(queue.get(lease.job)) is True
    assert jobs.get(lease.job).state is State.QUEUED


def test_a_lease_stores_trials_of_its_kernel_only(two, records):
    mine, _, jobs = two
    _, lease = claimed(mine, jobs)
    with pytest.raises(StoreError, match="is for vector_add; its worker stores nothing for another kernel"):
        remote.store_of(mine, lease).record(tuned_scope(), [records[0]])


@pytest.mark.parametrize("now", [datetime(9999, 1, 1, tzinfo=UTC), datetime(9999, 1, 1)], ids=["aware", "naive"])
def test_the_servers_clock_says_which_deadlines_are_over(two, now):
    mine, _, jobs = two
    job = jobs.submit(replace(JOB, deadline=datetime.now(UTC) + timedelta(days=1)))[0]
    remote.queue_of(mine).expire(now)
    assert jobs.get(job.id).state is State.QUEUED


def test_a_worker_of_another_token_is_neither_removed_nor_kept_alive(two, client, monkeypatch):
    mine, other, _ = two
    workers, theirs = remote.workers_of(mine), remote.workers_of(other)
    number = workers.register("host/7/me", "host", "1", [], ["vector_add"])
    [seen] = theirs.all()
    theirs.leave(number)
    theirs.forget(seen)
    assert theirs.beat(number) is False
    assert [(each.id, each.owner, each.beats) for each in workers.all()] == [(number, "host/7/me", 0)]
    assert workers.beat(number) is True
    monkeypatch.setattr(liveness, "LEASE_SECONDS", -1.0)
    theirs.forget(seen)
    assert len(workers.all()) == 1  # it gave a sign of life since
    theirs.forget(theirs.all()[0])
    assert workers.all() == []


@pytest.mark.parametrize("owner", ["host/7/..", "host/7/", "", "host/7/a\0b", "x" * 101, "a\nb/c"])
def test_an_owner_that_names_no_process_is_refused(two, owner):
    mine, *_ = two
    with pytest.raises(StoreError, match="expected HOST/PROCESS/NAME"):
        remote.workers_of(mine).register(owner, "host", "1", [], [])


def test_a_token_registers_no_flood_of_workers(two, monkeypatch):
    mine, other, _ = two
    workers = remote.workers_of(mine)
    with pytest.raises(StoreError, match="take more than 65536 bytes"):
        workers.register("a", "host", "1", [], ["k" * 66_000])
    monkeypatch.setattr(work_bounds, "_MOST_WORKERS", 2)
    for name in "ab":
        workers.register(name, "host", "1", [], [])
    with pytest.raises(StoreError, match="this token has 2 workers"):
        workers.register("c", "host", "1", [], [])
    assert remote.workers_of(other).register("c", "host", "1", [], []) > 0


@pytest.mark.parametrize("most", [10**9, -1, 0])
def test_reads_come_in_pages_of_one_kernel(two, client, tune, most):
    mine, _, _ = two
    store, asked = remote.store_of(mine), []
    own = client.app.state.service.store
    own_results = own.results
    try:
        own.results = lambda wanted, *, before=None, most: asked.append(most) or own_results(wanted, most=most)
        store.results(Wanted(), most=most)
    finally:
        del own.results
    assert asked == [1000 if most > 0 else 1]
    with pytest.raises(StoreError, match="the scopes of one kernel"):
        store.scopes()
    assert list(store.scopes("row_reduce")) == []


@pytest.mark.parametrize(
    "progress",
    [
        '{"shapes_done": {"a": [1]}}',
        '{"shapes": "x"}',
        '{"failed": 5}',
        '{"failed": [{"shape": 3}]}',
        '{"flipped": "no"}',
        '{"flipped": [1]}',
        '{"flipped": [{"dims": {"M": 1}, "cost": NaN}]}',
        '{"best_us": "fast"}',
        '{"best_us": 1e999}',
        '{"of": []}',
    ],
)
def test_progress_that_no_page_can_show_is_refused(client, token_of, problem_of, progress):
    jobs = Jobs(client.app.state.service.writer.database)
    job = jobs.submit(JOB)[0]
    work = {"headers": token_of("work") | {"content-type": "application/json"}}
    claim = {"arguments": {"job": asdict(job) | {"created": job.created.isoformat()}, "owner": "h/1/me"}}
    assert client.post("/v1/work/jobs.claim", content=json.dumps(claim), **work).status_code == 200
    lease = json.dumps({"job": job.id, "owner": "h/1/me", "number": 1})
    body = f'{{"arguments": {{"lease": {lease}, "progress": {progress}}}}}'
    answer = client.post("/v1/work/jobs.beat", content=body, **work)
    assert problem_of(answer, 400)["detail"].startswith("the progress is of another version: ")
    assert (jobs.get(job.id).beats, jobs.get(job.id).progress) == (0, {})


def test_progress_of_a_later_version_is_kept_as_far_as_it_is_known(two):
    mine, _, jobs = two
    queue, lease = claimed(mine, jobs)
    queue.beat(lease, {"shapes_done": 1, "shapes": 2, "failed": [], "mood": "good"})
    assert jobs.get(lease.job).progress == {"shapes_done": 1, "shapes": 2, "failed": []}


@pytest.mark.parametrize("number", [10**30, 2**63, -1, 0])
def test_numbers_that_no_database_holds_are_no_fault_of_the_server(client, token_of, number):
    lease = {"job": number, "owner": "h/1/me", "number": number}
    job = asdict(Job(number, "vector_add", [], "float32", "cuda", None, None, "guided", 0, 0, State.RUNNING, ""))
    job = job | {"created": job["created"].isoformat(), "owner": "h/1/me", "attempts": number, "beats": number}
    worker = {"id": number, "owner": "o", "host": "h", "version": "1", "lanes": [], "kernels": [], "beats": number}
    worker |= {"draining": False, "started": "2026-11-24T00:00:00Z"}
    scope = msgspec.to_builtins(tuned_scope(), enc_hook=dict)
    calls = {
        "jobs.get": {"number": number},
        "jobs.claim": {"job": job, "owner": "h/1/me"},
        "jobs.begin": {"lease": lease, "mark": number},
        "jobs.beat": {"lease": lease, "progress": {}},
        "jobs.finish": {"lease": lease, "state": "done", "reason": "", "progress": {"trials": 1}},
        "jobs.take_back": {"job": job, "why": ""},
        "jobs.give_back": {"job": job},
        "workers.beat": {"worker_id": number},
        "workers.leave": {"worker_id": number},
        "workers.forget": {"worker": worker},
        "store.trials": {"scope": scope, "since": number},
        "store.results": {"wanted": {}, "most": number},
    }
    work = token_of("work")
    for name, given in calls.items():
        answer = client.post(f"/v1/work/{name}", json={"arguments": given}, headers=work)
        assert answer.status_code < 500, (name, answer.text)


def test_a_body_that_is_nested_too_deeply_is_refused(client, token_of, problem_of):
    body = '{"arguments": {"number": ' + "[" * 100_000 + "]" * 100_000 + "}}"
    work = token_of("work") | {"content-type": "application/json"}
    assert client.post("/v1/work/jobs.get", content=body, headers=work).status_code in (400, 422)
