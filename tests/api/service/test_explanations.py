"""Reports that the service keeps: each made once, in bounded memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from reports import REPORT
from service_fixtures import SCOPE, WINNER

from tilewise.api.service import explanations
from tilewise.api.service.explanations import Explanations
from tilewise.errors import Unavailable


def winners(count):
    return [replace(WINNER, config={"BLOCK_SIZE_M": number}) for number in range(1, count + 1)]


@pytest.fixture
def made(monkeypatch):
    """The configs of which reports are made; one of 13 cannot be."""
    configs = []

    def report(url, scope, config):
        configs.append(config["BLOCK_SIZE_M"])
        if config["BLOCK_SIZE_M"] == 13:
            raise Unavailable("it died")
        return REPORT

    monkeypatch.setattr(explanations, "report", report)
    return configs


def test_a_report_or_why_there_is_none_is_made_once(made):
    kept, one, bad = Explanations("sqlite:///x"), winners(1)[0], winners(13)[-1]
    assert kept.known(SCOPE, one) is None
    for _ in range(2):
        assert kept.make(SCOPE, one) is REPORT
        assert kept.make(SCOPE, bad) == "it died"
    assert (kept.known(SCOPE, one), kept.known(SCOPE, bad)) == (REPORT, "it died")
    assert made == [1, 13]


@pytest.mark.parametrize(("limit", "most"), [("_MOST_KEPT", 5), ("_MOST_BYTES", 5 * REPORT.size + 100)])
def test_the_reports_that_were_read_longest_ago_are_dropped(made, monkeypatch, limit, most):
    monkeypatch.setattr(explanations, limit, most)
    kept, all_of_them = Explanations("sqlite:///x"), winners(8)
    for winner in all_of_them:
        kept.make(SCOPE, winner)
        kept.known(SCOPE, all_of_them[0])
    assert [bool(kept.known(SCOPE, winner)) for winner in all_of_them] == [True, *[False] * 3, *[True] * 4]


def test_a_report_larger_than_the_limit_is_kept_alone(made, monkeypatch):
    monkeypatch.setattr(explanations, "_MOST_BYTES", 1)
    kept, (one, other) = Explanations("sqlite:///x"), winners(2)
    kept.make(SCOPE, one)
    kept.make(SCOPE, other)
    assert (kept.known(SCOPE, one), kept.known(SCOPE, other)) == (None, REPORT)
