"""The rate at which trials come, as the fleet's page shows it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tilewise.db import activity
from tilewise.db.activity import last_trial, trials_a_minute


def test_the_rate_is_that_of_the_last_minute_and_the_last_number_grows(store, make_scope, make_trial):
    assert (last_trial(store.database), trials_a_minute(store.database)) == (0, 0.0)
    trials = [make_trial() for _ in range(90)]  # a second apart
    store.record(make_scope(), trials[:60])
    before = last_trial(store.database)
    store.record(make_scope(), trials[60:])
    assert last_trial(store.database) - before == 30
    now = trials[-1].created
    assert trials_a_minute(store.database, now) == 60.0
    assert trials_a_minute(store.database, now + timedelta(seconds=50)) == 10.0
    assert trials_a_minute(store.database, now + timedelta(hours=1)) == 0.0


def test_more_trials_than_are_looked_at_give_a_rate_all_the_same(store, make_scope, make_trial, monkeypatch):
    monkeypatch.setattr(activity, "_MOST", 20)
    monkeypatch.setattr(activity, "_LATEST", activity._LATEST.limit(20))
    first = make_trial()
    trials = [replace(make_trial(), created=first.created + timedelta(seconds=n / 10)) for n in range(21)]
    store.record(make_scope(), trials)
    assert trials_a_minute(store.database, trials[-1].created) == pytest.approx(60 * 20 / 1.9)
