"""Folders of Triton's cache that hosts share: fetched, placed, noted and kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewise.errors import Unavailable, UsageError
from tilewise.tuner.devices.measured import shared_binaries as module
from tilewise.tuner.devices.measured import triton_cache
from tilewise.tuner.devices.measured.shared_binaries import MANAGER, Session, made_for_farm, session, shared_binaries
from tilewise.tuner.workers.farm import Order

COMPILE = ("tests_compile:run", ("gemm", 3))


class Shared:
    """The artefacts of other hosts, and what is kept for them."""

    def __init__(self, **held):
        self.held, self.asked, self.settled = held, [], []

    def fetch(self, key):
        self.asked.append(key)
        return self.held.get(key)

    def settle(self, key, content):
        self.settled.append((key, content))


class Manager:
    """A folder of Triton's cache."""

    def __init__(self, folder, key="k1"):
        self.cache_dir, self.key, self.placed = str(folder), key, []

    def place(self, filename, files, group):
        self.placed.append((filename, files, group))


@pytest.fixture
def orders(monkeypatch):
    """Orders that the farm is given; it gives what `answers` holds by key."""
    made = SimpleNamespace(seen=[], answers={})
    monkeypatch.setattr(module, "from_farm", lambda order: made.seen.append(order) or made.answers.get(order.key))
    return made


@pytest.fixture
def folder(tmp_path):
    """A folder of a kernel's files, with what Triton keeps there for itself."""
    for name, text in (("kernel.ttir", "ir"), ("kernel.cubin", "binary"), ("__grp__kernel.json", "{}"), ("lock", "")):
        (tmp_path / name).write_text(text)
    (tmp_path / "inner").mkdir()
    return tmp_path


def test_a_kernel_that_no_other_host_has_is_compiled_here_and_kept_for_them(orders, folder):
    shared = Shared()
    current, manager = Session(shared, "CUDA 13.1", COMPILE), Manager(folder)
    assert [current.fetch(manager, "kernel.json") for _ in range(2)] == [False, False]
    [order] = orders.seen  # it is not asked for again
    maker = "tilewise.tuner.devices.measured.shared_binaries:made_for_farm"
    assert order == Order(order.key, "CUDA 13.1", maker, COMPILE)
    assert (shared.asked, current.made, manager.placed) == ([order.key], [order.key], [])
    assert current.packed(order.key) is None
    current.note(manager, "kernel.json", {"kernel.ttir": "there", "kernel.cubin": "there"})
    current.settle()
    [(key, content)] = shared.settled
    files, group = module._unpacked(content)
    assert key == order.key and group == ["kernel.cubin", "kernel.ttir"]
    assert files == {"kernel.ttir": b"ir", "kernel.cubin": b"binary"}


def test_what_was_begun_and_not_made_is_given_up(orders, folder):
    shared = Shared()
    current = Session(shared, "CUDA 13.1", COMPILE)
    current.fetch(Manager(folder), "kernel.json")
    current.settle()
    assert shared.settled == [(current.made[0], None)]
    Session(None, "CUDA 13.1", COMPILE).settle()


def test_a_key_tells_toolchains_kernels_and_files_apart(orders, folder):
    one, other = Session(None, "CUDA 13.1", COMPILE), Session(None, "CUDA 13.2", COMPILE)
    for current, manager, name in (
        (one, Manager(folder), "a.json"),
        (one, Manager(folder), "b.json"),
        (one, Manager(folder, "k2"), "a.json"),
        (other, Manager(folder), "a.json"),
    ):
        assert current.fetch(manager, name) is False
    keys = [order.key for order in orders.seen]
    assert len(set(keys)) == 4 and {len(key) for key in keys} == {64}


@pytest.mark.parametrize("where", ["farm", "shared"])
def test_a_kernel_of_another_host_is_placed_here(orders, folder, where):
    content = module._packed(folder, {"kernel.cubin": "there"})
    probe = Session(None, "CUDA 13.1", COMPILE)
    probe.fetch(Manager(folder), "kernel.json")
    (key,) = probe.made
    shared = Shared(**({key: content} if where == "shared" else {}))
    orders.answers |= {key: content} if where == "farm" else {}
    current, manager = Session(shared, "CUDA 13.1", COMPILE), Manager(folder)
    assert current.fetch(manager, "kernel.json") is True
    assert manager.placed == [("kernel.json", {"kernel.ttir": b"ir", "kernel.cubin": b"binary"}, ["kernel.cubin"])]
    assert shared.asked == ([] if where == "farm" else [key]) and current.made == []
    current.settle()
    assert shared.settled == []


@pytest.fixture
def settings(monkeypatch):
    """The sharing of artefacts by hosts, and the farm's socket; the variable of Triton's cache is put back."""
    made = SimpleNamespace(shared=None, farm=None)
    monkeypatch.setattr(module, "shared_artefacts", lambda: made.shared)
    monkeypatch.setattr(module, "read_settings", lambda: SimpleNamespace(farm=made.farm))
    monkeypatch.setenv("TRITON_CACHE_MANAGER", "put back in the end")
    monkeypatch.delenv("TRITON_CACHE_MANAGER")
    return made


