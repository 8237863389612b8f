"""A program's full timeline: the same times, one critical path that adds up, flags from setter to waiter."""

import itertools

import pytest

from tilewise.tuner.devices.ascend_model.clock.core import MTE2, MTE3, PIPES, VECTOR_PIPES, Memory, Rate, S, V
from tilewise.tuner.devices.ascend_model.clock.program_clock import ProgramClock
from tilewise.tuner.devices.ascend_model.clock.recording import record
from tilewise.tuner.hardware.ascend_costs import costs

COSTS = costs()
LATENCY = 260
LOAD = (16384 + COSTS["row_bytes"]) / 32
CHAIN = ("load", "set MTE2 V 0", "wait MTE2 V 0", "exp", "set V MTE3 0", "wait V MTE3 0", "store")
SHAPES = {"even": (1000, 8192), "primes": (997, 8191), "one column": (1000, 1)}
TILES = {"one sub-tile": (25, 25, 256), "sub-tiles with a tail": (25, 4, 512), "single buffers": (25, 5, 2048)}


@pytest.fixture
def course(program):
    def make(*lines):
        function = program(*lines)
        rates = dict.fromkeys(range(len(function.arguments)), Rate(32.0, 32.0, LATENCY))
        return record(function, COSTS, (1, 1, 1, 1), 0, Memory(rates, rates))

    return make


def path(recording):
    return [(PIPES[event.pipe], event.work) for event, _ in recording.critical_path()]


def test_a_chain_is_its_own_critical_path(course):
    recording = course(*CHAIN)
    assert [pipe for pipe, work in path(recording) if work] == ["MTE3", "V", "MTE2", "S"]
    assert sum(cycles for _, cycles in recording.critical_path()) == pytest.approx(recording.time.cycles)


def test_what_is_hidden_behind_another_pipe_is_not_on_the_path(course):
    recording = course("exp", "load")  # side by side, and the load takes longer
    assert [pipe for pipe, work in path(recording) if work] == ["MTE2", "S", "S"]


def test_the_latency_of_a_transfer_belongs_to_the_transfer(course):
    (load,) = [(e, cycles) for e, cycles in course(*CHAIN).critical_path() if e.pipe == MTE2 and e.work]
    event, cycles = load
    assert event.end - event.start == pytest.approx(LOAD)
    assert cycles == pytest.approx(LOAD + LATENCY)
    assert event.done == pytest.approx(event.start + cycles)


def test_a_barrier_waits_for_what_was_not_done(course):
    """Its event starts when the start-up of the first operation is over."""
    recording = course("exp", "barrier V", "exp")
    first, barrier, second = [event for event in recording.events if event.pipe == V]
    assert (first.work, barrier.work, second.work) == (True, False, True)
    assert barrier.start == first.done == pytest.approx(first.end + COSTS["function_start"])
    assert second.start == barrier.end == pytest.approx(barrier.start + COSTS["barrier"])


def test_a_flag_leads_from_what_was_done_before_it_to_what_waited(course):
    recording = course(*CHAIN)
    ends = [(recording.events[flow.source], recording.events[flow.target]) for flow in recording.flows]
    assert [(source.pipe, target.pipe) for source, target in ends] == [(MTE2, V), (V, MTE3)]
    assert all(source.done <= target.start for source, target in ends)


def test_pipes_do_one_thing_at_a_time(course):
    recording = course("load", "exp", "load", "exp", "store")
    for pipe in range(len(PIPES)):
        events = [event for event in recording.events if event.pipe == pipe]
        assert all(before.end <= after.start for before, after in itertools.pairwise(events))


def test_every_event_names_its_operation(course):
    recording = course(*CHAIN)
    named = {PIPES[event.pipe]: recording.names[event.op] for event in recording.events if event.work and event.pipe}
    assert named == {"MTE2": "hivm.hir.load", "V": "hivm.hir.vexp", "MTE3": "hivm.hir.store"}


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("shape", SHAPES)
def test_recording_changes_no_time(tile, shape, row_reduce, problem, rows, function):
    code, arguments = function(row_reduce, problem(*SHAPES[shape]), rows(*TILES[tile]))
    rates = dict.fromkeys(range(len(code.arguments)), Rate(60.0, 30.0, LATENCY))
    memory = Memory(rates, rates)
    plain = ProgramClock(code, COSTS).run(arguments, 0, memory)
    recording = record(code, COSTS, arguments, 0, memory)
    assert recording.time.cycles == pytest.approx(plain.cycles, rel=1e-9)
    assert recording.time.busy == pytest.approx(plain.busy, rel=1e-9)
    assert (recording.time.reads, recording.time.writes) == (plain.reads, plain.writes)
    busy = {
        pipe: sum(e.end - e.start for e in recording.events if e.work and e.pipe == n)
        for n, pipe in enumerate(VECTOR_PIPES)
    }
    assert busy == pytest.approx(plain.busy, rel=1e-9)
    steps = list(recording.critical_path())
    assert sum(cycles for _, cycles in steps) == pytest.approx(plain.cycles, rel=1e-9)
    assert min(cycles for _, cycles in steps) >= 0
    assert steps[-1][0].start == 0
    assert recording.events[-1].pipe == S
