"""Timelines: drawn with the toolchain that a result was tuned with, and no other."""

from typing import ClassVar

import pytest
from scopes import changed

from tilewise.db.records import Clock, Problem, Scope
from tilewise.errors import Unavailable
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.device import ModelDevice
from tilewise.tuner.explain import timeline as timeline_module
from tilewise.tuner.explain.timeline import draw, is_drawable, timeline
from tilewise.tuner.workers.worker import WorkerError

CONFIG = {"BLOCK_SIZE_M": 25, "SUB_BLOCK_SIZE_M": 25, "BLOCK_SIZE_N": 256, "multibuffer": True}


@pytest.mark.skipif(bool(toolchain.unavailable_reason()), reason="the Ascend compiler is not installed")
def test_a_timeline_is_drawn_only_where_the_toolchain_is_the_results_own():
    with ModelDevice("Ascend910B4", jobs=1) as device:
        here = device.toolchain
    shown = ("row_reduce", {"M": 1000, "N": 8192}, "float32", "Ascend910B4")
    assert draw(*shown, here, CONFIG).startswith("<svg")
    with pytest.raises(Unavailable, match=r"^it was tuned with older 1, but this machine has .*; tune it again$"):
        draw(*shown, "older 1", CONFIG)


def scope(**changes):
    problem = Problem("row_reduce", {"M": 1000, "N": 8192}, "float32")
    here = source_hash(registry.load("row_reduce"))
    return changed(Scope(problem, here, "Ascend910B4", Clock.MODELLED, "model 1", 40), **changes)


@pytest.mark.parametrize(
    ("changes", "missing", "drawable"),
    [
        ({}, "", True),
        ({"clock": Clock.MEASURED}, "", False),
        ({"device": "NVIDIA H200"}, "", False),
        ({"kernel": "mine"}, "", False),
        ({"source_hash": "other"}, "", False),
        ({}, "the compiler is not installed", False),
    ],
)
def test_a_timeline_is_offered_only_of_what_can_be_modelled_here(monkeypatch, changes, missing, drawable):
    monkeypatch.setattr(toolchain, "unavailable_reason", lambda: missing)
    assert is_drawable(scope(**changes)) is drawable


class Drawer:
    """A worker that answers with what it was given, or fails; `made` lists all of them."""

    made: ClassVar[list] = []

    def __init__(self, entry, *, env):
        self.started, self.closed, self.fails = (entry, env), False, False
        self.made.append(self)

    def call(self, *given, timeout):
        if given[0] == "softmax":
            raise WorkerError("it died")
        return (given, timeout)

    def close(self):
        self.closed = True


def test_a_timeline_is_drawn_in_a_process_of_its_own_which_ends(monkeypatch):
    monkeypatch.setattr(timeline_module, "Worker", Drawer)
    asked = ("row_reduce", {"M": 1000, "N": 8192}, "float32", "Ascend910B4", "model 1", CONFIG)
    assert timeline(scope(), CONFIG) == str((asked, 60.0))
    with pytest.raises(Unavailable, match=r"^cannot draw the timeline: it died$"):
        timeline(scope(kernel="softmax"), CONFIG)
    assert [drawer.closed for drawer in Drawer.made] == [True, True]
    assert Drawer.made[0].started == ("tilewise.tuner.explain.timeline:draw", {"TRITON_INTERPRET": None})
