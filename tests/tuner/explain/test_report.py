"""Reports on winners: made with the toolchain that a result was tuned with, and no other, in a process that ends."""

import json
import os
import re
from contextlib import nullcontext
from types import SimpleNamespace
from typing import ClassVar

import pytest
from pydantic import TypeAdapter
from scopes import changed

from tilewise.api.http import schemas
from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import StoreError, Unavailable, UnknownKernel
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.tuner.devices.ascend_model import device as device_module
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.device import ModelDevice
from tilewise.tuner.devices.ascend_model.report import drawing
from tilewise.tuner.devices.ascend_model.report import trace as trace_module
from tilewise.tuner.explain import explain as explain_module
from tilewise.tuner.explain import report as report_module
from tilewise.tuner.explain.report import make, report, unexplained_reason
from tilewise.tuner.hardware.ascend_parts import PARTS
from tilewise.tuner.workers.worker import WorkerError, WorkerPool

CONFIG = {"BLOCK_SIZE_M": 25, "SUB_BLOCK_SIZE_M": 25, "BLOCK_SIZE_N": 256, "multibuffer": True}


@pytest.fixture
def url(tmp_path):
    """A store in which the scope has one trial, which won."""
    place = f"sqlite:///{tmp_path / 'tilewise.db'}"
    with open_store(place, create=True) as store:
        store.record(scope(), [Trial(config=CONFIG, status=Status.CORRECT, time_us=30.0, verified=True)])
    return place


@pytest.mark.skipif(bool(toolchain.unavailable_reason()), reason="the Ascend compiler is not installed")
def test_a_report_has_what_explain_knows_and_the_source_with_its_costs(url, monkeypatch):
    monkeypatch.setattr(os, "setpriority", lambda *given: None)  # this process is to stay as urgent as it is
    with ModelDevice("Ascend910B4", jobs=1) as device:
        here = device.toolchain
    found = make(url, registry.place("row_reduce"), scope(toolchain=here), CONFIG)
    body = found.explanation
    assert TypeAdapter(schemas.Explanation).validate_json(json.dumps(body)) == body  # what /v1/explain promises
    assert body["feasible"] and body["options"][0]["option"] == "multibuffer"
    assert sum(line.path_us for line in found.source) <= body["modelled_us"]
    first, costly = found.source[0], max(found.source, key=lambda line: line.path_us)
    assert first.text == "@triton.jit" and "tl.sigmoid" in costly.text
    assert costly.path_us > 0.5 * body["modelled_us"] and costly.pipes_us["V"] > 0
    assert [line.number for line in found.source] == list(range(first.number, first.number + len(found.source)))
    assert found.timeline.startswith("<svg") and json.loads(found.trace)["traceEvents"]
    with pytest.raises(Unavailable, match=r"^it was tuned with older 1, but this machine has .*; tune it again$"):
        make(url, registry.place("row_reduce"), scope(toolchain="older 1"), CONFIG)


@pytest.mark.skipif(bool(toolchain.unavailable_reason()), reason="the Ascend compiler is not installed")
def test_a_report_compiles_in_one_process_as_the_server_needs_the_other_cores(url, monkeypatch):
    monkeypatch.setattr(os, "setpriority", lambda *given: None)
    sizes = []

    class NotedPool(WorkerPool):
        def __init__(self, entry, size, **options):
            sizes.append(size)
            super().__init__(entry, size, **options)

    monkeypatch.setattr(device_module, "WorkerPool", NotedPool)
    with pytest.raises(Unavailable, match=r"tune it again$"):
        make(url, registry.place("row_reduce"), scope(toolchain="older 1"), CONFIG)
    assert sizes == [1]


