"""The contract of jobs: one per request, one owner at a time, each ended once."""

from __future__ import annotations

import dataclasses

import pytest

from tilewise.db.jobs import Jobs, Request, State
from tilewise.db.tokens import Right, Tokens
from tilewise.errors import NotFound, UsageError

REQUEST = Request("row_reduce", "a1", [{"M": 1000, "N": 8192}], "float32", "model:Ascend910B4", trials=4)


@pytest.fixture
def jobs(store) -> Jobs:
    return Jobs(store.database)


def test_the_same_request_twice_is_one_job_until_it_failed(jobs):
    job, new = jobs.submit(REQUEST)
    assert (new, job.state, job.shapes, job.trials) == (True, State.QUEUED, [{"M": 1000, "N": 8192}], 4)
    assert jobs.submit(REQUEST) == (job, False)
    assert jobs.submit(Request("row_reduce", "a2", REQUEST.shapes, "float32", REQUEST.device, trials=4))[1]
    assert jobs.claim(job, "me")
    assert jobs.finish(job.id, "me", State.DONE, "", {})
    assert jobs.submit(REQUEST)[0].id == job.id
    other, _ = jobs.submit(Request("row_reduce", "a1", REQUEST.shapes, "float16", REQUEST.device))
    assert jobs.claim(other, "me")
    assert jobs.finish(other.id, "me", State.FAILED, "nothing fits", {})
    again, new = jobs.submit(Request("row_reduce", "a1", REQUEST.shapes, "float16", REQUEST.device))
    assert new and again.id != other.id


def test_the_highest_priority_goes_first_and_of_that_the_oldest(jobs):
    def submit(seed, priority):
        request = Request("row_reduce", "a1", REQUEST.shapes, "float32", REQUEST.device, seed=seed)
        return jobs.submit(request, priority=priority)[0].id

    low, first, second = submit(1, -1), submit(2, 5), submit(3, 5)
    order = []
    while job := jobs.next(REQUEST.device, [REQUEST.kernel]):
        assert jobs.claim(job, "me")
        order.append(job.id)
    assert order == [first, second, low]
    assert jobs.next("cuda", [REQUEST.kernel]) is None
    assert [job.id for job in jobs.page(most=2)] == [second, first]
    assert [job.id for job in jobs.page(before=first)] == [low]


def test_a_job_waits_for_a_process_that_knows_its_kernel(jobs):
    unknown = jobs.submit(Request("theirs", "b2", REQUEST.shapes, "float32", REQUEST.device), priority=9)[0]
    known = jobs.submit(REQUEST)[0]
    assert jobs.waiting(["mine"]) == set()
    assert jobs.waiting([REQUEST.kernel]) == {REQUEST.device}
    assert jobs.next(REQUEST.device, [REQUEST.kernel]) == known
    assert jobs.next(REQUEST.device, [REQUEST.kernel, "theirs"]) == unknown


def test_of_two_that_claim_a_job_one_gets_it(jobs):
    job, _ = jobs.submit(REQUEST)
    assert [jobs.claim(job, owner) for owner in ("one", "other")] == [True, False]
    assert jobs.get(job.id).owner == "one"


def test_an_owner_cannot_end_a_job_that_was_taken_back(jobs):
    job, _ = jobs.submit(REQUEST)
    assert jobs.claim(job, "dead")
    assert jobs.take_back(jobs.get(job.id), "gone")
    assert not jobs.finish(job.id, "dead", State.DONE, "", {})
    assert jobs.beat(job.id, "dead", {}) is None
    again = jobs.get(job.id)
    assert (again.state, again.attempts) == (State.QUEUED, 1)
    assert jobs.claim(again, "live")
    assert not jobs.finish(job.id, "dead", State.DONE, "", {})
    assert jobs.finish(job.id, "live", State.DONE, "", {"shapes_done": 1})
    assert not jobs.finish(job.id, "live", State.FAILED, "", {})
    assert jobs.get(job.id).state is State.DONE
    assert jobs.get(job.id).progress == {"shapes_done": 1}


def test_an_owner_that_gave_a_sign_of_life_keeps_its_job(jobs):
    job, _ = jobs.submit(REQUEST)
    assert jobs.claim(job, "me")
    seen = jobs.get(job.id)
    assert jobs.beat(job.id, "me", {"trials": 1}).beats == 1
    assert not jobs.take_back(seen, "silent")
    assert jobs.get(job.id).state is State.RUNNING


def test_a_job_that_never_ends_fails_after_so_many_attempts(jobs):
    job_id = jobs.submit(REQUEST)[0].id
    for _ in range(10):
        assert jobs.claim(jobs.get(job_id), "me")
        assert jobs.take_back(jobs.get(job_id), "its process ended")
    job = jobs.get(job_id)
    assert job.state is State.FAILED
    assert job.reason == "started 10 times and never finished: its process ended"


def test_a_waiting_job_is_cancelled_at_once_and_a_running_one_is_asked_to_stop(jobs):
    waiting, _ = jobs.submit(REQUEST)
    assert jobs.cancel(waiting.id).state is State.CANCELLED
    running, new = jobs.submit(REQUEST)
    assert new
    assert jobs.claim(running, "me")
    assert (jobs.cancel(running.id).state, jobs.get(running.id).cancelling) == (State.RUNNING, True)
    assert jobs.beat(running.id, "me", {}).cancelling
    assert jobs.take_back(jobs.get(running.id), "gone")
    assert jobs.get(running.id).state is State.CANCELLED
    with pytest.raises(NotFound):
        jobs.cancel(999)


# Tokens


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
