"""Compiling and timing of one config."""

from types import SimpleNamespace

import pytest

from tilewise.db.records import Status
from tilewise.errors import BadSpec
from tilewise.tuner.devices.ascend_model import model_config as model_config_module
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation
from tilewise.tuner.devices.ascend_model.model_config import model_config, trust_of
from tilewise.tuner.devices.ascend_model.toolchain import Compiled
from tilewise.tuner.hardware.ascend_parts import ON_CHIP_BYTES
from tilewise.tuner.hardware.cube_costs import TRUST


def test_a_config_without_the_option_is_double_buffered(row_reduce, problem, rows, target, cache_folder):
    size = problem(1000, 8192)
    double, single = (rows(25, 25, 256, multibuffer=option) for option in (True, False))
    silent = {name: value for name, value in double.items() if name != "multibuffer"}
    outcomes = [model_config(row_reduce, size, config, target, cache_folder)[0] for config in (silent, double, single)]
    times = [outcome.timing.time_us for outcome in outcomes]
    assert times[0] == times[1] < times[2]


def test_a_front_end_that_does_not_end_is_a_timeout(row_reduce, problem, rows, target, cache_folder, monkeypatch):
    monkeypatch.setattr(toolchain, "_LOWERED", {})
    monkeypatch.setattr(toolchain, "_SECONDS", 0.0001)
    outcome, _ = model_config(row_reduce, problem(1000, 8192), rows(25, 25, 256), target, cache_folder)
    assert (outcome.status, outcome.reason) == (Status.TIMEOUT, "triton-adapter-opt did not finish within 0.0001 s")
    monkeypatch.undo()
    assert model_config(row_reduce, problem(1000, 8192), rows(25, 25, 256), target, cache_folder)[0].timing


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (UnknownOperation("the model does not know x"), Status.UNMODELLED, "the model does not know x"),
        (TimeoutError("it did not end"), Status.TIMEOUT, "it did not end"),
        (RuntimeError("it does not compile"), Status.COMPILE, "it does not compile"),
        (SyntaxError("nor this"), Status.COMPILE, "nor this"),
    ],
)
def test_what_the_front_end_raises_is_the_outcome(
    row_reduce, problem, rows, target, cache_folder, monkeypatch, error, status, reason
):
    def fail(*about):
        raise error

    monkeypatch.setattr(toolchain, "lower", fail)
    outcome, machines = model_config(row_reduce, problem(1000, 8192), rows(25, 25, 256), target, cache_folder)
    assert (outcome.status, outcome.timing, machines) == (status, None, None)
    assert reason in outcome.reason and outcome.facts == {}
    monkeypatch.setattr(toolchain, "lower", lambda *about: (_ for _ in ()).throw(BadSpec("the spec is wrong")))
    with pytest.raises(BadSpec, match="the spec is wrong"):
        model_config(row_reduce, problem(1000, 8192), rows(25, 25, 256), target, cache_folder)


@pytest.mark.parametrize(
    ("made", "status", "bits"),
    [
        (
            Compiled(refusal="ub overflow", required_bits=9, available_bits=7),
            Status.COMPILE,
            {"available": 7, "required": 9},
        ),
        (Compiled(refusal="it did not end", timed_out=True), Status.TIMEOUT, {"available": 196608 * 8}),
        (Compiled(refusal="no", required_bits=0), Status.COMPILE, {"available": 196608 * 8, "required": 0}),
    ],
)
def test_a_refusal_says_how_much_memory_was_wanted_and_there(
    row_reduce, problem, rows, target, cache_folder, monkeypatch, made, status, bits
):
    monkeypatch.setattr(toolchain, "lower", lambda *about: "")
    monkeypatch.setattr(toolchain, "compile_linalg", lambda *about, cache_folder: made)
    outcome, machines = model_config(row_reduce, problem(1000, 8192), rows(25, 25, 256), target, cache_folder)
    assert (outcome.status, outcome.reason, machines) == (status, made.refusal, None)
    assert outcome.facts == {"on_chip_bits": bits}


