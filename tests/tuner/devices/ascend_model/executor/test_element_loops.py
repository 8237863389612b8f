"""Loops over elements: all at once where trips do not depend on one another, one by one where they may."""

import numpy as np
import pytest
from loop_lines import ANYWHERE, BUFFER, ELEMENT, END, ON_CHIP, Watched, number, whole

from tilewise.tuner.devices.ascend_model.executor.executor import Executor
from tilewise.tuner.devices.ascend_model.executor.hazards import Race, Unordered
from tilewise.tuner.devices.ascend_model.executor.memory import OutOfBounds

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
