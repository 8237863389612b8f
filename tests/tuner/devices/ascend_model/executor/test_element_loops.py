"""Loops over elements: all at once where trips do not depend on one another, one by one where they may."""

import itertools
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from loop_lines import ANYWHERE, BUFFER, ELEMENT, END, ON_CHIP, Watched, number, whole

from tilewise.tuner.devices.ascend_model.executor.element_loops import (
    OneByOne,
    Registers,
    _begins_blocks,
    _is_injective,
    meet,
)
from tilewise.tuner.devices.ascend_model.executor.executor import Executor
from tilewise.tuner.devices.ascend_model.executor.global_memory import GlobalMemory
from tilewise.tuner.devices.ascend_model.executor.groups import Group
from tilewise.tuner.devices.ascend_model.executor.hazards import Order, Race, Unordered
from tilewise.tuner.devices.ascend_model.executor.memory import OnChip, OutOfBounds, View
from tilewise.tuner.devices.ascend_model.ir.hivm import Op

ELEMENTS = np.arange(4096, dtype=np.float32)


def loop(index, trips):
    return f'"scf.for"(%c0, %{trips}, %c1) ({{', f"^bb0(%{index}: index):"


def add(name, value, other):
    return f'%{name} = "arith.addf"(%{value}, %{other}) : (f32, f32) -> f32'


def load(name, at, memory="a"):
    return f'%{name} = "memref.load"(%{memory}, %{at}) : ({"UB" if memory == "a" else "GM"}, index) -> f32'


def store(value, at):
    return f'"memref.store"(%{value}, %a, %{at}) : (f32, UB, index) -> ()'


def gather(at, name="got"):
    """Load the element of global memory that `at`, a number on chip, names."""
    return (
        load("place", at),
        '%as_i = "arith.fptosi"(%place) : (f32) -> i64',
        '%at_i = "arith.index_cast"(%as_i) : (i64) -> index',
        f'%one = "memref.reinterpret_cast"(%arg, %at_i) <{{{ANYWHERE}}}> : ({BUFFER}, index) -> {ELEMENT}',
        f'%{name} = "memref.load"(%one, %c0) : ({ELEMENT}, index) -> f32',
    )


LOADED = ("load", "set MTE2 S 0", "wait MTE2 S 0", number("trips", 1000), number("half", 0.5, "f32"))
STORED = ("set S MTE3 0", "wait S MTE3 0", "store")


@pytest.fixture
def run(program):
    """Run lines, and return the buffer with the number of loops that were executed trip by trip."""

    def execute(*lines, data=ELEMENTS, programs=1):
        data = data.copy()
        executor = Watched(program(*lines), ON_CHIP)
        executor.run({"x_ptr": data}, [7], (programs,))
        return data, executor.one_by_one

    return execute


def test_elements_are_computed_all_at_once(run):
    body = (load("v", "i"), add("w", "v", "half"), store("w", "i"))
    found, one_by_one = run(*LOADED, *loop("i", "trips"), *body, *END, *STORED)
    assert one_by_one == 0
    assert found.tolist() == [n + 0.5 * (n < 1000) for n in range(4096)]