def test_code_that_cannot_be_read_or_deadlocks_has_no_time(
    row_reduce, problem, rows, target, cache_folder, monkeypatch
):
    given = row_reduce, problem(1000, 8192), rows(25, 25, 256), target, cache_folder
    kept = toolchain.compile_linalg
    with monkeypatch.context() as patch:
        patch.setattr(toolchain, "compile_linalg", lambda *about, cache_folder: Compiled(code="no code"))
        outcome, _ = model_config(*given)
    assert (outcome.status, outcome.facts, outcome.timing) == (Status.UNMODELLED, {}, None)

    def stuck(self, end):
        raise ValueError("deadlock: V waits")

    monkeypatch.setattr(model_config_module.Machines, "time", stuck)
    outcome, machines = model_config(*given)
    assert (outcome.status, outcome.reason, machines) == (Status.RUNTIME, "deadlock: V waits", None)
    assert outcome.facts["effective_options"] == {"multibuffer": True, "code_motion": True}
    assert toolchain.compile_linalg is kept


@pytest.mark.parametrize(
    ("planned", "dropped", "wanted", "facts"),
    [
        ([{"ub": 1000}], set(), True, (8000, 196608 * 8, True, True)),
        ([{"ub": 1000}, {"ub": 3000}], {"auto-multi-buffer"}, True, (24000, 196608 * 8, False, True)),
        ([{"ub": 1000}], {"code-motion"}, False, (8000, 196608 * 8, False, False)),
        ([{"ub": 1000, "cbuf": 400_000, "cc": 1000}], set(), True, (3_200_000, ON_CHIP_BYTES["cbuf"] * 8, True, True)),
    ],
)
def test_the_facts_of_compiling_are_the_fullest_memory_and_what_held_in_all_launches(
    target, planned, dropped, wanted, facts
):
    functions = [
        SimpleNamespace(
            planned_bytes=lambda space, each=each: each.get(space, 0), multi_buffered=lambda each=each: "cc" in each
        )
        for each in planned
    ]
    found = model_config_module._facts(functions, dropped, wanted, target)
    required, available, multibuffer, motion = facts
    assert found == {
        "on_chip_bits": {"required": required, "available": available},
        "effective_options": {"multibuffer": multibuffer, "code_motion": motion},
        "double_buffered": "cc" in planned[0],
    }


def timed(time_us, *, overhead=0.0, odd=0.0, bound_by="M"):
    return SimpleNamespace(
        time_us=time_us, overhead_us={"launch": overhead / 2, "start": overhead / 2}, odd_rows_us=odd, bound_by=bound_by
    )


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (timed(99.9), "small product"),
        (timed(100.0), "large product"),
        (timed(90.0, overhead=30.0), "small product"),
        (timed(90.0, overhead=30.1), "launch-bound"),
        (timed(100.0, odd=29.9), "large product"),
        (timed(100.0, odd=30.0), "odd rows"),
        (timed(100.0, overhead=50.0, odd=50.0), "launch-bound"),
    ],
)
def test_a_class_begins_at_a_share_of_the_time(found, kind):
    function = SimpleNamespace(core="cube", vector=None, walk=lambda: iter(()))
    assert model_config_module._class([function], found) == kind
    low, high = TRUST[kind]
    assert trust_of([function], found) == {"class": kind, "low": low, "high": high}
    beside = SimpleNamespace(core="cube", vector="a function", walk=lambda: iter(()))
    mixed = "cube and vector cores" if "product" in kind else kind
    assert model_config_module._class([function, beside], found) == mixed
    vector = SimpleNamespace(core="vector", vector=None, walk=lambda: iter(()))
    assert trust_of([vector], found) == {"class": "", "low": 0.82, "high": 1.22}
