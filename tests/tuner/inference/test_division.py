"""The division of the work, found from samples of compiled code."""

from __future__ import annotations

from dataclasses import replace

from tilewise.kernels.spec import ceil_div
from tilewise.tuner.inference.code import Access, Work
from tilewise.tuner.inference.division import Sample, find_division, with_memory
from tilewise.tuner.inference.expressions import Fit


def sample(m, n, block, sub, columns, *, apart):
    """Return a config of a kernel whose programs take `block` rows, `sub` of them at a time, and loop over columns.

    With `apart`, the first trip of the inner loop stands before it.
    """
    shape, trips = (sub, columns), ceil_div(n, columns)
    work = Work(trips={0: ceil_div(block, sub), 1: trips - apart})
    work.accesses = [Access("x", "load", shape, 4, (0,))] * apart + [Access("x", "load", shape, 4, (0, 1))]
    integers = {"M": m, "N": n, "ROWS": block, "SUB": sub, "COLUMNS": columns}
    return Sample(integers, (ceil_div(m, block),), work, {"x": (m, n)})


def division(*, apart=0, weights=False, masked=False, reductions=()):
    configs = [(20, 12, 512), (52, 12, 256), (7, 7, 512), (32, 8, 1024)]
    samples = [sample(m, n, *config, apart=apart) for m, n in ((500, 4096), (777, 3000)) for config in configs]
    for one in samples:
        one.work.reductions += [tuple(loop for loop in loops if one.work.trips[loop] > 1) for loops in reductions]
    for one in samples if masked else ():
        one.work.accesses = [replace(access, masked=True) for access in one.work.accesses]
    for one in samples if weights else ():
        one.work.accesses.append(Access("w", "load", (1, one.integers["COLUMNS"]), 4, (0, 1)))
        one.work.accesses.append(Access("y", "store", (one.integers["SUB"], one.integers["COLUMNS"]), 4, (0, 1)))
        one.sizes.update(w=(1, one.integers["N"]), y=one.sizes["x"])
    return find_division(samples, ("M", "N"), ("ROWS", "SUB", "COLUMNS"), [Fit("ceil_div(M, ROWS)")], 1)


def axes(*, apart):
    found = division(apart=apart)
    return [(axis.name, str(axis.size), str(axis.block), str(axis.step)) for axis in found.axes]


def test_blocks_that_are_no_whole_number_of_tiles_are_found_by_their_parameter():
    assert axes(apart=0) == [("M", "M", "ROWS", "SUB"), ("N", "N", "N", "COLUMNS")]


def test_a_first_trip_before_its_loop_counts():
    assert axes(apart=1) == [("M", "M", "ROWS", "SUB"), ("N", "N", "N", "COLUMNS")]


def test_what_each_block_of_rows_loads_again_is_traffic():
    assert division().traffic.text == "max(1.0, 4 * M * N / SPEC.bytes(problem))"
    assert division(weights=True).traffic.text == "max(1.0, (8 + 4 / SUB) * M * N / SPEC.bytes(problem))"


def test_memory_is_the_least_multiple_of_a_tile_that_any_plan_shows():
    """The compiler plans more than it needs while there is room."""
    found = division()
    tiles = [{"M": 500, "N": 4096, "ROWS": 20, "SUB": sub, "COLUMNS": 512} for sub in (2, 24)]
    plans = [(tiles[0], 2 * 512 * (4 + 20)), (tiles[1], 24 * 512 * (4 + 9))]
    assert with_memory(found, plans).resident.text == "9 * SUB * COLUMNS"
    assert with_memory(found, []).resident.text == "4 * SUB * COLUMNS"


def test_results_that_need_no_memory_of_their_own_are_computed_in_place():
    tile = {"M": 500, "N": 4096, "ROWS": 20, "SUB": 4, "COLUMNS": 512}
    plan = [(tile, 4 * 512 * (4 + 1) + 4 * 512)]
    stores, loads = division(weights=True), division()
    assert with_memory(stores, plan).in_place and not with_memory(loads, [(tile, 4 * 512 * (4 + 1))]).in_place
    assert not with_memory(stores, [(tile, 4 * 512 * (4 + 5) + 4 * 512)]).in_place


def test_loads_without_masks_move_back_and_a_first_trip_apart_is_one():
    assert division(apart=1).first_apart and not division().first_apart
    assert division().moved_back and not division(masked=True).moved_back


def test_reductions_are_counted_in_each_trip_of_columns_and_beside_it():
    assert division(reductions=[(0,), (0,)]).reductions.text == "2"
    assert division(reductions=[(0, 1)]).reductions.text == "ceil_div(N, COLUMNS)"
    assert division(reductions=[(0, 1), (0, 1), (0,)]).reductions.text == "2 * ceil_div(N, COLUMNS) + 1"


def test_most_accesses_decide_whether_trips_move_back():
    configs = [(20, 12, 512), (52, 12, 256), (7, 7, 512), (32, 8, 1024)]
    samples = [sample(777, 3000, *config, apart=0) for config in configs]
    for one in samples:
        (load,) = one.work.accesses
        one.work.accesses[:] = [replace(load, masked=True), load, replace(load, argument="y", kind="store")]
        one.sizes["y"] = one.sizes["x"]
    blocks, grid = ("ROWS", "SUB", "COLUMNS"), [Fit("ceil_div(M, ROWS)")]
    assert find_division(samples, ("M", "N"), blocks, grid, 1).moved_back
    for one in samples:
        one.work.accesses.pop(1)
        one.work.accesses.append(replace(one.work.accesses[0], argument="z"))
        one.sizes["z"] = one.sizes["x"]
    assert not find_division(samples, ("M", "N"), blocks, grid, 1).moved_back
