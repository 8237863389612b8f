"""The contract of jobs: one per request, one owner at a time, each ended once."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest
from empty_database import place_empty_database
from served import ServedJobs, ServedStore

from tilewise.db.jobs import Jobs, Lease, LeaseLost, Request, State
from tilewise.db.records import digest
from tilewise.db.sql.sql_store import open_store
from tilewise.db.tokens import Right, Tokens
from tilewise.errors import Busy, NotFound, UsageError

REQUEST = Request("row_reduce", "a1", [{"M": 1000, "N": 8192}], "float32", "model:Ascend910B4", trials=4)


@pytest.fixture
def jobs(store) -> Jobs:
    return ServedJobs(store) if isinstance(store, ServedStore) else Jobs(store.database)


def test_the_same_request_twice_is_one_job_until_it_failed(jobs):
    job, new = jobs.submit(REQUEST)
    assert (new, job.state, job.shapes, job.trials) == (True, State.QUEUED, [{"M": 1000, "N": 8192}], 4)
    assert jobs.submit(REQUEST) == (job, False)
    assert jobs.submit(Request("row_reduce", "a2", REQUEST.shapes, "float32", REQUEST.device, trials=4))[1]
    assert jobs.claim(job, "me")
    assert jobs.finish(jobs.get(job.id).lease, State.DONE, "", {})
    assert jobs.submit(REQUEST)[0].id == job.id
    other, _ = jobs.submit(Request("row_reduce", "a1", REQUEST.shapes, "float16", REQUEST.device))
    assert jobs.claim(other, "me")
    assert jobs.finish(jobs.get(other.id).lease, State.FAILED, "nothing fits", {})
    again, new = jobs.submit(Request("row_reduce", "a1", REQUEST.shapes, "float16", REQUEST.device))
    assert new and again.id != other.id


def test_the_highest_priority_goes_first_and_of_that_the_oldest(jobs):
    def submit(seed, priority):
        request = Request("row_reduce", "a1", REQUEST.shapes, "float32", REQUEST.device, seed=seed)
        return jobs.submit(request, priority=priority)[0].id

    low, first, second = submit(1, -1), submit(2, 5), submit(3, 5)
    order = []
    while job := jobs.next([REQUEST.device], [REQUEST.kernel]):
        assert jobs.claim(job, "me")
        order.append(job.id)
    assert order == [first, second, low]
    assert jobs.next(["cuda"], [REQUEST.kernel]) is None
    assert [job.id for job in jobs.page(most=2)] == [second, first]
    assert [job.id for job in jobs.page(before=first)] == [low]


def test_a_job_waits_for_a_process_that_knows_its_kernel(jobs):
    unknown = jobs.submit(Request("theirs", "b2", REQUEST.shapes, "float32", REQUEST.device), priority=9)[0]
    known = jobs.submit(REQUEST)[0]
    assert jobs.waiting(["mine"]) == set()
    assert jobs.waiting([REQUEST.kernel]) == {REQUEST.device}
    assert jobs.next([REQUEST.device], [REQUEST.kernel]) == known
    assert jobs.next([REQUEST.device], [REQUEST.kernel, "theirs"]) == unknown


def test_of_two_that_claim_a_job_one_gets_it(jobs):
    job, _ = jobs.submit(REQUEST)
    assert [jobs.claim(job, owner) for owner in ("one", "other")] == [Lease(job.id, "one", 1), None]
    assert jobs.get(job.id).owner == "one"


def test_an_owner_cannot_end_a_job_that_was_taken_back(jobs):
    job, _ = jobs.submit(REQUEST)
    dead = jobs.claim(job, "dead")
    assert jobs.take_back(jobs.get(job.id), "gone")
    assert not jobs.finish(dead, State.DONE, "", {})
    assert jobs.beat(dead, {}) is None
    again = jobs.get(job.id)
    assert (again.state, again.attempts) == (State.QUEUED, 1)
    live = jobs.claim(again, "live")
    assert not jobs.finish(dead, State.DONE, "", {})
    assert jobs.finish(live, State.DONE, "", {"shapes_done": 1})
    assert not jobs.finish(live, State.FAILED, "", {})
    assert jobs.get(job.id).state is State.DONE
    assert jobs.get(job.id).progress == {"shapes_done": 1}


def test_an_owner_that_claims_its_job_again_has_another_lease(jobs):
    job, _ = jobs.submit(REQUEST)
    first = jobs.claim(job, "me")
    assert jobs.give_back(jobs.get(job.id))
    second = jobs.claim(jobs.get(job.id), "me")
    assert second.number > first.number
    assert jobs.beat(first, {}) is None
    assert not jobs.finish(first, State.DONE, "", {})
    assert jobs.beat(second, {}).beats == 1


def test_an_owner_that_gave_a_sign_of_life_keeps_its_job(jobs):
    job, _ = jobs.submit(REQUEST)
    lease = jobs.claim(job, "me")
    seen = jobs.get(job.id)
    assert jobs.beat(lease, {"trials": 1}).beats == 1
    assert not jobs.take_back(seen, "silent")
    assert not jobs.give_back(seen)
    assert jobs.get(job.id).state is State.RUNNING


def test_a_job_that_never_ends_fails_after_so_many_attempts(jobs):
    job_id = jobs.submit(REQUEST)[0].id
    fail(jobs, job_id, 10)
    job = jobs.get(job_id)
    assert job.state is State.FAILED
    assert job.reason == "started 10 times in a row without a new trial: its process ended"


def fail(jobs, job_id, times):
    """Start the job so often, each time until its process dies before it stores a trial."""
    for _ in range(times):
        assert jobs.claim(jobs.get(job_id), "me")
        assert jobs.take_back(jobs.get(job_id), "its process ended")


def test_a_start_that_stored_a_trial_forgives_those_before_it(store, jobs, make_scope, make_trial):
    job_id = jobs.submit(REQUEST)[0].id
    fail(jobs, job_id, 9)
    jobs.store(store, jobs.claim(jobs.get(job_id), "me")).record(make_scope(), [make_trial()])
    assert jobs.take_back(jobs.get(job_id), "its process ended")
    fail(jobs, job_id, 9)
    assert (jobs.get(job_id).state, jobs.get(job_id).attempts) == (State.QUEUED, 19)
    fail(jobs, job_id, 1)
    assert jobs.get(job_id).state is State.FAILED


@pytest.mark.parametrize("end", ["take_back", "give_back"])
def test_ten_restarts_with_a_new_trial_each_lose_nothing(end, store, jobs, make_scope, make_trial):
    job_id = jobs.submit(REQUEST)[0].id
    for count in range(1, 11):
        lease = jobs.claim(jobs.get(job_id), f"owner-{count}")
        jobs.store(store, lease).record(make_scope(), [make_trial()])
        job = jobs.get(job_id)
        assert (job.stored, job.attempts) == (1, count)
        assert getattr(jobs, end)(job, *["gone"] * (end == "take_back"))
    assert jobs.get(job_id).state is State.QUEUED
    assert len(store.trials(make_scope())) == 10


def test_a_config_that_is_tried_again_is_no_progress(store, jobs, make_scope, make_trial):
    job, trial = jobs.submit(REQUEST)[0], make_trial()
    store.record(make_scope(), [trial])
    lease = jobs.claim(job, "me")
    mine = jobs.store(store, lease)
    mine.record(make_scope(), [trial])
    mine.verify(make_scope(), trial.config, agreed=True)
    assert jobs.get(job.id).stored == 0
    mine.record(make_scope(), [trial, make_trial(), make_trial()])
    mine.record(make_scope(), [trial])
    assert jobs.get(job.id).stored == 2


def test_a_stop_on_purpose_counts_as_no_attempt(jobs):
    job_id = jobs.submit(REQUEST)[0].id
    fail(jobs, job_id, 9)
    for _ in range(12):
        assert jobs.claim(jobs.get(job_id), "me")
        assert jobs.give_back(jobs.get(job_id))
    assert (jobs.get(job_id).state, jobs.get(job_id).fruitless) == (State.QUEUED, 9)


# Leases


def test_an_owner_that_lost_its_job_writes_nothing(store, jobs, make_scope, make_trial):
    job, trial = jobs.submit(REQUEST)[0], make_trial()
    mine = jobs.store(store, jobs.claim(job, "me"))
    mine.record(make_scope(), [trial])
    assert jobs.take_back(jobs.get(job.id), "silent")
    writes = (
        lambda: mine.record(make_scope(), [make_trial()]),
        lambda: mine.record(make_scope(device="Ascend910B1"), [make_trial()]),
        lambda: mine.verify(make_scope(), trial.config, agreed=False),
        lambda: mine.retire(make_scope(), store.mark()),
        lambda: mine.merge([(make_scope(), [make_trial()])]),
    )
    before = store.revision()
    for state in ("queued", "claimed by another", "ended"):
        for write in writes:
            with pytest.raises(LeaseLost, match=f"job {job.id} was taken from its process"):
                write()
        if state == "queued":
            other = jobs.claim(jobs.get(job.id), "another")
        elif state == "claimed by another":
            assert jobs.finish(other, State.DONE, "", {})
    assert (store.trials(make_scope()), store.revision()) == ([trial], before)
    assert [scope.kernel for scope in store.scopes()] == ["row_reduce"]
    assert mine.trials(make_scope()) == [trial]


def test_a_waiting_job_is_cancelled_at_once_and_a_running_one_is_asked_to_stop(jobs):
    waiting, _ = jobs.submit(REQUEST)
    assert jobs.cancel(waiting.id).state is State.CANCELLED
    running, new = jobs.submit(REQUEST)
    assert new
    assert jobs.claim(running, "me")
    assert (jobs.cancel(running.id).state, jobs.get(running.id).cancelling) == (State.RUNNING, True)
    assert jobs.beat(jobs.get(running.id).lease, {}).cancelling
    assert jobs.take_back(jobs.get(running.id), "gone")
    assert jobs.get(running.id).state is State.CANCELLED
    with pytest.raises(NotFound):
        jobs.cancel(999)


# Tokens


@pytest.mark.parametrize("store", ["sqlite-file", "sqlite-memory", "postgresql"], indirect=True)  # none passes a server
def test_a_token_is_valid_until_it_is_revoked(store):
    tokens = Tokens(store.database)
    text = tokens.create("ci", Right.SUBMIT)
    token_id, right = tokens.check(text)
    assert right is Right.SUBMIT
    assert right.includes(Right.READ) and not right.includes(Right.ADMIN)
    assert [(one.id, one.name, one.revoked) for one in tokens.list()] == [(token_id, "ci", None)]
    for wrong in ("", text[:-1], f"{text}a", text.replace("tw_1", "tw_2"), text.swapcase(), "tw_0_", "é" * 60):
        assert tokens.check(wrong) is None
    tokens.revoke(token_id)
    tokens.revoke(token_id)
    assert tokens.check(text) is None
    assert tokens.list()[0].revoked is not None
    with pytest.raises(NotFound):
        tokens.revoke(77)
    with pytest.raises(UsageError):
        tokens.create("two\nlines", Right.READ)


def test_a_page_holds_fifty_jobs_unless_asked_otherwise(jobs):
    for seed in range(52):
        jobs.submit(dataclasses.replace(REQUEST, seed=seed))
    assert len(jobs.page()) == 50


# What a job may ask for


def test_a_job_goes_to_any_of_the_devices_that_are_asked_for_and_notes_where_it_runs(jobs):
    number = jobs.submit(dataclasses.replace(REQUEST, device="cuda"))[0].id
    assert jobs.next(["cuda:1", "NVIDIA H200"], [REQUEST.kernel]) is None
    found = jobs.next(["cuda:1", "cuda", "NVIDIA H200"], [REQUEST.kernel])
    assert found.id == number
    assert jobs.claim(found, "me", host="alpha", lane="cuda:1")
    assert (jobs.get(number).host, jobs.get(number).lane) == ("alpha", "cuda:1")


def test_a_job_that_asks_for_a_toolchain_is_another_and_goes_to_no_other_toolchain(jobs):
    anywhere = jobs.submit(REQUEST)[0]
    picky, new = jobs.submit(dataclasses.replace(REQUEST, toolchain="CANN 8.5"), priority=1)
    assert new and picky.toolchain == "CANN 8.5"
    for toolchain, wanted in (("", anywhere), ("CANN 9", anywhere), ("CANN 8.5", picky)):
        assert jobs.next([REQUEST.device], [REQUEST.kernel], toolchain) == wanted


def test_a_fresh_job_keeps_the_mark_of_its_first_start(jobs):
    job, new = jobs.submit(dataclasses.replace(REQUEST, fresh=True))
    assert new and job.fresh and job.mark is None and jobs.submit(REQUEST)[1]
    for mark in (5, 9):
        lease = jobs.claim(jobs.get(job.id), "me")
        jobs.begin(lease, mark)
        assert jobs.give_back(jobs.get(job.id))
    assert jobs.get(job.id).mark == 5


def test_queued_jobs_fail_at_their_deadline(jobs):
    """A server goes by its own clock, whatever a worker says."""
    now = datetime.now(UTC)
    late, later = (
        jobs.submit(dataclasses.replace(REQUEST, seed=seed, deadline=now + timedelta(seconds=seconds)))[0].id
        for seed, seconds in ((1, 0), (2, 3600))
    )
    jobs.expire(datetime.now(UTC))
    assert (jobs.get(late).state, jobs.get(late).reason) == (State.FAILED, "its deadline passed while it waited")
    assert jobs.get(later).state is State.QUEUED


def test_a_deadline_is_the_first_moment_that_is_too_late(file_url):
    now = datetime.now(UTC)
    place_empty_database(file_url)
    with open_store(file_url) as store:
        jobs = Jobs(store.database)
        number = jobs.submit(dataclasses.replace(REQUEST, deadline=now + timedelta(seconds=1)))[0].id
        jobs.expire(now)
        assert jobs.get(number).state is State.QUEUED
        jobs.expire(now + timedelta(seconds=1))
        assert jobs.get(number).state is State.FAILED


def test_a_failed_job_that_is_retried_waits_again_with_all_its_attempts(jobs):
    number = jobs.submit(REQUEST)[0].id
    fail(jobs, number, 10)
    again = jobs.retry(number)
    assert (again.state, again.reason, again.fruitless, again.finished) == (State.QUEUED, "", 0, None)
    assert jobs.retry(number) == again
    fail(jobs, number, 9)
    assert jobs.get(number).state is State.QUEUED
    assert jobs.cancel(number).state is State.CANCELLED
    other, new = jobs.submit(REQUEST)
    assert new and jobs.retry(number) == other
    with pytest.raises(NotFound):
        jobs.retry(99)


def test_the_record_of_a_job_is_removed_once_it_has_ended_and_the_request_is_new_again(jobs):
    number = jobs.submit(REQUEST)[0].id
    with pytest.raises(UsageError, match=f"job {number} is queued; cancel it"):
        jobs.remove(number)
    assert jobs.finish(jobs.claim(jobs.get(number), "me"), State.DONE, "", {})
    jobs.remove(number)
    for gone in (jobs.get, jobs.remove):
        with pytest.raises(NotFound):
            gone(number)
    assert jobs.submit(REQUEST)[1]


def test_a_token_has_so_many_jobs_that_wait_or_run_and_no_more(jobs):
    def submit(seed, token):
        return jobs.submit(dataclasses.replace(REQUEST, seed=seed), token=token, quota=2)[0]

    first, _ = submit(1, 7), submit(2, 7)
    assert submit(1, 7) == first
    with pytest.raises(Busy, match="this token has 2 jobs that wait or run, of at most 2"):
        submit(3, 7)
    assert submit(3, 8).token == 8
    assert jobs.cancel(first.id).state is State.CANCELLED
    submit(4, 7)
    with pytest.raises(Busy):
        jobs.retry(first.id, token=7, quota=2)


@pytest.mark.parametrize(
    ("changes", "budget"),
    [
        ({}, [None, None, "guided", 0]),
        ({"trials": 7, "seconds": 2.5, "search": "random", "seed": 3}, [7, 2.5, "random", 3]),
        ({"revision": 0}, [None, None, "guided", 0, 0]),
        ({"toolchain": "CANN 9.1.0"}, [None, None, "guided", 0, "toolchain CANN 9.1.0"]),
        ({"fresh": True}, [None, None, "guided", 0, "fresh"]),
        (
            {"revision": 4, "toolchain": "t", "fresh": True, "deadline": datetime(2026, 1, 1, tzinfo=UTC)},
            [None, None, "guided", 0, 4, "toolchain t", "fresh"],
        ),
    ],
)
def test_the_key_of_a_request_is_of_what_it_asks_for_beyond_the_usual(changes, budget):
    """Keys are stored: a queued job is found by them after an update."""
    shapes = [{"M": 2, "N": 3}, {"N": 4, "M": 1}]
    request = Request("gemm", "a1", shapes, "float16", "model:Ascend910B4", **changes)
    texts = ['{"M":1,"N":4}', '{"M":2,"N":3}']
    assert request.key == digest(["gemm", "a1", texts, "float16", "model:Ascend910B4", *budget])
    assert dataclasses.replace(request, shapes=shapes[::-1]).key == request.key
