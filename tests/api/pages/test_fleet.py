"""The page of the fleet."""

from __future__ import annotations

import pytest

from tilewise.api.pages.fleet import _time_left
from tilewise.db.jobs import Jobs, Request
from tilewise.db.sql.sql_store import open_store
from tilewise.db.workers import Lane, Workers

JOB = Request("row_reduce", "a1", [{"M": 8, "N": 9}], "float32", "NVIDIA H200", trials=40)


def test_without_workers_it_says_how_to_start_one(client):
    shown = client.get("/fleet").text
    assert "tilewise worker --db URL" in shown
    assert "No jobs yet" in shown


def test_chips_jobs_and_the_queue_are_shown(client, store_url):
    lanes = [Lane(f"cuda:{number}", "NVIDIA H200", "measured", "<cuda 12>") for number in (0, 1)]
    with open_store(store_url) as store:
        Workers(store.database).register("alpha/1/x", "alpha", "0.1.0", lanes, ["row_reduce"])
        jobs = Jobs(store.database)
        running, _ = jobs.submit(JOB)
        jobs.submit(Request("row_reduce", "a1", [{"M": 9, "N": 9}], "float32", "NVIDIA H200", trials=60))
        jobs.claim(running, "alpha/2/y", host="alpha", lane="cuda:1")
    shown = client.get("/fleet").text
    assert "1 busy, 1 idle, 0 drained, 0 lost of 2 chips" in " ".join(shown.split())
    assert f'<a href="/jobs/{running.id}">' in shown
    assert "at most 100 left" in shown
    assert '<th scope="row">NVIDIA H200</th><td class="number">1</td>' in shown
    assert "&lt;cuda 12&gt;" in shown
    assert '<a href="/fleet" aria-current="page">' in shown


@pytest.mark.parametrize(
    ("trials", "a_minute", "text"),
    [
        (0, 5.0, ""),
        (5, 0.0, ""),
        (90, 1.0, "at most 1:30:00"),
        (100, 40.0, "at most 0:02:30"),
        (1, 7.0, "at most 0:00:09"),
    ],
)
def test_the_time_left_is_that_of_the_trials_at_the_rate_of_late(trials, a_minute, text):
    assert _time_left(trials, a_minute) == text
