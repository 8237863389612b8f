"""Counts that all processes of a server share."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

from tilewise.api.service.buckets import Buckets
from tilewise.api.service.limits import Limits
from tilewise.api.service.places import Places
from tilewise.api.service.shared_memory import digest_of
from tilewise.errors import Busy


def test_buckets_fill_up_again_and_forget_who_is_long_gone(monkeypatch):
    now = 0.0
    monkeypatch.setattr("tilewise.api.service.buckets.time.monotonic", lambda: now)
    monkeypatch.setattr("tilewise.api.service.buckets._SETS", 1)
    buckets = Buckets(60)
    for _ in range(60):
        buckets.take("a")
    with pytest.raises(Busy) as refused:
        buckets.take("a")
    assert refused.value.retry_seconds == pytest.approx(1.0)
    assert buckets.headers("a")[1] == (b"ratelimit", b'"writes";r=0;t=60')
    now = 1.01
    buckets.take("a")
    assert buckets.headers("nobody")[1] == (b"ratelimit", b'"writes";r=60;t=0')
    for number in range(40):
        buckets.take(number)
    assert buckets.headers("a")[1] == (b"ratelimit", b'"writes";r=60;t=0')
    assert buckets.headers(39)[1] == (b"ratelimit", b'"writes";r=59;t=1')


def fork(function):
    """Call `function` in a fork of this process; return the fork's id once it has ended, and whether it was true."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if function() else 1
        finally:
            os._exit(code)
    return pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def in_a_fork(function):
    return fork(function)[1]


def is_refused(take):
    try:
        take()
    except Busy:
        return True
    return False


def is_full(places, caller):
    with ExitStack() as held:
        return is_refused(lambda: held.enter_context(places.one(caller)))


def test_a_caller_uses_up_its_requests_at_all_processes():
    buckets = Buckets(3)

    def take_twice():
        buckets.take("a")
        buckets.take("a")
        return True

    assert in_a_fork(take_twice)
    buckets.take("a")
    with pytest.raises(Busy):
        buckets.take("a")
    assert in_a_fork(lambda: is_refused(lambda: buckets.take("a")))
    assert in_a_fork(lambda: not is_refused(lambda: buckets.take("b")))


def test_a_place_that_one_process_holds_is_taken_for_the_others():
    places = Places(2, 1, "requests", 5.0)
    with places.one("a"):
        assert in_a_fork(lambda: is_full(places, "a"))
        assert in_a_fork(lambda: not is_full(places, "b"))
        with places.one("b"):
            assert in_a_fork(lambda: is_full(places, "c"))
    assert len(places) == 0


def test_the_places_of_a_process_that_ended_are_free_again():
    limits, held = Limits(writes_a_minute=1), ExitStack()

    def hold():
        held.enter_context(limits.streams.one("a"))
        return len(limits.streams) == 1

    killed, held_one = fork(hold)
    assert held_one
    with limits.streams.one("b"):
        assert len(limits.streams) == 2
        limits.forget(killed)
        assert len(limits.streams) == 1


@pytest.mark.parametrize(
    ("name", "places", "each", "seconds", "what"),
    [
        ("streams", 50, 20, 10.0, "event streams"),
        ("anonymous_streams", 150, 20, 10.0, "event streams"),
        ("explanations", 16, 8, 10.0, "explanations"),
        ("exports", 32, 8, 10.0, "exports"),
        ("imports", 4, 4, 30.0, "large imports"),
        ("small_imports", 64, 64, 10.0, "imports"),
    ],
)
def test_a_server_takes_so_many_at_once_of_all_and_of_one_caller(name, places, each, seconds, what):
    limits = Limits(writes_a_minute=1)
    found = getattr(limits, name)
    with ExitStack() as held:
        for number in range(places):
            if number == each:
                with pytest.raises(Busy, match=f"^{each} {what} of yours are under way; wait for one$"):
                    held.enter_context(found.one(0))
            held.enter_context(found.one(number // each))
        with pytest.raises(Busy, match=f"^{places} {what} are under way; try again later$") as refused:
            held.enter_context(found.one("another"))
        assert refused.value.retry_seconds == seconds
        limits.forget(os.getpid())
        assert len(found) == 0


def test_an_address_may_fail_sixty_times_a_minute_and_write_as_often_as_it_is_told():
    limits = Limits(writes_a_minute=7)
    assert limits.failures.headers("a")[0] == (b"ratelimit-policy", b'"writes";q=60;w=60')
    assert limits.writes.headers("a")[0] == (b"ratelimit-policy", b'"writes";q=7;w=60')


def test_a_refused_request_costs_nothing(monkeypatch):
    now = 0.0
    monkeypatch.setattr("tilewise.api.service.buckets.time.monotonic", lambda: now)
    buckets = Buckets(60)
    for _ in range(60):
        buckets.take("a")
    now = 0.5
    for _ in range(3):
        with pytest.raises(Busy, match=r"^too many requests; slow down$") as refused:
            buckets.take("a")
        assert refused.value.retry_seconds == pytest.approx(0.5)
    now = 1.0
    buckets.take("a")


def test_a_set_remembers_sixteen_callers(monkeypatch):
    now = 0.0
    monkeypatch.setattr("tilewise.api.service.buckets.time.monotonic", lambda: now)
    monkeypatch.setattr("tilewise.api.service.buckets._SETS", 1)
    buckets = Buckets(6000)
    for caller in range(17):
        now = caller / 1e6
        buckets.take(caller)
    left = [buckets.headers(caller)[1][1] for caller in range(17)]
    assert left == [b'"writes";r=6000;t=0'] + [b'"writes";r=5999;t=1'] * 16


def test_callers_are_known_by_any_number_of_64_bits_but_0():
    digests = [digest_of(caller) for caller in range(200)]
    assert all(0 < digest < 2**64 for digest in digests)
    assert {digest % 2 for digest in digests} == {0, 1}
    assert max(digests) > 2**62
    assert digest_of(1) == digest_of(1) != digest_of("1")
