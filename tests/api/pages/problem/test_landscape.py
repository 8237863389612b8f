"""The columns of a landscape, its trials by config, and the table of trials in pages."""

from __future__ import annotations

import pytest
from landscapes import landscape_of

from tilewise.api.pages.problem.landscapes import Landscapes
from tilewise.api.pages.problem.trial_table import PAGE_SIZE, TrialQuery, trial_table
from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import UsageError


def trial(number: int, **fields) -> Trial:
    known = {"config": {"B": number, "name": "x"}, "status": Status.CORRECT, "time_us": 10.0 + number}
    return Trial(**{**known, **fields})


MANY = landscape_of([*(trial(n) for n in range(250)), trial(0, config={"B": "y"}, status=Status.TIMEOUT, time_us=None)])


def test_a_trial_is_found_by_its_config_and_gives_it_back():
    assert MANY.config(7) == {"B": 7, "name": "x"}
    assert MANY.config(250) == {"B": "y"}
    assert [MANY.find(config) for config in ({"B": 7, "name": "x"}, {"B": "y"}, {"B": 7}, {"B": 999, "name": "x"})] == [
        7,
        250,
        None,
        None,
    ]
    assert MANY.find({"B": 7, "name": "x", "more": 1}) is None
    assert MANY.parameters[0].values[-2:] == (249, "y")  # numbers by size, then others


def test_a_time_of_a_failed_trial_is_not_shown():
    wrong = landscape_of([trial(1, status=Status.CORRECTNESS, time_us=1.0)])
    assert wrong.times_us == [None]
    assert wrong.fastest() is None


def test_pages_of_the_table_hold_every_trial_once():
    seen, query = [], TrialQuery(sort="-B")
    while True:
        table = trial_table(MANY, query)
        seen += [row.trial for row in table.rows]
        if table.after is None:
            break
        query = TrialQuery(sort="-B", first=query.first + PAGE_SIZE)
        assert table.after == f"sort=-B&first={query.first}"
    assert seen == [250, *reversed(range(250))]
    assert trial_table(MANY, query).before == "sort=-B&first=100"


def test_within_keeps_what_is_that_close_to_the_best():
    table = trial_table(MANY, TrialQuery(within=20.0))
    assert [row.trial for row in table.rows] == [0, 1, 2]
    assert (table.matching, table.total, table.counts) == (3, 251, {"correct": 250, "timeout": 1})
    assert table.rows[2].ratio == 1.2


def test_a_click_on_the_sorted_column_turns_the_order():
    columns = {column.key: column for column in trial_table(MANY, TrialQuery(sort="B", status="correct")).columns}
    assert columns["B"].query == "status=correct&sort=-B"
    assert (columns["B"].order, columns["time"].order) == ("ascending", "none")
    assert columns["time"].query == "status=correct"


@pytest.mark.parametrize("given", [{"first": "1e3"}, {"within": "-1"}, {"within": "inf"}, {"status": "wrong"}])
def test_a_query_that_means_nothing_is_refused(given):
    with pytest.raises(UsageError, match="expected"):
        TrialQuery.of(given)


def test_a_landscape_is_read_again_only_after_a_write_to_its_problem(tmp_path, monkeypatch):
    scope, other = (
        Scope(Problem("mine", {"N": size}, "float32"), "0", "H", Clock.MEASURED, "t", 132) for size in (1, 2)
    )
    with open_store(f"sqlite:///{tmp_path / 'db'}") as store:
        store.record(scope, [trial(1)])
        kept = Landscapes()
        first = kept.of(store, scope)
        store.record(other, [trial(1)])
        assert kept.of(store, scope) is first
        store.record(scope, [trial(2)])
        assert len(kept.of(store, scope).landscape) == 2
        monkeypatch.setattr("tilewise.api.pages.problem.landscapes._MOST_TRIALS", 2)
        kept.of(store, other)
        second = kept.of(store, scope)
        assert kept.of(store, scope) is second  # one is kept even if it is all that fits
        assert len(kept.of(store, other).landscape) == 1


def test_the_landscapes_that_were_read_last_are_kept_as_far_as_they_fit(tmp_path, monkeypatch):
    """Four trials fit: of three problems with one and one with two, that which was asked for longest ago does not."""
    monkeypatch.setattr("tilewise.api.pages.problem.landscapes._MOST_TRIALS", 4)
    scopes = [
        Scope(Problem("mine", {"N": size}, "float32"), "0", "H", Clock.MEASURED, "t", 132) for size in (1, 2, 3, 4)
    ]
    with open_store(f"sqlite:///{tmp_path / 'db'}") as store:
        for scope, numbers in zip(scopes, ([1], [1], [1], [1, 2]), strict=True):
            store.record(scope, [trial(number) for number in numbers])
        kept = Landscapes()
        first, second, third = (kept.of(store, scope) for scope in scopes[:3])
        assert kept.of(store, scopes[1]) is second and kept.of(store, scopes[0]) is first
        fourth = kept.of(store, scopes[3])
        assert [kept.of(store, scopes[number]) for number in (3, 0, 1)] == [fourth, first, second]
        assert kept.of(store, scopes[2]) is not third