@pytest.mark.parametrize(("limit", "trace"), [(5, "[1,2]"), (4, "")])
def test_a_trace_that_browsers_would_read_for_seconds_is_left_out(url, monkeypatch, limit, trace):
    monkeypatch.setattr(os, "setpriority", lambda *given: None)
    analysis = SimpleNamespace(lines=dict)
    device = SimpleNamespace(scope=lambda *about: scope(), analyse=lambda *about: analysis)
    monkeypatch.setattr(device_module, "ModelDevice", lambda part, jobs: nullcontext(device))
    monkeypatch.setattr(explain_module, "explain", lambda *about: {})
    monkeypatch.setattr(report_module, "listing", lambda lines: [])
    monkeypatch.setattr(drawing, "drawing", lambda found: "<svg/>")
    monkeypatch.setattr(trace_module, "trace_events", lambda found: [1, 2])
    monkeypatch.setattr(report_module, "_LONGEST_TRACE", limit)
    assert make(url, registry.place("row_reduce"), scope(), CONFIG).trace == trace


def test_a_report_makes_no_database_where_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "setpriority", lambda *given: None)
    with pytest.raises(StoreError):
        make(f"sqlite:///{tmp_path / 'none.db'}", registry.place("row_reduce"), scope(), CONFIG)
    assert not (tmp_path / "none.db").exists()


def test_paths_of_this_machine_are_left_out():
    finding = {"rule": "idle-cores", "line": "k.py:3", "file": "/home/me/k.py", "cause_file": "/home/me/k.py"}
    body = report_module._without_paths({"findings": [finding], "time_us": 1.0})
    assert body == {"findings": [{"rule": "idle-cores", "line": "k.py:3"}], "time_us": 1.0}


def scope(**changes):
    problem = Problem("row_reduce", {"M": 1000, "N": 8192}, "float32")
    here = source_hash(registry.load("row_reduce"))
    return changed(Scope(problem, here, "Ascend910B4", Clock.MODELLED, "model 1", 40), **changes)


@pytest.mark.parametrize(
    ("changes", "missing", "reason"),
    [
        ({}, "", ""),
        ({"clock": Clock.MEASURED}, "", "only results of modelled parts"),
        ({"device": "NVIDIA H200"}, "", "only results of modelled parts"),
        ({"kernel": "mine"}, "", "does not know the kernel"),
        ({"source_hash": "other"}, "", "another version of the kernel's source"),
        ({"toolchain": "older 1"}, "", "^it was tuned with older 1, but the server has .*; tune it again$"),
        ({}, "needs the compiler", "^the server needs the compiler$"),
    ],
)
def test_only_what_can_be_modelled_here_is_explained(monkeypatch, changes, missing, reason):
    monkeypatch.setattr(toolchain, "unavailable_reason", lambda: missing)
    here = toolchain.identity(PARTS["Ascend910B4"])
    found = unexplained_reason(scope(**{"toolchain": here} | changes))
    assert re.search(reason, found) if reason else not found


class Maker:
    """A worker that answers with what it was given, or fails; `made` lists all of them."""

    made: ClassVar[list] = []

    def __init__(self, entry, *, env):
        self.started, self.closed = (entry, env), False
        self.made.append(self)

    def call(self, *given, timeout):
        if given[2].kernel == "softmax":
            raise WorkerError("it died")
        return (given, timeout)

    def close(self):
        self.closed = True


def test_a_report_is_made_in_a_process_of_its_own_which_ends(monkeypatch):
    monkeypatch.setattr(report_module, "Worker", Maker)
    asked = ("sqlite:///x", registry.place("row_reduce"), scope(), CONFIG)
    assert report("sqlite:///x", scope(), CONFIG) == (asked, 120.0)
    with pytest.raises(Unavailable, match=r"^cannot explain it: it died$"):
        report("sqlite:///x", scope(kernel="softmax"), CONFIG)
    assert [maker.closed for maker in Maker.made] == [True, True]
    assert Maker.made[0].started == ("tilewise.tuner.explain.report:make", {"TRITON_INTERPRET": None})


@pytest.mark.parametrize(("now", "then"), [(0, report_module._NICENESS), (19, 19)])
def test_the_process_that_makes_a_report_gives_way_to_others(monkeypatch, now, then):
    given = []
    monkeypatch.setattr(report_module.os, "getpriority", lambda which, who: now)
    monkeypatch.setattr(report_module.os, "setpriority", lambda *about: given.append(about))
    with pytest.raises(UnknownKernel):
        report_module.make("sqlite://", "no such kernel", None, {})
    assert given == [(report_module.os.PRIO_PROCESS, 0, then)]
