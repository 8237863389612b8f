"""Imports, as the process of imports does them, in this one."""

from __future__ import annotations

import os

import pytest

from tilewise.api.processes import import_process
from tilewise.api.processes.import_process import serve
from tilewise.db.exchange.import_file import Refusal
from tilewise.db.exchange.native.export_file import stream_native
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import BadImport, StoreError


@pytest.fixture(autouse=True)
def niceness(monkeypatch):
    """The priorities that the process of imports asks for; this process keeps its own."""
    asked = []
    monkeypatch.setattr(os, "setpriority", lambda which, who, value: asked.append((which, who, value)))
    return asked


@pytest.fixture
def file(tune, store_url, tmp_path):
    tune()
    with open_store(store_url) as store:
        made = tmp_path / "export.json"
        made.write_bytes(b"".join(stream_native(store, store.scopes())))
    return made


@pytest.fixture
def empty(tmp_path):
    url = f"sqlite:///{tmp_path / 'other.db'}"
    open_store(url, create=True).close()
    return url


def test_a_merge_makes_no_database(file, tmp_path):
    missing = tmp_path / "missing.db"
    assert isinstance(serve(f"sqlite:///{missing}", (), "merge", str(file)), StoreError)
    assert not missing.exists()


@pytest.mark.parametrize(("before", "after"), [(0, 10), (15, 15)])
def test_a_sound_file_passes_and_is_read_with_little_priority(file, niceness, monkeypatch, before, after):
    monkeypatch.setattr(os, "getpriority", lambda which, who: before)
    assert serve("sqlite://", (), "check", str(file)) is None
    assert niceness == [(os.PRIO_PROCESS, 0, after)]


def test_a_damaged_file_is_refused_by_either_task(file, empty):
    file.write_bytes(file.read_bytes()[:-9])
    for task in ("check", "merge"):
        assert isinstance(serve(empty, (), task, str(file)), BadImport)


def test_a_merge_counts_what_it_changed(file, empty):
    first, again = (serve(empty, (), "merge", str(file)) for _ in range(2))
    assert first["added"] >= 1
    assert (first["updated"], first["unchanged"], first["bests_changed"], first["refused"]) == (0, 0, 1, [])
    assert (again["added"], again["updated"], again["bests_changed"]) == (0, 0, 0)
    assert again["unchanged"] == first["added"]


@pytest.mark.parametrize(("task", "known"), [("merge", ["a.py:SPEC", "b.py:SPEC"]), ("check", [])])
def test_a_merge_knows_the_users_kernels(file, empty, monkeypatch, task, known):
    registered = []
    monkeypatch.setattr(import_process.registry, "register", registered.append)
    serve(empty, ("a.py:SPEC", "b.py:SPEC"), task, str(file))
    assert registered == known


def test_the_first_hundred_refusals_are_told(file, empty, monkeypatch):
    def checked(offers, refuse):
        for number in range(150):
            refuse(Refusal(f"entry {number}", "of no use"))
        return iter(())

    monkeypatch.setattr(import_process, "checked_offers", checked)
    refused = serve(empty, (), "merge", str(file))["refused"]
    assert len(refused) == 100
    assert refused[99] == {"place": "entry 99", "reason": "of no use"}
