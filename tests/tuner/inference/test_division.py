"""The division of the work, found from samples of compiled code."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tilewise.kernels.spec import ceil_div
from tilewise.tuner.inference.code import Access, Work
from tilewise.tuner.inference.division import Sample, _dot, _main, _moved_back, find_division, with_memory
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
    for planned in (2 * 512 * 4, 512):
        assert with_memory(found, [(tiles[0], planned)]).resident.text == "0"


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


def test_an_access_counts_in_each_trip_of_its_loops():
    looped = Access("x", "load", (2, 2), 4, (0,))
    once = [Access(name, "load", (2, 2), 4, (), masked=True) for name in "abc"]
    assert _moved_back(Work(trips={0: 4}, accesses=[looped, *once]), looped)
    assert not _moved_back(Work(trips={0: 3}, accesses=[looped, *once]), looped)


def test_of_arguments_that_move_as_much_the_main_one_moves_it_in_one_access_and_in_a_loop():
    halves = [Access("halves", "load", (10,), 4, ()), Access("halves", "load", (2, 5), 4, ())]
    others = [Access("at once", "load", (20,), 4, ()), Access("in a loop", "load", (5,), 4, (0,))]
    work = Work(trips={0: 4}, accesses=[*halves, *others])
    assert _main([Sample({}, (1,), work, {})]).argument == "in a loop"


def product(m, n, k, rows, columns, depth, *, beside=0):
    """Return a config of a product whose programs take one tile each, with operations `beside` for each element."""
    trips = ceil_div(k, depth)
    loops = (0,) if trips > 1 else ()
    work = Work(trips={0: trips} if trips > 1 else {})
    work.accesses = [
        Access("a", "load", (rows, depth), 2, loops),
        Access("b", "load", (depth, columns), 2, loops),
        Access("c", "store", (rows, columns), 4, ()),
    ]
    work.dots = [((rows, columns, depth), loops)]
    work.operations = 2 * rows * columns * depth * trips + beside * rows * columns
    integers = {"M": m, "N": n, "K": k, "BM": rows, "BN": columns, "BK": depth}
    programs = ceil_div(m, rows) * ceil_div(n, columns)
    return Sample(integers, (programs,), work, {"a": (m, k), "b": (k, n), "c": (m, n)})


GRID = [Fit("ceil_div(M, BM) * ceil_div(N, BN)")]
SHAPES = [(512, 1024, 4096), (777, 3000, 500)]
TILES = [(64, 128, 32), (128, 64, 64), (32, 256, 128), (64, 64, 512)]


def found_product(*, dims=("M", "N", "K"), beside=0):
    samples = [product(*shape, *tile, beside=beside) for shape in SHAPES for tile in TILES]
    return find_division(samples, dims, ("BM", "BN", "BK"), GRID, 2 * (512 + 1024) * 4096 + 4 * 512 * 1024)


def texts(found):
    return [(axis.name, str(axis.size), str(axis.block), str(axis.step)) for axis in found.axes]


def test_a_product_is_divided_into_tiles_and_its_depth_into_trips():
    """64 programs of the first sample move 1,605,632 bytes each, 7 times the least of 14,680,064 in all."""
    found = found_product()
    assert texts(found) == [("M", "M", "BM", "BM"), ("K", "K", "K", "BK"), ("N", "N", "BN", "BN")]
    assert [str(part) for part in found.dot] == ["BM", "BN", "BK"]
    assert found.streamed.text == "2 * BM * BK + 2 * BN * BK" and found.streamed.names == {"BM", "BN", "BK"}
    assert (found.tile.text, found.elements.text, found.resident.text) == ("BM * BN", "M * N", "4 * BM * BN")
    assert (found.traffic.text, found.reductions.text, found.flops_an_element) == ("7.0", "0", 2 * 4096)
    assert (found.alone, found.stores_tiles, found.first_apart, found.in_place) == (True, True, False, False)


def test_a_product_with_other_work_is_not_alone_nor_one_of_an_unknown_depth():
    assert not found_product(beside=3).alone
    assert found_product(beside=3).flops_an_element == 2 * 4096 + 3
    shallow = found_product(dims=("M", "N"))
    assert not shallow.alone and texts(shallow) == [("M", "M", "BM", "BM"), ("N", "N", "BN", "BN")]


def test_reductions_of_a_product_are_counted_in_the_trips_of_its_depth_alone():
    samples = [product(*shape, *tile) for shape in SHAPES for tile in TILES]
    for one in samples:
        one.work.reductions = [tuple(one.work.trips), ()]
    found = find_division(samples, ("M", "N", "K"), ("BM", "BN", "BK"), GRID, 1)
    assert (found.reductions.text, found.reductions.names) == ("ceil_div(K, BK) + 1", {"K", "BK"})


def test_a_product_alone_keeps_the_memory_of_its_sums():
    found = found_product()
    assert with_memory(found, [({"M": 8, "BM": 64, "BN": 64, "BK": 32}, 10**6)]) == found


def test_trips_of_an_axis_are_those_of_a_full_program():
    rows, depth, _ = found_product().axes
    sizes = {"M": 100, "N": 8, "K": 500, "BM": 64, "BN": 8, "BK": 128}
    assert (rows.trips(sizes), depth.trips(sizes)) == (1, 4)


def flat(size, block, tile, *, programs=None):
    """Return a config whose programs take `block` elements of a vector, in tiles."""
    trips = ceil_div(block, tile)
    work = Work(trips={0: trips} if trips > 1 else {}, operations=3 * trips * tile)
    loops = (0,) if trips > 1 else ()
    work.accesses = [Access("x", "load", (tile,), 4, loops), Access("out", "store", (tile,), 4, loops)]
    integers = {"N": size, "BLOCK": block, "TILE": tile}
    return Sample(integers, (programs or ceil_div(size, block),), work, {"x": (size,), "out": (size,)})


def test_a_vector_is_divided_into_blocks_and_tiles():
    samples = [flat(size, *tile) for size in (100_000, 77_777) for tile in ((1024, 128), (512, 256), (2048, 64))]
    found = find_division(samples, ("N",), ("BLOCK", "TILE"), [Fit("ceil_div(N, BLOCK)")], 800_000)
    assert texts(found) == [("N", "N", "BLOCK", "TILE")]
    assert (found.streamed.text, found.tile.text, found.resident.text) == ("4 * TILE", "TILE", "4 * TILE")
    assert (found.flops_an_element, found.elements.text, found.dot) == (3.0, "N", None)
    assert found.stores_tiles and not found.alone
    assert found.traffic.text == "max(1.0, 8 * N / SPEC.bytes(problem))"


def test_a_fixed_number_of_programs_divides_the_work_of_others():
    samples = [
        flat(size, ceil_div(size, 64 * tile) * tile, tile, programs=64)
        for size in (100_000, 70_001) for tile in (128, 256)
    ]  # fmt: skip
    found = find_division(samples, ("N",), ("TILE",), [Fit("64")], 800_000)
    assert found is not None and found.axes[0].step.text == "TILE"
    assert found.axes[0].block.value({"N": 100_000, "TILE": 128, "64": 64}) == 13 * 128


def test_samples_of_other_work_have_no_division():
    other, grid = flat(4096, 512, 128), [Fit("ceil_div(N, BLOCK)")]
    other.work.accesses[:] = [replace(access, argument="y") for access in other.work.accesses]
    assert find_division([flat(4096, 512, 128)], ("N",), ("BLOCK", "TILE"), grid, 1) is not None
    assert find_division([flat(4096, 512, 128), other], ("N",), ("BLOCK", "TILE"), grid, 1) is None
    other.work.accesses.clear()
    assert find_division([other], ("N",), ("BLOCK", "TILE"), grid, 1) is None


@pytest.mark.parametrize(("least", "traffic"), [(800_000, "1.0"), (400_000, "2.0"), (300_000, "2.67"), (1e7, "1.0")])
def test_traffic_that_no_expression_gives_is_that_of_the_first_launch_and_never_below_the_least(least, traffic):
    samples = [flat(size, *tile) for size in (100_000, 77_777) for tile in ((1024, 128), (512, 256))]
    samples[1].work.accesses.append(Access("y", "load", (1,), 4, ()))  # that only some configs load
    samples[1].sizes["y"] = (1,)
    found = find_division(samples, ("N",), ("BLOCK", "TILE"), [Fit("ceil_div(N, BLOCK)")], least)
    assert found.traffic.text == traffic


def test_memory_below_that_of_the_loads_counts_as_none():
    tile = {"M": 500, "N": 4096, "ROWS": 20, "SUB": 1, "COLUMNS": 4}
    found = with_memory(replace(division(), tile=Fit("1")), [(tile, 0)])
    assert found.resident.text == "0"


@pytest.mark.parametrize("unknown", [None, 0, 1, 2])
def test_a_product_has_tiles_only_if_all_three_sizes_follow_from_the_config(unknown):
    samples = [SimpleNamespace(work=SimpleNamespace(dots=[((16, 32, 8), ()), ((64, 128, 32), ()), ((1, 2, 3), ())]))]
    asked = []

    def fit(values):
        asked.append(list(values))
        return None if len(asked) - 1 == unknown else Fit(str(values[0]))

    found = _dot(samples, fit)
    assert asked == [[64], [128], [32]]
    assert found is None if unknown is not None else [each.text for each in found] == ["64", "128", "32"]
    assert _dot([*samples, SimpleNamespace(work=SimpleNamespace(dots=[]))], fit) is None
