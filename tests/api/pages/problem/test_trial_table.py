"""The table of trials: its query, order, figures, pages and file."""

from __future__ import annotations

import re

import pytest
from landscapes import landscape_of

from tilewise.api.pages.problem.trial_table import TrialQuery, csv_lines, trial_table
from tilewise.db.records import Status, Trial
from tilewise.errors import UsageError

TRIALS = landscape_of(
    [
        Trial({"A": 2, "B": "=x"}, Status.CORRECT, time_us=30.0, verified=True, ordinal=3),
        Trial({"A": 1}, Status.COMPILE, time_us=None, reason="needs 3, has 2", ordinal=1),
        Trial({"A": -4, "B": "-y"}, Status.CORRECT, time_us=20.0),
        Trial({"B": "z"}, Status.CORRECT, time_us=24.0, verified=True, ordinal=2),
    ]
)


def order(**query):
    return [row.trial for row in trial_table(TRIALS, TrialQuery(**query)).rows]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("time", [2, 3, 0, 1]),
        ("-time", [1, 0, 3, 2]),
        ("evaluation", [1, 3, 0, 2]),
        ("status", [1, 0, 2, 3]),
        ("A", [3, 2, 1, 0]),
        ("-B", [3, 0, 2, 1]),
    ],
)
def test_unknown_figures_come_last_and_absent_values_first(sort, expected):
    assert order(sort=sort) == expected


@pytest.mark.parametrize(("within", "expected"), [(0.0, [2]), (19.9, [2]), (20.0, [2, 3]), (50.0, [2, 3, 0])])
def test_within_counts_the_time_at_the_limit(within, expected):
    assert order(within=within) == expected


def test_within_keeps_nothing_where_nothing_ran():
    failed = landscape_of([Trial({"A": 1}, Status.COMPILE)])
    table = trial_table(failed, TrialQuery(within=1e6))
    assert (table.rows, table.matching, table.total) == ([], 0, 1)


def test_a_row_holds_all_that_is_known_of_a_trial():
    slowest, failed, fastest, _ = trial_table(TRIALS, TrialQuery(sort="-A")).rows
    assert (slowest.time_us, slowest.ratio, slowest.verified, slowest.ordinal) == (30.0, 1.5, True, 3)
    assert (failed.time_us, failed.ratio, failed.status, failed.reason) == (None, None, "compile", "needs 3, has 2")
    assert (fastest.ratio, fastest.verified, fastest.ordinal, fastest.values) == (1.0, False, None, ["-4", "-y"])
    assert (slowest.values, failed.values) == (["2", "=x"], ["1", ""])


def test_columns_are_time_status_evaluation_and_the_parameters():
    columns = trial_table(TRIALS, TrialQuery(sort="-evaluation")).columns
    assert [(one.title, one.key, one.query, one.order, one.number) for one in columns] == [
        ("us", "time", "", "none", True),
        ("Status", "status", "sort=status", "none", False),
        ("Evaluation", "evaluation", "sort=evaluation", "descending", True),
        ("A", "A", "sort=A", "none", True),
        ("B", "B", "sort=B", "none", True),
    ]


def test_a_query_is_read_as_its_address_has_it():
    given = {"status": "timeout", "within": "1000000", "sort": "-A", "first": "999999999"}
    query = TrialQuery.of(given)
    assert query == TrialQuery("timeout", 1e6, "-A", 999_999_999)
    assert query.text() == "status=timeout&within=1e%2B06&sort=-A&first=999999999"
    assert query.key == "A" and query.sorted_by("A") == TrialQuery("timeout", 1e6, "A", 0)
    assert TrialQuery.of({}) == TrialQuery("", None, "time", 0) and TrialQuery().text() == ""
    assert TrialQuery.of({"within": "0"}).text() == "within=0"


LONG = "9" * 40


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("status", "x" * 40, "one of correct, constraints, compile, correctness, runtime, timeout, unmodelled"),
        ("within", LONG, "percent above the best time, such as 20"),
        ("within", "1000001", "percent above the best time, such as 20"),
        ("within", "nan", "percent above the best time, such as 20"),
        ("first", LONG, "the number of trials to skip"),
        ("first", "1000000000", "the number of trials to skip"),
        ("first", "\u0663", "the number of trials to skip"),
    ],
)
def test_a_refusal_shows_the_beginning_of_what_was_given(name, text, expected):
    with pytest.raises(UsageError) as refused:
        TrialQuery.of({name: text})
    assert str(refused.value) == f"{name} is {text[:30]!r}; expected {expected}"


def test_an_unknown_column_is_refused_by_its_beginning():
    with pytest.raises(UsageError) as refused:
        order(sort="-" + "C" * 40)
    assert str(refused.value) == f"sort is '{'C' * 30}'; expected time, evaluation, status or a parameter"


@pytest.mark.parametrize(
    ("count", "first", "shown", "before", "after"),
    [
        (100, 0, 100, None, None),
        (101, 0, 100, None, "first=100"),
        (101, 100, 1, "", None),
        (300, 150, 100, "first=50", "first=250"),
        (300, 250, 50, "first=150", None),
        (300, 40, 100, "", "first=140"),
    ],
)
def test_a_page_has_a_hundred_trials_and_links_to_those_around_it(count, first, shown, before, after):
    many = landscape_of([Trial({"A": n}, Status.CORRECT, time_us=1.0 + n) for n in range(count)])
    table = trial_table(many, TrialQuery(first=first))
    assert [row.trial for row in table.rows] == [*range(first, first + shown)]
    assert (table.before, table.after) == (before, after)


def test_the_file_has_every_matching_trial_and_no_formulas():
    assert "".join(csv_lines(TRIALS, TrialQuery())).splitlines() == [
        "time_us,status,verified,evaluation,reason,A,B",
        "20.0,correct,False,,,-4,'-y",
        "24.0,correct,True,2,,,z",
        "30.0,correct,True,3,,2,'=x",
        ',compile,False,1,"needs 3, has 2",1,',
    ]
    assert "".join(csv_lines(TRIALS, TrialQuery(status="compile"))).count("\n") == 2


def test_a_long_file_comes_in_parts():
    many = landscape_of([Trial({"A": n}, Status.CORRECT, time_us=1.0 + n) for n in range(1001)])
    parts = list(csv_lines(many, TrialQuery()))
    assert [part.count("\n") for part in parts] == [501, 500, 1]
    assert re.findall(r"^[\d.]+", "".join(parts), re.MULTILINE) == [f"{1.0 + n}" for n in range(1001)]
