"""The cost of the guided search itself, in a space small enough for a test."""

import json

from tilewise.benchmarks.search.overhead import main, overhead


def test_every_case_is_measured_with_and_without_a_prior(capsys):
    main([((4, 5, 6), 24)])
    body = json.loads(capsys.readouterr().out)
    assert body.keys() >= {"command", "date", "device", "clock", "versions"}
    assert [(row["configs"], row["prior"], row["trials"]) for row in body["rows"]] == [
        (120, p, 24) for p in (False, True)
    ]
    for row in body["rows"]:
        assert 0 < row["mean_ms"] <= row["slowest_ms"] + 1
        assert row["memory_mb"] > 10


def test_the_cost_of_an_evaluation_grows_no_faster_than_the_space():
    small, large = (overhead((size,) * 3, 48, prior=True)["mean_ms"] for size in (10, 20))
    assert large < 8 * small
