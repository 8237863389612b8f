"""Loops over elements take as long as their trips one by one, and wait for each line of global memory once."""

import pytest

from tilewise.tuner.devices.ascend_model.clock.core import Memory, Rate
from tilewise.tuner.devices.ascend_model.clock.half_clock import HalfClock
from tilewise.tuner.devices.ascend_model.clock.program_clock import ProgramClock
from tilewise.tuner.hardware.ascend_costs import costs
from tilewise.tuner.hardware.figure import Figure

TILE = (
    '%rows = "arith.constant"() <{value = 20 : index}> : () -> index',
    '%cols = "arith.constant"() <{value = 30 : index}> : () -> index',
    '"scf.for"(%c0, %rows, %c1) ({',
    "^bb0(%i: index):",
    '%row = "arith.muli"(%i, %cols) : (index, index) -> index',
    '"scf.for"(%c0, %cols, %c1) ({',
    "^bb0(%j: index):",
    '%at = "arith.addi"(%row, %j) : (index, index) -> index',
    '%v = "memref.load"(%SOURCE, %at) : (KIND, index) -> f32',
    '"memref.store"(%v, %a, %at) : (f32, UB, index) -> ()',
    '"scf.yield"() : () -> ()',
    "}) : (index, index, index) -> ()",
    '"scf.yield"() : () -> ()',
    "}) : (index, index, index) -> ()",
)


@pytest.fixture
def tile(program):
    """Copy a tile of 20 x 30 elements, from on-chip memory (a) or global memory (x)."""

    def lines(source):
        kind = {"a": "UB", "x": "GM"}[source]
        return program(*(line.replace("SOURCE", source).replace("KIND", kind) for line in TILE))

    return lines


def time(clock, function, changes):
    figures = {name: Figure(value, value, value, "", "") for name, value in changes.items()}
    rates = dict.fromkeys(range(len(function.arguments)), Rate(32.0, 32.0, 0.0))
    return clock(function, costs(instead=figures)).run((1, 1, 1, 1), 0, Memory(rates, rates))


def test_all_trips_at_once_take_as_long_as_one_by_one(tile):
    alike = {"scalar_on_chip": 5.0, "element_access": 5.0}
    one_by_one, at_once = (time(clock, tile("a"), alike) for clock in (ProgramClock, HalfClock))
    assert at_once.cycles == pytest.approx(one_by_one.cycles)
    assert at_once.busy["S"] == pytest.approx(one_by_one.busy["S"])


def test_an_element_of_global_memory_costs_its_part_of_a_line(tile):
    quick, slow = (time(HalfClock, tile("x"), {"element_line": cycles}) for cycles in (100, 260))
    assert slow.cycles - quick.cycles == pytest.approx(600 * 4 / 64 * 160)
    assert slow.bytes_in == 600 * 4


def test_a_store_in_every_trip_takes_as_long_as_one_by_one(tile, program):
    """It keeps its pipe busy, whether that or the scalar unit is behind in the end."""
    lines = list(TILE)
    lines[9:9] = ["store"]
    function = program(*(line.replace("SOURCE", "a").replace("KIND", "UB") for line in lines))
    for access in (5.0, 200.0):
        alike = {"scalar_on_chip": access, "element_access": access}
        one_by_one, at_once = (time(clock, function, alike) for clock in (ProgramClock, HalfClock))
        assert at_once.cycles == pytest.approx(one_by_one.cycles, rel=1e-3)  # but for the first trip's start
        assert at_once.busy == pytest.approx(one_by_one.busy)
        assert at_once.writes == one_by_one.writes
