"""The compile farm's orders over a stand-in for Ray that runs each task when it is waited for."""

from __future__ import annotations

import os
import socket
import sys
from types import SimpleNamespace

import pytest

from tilewise.errors import Unavailable
from tilewise.tuner.cluster import farm, ray_engine
from tilewise.tuner.cluster.farm import Farm, FarmReport, farm_report, fetched, start_farm
from tilewise.tuner.workers.farm import Order
from tilewise.tuner.workers.worker import WorkerDied, WorkerFailed


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause):
        super().__init__(f"Traceback ..\n{cause}")
        self.cause = cause


class Ref:
    """A reference to a result: a value, or an error to raise."""

    def __init__(self, value=None, error=None):
        self.value, self.error = value, error


class Remote:
    """A function or class as Ray offers it; `options` are noted."""

    def __init__(self, ray, target, options=None):
        self._ray, self._target, self._options = ray, target, options or {}

    def options(self, **options):
        return Remote(self._ray, self._target, options)

    def remote(self, *arguments):
        self._ray.started.append((self._target, self._options, arguments))
        if isinstance(self._target, type):
            return SimpleNamespace(made=Method(self._target()), options=self._options)
        content, where = Ref(), Ref()
        self._ray.tasks.append((arguments[0], content, where))
        return content, where


class Method:
    def __init__(self, actor):
        self._actor = actor

    def remote(self, order):
        try:
            return Ref(self._actor.made(order))
        except Exception as error:
            return Ref(error=RayTaskError(error))


class Ray:
    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self):
        self.started, self.tasks, self.cpus, self.done, self.limits, self.actors = [], [], 2.0, [], [], {}

    def remote(self, target):
        return Remote(self, target)

    def cluster_resources(self):
        return {"CPU": self.cpus} if self.cpus is not None else {}

    def wait(self, refs, *, num_returns, timeout):
        assert (num_returns, timeout) == (len(refs), 0)
        return [ref for ref in refs if ref in self.done], []

    def get(self, ref, timeout=None):
        self.limits.append(timeout)
        if ref.error is not None:
            raise ref.error
        return ref.value

    def get_actor(self, name, namespace):
        if (name, namespace) not in self.actors:
            raise ValueError(name)
        return self.actors[name, namespace]

    def get_runtime_context(self):
        return SimpleNamespace(get_node_id=lambda: "0123456789abcdef")

    def finish(self, number, content=b"code", *, node="host/1", compiled=True, error=None):
        """Have a task end, with its artefact or an error."""
        _, made, where = self.tasks[number]
        made.value, where.value, where.error = content, (node, compiled), error
        made.error = error
        self.done.append(where)


@pytest.fixture
def ray(monkeypatch):
    made = Ray()
    monkeypatch.setattr(farm, "import_ray", lambda: made)
    return made


def order(key):
    return Order(key, "triton", "module:make", (key,))


def test_an_order_is_made_once_and_then_given_by_reference(ray):
    made = Farm()
    [first], [again], [other] = made.made(order("a")), made.made(order("a")), made.made(order("b"))
    assert first is again is ray.tasks[0][1] and other is ray.tasks[1][1]
    assert [task[0].key for task in ray.tasks] == ["a", "b"]
    assert {tuple(sorted(options.items())) for _, options, _ in ray.started} == {
        (("max_retries", 1), ("num_cpus", 1), ("num_returns", 2))
    }
    assert made.report() == FarmReport({}, {}, again=1, failed=0, waiting=2)
    ray.finish(0)
    ray.finish(1, compiled=False, node="host/2")
    assert made.report() == FarmReport({"host/1": 1}, {"host/2": 1}, again=1)
    assert made.made(order("a")) == [first] and len(ray.tasks) == 2


def test_an_order_that_failed_is_tried_again_at_the_next_one(ray):
    made = Farm()
    made.made(order("a"))
    ray.finish(0, error=RayTaskError(Unavailable("no compiler here")))
    made.made(order("a"))
    assert len(ray.tasks) == 2
    assert made.report() == FarmReport({}, {}, again=0, failed=1, waiting=1)
    ray.finish(1)
    assert made.report() == FarmReport({"host/1": 1}, failed=1)


@pytest.mark.parametrize("cpus", [0.5, 0, None])
def test_without_a_processor_in_the_cluster_nothing_is_ordered(ray, cpus):
    ray.cpus = cpus
    with pytest.raises(Unavailable, match="no node of the cluster has a CPU for compile tasks"):
        Farm().made(order("a"))
    ray.cpus = 1
    assert Farm().made(order("a"))


def test_the_oldest_artefacts_are_forgotten_but_not_those_asked_for_since(ray, monkeypatch):
    monkeypatch.setattr(farm, "_MOST", 2)
    made = Farm()
    for key in ("a", "b", "a", "c"):
        made.made(order(key))
    assert list(made._objects) == ["a", "c"]
    for key in ("a", "c", "b"):
        made.made(order(key))
    assert [task[0].key for task in ray.tasks] == ["a", "b", "c", "b"]


def test_an_artefact_is_fetched_through_the_cluster_and_its_errors_are_its_own(ray):
    started = start_farm(ray)
    assert ray.started[0][1] == {
        "num_cpus": 0,
        "max_restarts": -1,
        "max_task_retries": 1,
        "name": "farm",
        "namespace": "tilewise",
        "lifetime": "detached",
        "get_if_exists": True,
    }
    started.made.remote(order("a"))
    ray.finish(0, b"artefact")
    assert fetched(started, order("a")) == b"artefact"
    assert ray.limits[-2:] == [30.0, farm.WAIT_SECONDS]
    started.made.remote(order("b"))
    ray.finish(1, error=RayTaskError(Unavailable("another compiler")))
    ray.done.clear()
    with pytest.raises(Unavailable, match=r"^another compiler$"):
        fetched(started, order("b"))
    ray.cpus = 0
    with pytest.raises(Unavailable, match="no node of the cluster"):
        fetched(started, order("c"))


