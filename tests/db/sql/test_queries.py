"""Figures and look-ups that the SELECTs give, beyond the contract of a store."""

from __future__ import annotations

import json
from dataclasses import replace

from tilewise.db.records import Status
from tilewise.db.sql.sql_store import open_store


def test_figures_are_those_of_the_current_trials_of_one_scope_in_recorded_order(file_url, make_scope, make_trial):
    first, other = make_trial(30.0), make_trial(20.0, verified=False, ordinal=None)
    failed = make_trial(None, status=Status.COMPILE, reason="it is too large")
    with open_store(file_url, create=True) as store:
        store.record(make_scope(), [first, other, failed])
        store.record(make_scope(dtype="float16"), [make_trial(10.0)])
        store.record(make_scope(), [replace(first, time_us=25.0)])
        figures = [(json.loads(config), *more) for config, *more in store.figures(make_scope().key)]
        assert list(store.figures(make_scope(dtype="int8").key)) == []
    assert figures == [
        (other.config, "correct", "", 20.0, 0, None),
        (failed.config, "compile", "it is too large", None, 0, 3),
        (first.config, "correct", "", 25.0, 1, 1),
    ]
    assert {type(verified) for *_, verified, _ in figures} == {int}  # no row was copied to convert it


def test_a_trial_is_found_by_its_config_and_a_scope_by_the_revision_of_its_last_write(file_url, make_scope, make_trial):
    one, other = make_trial(30.0), make_trial(20.0)
    with open_store(file_url, create=True) as store:
        store.record(make_scope(), [one, other])
        written = store.written_at(make_scope().key)
        store.record(make_scope(dtype="float16"), [make_trial(10.0, config=one.config)])
        assert store.written_at(make_scope().key) == written < store.written_at(make_scope(dtype="float16").key)
        store.record(make_scope(), [again := replace(one, time_us=25.0)])
        assert store.written_at(make_scope().key) > written
        assert store.written_at(make_scope(dtype="int8").key) is None
        assert store.trial(make_scope(), one.config) == again
        assert store.trial(make_scope(), other.config) == other
        assert store.trial(make_scope(dtype="float16"), other.config) is None
