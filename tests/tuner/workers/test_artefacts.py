"""Artefacts that hosts share: compiled once, waited for, and taken over from a host that dies."""

from __future__ import annotations

import os
import sys
import threading
import time
from subprocess import PIPE, Popen, run
from types import SimpleNamespace

import pytest

from tilewise.db.artefacts import Artefacts
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import NoSpace, ReadOnly, StoreError, UsageError
from tilewise.tuner.workers import artefacts as module
from tilewise.tuner.workers.artefacts import SharedArtefacts, shared_artefacts, waiting_seconds

SECRET = b"0" * 32

MAKER = """
import sys, time
from tilewise.db.artefacts import Artefacts
from tilewise.db.sql.sql_store import open_store
from tilewise.tuner.workers.artefacts import SharedArtefacts

def make():
    print("making", flush=True)
    time.sleep(60)

SharedArtefacts(Artefacts(open_store(sys.argv[1]).database, b"0" * 32)).made("a", make)
"""


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'shared.db'}"


@pytest.fixture
def host(url):
    """A function that returns the artefacts as a host of its own has them."""
    opened = []

    def join(**options):
        opened.append(open_store(url))
        return SharedArtefacts(Artefacts(opened[-1].database, SECRET), **options)

    yield join
    for store in opened:
        store.close()


def test_hosts_that_want_the_same_at_once_compile_it_once(host):
    made, found = [], []

    def make():
        made.append(threading.current_thread().name)
        time.sleep(0.3)
        return b"binary"

    hosts = [host() for _ in range(4)]
    threads = [threading.Thread(target=lambda one=one: found.append(one.made("a", make))) for one in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and found == [b"binary"] * 4
    assert host().made("a", lambda: pytest.fail("compiled again")) == b"binary"


def test_a_compilation_that_fails_or_keeps_nothing_leaves_it_to_the_next_host(host):
    def fail():
        raise ValueError("it does not compile")

    with pytest.raises(ValueError, match="does not compile"):
        host().made("a", fail)
    assert host().made("a", lambda: None) is None
    assert host().made("a", lambda: b"binary") == b"binary"


def test_what_a_host_compiled_when_it_died_is_taken_over(host, url):
    host()  # makes the tables
    with Popen(
        [sys.executable, "-c", MAKER, url], stdout=PIPE, env=os.environ | {"PYTHONPATH": ":".join(sys.path)}
    ) as lost:
        assert lost.stdout.readline() == b"making\n"
        lost.kill()
    began = time.monotonic()
    assert host(lost_seconds=0.5).made("a", lambda: b"binary") == b"binary"
    assert 0.5 < time.monotonic() - began < 10


def test_a_host_that_compiles_for_long_gives_signs_of_life_and_keeps_its_claim(host, monkeypatch):
    monkeypatch.setattr(module, "_BEAT_SECONDS", 0.05)
    began = threading.Event()

    def make():
        began.set()
        time.sleep(1.2)
        return b"slow"

    slow = threading.Thread(target=host().made, args=("a", make))
    slow.start()
    began.wait(10)
    assert host(lost_seconds=0.6).made("a", lambda: pytest.fail("taken from one that lives")) == b"slow"
    slow.join()


def test_whoever_has_waited_for_too_long_compiles_by_itself(host, monkeypatch):
    monkeypatch.setattr(module, "_WAIT_SECONDS", 0.3)
    assert host().fetch("a") is None  # a claim that its process keeps
    assert host().made("a", lambda: b"binary") == b"binary"


def test_nothing_is_shared_without_a_database_and_nothing_unsealed(monkeypatch, url, tmp_path):
    for name in ("TILEWISE_ARTEFACTS", "TILEWISE_KERNEL_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert shared_artefacts() is None and waiting_seconds() == 0
    monkeypatch.setenv("TILEWISE_ARTEFACTS", url)
    with pytest.raises(UsageError, match="name the operator's key by which it is sealed with TILEWISE_KERNEL_KEY"):
        shared_artefacts()
    key = tmp_path / "kernel.key"
    key.write_bytes(SECRET)
    key.chmod(0o600)
    monkeypatch.setenv("TILEWISE_KERNEL_KEY", str(key))
    assert shared_artefacts() is shared_artefacts() and waiting_seconds() > 120


def test_a_process_that_compiles_imports_no_database_where_nothing_is_shared():
    modules = "tilewise.tuner.devices.ascend_model.toolchain, tilewise.tuner.devices.cuda.compile"
    code = f"import sys, {modules}; print('sqlalchemy' in sys.modules)"
    found = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


class Faulty:
    """Artefacts whose next calls fail with these errors, one after the other."""

    def __init__(self, artefacts, *errors):
        self.artefacts, self.errors = artefacts, list(errors)

    def __getattr__(self, name):
        def act(*given):
            if self.errors:
                raise self.errors.pop(0)
            return getattr(self.artefacts, name)(*given)

        return act


@pytest.fixture
def slept(monkeypatch):
    """The pauses of the artefacts in this thread, on a clock that only they move."""
    pauses, here = [], threading.current_thread()

    def sleep(seconds):
        if threading.current_thread() is here:
            pauses.append(seconds)
        else:  # between signs of life of another test's claims
            time.sleep(seconds)

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: sum(pauses), sleep=sleep))
    return pauses


@pytest.mark.parametrize("failures", [1, 30, 61])
def test_a_database_that_fails_is_asked_again_for_a_minute(host, slept, failures):
    shared = host()
    shared._artefacts = Faulty(shared._artefacts, *[StoreError("it is locked")] * failures)
    assert shared.made("a", lambda: b"binary") == b"binary"
    assert slept == [1.0] * failures


def test_a_database_that_fails_for_more_than_a_minute_is_given_up(host, slept):
    shared = host()
    shared._artefacts = Faulty(shared._artefacts, *[StoreError("it is locked")] * 62)
    with pytest.raises(StoreError, match="it is locked"):
        shared.fetch("a")
    assert slept == [1.0] * 61


@pytest.mark.parametrize("kind", [NoSpace, ReadOnly])
def test_a_database_that_waiting_does_not_help_is_given_up_at_once(host, slept, kind):
    shared = host()
    shared._artefacts = Faulty(shared._artefacts, kind("it is full"))
    with pytest.raises(kind):
        shared.fetch("a")
    assert slept == []


def test_what_was_made_between_the_look_and_the_claim_is_not_made_again(host):
    first, second = host(), host()
    kept = second._artefacts

    def look(key):
        if second._claims:
            return kept.get(key)
        assert first.made(key, lambda: b"binary") == b"binary"  # just after this look
        return None

    second._artefacts = SimpleNamespace(get=look, claim=kept.claim, release=kept.release)
    assert second.made("a", lambda: pytest.fail("compiled again")) == b"binary"
    assert not second._claims and kept.claim("a", "another") is True