def test_without_artefacts_and_a_farm_tritons_cache_stays_as_it_is(settings):
    with shared_binaries("CUDA 13.1", "m:f", 1):
        assert session() is None and "TRITON_CACHE_MANAGER" not in os.environ


@pytest.mark.parametrize("what", ["shared", "farm"])
def test_a_session_lasts_as_long_as_its_compilation_and_keeps_what_it_made(settings, orders, folder, what):
    shared = settings.shared = Shared() if what == "shared" else None
    settings.farm = "socket:key" if what == "farm" else None
    seen = []

    def compile_one():
        with shared_binaries("CUDA 13.1", "m:f", 1, "two"):
            seen.append(session())
            with shared_binaries("CUDA 13.1", "m:g"):
                seen.append(session())
            assert session() is seen[0] and os.environ["TRITON_CACHE_MANAGER"] == MANAGER
            seen[0].fetch(Manager(folder), "kernel.json")
            raise ValueError("it does not compile")

    with pytest.raises(ValueError, match="it does not compile"):
        compile_one()
    outer, inner = seen
    assert (outer.shared, outer.toolchain, outer.compile) == (shared, "CUDA 13.1", ("m:f", (1, "two")))
    assert inner.compile == ("m:g", ())
    assert session() is None
    if shared is not None:
        assert shared.settled == [(outer.made[0], None)]


def test_another_cache_of_the_users_is_not_replaced(settings, monkeypatch):
    settings.farm = "socket:key"
    monkeypatch.setenv("TRITON_CACHE_MANAGER", "mine:Cache")
    said = "TRITON_CACHE_MANAGER and TILEWISE_ARTEFACTS both replace Triton's cache; unset one of them"
    with pytest.raises(UsageError, match=said), shared_binaries("CUDA 13.1", "m:f"):
        pass
    monkeypatch.setenv("TRITON_CACHE_MANAGER", MANAGER)
    with shared_binaries("CUDA 13.1", "m:f"):
        assert session() is not None


@pytest.mark.parametrize("compiled", [True, False])
def test_a_farm_gets_what_a_compilation_left_in_the_cache(settings, orders, folder, monkeypatch, compiled):
    def run(*arguments):
        assert arguments == (3, "x")
        with shared_binaries("CUDA 13.1", "tests_compile:run", *arguments):
            manager = Manager(folder)
            if compiled:
                session().fetch(manager, "kernel.json")
            session().note(manager, "kernel.json", {"kernel.ttir": "there"})

    monkeypatch.setitem(sys.modules, "tests_compile", SimpleNamespace(run=run))
    probe = Session(None, "CUDA 13.1", COMPILE)
    key = probe._key(Manager(folder), "kernel.json")
    content, made_here = made_for_farm(key, "tests_compile:run", (3, "x"))
    assert module._unpacked(content)[1] == ["kernel.ttir"] and made_here is compiled
    with pytest.raises(Unavailable, match="has another Triton, toolchain or kernel: it compiled something else"):
        made_for_farm("another key", "tests_compile:run", (3, "x"))
    assert module._collected == []


def test_tritons_cache_asks_the_session_for_what_it_lacks(monkeypatch, tmp_path):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "here"))
    manager, asked, noted = triton_cache.SharedCacheManager("k1"), [], []

    def fetch(cache, filename):
        asked.append(filename)
        if filename == "theirs.json":
            cache.place(filename, {"theirs.cubin": b"binary", "theirs.txt": b"beside"}, ["theirs.cubin"])
        return filename == "theirs.json"

    current = SimpleNamespace(fetch=fetch, note=lambda cache, filename, group: noted.append((filename, sorted(group))))
    monkeypatch.setattr(module, "_sessions", [current])
    assert not manager.get_group("mine.json") and noted == []
    path = manager.put(b"mine", "mine.cubin")
    manager.put_group("mine.json", {"mine.cubin": path})
    assert noted == [("mine.json", ["mine.cubin"])]
    found = manager.get_group("theirs.json")
    assert list(found) == ["theirs.cubin"] and Path(found["theirs.cubin"]).read_bytes() == b"binary"
    assert list(manager.get_group("mine.json")) == ["mine.cubin"]
    assert asked == ["mine.json", "theirs.json"]
    assert noted[1:] == [("theirs.json", ["theirs.cubin"]), ("mine.json", ["mine.cubin"])]
    monkeypatch.setattr(module, "_sessions", [])
    assert list(manager.get_group("theirs.json")) == ["theirs.cubin"] and not manager.get_group("none.json")
    manager.put_group("mine.json", {"mine.cubin": path})
    assert len(noted) == 3
    with pytest.raises(AttributeError, match="has no attribute 'Other'"):
        _ = triton_cache.Other
