"""Helion's remote cache over the service, by the interface of helion 1.5.1.

Helion itself is in no test environment: `tilewise bench helion` runs the real package.
"""

from __future__ import annotations

import abc
import importlib
import json
import math
import sys
from types import ModuleType, SimpleNamespace

import pytest

from tilewise.client import Client
from tilewise.errors import Forbidden, UsageError

KEY = "ab" * 32
TEXT = json.dumps({"config": '{"block_sizes": [16, 128]}', "key": {"fields": {"hardware": "NVIDIA H200"}}})


class RemoteCacheBackend(abc.ABC):
    @abc.abstractmethod
    def get(self, key): ...

    @abc.abstractmethod
    def put(self, key, data): ...


class RemoteAutotuneCache:
    """Writes what a search found to its backend, as Helion's does."""

    def __init__(self, autotuner, *, autotuner_factory=None):
        self.autotuner, self.factory = autotuner, autotuner_factory
        self.args = autotuner.args
        self.kernel = SimpleNamespace(kernel=SimpleNamespace(name="add"))

    def put(self, config):
        self._backend.put(KEY, TEXT)


@pytest.fixture
def module(monkeypatch, client, token_of):
    """`tilewise.helion`, whose cache reaches the service of the test with the token of a writer."""
    autotuner, settings = ModuleType("helion.autotuner"), ModuleType("helion.runtime.settings")
    autotuner.RemoteCacheBackend, autotuner.RemoteAutotuneCache = RemoteCacheBackend, RemoteAutotuneCache
    settings.default_autotuner_fn = lambda kernel, args, **how: SimpleNamespace(
        autotuner=kernel, _autotuner_factory=how
    )
    for name in ("helion", "helion.runtime"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "helion.autotuner", autotuner)
    monkeypatch.setitem(sys.modules, "helion.runtime.settings", settings)
    monkeypatch.delitem(sys.modules, "tilewise.helion", raising=False)
    module = importlib.import_module("tilewise.helion")
    monkeypatch.setenv("TILEWISE_HELION_SERVER", "http://testserver")
    monkeypatch.setenv("TILEWISE_TOKEN", token_of("submit")["authorization"].removeprefix("Bearer "))
    monkeypatch.setattr(module, "Client", lambda url, **how: Client(url, **how, transport=client._transport))
    yield module
    sys.modules.pop("tilewise.helion", None)


def test_a_record_that_one_process_puts_another_one_gets(module, client):
    assert module.RemoteCache().get(KEY) is None
    module.RemoteCache().put(KEY, TEXT)
    assert json.loads(module.RemoteCache().get(KEY)) == json.loads(TEXT)
    [listed] = client.get("/v1/helion").json()["records"]
    assert listed["device"] == "NVIDIA H200" and not {"kernel", "search_us"} & listed.keys()


def test_helion_gets_the_newest_records_first(module):
    cache = module.RemoteCache()
    for number in (1, 2, 3):
        cache.put(f"{number:064}", json.dumps(json.loads(TEXT) | {"flat_config": str(number)}))
    assert [json.loads(text)["flat_config"] for text in cache.list(2)] == ["3", "2"]
    assert len(list(cache.list())) == 3


def test_only_a_writer_may_put(module, token_of, monkeypatch):
    monkeypatch.setenv("TILEWISE_TOKEN", token_of("read")["authorization"].removeprefix("Bearer "))
    with pytest.raises(Forbidden, match="the request needs submit"):
        module.RemoteCache().put(KEY, TEXT)


def test_without_a_server_one_line_names_the_variable(module, monkeypatch):
    monkeypatch.delenv("TILEWISE_HELION_SERVER")
    with pytest.raises(UsageError, match="TILEWISE_HELION_SERVER is not set"):
        module.RemoteCache()


@pytest.mark.parametrize(
    ("best", "args", "told"),
    [
        (0.25, (), {"kernel": "add", "search_us": 250.0}),
        (math.inf, (), {"kernel": "add"}),
        (0.0, (), {"kernel": "add"}),
        (0.25, SimpleNamespace(relative_to="a baseline"), {"kernel": "add"}),
    ],
)
def test_the_autotuner_tells_the_name_and_the_time_where_it_is_one(module, client, best, args, told):
    search = SimpleNamespace(best_perf_so_far=best, args=args)
    cache = module.autotuner(search, args, seed=1)
    assert cache.factory == {"seed": 1}
    cache._backend = module.RemoteCache()
    cache.put(object())
    [listed] = client.get("/v1/helion").json()["records"]
    assert {name: value for name, value in listed.items() if name in ("kernel", "search_us")} == told


@pytest.mark.parametrize(
    "record",
    [
        '{"a": NaN}',
        '{"a": "\\ud800"}',
        "[" * 500 + "]" * 500,
        '{"a": "' + "x" * 65536 + '"}',
        '{"a": "' + "é" * 32768 + '"}',
        "[]",
    ],
)
def test_what_cannot_be_kept_is_refused(client, token_of, problem_of, record):
    body = f'{{"device": "NVIDIA H200", "record": {record}}}'
    problem_of(client.put(f"/v1/helion/{KEY}", content=body, headers=token_of("submit")), 422)
    assert client.get("/v1/helion").json() == {"records": []}


@pytest.mark.parametrize("search_us", [True, "12.5", 0, 1e13])
def test_a_time_is_a_number_of_some_size(client, token_of, problem_of, search_us):
    body = {"device": "NVIDIA H200", "record": {}, "search_us": search_us}
    problem_of(client.put(f"/v1/helion/{KEY}", json=body, headers=token_of("submit")), 422)
    body["search_us"] = 12
    assert client.put(f"/v1/helion/{KEY}", json=body, headers=token_of("submit")).status_code == 200


def test_a_key_of_another_form_is_refused_and_found_nowhere(client, token_of, problem_of):
    body = {"device": "NVIDIA H200", "record": {}}
    problem_of(client.put("/v1/helion/abc", json=body, headers=token_of("submit")), 422)
    problem_of(client.put(f"/v1/helion/{KEY}", json=body), 401)
    problem_of(client.get("/v1/helion/abc"), 404)
