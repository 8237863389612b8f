"""The bounds of a token's operations, over a database in memory: owners, jobs, workers and reads."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tilewise.api.jobs import work_bounds
from tilewise.api.jobs.liveness import LEASE_SECONDS, Liveness
from tilewise.api.jobs.work_bounds import WorkBounds
from tilewise.db.jobs import Jobs, Request, State
from tilewise.db.queue import Lease
from tilewise.db.records import Clock, Problem, Scope
from tilewise.db.sql.sql_store import open_store
from tilewise.db.workers import Workers
from tilewise.errors import Busy, NotFound, UsageError

OWN, OTHERS = "h/1/work-7/me", "h/1/work-8/me"


@pytest.fixture
def database():
    with open_store("sqlite://") as store:
        yield store.database


@pytest.fixture
def jobs(database):
    return Jobs(database)


@pytest.fixture
def workers(database):
    return Workers(database)


@pytest.fixture
def bounds(jobs, workers):
    return WorkBounds(7, jobs, workers, Liveness())


@pytest.fixture
def alone():
    """Bounds that need no database for what is asked of them."""
    return WorkBounds(7, None, None, Liveness())


@pytest.fixture
def claimed(jobs):
    """A function that submits a job and claims it for an owner; it returns the job as it is then."""

    def make(owner, seed=0):
        request = Request("vector_add", "a1", [{"N": 100}], "float32", "cuda", seed=seed)
        job = jobs.submit(request)[0]
        assert jobs.claim(job, owner)
        return jobs.get(job.id)

    return make


@pytest.fixture
def later(monkeypatch):
    """A function that lets so many seconds pass for those who watch signs of life."""
    now = [1000.0]
    monkeypatch.setattr("tilewise.api.jobs.liveness.time.monotonic", lambda: now[0])

    def wait(seconds):
        now[0] += seconds

    return wait


@pytest.mark.parametrize(
    ("owner", "stored"),
    [
        ("me", "work-7/me"),
        ("h/1/me", "h/1/work-7/me"),
        ("a-b_C9", "work-7/a-b_C9"),
        ("x" * 100, "work-7/" + "x" * 100),
        ("y" * 300 + "/me", "y" * 300 + "/work-7/me"),
    ],
)
def test_an_owner_is_stored_with_its_token_before_its_last_part(alone, owner, stored):
    assert alone.stored_owner(owner) == stored
    assert alone.shown(Lease(1, stored, 1)) == Lease(1, owner, 1)
    assert alone.shown([Lease(1, stored, 1)]) == [Lease(1, owner, 1)]


@pytest.mark.parametrize("owner", ["", "h/", "x" * 101, "y" * 301 + "/me", "h\n/me", "h/a.b", "h/é"])
def test_an_owner_of_another_form_is_refused(alone, owner):
    with pytest.raises(UsageError) as refused:
        alone.stored_owner(owner)
    told = f"the owner is {owner[:60]!r}; expected HOST/PROCESS/NAME, with letters and digits as name"
    assert str(refused.value) == told


def test_owners_of_others_are_shown_as_they_are_stored(alone):
    for owner in (OTHERS, "h/1/work-77/me", "h/1/me", "work-7", "xwork-7/me"):
        assert alone.shown(Lease(1, owner, 1)).owner == owner
    assert alone.shown(5) == 5


def test_an_operation_on_a_lease_is_for_the_stored_owner(alone):
    given = {"lease": Lease(3, "h/1/me", 2), "progress": {}}
    assert alone.bound("jobs.beat", given) == {"lease": Lease(3, OWN, 2), "progress": {}}
    assert given["lease"].owner == "h/1/me"
    assert alone.bound("kernels.all", {"names": ["a"]}) == {"names": ["a"]}


def test_a_job_is_claimed_for_the_stored_owner_and_expires_by_the_servers_clock(alone):
    assert alone.bound("jobs.claim", {"job": None, "owner": "h/1/me"})["owner"] == OWN
    before = datetime.now(UTC)
    now = alone.bound("jobs.expire", {"now": before + timedelta(days=99)})["now"]
    assert before <= now <= datetime.now(UTC)


@pytest.mark.parametrize("state", State)
def test_a_job_ends_in_a_final_state(alone, state):
    given = {"state": state, "reason": ""}
    if state.is_final:
        assert alone.bound("jobs.finish", given) == given
        return
    with pytest.raises(UsageError, match=f"the state is '{state.value}'; a job ends as done, failed or cancelled"):
        alone.bound("jobs.finish", given)


@pytest.mark.parametrize("method", ["jobs.take_back", "jobs.give_back"])
def test_a_token_returns_its_own_jobs_as_they_are_stored(bounds, claimed, method):
    own, foreign = claimed(OWN), claimed(OTHERS, seed=1)
    assert bounds.bound(method, {"job": bounds.shown(own)}) == {"job": own}
    assert bounds.bound(method, {"job": foreign}) is None


@pytest.mark.parametrize("change", ["attempts", "beats", "stored"])
def test_a_job_that_has_changed_since_it_was_read_is_not_returned(bounds, claimed, change):
    own = claimed(OWN)
    read = replace(own, **{change: getattr(own, change) + 1})
    assert bounds.bound("jobs.give_back", {"job": read}) is None


def test_a_lost_job_of_another_is_taken_back_but_not_given_back(bounds, claimed, later):
    foreign = claimed(OTHERS)
    bounds.shown(foreign)  # the minute begins
    later(LEASE_SECONDS)
    assert bounds.bound("jobs.take_back", {"job": foreign}) is None
    later(1.0)
    assert bounds.bound("jobs.give_back", {"job": foreign}) is None
    assert bounds.bound("jobs.take_back", {"job": foreign}) == {"job": foreign}


def test_a_write_is_for_the_kernel_of_its_job(bounds, claimed, monkeypatch):
    lease = claimed(OWN).lease
    scope = Scope(Problem("vector_add", {"N": 100}, "float32"), "a1", "NVIDIA H200", Clock.MEASURED, "cuda 13", 132)
    bounds.check_scope(lease, scope)
    other = replace(scope, problem=replace(scope.problem, kernel="softmax"))
    with pytest.raises(UsageError) as refused:
        bounds.check_scope(lease, other)
    assert str(refused.value) == "job 1 is for vector_add; its worker stores nothing for another kernel"
    monkeypatch.setattr(bounds._jobs, "get", lambda number: (_ for _ in ()).throw(NotFound("no such job")))
    bounds.check_scope(lease, other)  # the lease is lost, which its write will tell


def register(workers, owner):
    return workers.register(owner, "h", "1", [], [])


@pytest.mark.parametrize("method", ["workers.beat", "workers.leave"])
def test_a_token_speaks_for_its_own_workers(bounds, workers, method):
    own, foreign = register(workers, OWN), register(workers, OTHERS)
    assert bounds.bound(method, {"worker_id": own}) == {"worker_id": own}
    assert bounds.bound(method, {"worker_id": foreign}) is None
    assert bounds.bound(method, {"worker_id": 99}) is None


def test_a_worker_is_forgotten_by_its_token_or_once_it_is_lost(bounds, workers, later):
    register(workers, OWN), register(workers, OTHERS)
    own, foreign = workers.all()
    assert bounds.bound("workers.forget", {"worker": own}) == {"worker": own}
    assert bounds.bound("workers.forget", {"worker": foreign}) is None
    later(LEASE_SECONDS + 1)
    assert bounds.bound("workers.forget", {"worker": foreign}) == {"worker": foreign}
    assert bounds.bound("workers.forget", {"worker": replace(foreign, beats=1)}) is None
    assert bounds.bound("workers.forget", {"worker": replace(own, id=99)}) is None


def test_a_token_has_so_many_workers_of_so_many_bytes(bounds, workers, monkeypatch):
    given = {"owner": "h/1/me", "kernels": ["softmax"]}
    assert bounds.bound("workers.register", given) == given | {"owner": OWN}
    monkeypatch.setattr(work_bounds, "_MOST_WORKERS", 2)
    for owner in ("work-7/a", "work-8/b", "work-8/c"):
        register(workers, owner)
    assert bounds.bound("workers.register", given) == given | {"owner": OWN}
    register(workers, "work-7/d")
    with pytest.raises(Busy) as busy:
        bounds.bound("workers.register", given)
    assert (str(busy.value), busy.value.retry_seconds) == (
        "this token has 2 workers; wait until those that ended are removed",
        10.0,
    )


@pytest.mark.parametrize(("more", "is_taken"), [(0, True), (1, False)])
def test_a_registration_takes_64_kib(bounds, more, is_taken):
    text = '{"owner":"me","kernels":[""]}'
    given = {"owner": "me", "kernels": ["k" * (65_536 - len(text) + more)]}
    if is_taken:
        assert bounds.bound("workers.register", given)["owner"] == "work-7/me"
        return
    with pytest.raises(UsageError, match="the worker's lanes and kernels take more than 65536 bytes"):
        bounds.bound("workers.register", given)


@pytest.mark.parametrize(("asked", "given"), [(1, 1), (0, 1), (-5, 1), (1000, 1000), (1001, 1000)])
def test_results_come_in_pages_of_at_most_a_thousand(alone, asked, given):
    assert alone.bound("store.results", {"most": asked}) == {"most": given}
    assert alone.bound("store.results", {}) == {}


def test_scopes_are_asked_for_by_kernel(alone):
    assert alone.bound("store.scopes", {"kernel": "softmax"}) == {"kernel": "softmax"}
    for given in ({}, {"kernel": None}):
        with pytest.raises(UsageError, match="a worker asks for the scopes of one kernel; name it"):
            alone.bound("store.scopes", given)