def test_a_report_is_one_line_and_none_where_no_farm_answers(ray):
    report = FarmReport({"b/1": 4, "a/1": 1}, {"b/1": 2, "c/1": 3}, again=5, failed=1, waiting=2)
    assert str(report) == (
        "compile farm: a/1: 1 compiled, 0 from its caches; b/1: 4 compiled, 2 from its caches; "
        "c/1: 0 compiled, 3 from its caches; 5 by reference, 1 failed, 2 wait"
    )
    assert str(FarmReport()) == "compile farm: 0 by reference, 0 failed, 0 wait"
    assert farm_report(ray) is None
    answer = Ref(report)
    ray.actors["farm", "tilewise"] = SimpleNamespace(report=SimpleNamespace(remote=lambda: answer))
    assert farm_report(ray) == report and ray.limits == [10.0]
    answer.error = RayError("the actor died")
    assert farm_report(ray) is None


@pytest.mark.parametrize(
    ("outcome", "made"),
    [
        ((b"code", True), (b"code", True)),
        ((b"kept", False), (b"kept", False)),
        (WorkerFailed("ValueError", "it does not compile"), (None, True)),
        (WorkerDied("it crashed"), (None, True)),
    ],
)
def test_a_task_makes_an_artefact_in_a_process_of_its_compiler(ray, monkeypatch, outcome, made):
    calls = []

    def call(given, **limits):
        calls.append((given, limits))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(farm, "_worker", lambda compiler: calls.append(compiler) or SimpleNamespace(call=call))
    monkeypatch.setattr(farm, "waiting_seconds", lambda: 7.0)
    content, compiled = made
    assert farm._made(order("a")) == (content, (f"{socket.gethostname()}/01234567", compiled))
    assert calls == ["triton", (order("a"), {"timeout": 157.0, "memory_bytes": 8 << 30})]


def test_a_fault_of_the_node_is_raised_with_its_name(ray, monkeypatch):
    def call(given, **limits):
        raise WorkerFailed("Unavailable", "this host has another compiler")

    monkeypatch.setattr(farm, "_worker", lambda compiler: SimpleNamespace(call=call))
    with pytest.raises(Unavailable, match=f"^{socket.gethostname()}/01234567: this host has another compiler$"):
        farm._made(order("a"))


class Module:
    """Ray's module, whose start may fail."""

    def __init__(self, error=None):
        self.error, self.given, self.ended = error, None, 0

    def init(self, **options):
        self.given = options
        if self.error:
            raise self.error

    def shutdown(self):
        self.ended += 1


def connect(monkeypatch, module, address, resources=None):
    monkeypatch.setattr(ray_engine, "import_ray", lambda: module)
    monkeypatch.setattr(ray_engine, "answers", lambda address, seconds: address != "away:1" and seconds == 5.0)
    monkeypatch.setenv("TILEWISE_JOBS", "3")
    with ray_engine.connected(address, resources) as found:
        assert found is module and module.ended == 0
    assert module.ended == 1
    return module.given


def test_a_cluster_of_this_machine_offers_its_jobs_and_resources(monkeypatch):
    common = {"namespace": "tilewise", "log_to_driver": False, "logging_level": 40}
    alone = {"address": "local", "include_dashboard": False, "object_store_memory": 80_000_000, "num_cpus": 3}
    assert connect(monkeypatch, Module(), None, {"chip": 2}) == {**common, **alone, "resources": {"chip": 2}}
    assert connect(monkeypatch, Module(), None) == {**common, **alone, "resources": {}}
    for address in ("head:6379", "auto"):
        assert connect(monkeypatch, Module(), address) == {**common, "address": address}


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (None, "Ray could not start on this machine: no room left"),
        ("head:6379", "Ray does not answer at head:6379: no room left"),
        ("away:1", "no Ray cluster answers at away:1"),
    ],
)
def test_a_cluster_that_does_not_start_or_answer_is_one_line(monkeypatch, address, reason):
    module = Module(OSError("no  room\nleft"))
    with pytest.raises(Unavailable, match=f"^{reason}$"):
        connect(monkeypatch, module, address)
    assert module.ended == 0


@pytest.mark.parametrize("address", ["head", "head:", ":6379", "head:x", "6379"])
def test_an_address_has_a_host_and_a_port(address):
    with pytest.raises(ray_engine.UsageError, match="is not the address of a Ray cluster; expected HOST:PORT"):
        ray_engine.answers(address, 0.1)


def test_a_head_answers_if_it_takes_a_connection():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert ray_engine.answers(f"127.0.0.1:{port}", 5.0)
    assert not ray_engine.answers(f"127.0.0.1:{port}", 5.0)
    assert not ray_engine.answers("127.0.0.1:99999", 5.0)
    with pytest.raises(Unavailable, match=f"no Ray cluster answers at 127.0.0.1:{port}"):
        ray_engine.check_answers(f"127.0.0.1:{port}")
    ray_engine.check_answers("auto")


def test_ray_is_told_to_notice_lost_nodes_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", module := SimpleNamespace())
    for name in (*ray_engine.SETTINGS, "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, "put back in the end")
        monkeypatch.delenv(name)
    monkeypatch.setenv("RAY_health_check_period_ms", "7")
    assert ray_engine.import_ray() is module
    found = {name: os.environ[name] for name in ray_engine.SETTINGS}
    assert found == {**ray_engine.SETTINGS, "RAY_health_check_period_ms": "7"}
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(Unavailable, match=r"needs Ray: pip install 'tilewise\[fleet\]'"):
        ray_engine.import_ray()