@pytest.mark.parametrize(("rows", "cols"), [(20, 30), (20, 1), (1, 30), (1, 1)])
def test_a_nest_over_rows_and_columns_is_computed_all_at_once(run, rows, cols):
    lines = (number("rows", rows), number("cols", cols), number("step", 64))
    body = (whole("row", "muli", "i", "step"), *loop("j", "cols"), whole("at", "addi", "row", "j"))
    inner = (load("v", "at"), add("w", "v", "v"), store("w", "at"), *END)
    found, one_by_one = run(*LOADED, *lines, *loop("i", "rows"), *body, *inner, *END, *STORED)
    assert one_by_one == 0
    assert found.tolist() == [n * (1 + (n // 64 < rows and n % 64 < cols)) for n in range(4096)]


def test_elements_are_found_by_the_stride_of_their_view(run):
    sizes = ANYWHERE.replace("static_sizes = array<i64: 1>", "static_sizes = array<i64: 1000>")
    every_third = sizes.replace("static_strides = array<i64: 1>", "static_strides = array<i64: 3>")
    kind = "memref<1000xf32, strided<[3], offset: ?>, #hivm.address_space<ub>>"
    view = f'%thirds = "memref.subview"(%a, %c1) <{{{every_third}}}> : (UB, index) -> {kind}'
    body = (f'%v = "memref.load"(%thirds, %i) : ({kind}, index) -> f32', add("w", "v", "half"))
    kept = f'"memref.store"(%w, %thirds, %i) : (f32, {kind}, index) -> ()'
    found, one_by_one = run(*LOADED, view, *loop("i", "trips"), *body, kept, *END, *STORED)
    assert one_by_one == 0
    assert found.tolist() == [n + 0.5 * (n % 3 == 1 and n < 3000) for n in range(4096)]


@pytest.mark.parametrize("forward", [True, False])
def test_a_trip_that_reads_what_another_one_writes_is_executed_in_order(run, forward):
    source, target = ("i", "next") if forward else ("next", "i")
    body = (whole("next", "addi", "i", "c1"), load("v", source), add("w", "v", "half"), store("w", target))
    found, one_by_one = run(*LOADED, *loop("i", "trips"), *body, *END, *STORED)
    assert one_by_one == 1
    expected = ELEMENTS.copy()
    for n in range(1000):
        expected[n + forward] = expected[n + (not forward)] + 0.5
    assert found.tolist() == expected.tolist()


def test_several_writes_to_one_element_leave_the_last_one(run):
    body = (whole("at", "remui", "i", "seven"), load("v", "i"), store("v", "at"))
    found, one_by_one = run(*LOADED, number("seven", 7), *loop("i", "trips"), *body, *END, *STORED)
    assert one_by_one == 1
    expected = ELEMENTS.copy()
    for n in range(1000):
        expected[n % 7] = expected[n]
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("ordered", [True, False])
def test_elements_of_an_address_list_are_gathered(program, ordered):
    """The buffer is written at the end. If races are looked for, each read is checked, one by one."""
    places = np.random.default_rng(0).permutation(4096).astype(np.float32)
    expected = places[places[:1000].astype(int)].tolist()
    lines = (number("far", 2000), *loop("i", "trips"), *gather("i"), whole("at", "addi", "i", "far"))
    function = program(*LOADED, *lines, store("got", "at"), *END, *STORED)
    executor = Watched(function, ON_CHIP, order=None if ordered else Unordered)
    executor.run({"x_ptr": places}, [7], (1,))
    assert executor.one_by_one == ordered
    assert places[2000:3000].tolist() == expected


def test_an_element_beyond_the_buffer_is_refused(program):
    places = np.full(4096, 1e6, np.float32)
    function = program(*LOADED, *loop("i", "trips"), *gather("i"), store("got", "i"), *END)
    with pytest.raises(OutOfBounds, match="element 1000000 of x_ptr, which has 4096"):
        Executor(function, ON_CHIP).run({"x_ptr": places}, [7], (1,))


def test_a_loop_that_does_not_wait_for_its_tile_is_a_race(run):
    body = (load("v", "i"), store("v", "i"))
    with pytest.raises(Race, match=r"which load .* wrote, and nothing orders them"):
        run("load", number("trips", 1000), *loop("i", "trips"), *body, *END)


def test_a_store_that_does_not_wait_for_a_loop_is_a_race(run):
    body = (load("v", "i"), store("v", "i"))
    with pytest.raises(Race, match=r"store .* on MTE3 reads on-chip byte .*, which memref.store"):
        run(*LOADED, *loop("i", "trips"), *body, *END, "store")


def row(width):
    """Load the row of global memory that begins at the element that the list on chip names, to the tile from 2048."""
    sizes = f"static_sizes = array<i64: {width}>, static_strides = array<i64: 1>"
    anywhere = ANYWHERE.partition("static_sizes")[0] + sizes
    outside, inside = (
        f"memref<{width}xf32, strided<[1], offset: ?>, #hivm.address_space<{space}>>" for space in ("gm", "ub")
    )
    return (
        *(number("width", width), number("far", 2048), *gather("i")[:3]),
        *(whole("before", "muli", "i", "width"), whole("to", "addi", "before", "far")),
        f'%source = "memref.reinterpret_cast"(%arg, %at_i) <{{{anywhere}}}> : ({BUFFER}, index) -> {outside}',
        f'%target = "memref.subview"(%a, %to) <{{{anywhere}}}> : (UB, index) -> {inside}',
        f'"hivm.hir.load"(%source, %target) : ({outside}, {inside}) -> ()',
    )


LIST = ("load", "set MTE2 S 0", "wait MTE2 S 0", number("trips", 20))
STARTS = np.random.default_rng(0).integers(0, 4000, 4096).astype(np.float32)


def chosen(width):
    return [STARTS[int(start) : int(start) + width].tolist() for start in STARTS[:20]]


@pytest.mark.parametrize(("width", "one_by_one"), [(64, 0), (60, 1)])
def test_rows_of_whole_blocks_are_loaded_all_at_once(program, width, one_by_one):
    lines = (*LIST, *loop("i", "trips"), *row(width), *END, "store")
    executor, data = Watched(program(*lines), ON_CHIP, order=Unordered), STARTS.copy()
    executor.run({"x_ptr": data}, [7], (1,))
    assert executor.one_by_one == one_by_one
    assert data[2048 : 2048 + 20 * width].reshape(20, width).tolist() == chosen(width)


def test_rows_loaded_all_at_once_are_ordered_as_transfers(run):
    rows = (*loop("i", "trips"), *row(64), *END)
    _, one_by_one = run(*LIST, *rows, "set MTE2 V 0", "wait MTE2 V 0", "exp", data=STARTS)
    assert one_by_one == 0
    with pytest.raises(Race, match=r"vexp .* on V .*, which load .* wrote, and nothing orders them"):
        run(*LIST, *rows, "exp", data=STARTS)
    with pytest.raises(Race, match=r"memref.load .* on S reads .*, which load .* wrote, and nothing orders them"):
        run("load", number("trips", 20), *rows, data=STARTS)


def test_a_row_beyond_the_buffer_is_refused(program):
    function = program(*LIST, *loop("i", "trips"), *row(64), *END)
    with pytest.raises(OutOfBounds, match="of x_ptr, which has 4096"):
        Executor(function, ON_CHIP).run({"x_ptr": np.full(4096, 1e6, np.float32)}, [7], (1,))


# Views of all trips --------------------------------------------------------------------------------------------------

OP = Op("memref.load", (), (), {}, (), (), (), 3)


def drawn_views(count):
    random = Random("views")
    for _ in range(count):
        sizes = tuple(random.choice((1, 2, 3, 8)) for _ in range(random.choice((1, 2, 3))))
        strides = tuple(random.choice((-8, 0, 1, 2, 3, 8, 16)) for _ in sizes)
        dtype = random.choice(("f32", "f16", "i8"))
        yield View(-1, random.choice((96, 128, 132)), random.choice((0, 1, 8)), sizes, strides, dtype)


def starts(view):
    """Return the byte at which each element begins."""
    grid = np.zeros(view.sizes, np.int64)
    for axis, (size, stride) in enumerate(zip(view.sizes, view.strides, strict=True)):
        grid = grid + (np.arange(size) * stride).reshape(-1, *[1] * (len(view.sizes) - axis - 1))
    return view.address + (view.offset + grid) * view.item_bits // 8


def test_views_meet_whose_ranges_of_bytes_do():
    views = list(drawn_views(60))
    met = 0
    for one, other in itertools.combinations(views, 2):
        (first, last), (begin, end) = (
            (int(starts(view).min()), int(starts(view).max()) + view.item_bits // 8) for view in (one, other)
        )
        assert meet(one, other) == meet(other, one) == (first < end and begin < last), (one, other)
        met += meet(one, other)
    assert 100 < met < 1700
    assert not meet(None, views[0])


def row_at(address, size=8, dtype="f32"):
    return View(-1, address, 0, (size,), (1,), dtype)


def test_views_side_by_side_do_not_meet():
    assert not meet(row_at(0), row_at(32)) and not meet(row_at(32), row_at(0))
    assert meet(row_at(0, 9), row_at(32)) and meet(row_at(0), row_at(31, dtype="i8"))


def test_trips_that_use_an_element_each_are_told_from_those_that_share_one():
    apart = 0
    for view in drawn_views(300):
        at = starts(view)
        if _is_injective(view):
            assert len(np.unique(at)) == at.size, view
            apart += 1
    assert apart > 50


@pytest.mark.parametrize(
    ("sizes", "strides", "apart"),
    [
        ((8,), (1,), True),
        ((8,), (-1,), True),
        ((8,), (0,), False),
        ((1,), (0,), True),
        ((2, 8), (8, 1), True),
        ((2, 8), (7, 1), False),
        ((8, 2), (1, 8), True),
        ((3, 2, 4), (8, 4, 1), True),
        ((3, 2, 4), (4, 8, 1), False),
        ((3, 2), (1, 3), True),
        ((3, 2), (1, 2), False),
    ],
)
def test_rows_that_follow_one_another_use_an_element_each(sizes, strides, apart):
    assert _is_injective(View(-1, 0, 0, sizes, strides, "f32")) is apart


@pytest.mark.parametrize(
    ("address", "offset", "strides", "dtype", "begins"),
    [
        (0, 0, (8, 1), "f32", True),
        (32, 8, (16, 8, 1), "f32", True),
        (0, 0, (4, 1), "f32", False),
        (0, 0, (12, 8, 1), "f32", False),
        (0, 0, (8, 12, 1), "f32", False),
        (0, 4, (8, 1), "f32", False),
        (16, 4, (8, 1), "f32", True),
        (16, 0, (8, 1), "f32", False),
        (0, 0, (8, 1), "f16", False),
        (0, 0, (16, 1), "f16", True),
        (0, 0, (8, 7), "f32", True),
        (0, 0, (1,), "f32", True),
    ],
)
def test_rows_begin_blocks_whose_strides_are_whole_ones(address, offset, strides, dtype, begins):
    view = View(-1, address, offset, (2,) * len(strides), strides, dtype)
    assert _begins_blocks(view) is begins


# The registers of a nest ---------------------------------------------------------------------------------------------

TILE = View(-1, 0, 0, (4, 8), (8, 1), "f32")


@pytest.fixture
def registers():
    """A nest of 4 rows and 8 columns in which value 0 is a tile, 1 a view of x_ptr, 2 one of what programs write, and 3
    a number of each of the two programs."""

    def make(trips=(range(4), range(8)), stored=()):
        chip = OnChip(2, 256)
        chip.write(TILE, np.arange(64, dtype=np.float32).reshape(2, 4, 8), OP)
        shared = {1: np.arange(100, dtype=np.float32), 2: np.zeros(100, np.float32)}
        memory = GlobalMemory(shared, ["tile", "x_ptr", "out_ptr"], {2}, 255)
        values = [TILE, *(View(base, 0, 0, (100,), (1,), "f32") for base in (1, 2)), np.array([0, 50]), None, None]
        group = Group(np.array([0, 1]), values, chip, Order(256), [])
        made = Registers(group, memory, trips, stored)
        made.count(4)
        made.count(5)
        return made

    return make


def test_each_loop_counts_along_an_axis_of_its_own(registers):
    nest = registers()
    assert (nest[4].shape, nest[5].shape) == ((1, 4, 1), (1, 1, 8))
    assert nest[4].ravel().tolist() == [0, 1, 2, 3]
    assert registers((range(2, 8, 3), range(1)))[4].ravel().tolist() == [2, 5]
    assert nest[3].shape == (2, 1, 1)


def test_all_trips_read_their_elements_at_once(registers):
    nest = registers()
    found = nest.read(OP, nest.element(0, (4, 5)))
    assert found.tolist() == np.arange(64).reshape(2, 4, 8).tolist()
    turned = nest.read(OP, replace(nest.element(0, (4, 5)), offset=nest[4] * 8 + 7 - nest[5]))
    assert turned[0, 1].tolist() == [15, 14, 13, 12, 11, 10, 9, 8]


def test_a_place_that_is_the_same_in_all_trips_is_read_once(registers):
    nest = registers()
    found = nest.read(OP, replace(TILE, offset=9, sizes=(), strides=()))
    assert (found.shape, found.ravel().tolist()) == ((2, 1, 1), [9, 41])
    with pytest.raises(OneByOne):  # a trip would overwrite what the next one stores there
        nest.write(OP, replace(TILE, offset=17, sizes=(), strides=()), np.float32(1))


@pytest.mark.parametrize("at", [[0, 1, 3, 4], [0, 1, 2, 2], [3, 3, 3, 0]])
def test_places_that_no_stride_reaches_are_not_read_at_once(registers, at):
    nest = registers((range(4), range(1)))
    with pytest.raises(OneByOne):
        nest.read(OP, replace(TILE, offset=np.array(at).reshape(1, 4, 1), sizes=(), strides=()))


def test_places_that_differ_between_programs_are_not_read_at_once(registers):
    nest = registers()
    with pytest.raises(OneByOne):
        nest.read(OP, replace(TILE, offset=np.arange(64).reshape(2, 4, 8), sizes=(), strides=()))


def test_programs_gather_from_places_of_their_own(registers):
    nest = registers()
    element = View(1, 0, nest[3] + nest[4] * 8 + nest[5], (), (), "f32")
    assert nest.read(OP, element).tolist() == [
        [[at + 8 * row + col for col in range(8)] for row in range(4)] for at in (0, 50)
    ]
    assert nest.gathered == {1}
    with pytest.raises(OneByOne):  # each read of what programs write has to be checked
        nest.read(OP, replace(element, base=2))


def test_what_a_trip_writes_is_not_read_by_another(registers):
    nest = registers()
    element = nest.element(0, (4, 5))
    nest.read(OP, element)
    nest.write(OP, element, nest[5] * 2.0)  # each trip has read its own
    with pytest.raises(OneByOne):
        nest.read(OP, element)
    other = registers()
    other.read(OP, replace(element, offset=other[4] * 8 + 7 - other[5]))
    with pytest.raises(OneByOne):
        other.write(OP, element, other[5] * 2.0)


def test_what_trips_write_is_apart_from_what_is_stored_before_them(registers):
    stored = replace(TILE, offset=24, sizes=(8,), strides=(1,))
    nest = registers(stored=[stored])
    with pytest.raises(OneByOne):
        nest.write(OP, nest.element(0, (4, 5)), nest[5] * 2.0)
    nest = registers((range(3), range(8)), stored=[stored])
    nest.write(OP, nest.element(0, (4, 5)), np.broadcast_to(nest[5] * 2.0, (1, 3, 8)))


def test_nothing_is_written_before_the_end(registers):
    nest = registers()
    nest.write(OP, nest.element(0, (4, 5)), np.broadcast_to(np.float32(7) + nest[4], (2, 4, 8)))
    assert nest.group.chip.read(TILE, OP)[0, 0, 0] == 0
    nest.commit()
    assert nest.group.chip.read(TILE, OP)[1].tolist() == [[7.0 + row] * 8 for row in range(4)]
    assert nest.group.order.now == 1


@pytest.mark.parametrize(
    ("offset", "size", "outside", "taken"),
    [(0, 8, 8, True), (4, 8, 8, False), (0, 4, 4, False), (0, 0, 0, False), (0, 16, 16, False)],
)
def test_rows_of_whole_blocks_are_loaded_in_all_trips(registers, offset, size, outside, taken):
    nest = registers((range(4), range(1)))
    source = View(1, 0, nest[3] + nest[4] * 10, (outside,), (2,), "f32")
    target = replace(TILE, offset=offset + nest[4] * 8, sizes=(size,), strides=(1,))
    if not taken:
        with pytest.raises(OneByOne):
            nest.load_row(OP, source, target)
        return
    nest.load_row(OP, source, target)
    nest.commit()
    rows = nest.group.chip.read(TILE, OP)
    assert rows[0].tolist() == [[10 * row + 2 * col for col in range(8)] for row in range(4)]
    assert rows[1, 0].tolist() == [50 + 2 * col for col in range(8)]
    with pytest.raises(OneByOne):  # programs may write there
        nest.load_row(OP, replace(source, base=2), target)
