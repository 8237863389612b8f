"""Loops that store an element in each trip: all at once where no two trips use the same one, one by one elsewhere."""

import numpy as np
import pytest
from loop_lines import ANYWHERE, BUFFER, ELEMENT, END, ON_CHIP, Watched, number, whole

from tilewise.tuner.devices.ascend_model.executor.executor import Executor
from tilewise.tuner.devices.ascend_model.executor.hazards import FlagFault, Race, Unordered
from tilewise.tuner.devices.ascend_model.executor.memory import OutOfBounds
from tilewise.tuner.devices.ascend_model.executor.scatter_loops import _LONGEST, OneByOne, _enough, _last, _same

TRIPS = 100

CELL = "memref<1xf32, #hivm.address_space<ub>>"


def compared(name, predicate, *operands):
    return (
        f'%{name} = "arith.cmpi"(%{operands[0]}, %{operands[1]}) <{{predicate = {predicate}}}> : (index, index) -> i1'
    )


def only_if(condition, *lines):
    return f'"scf.if"(%{condition}) ({{', *lines, '"scf.yield"() : () -> ()', "}, {}) : (i1) -> ()"


def loop(*lines, index="i", trips="trips"):
    return f'"scf.for"(%c0, %{trips}, %c1) ({{', f"^bb0(%{index}: index):", *lines, *END


def cell(*places):
    names, kinds = ", ".join(f"%{name}" for name in places), ", ".join("i64" for _ in places)
    segments = f"operandSegmentSizes = array<i32: {len(places)}, 0>"
    return f'%cell = "hivm.hir.pointer_cast"({names}) <{{{segments}}}> : ({kinds}) -> {CELL}'


def flag(verb, source, target, event):
    pipes = f"set_pipe = #hivm.pipe<PIPE_{source}>, wait_pipe = #hivm.pipe<PIPE_{target}>"
    return f'"hivm.hir.{verb}_flag"(%{event}) <{{{pipes}}}> : (i64) -> ()'


START = (
    '%id = "hivm.hir.get_block_idx"() : () -> i64',
    '%p = "arith.index_cast"(%id) : (i64) -> index',
    *(number(name, value) for name, value in (("trips", TRIPS), ("two", 2), ("three", 3), ("far", 1000))),
    *(number(name, value, "i64") for name, value in (("one64", 1), ("first", 16384), ("second", 16416))),
    whole("base", "muli", "p", "far"),
)
VALUE = ('%int = "arith.index_cast"(%i) : (index) -> i32', '%value = "arith.sitofp"(%int) : (i32) -> f32')
PUT = (f'"memref.store"(%value, %cell, %c0) : (f32, {CELL}, index) -> ()',)
TAKE = (
    f'%one = "memref.reinterpret_cast"(%arg, %at) <{{{ANYWHERE}}}> : ({BUFFER}, index) -> {ELEMENT}',
    f'"hivm.hir.store"(%cell, %one) : ({CELL}, {ELEMENT}) -> ()',
)
PUT_AND_TAKE = ("wait MTE3 S 0", *PUT, "set S MTE3 0", "wait S MTE3 0", *TAKE, "set MTE3 S 0")
EVEN = (whole("twice", "muli", "i", "two"), whole("at", "addi", "base", "twice"))


def around(*lines):
    """Set the flag that the first trip waits for, and wait for the one that the last one sets."""
    return (*START, "set MTE3 S 0", *lines, "wait MTE3 S 0")


@pytest.fixture(params=[True, False], ids=["ordered", "unordered"])
def run(program, request):
    """Run lines, and return the buffer with the number of loops that were executed trip by trip."""

    def execute(*lines, programs=3):
        data = np.full(4096, -1, np.float32)
        executor = Watched(program(*lines), ON_CHIP, order=None if request.param else Unordered)
        executor.run({"x_ptr": data}, [7], (programs,))
        return data, executor.one_by_one

    return execute


@pytest.fixture
def refused(program):
    """Run lines, in which races are looked for."""

    def execute(*lines, programs=1):
        data = np.full(4096, -1, np.float32)
        Executor(program(*lines), ON_CHIP).run({"x_ptr": data}, [7], (programs,))

    return execute


def expected(chosen=lambda p, i: True):
    data = np.full(4096, -1, np.float32)
    for p in range(3):
        for i in filter(lambda i: chosen(p, i), range(TRIPS)):
            data[1000 * p + 2 * i] = i
    return data.tolist()


def test_elements_of_several_programs_are_stored_all_at_once(run):
    found, one_by_one = run(*around(*loop(cell("first"), *VALUE, *EVEN, *PUT_AND_TAKE)))
    assert (one_by_one, found.tolist()) == (0, expected())


def test_elements_that_a_condition_chooses_are_stored_all_at_once(run):
    chosen = (whole("sum", "addi", "i", "p"), whole("rest", "remui", "sum", "three"), compared("some", 0, "rest", "p"))
    body = (cell("first"), *VALUE, *EVEN, *chosen, *only_if("some", *PUT_AND_TAKE))
    found, one_by_one = run(*around(*loop(*body)))
    assert (one_by_one, found.tolist()) == (0, expected(lambda p, i: (i + p) % 3 == p))


def test_programs_that_store_nothing_are_like_those_that_do(run):
    body = (cell("first"), *VALUE, *EVEN, compared("some", 4, "p", "c1"), *only_if("some", *PUT_AND_TAKE))
    found, one_by_one = run(*around(*loop(*body)))
    assert (one_by_one, found.tolist()) == (0, expected(lambda p, i: p > 1))


def test_a_nest_stores_all_at_once(run):
    nest = loop(
        whole("before", "muli", "j", "ten"),
        *loop(cell("first"), whole("i", "addi", "before", "k"), *VALUE, *EVEN, *PUT_AND_TAKE, index="k", trips="ten"),
        index="j",
        trips="ten",
    )
    found, one_by_one = run(*around(number("ten", 10), *nest))
    assert (one_by_one, found.tolist()) == (0, expected())


def in_turns(*, ahead):
    """Put numbers into two cells in turn, so many trips ahead of the transfers from them."""
    body = (cell("first", "second"), *VALUE, *EVEN, *PUT_AND_TAKE)
    return (*START, *["set MTE3 S 0"] * ahead, *loop(*body), *["wait MTE3 S 0"] * ahead)


def test_two_cells_in_turn_let_the_numbers_be_two_trips_ahead(run):
    found, one_by_one = run(*in_turns(ahead=2))
    assert (one_by_one, found.tolist()) == (0, expected())


def test_two_cells_in_turn_do_not_let_the_numbers_be_three_trips_ahead(refused):
    with pytest.raises(Race, match=r"memref.store .* on S writes on-chip byte 16384, which store .* on MTE3 read"):
        refused(*in_turns(ahead=3))


def test_cells_may_have_flags_of_their_own(run):
    parity = (whole("odd", "remui", "i", "two"), compared("is_odd", 0, "odd", "c1"))
    event = '%event = "arith.select"(%is_odd, %one64, %zero) : (i1, i64, i64) -> i64'
    chosen = (whole("rest", "remui", "i", "three"), compared("some", 1, "rest", "p"))
    acts = (flag("wait", "MTE3", "S", "event"), *PUT_AND_TAKE[1:-1], flag("set", "MTE3", "S", "event"))
    body = (cell("first", "second"), *VALUE, *EVEN, *parity, event, *chosen, *only_if("some", *acts))
    found, one_by_one = run(*around("set MTE3 S 1", *loop(*body)), "wait MTE3 S 1")
    assert (one_by_one, found.tolist()) == (0, expected(lambda p, i: i % 3 != p))


def test_a_place_that_all_trips_store_to_keeps_the_last_number(run):
    body = (cell("first"), *VALUE, whole("at", "addi", "base", "two"), *PUT_AND_TAKE)
    found, one_by_one = run(*around(*loop(*body)))
    assert (one_by_one, found[[2, 1002, 2002]].tolist()) == (0, [TRIPS - 1] * 3)
    assert (found == -1).sum() == 4093


def test_trips_that_store_to_one_element_leave_the_last_number(run):
    body = (cell("first"), *VALUE, whole("rest", "remui", "i", "three"), whole("at", "addi", "base", "rest"))
    found, one_by_one = run(*around(*loop(*body, *PUT_AND_TAKE)))
    assert one_by_one > 0
    assert found[:4].tolist() == [99, 97, 98, -1]


def test_the_cell_keeps_what_the_last_trip_put_there(run):
    end = (whole("at", "addi", "base", "c1"), cell("first").replace("%cell", "%again", 1), "barrier ALL")
    taken = tuple(line.replace("%cell", "%again").replace("%one", "%here") for line in TAKE)
    found, one_by_one = run(*around(*loop(cell("first"), *VALUE, *EVEN, *PUT_AND_TAKE), *end, *taken))
    assert (one_by_one, found[[1, 1001, 2001]].tolist()) == (0, [TRIPS - 1] * 3)


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        (
            ("wait MTE3 S 0", "set MTE3 S 0"),
            r"memref.store .* on S writes on-chip byte 16384, which store .* on MTE3 read",
        ),
        (
            ("set S MTE3 0", "wait S MTE3 0"),
            r"store .* on MTE3 reads on-chip byte 16384, which memref.store .* on S wrote",
        ),
    ],
)
def test_a_cell_without_a_flag_is_a_race(refused, left_out, message):
    acts = [line for line in PUT_AND_TAKE if line not in left_out]
    with pytest.raises(Race, match=message):
        refused(*around(*loop(cell("first"), *VALUE, *EVEN, *acts)))


def test_a_flag_that_only_the_first_trip_finds_set_is_refused(refused):
    body = (cell("first"), *VALUE, *EVEN, *PUT_AND_TAKE[:-1])
    with pytest.raises(FlagFault, match=r"S waits at wait_flag .* for event 0 of MTE3, which is not set"):
        refused(*around(*loop(*body)))


def test_an_element_beyond_the_buffer_is_refused(refused):
    body = (cell("first"), *VALUE, whole("much", "muli", "i", "far"), whole("at", "addi", "much", "base"))
    with pytest.raises(OutOfBounds, match=r"store .* uses element 5000 of x_ptr, which has 4096"):
        refused(*around(*loop(*body, *PUT_AND_TAKE)))


def test_an_element_of_another_program_is_a_race(refused):
    body = (cell("first"), *VALUE, whole("at", "addi", "i", "p"), *PUT_AND_TAKE)
    with pytest.raises(Race, match=r"store .* writes elements of x_ptr that program 1 writes with another value"):
        refused(*around(*loop(*body)), programs=2)


@pytest.mark.parametrize("ordered", [True, False])
def test_what_a_loop_stored_may_be_loaded_once_its_transfers_are_done(refused, ordered):
    lines = (*around(*loop(cell("first"), *VALUE, *EVEN, *PUT_AND_TAKE))[: None if ordered else -1],)
    if ordered:
        refused(*lines, "load", "barrier ALL")
        return
    with pytest.raises(Race, match=r"load .* on MTE2 reads elements of x_ptr that store .* on MTE3 wrote"):
        refused(*lines, "load", "wait MTE3 S 0")


def other_cell(*lines):
    return tuple(line.replace("%cell", "%spare").replace("%one", "%there").replace("%at)", "%next)") for line in lines)


@pytest.mark.parametrize("swapped", [False, True])
def test_cells_at_one_address_hold_a_number_each_in_turn(run, swapped):
    first, second = PUT_AND_TAKE[1:-1], other_cell(*PUT_AND_TAKE[1:-1])
    after = ("set MTE3 S 1", "wait MTE3 S 1")  # before the other number is put there
    acts = (
        (*first, *after, *second) if not swapped else (*PUT, *after, *other_cell(*PUT), *first[1:], *after, *second[1:])
    )
    body = (cell("first"), *other_cell(cell("first")), *VALUE, *EVEN, whole("next", "addi", "at", "c1"))
    found, one_by_one = run(*around(*loop(*body, "wait MTE3 S 0", *acts, "set MTE3 S 0")))
    assert bool(one_by_one) == swapped
    assert found[:200].tolist() == [n // 2 for n in range(200)]


def test_a_tile_that_every_trip_stores_does_not_run_before_a_loop_that_is_executed_as_it_stands(run):
    """A store of the tile before the first one, without a flag between, would be a race."""
    tile = ('"hivm.hir.store"(%tile, %whole) : (TILE, ROW) -> ()',)
    views = (
        ("TILE", "memref<8xf32, #hivm.address_space<ub>>"),
        ("ROW", "memref<8xf32, strided<[1], offset: ?>, GLOBAL>"),
    )
    sized = ANYWHERE.replace("static_sizes = array<i64: 1>", "static_sizes = array<i64: 8>")
    made = (
        '%tile = "hivm.hir.pointer_cast"(%second) <{operandSegmentSizes = array<i32: 1, 0>}> : (i64) -> TILE',
        '"hivm.hir.vbrc"(%zero32, %tile) <{broadcast_dims = array<i64>}> : (f32, TILE) -> ()',
        '%last = "arith.constant"() <{value = 4088 : index}> : () -> index',
        f'%whole = "memref.reinterpret_cast"(%arg, %last) <{{{sized}}}> : ({BUFFER}, index) -> ROW',
    )
    always = compared("always", 0, "two", "two")
    body = (cell("first"), *VALUE, whole("rest", "remui", "i", "three"), whole("at", "addi", "base", "rest"))
    lines = around(
        number("zero32", 0.0, "f32"),
        *made,
        "set V MTE3 0",
        "wait V MTE3 0",
        always,
        *loop(*body, PUT_AND_TAKE[0], *only_if("always", *tile), *PUT_AND_TAKE[1:]),
    )
    for name, kind in views:
        lines = tuple(line.replace(name, kind).replace("GLOBAL", "#hivm.address_space<gm>") for line in lines)
    found, one_by_one = run(*lines, programs=1)
    assert one_by_one and found[4088:].tolist() == [0] * 8


@pytest.mark.parametrize(
    ("kinds", "kept"),
    [
        ([], []),
        ([5], [0]),
        ([0] * 10, [0, 1, 2, 3, 9]),  # the first follows none; then one follows itself three times; the last
        ([0, 1] * 6, [0, 1, 2, 3, 4, 5, 6, 9, 10, 11]),
        ([0, 1, 1, 1, 1, 1, 1, 1, 1, 0], [0, 1, 2, 3, 4, 8, 9]),
        ([0] * 5 + [1] * 5 + [0] * 5, [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 14]),
        ([0, 0, 0, 1] * 4, [0, 1, 2, 3, 4, 5, 7, 8, 11, 12, 14, 15]),
        ([2, 0, 1] * 5 + [2], [*range(10), 13, 14, 15]),
    ],
)
def test_trips_are_kept_until_their_kinds_have_followed_one_another_in_all_ways(kinds, kept):
    assert _enough(kinds) == kept


def test_of_too_many_kinds_trips_are_made_one_by_one():
    assert len(_enough([*range(_LONGEST)])) == _LONGEST
    with pytest.raises(OneByOne):
        _enough([*range(_LONGEST + 1)])


def test_the_last_chosen_trip_of_each_program():
    chosen = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]], bool)
    assert _last(chosen).astype(int).tolist() == [[0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]]


def test_masks_are_the_same_if_each_is():
    one, other = np.ones(2), np.ones(2)
    assert _same((one, other), (one, other)) and _same((), ())
    assert not _same((one,), (other,)) and not _same((one,), (one, other)) and not _same((one, other), (one, one))


ODD = (whole("rest", "remui", "i", "two"), compared("odd", 0, "rest", "c1"))
SENT = PUT_AND_TAKE[2:-1]
TWICE = '%other = "arith.addf"(%value, %value) : (f32, f32) -> f32'
TWICE_PUT = PUT[0].replace("%value", "%other")
WIDE = cell("second").replace("%cell", "%wide").replace("1xf32", "8xf32")


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        ((*PUT, f'%held = "memref.load"(%cell, %c0) : ({CELL}, index) -> f32', *SENT), lambda i: i),
        ((*PUT, TWICE, *ODD, *only_if("odd", TWICE_PUT), *SENT), lambda i: i * (1 + i % 2)),
        ((*PUT, TWICE, *ODD, *only_if("odd", TWICE_PUT, *SENT)), lambda i: 2 * i if i % 2 else -1),
        ((*ODD, *only_if("odd", *PUT), *SENT), lambda i: i - 1 + i % 2),
        ((*PUT, WIDE, *SENT), lambda i: i),
    ],
    ids=["read", "filled again in some trips", "sent then", "filled in some trips", "beside one of eight"],
)
def test_cells_that_are_used_in_other_ways_are_filled_trip_by_trip(run, lines, value):
    first = (line.replace("%cell", "%before").replace("%value", "%start") for line in (cell("first"), *PUT))
    body = (cell("first"), *VALUE, *EVEN, "wait MTE3 S 0", *lines, "set MTE3 S 0")
    found, one_by_one = run(*around(number("start", -1.0, "f32"), *first, *loop(*body)))
    assert one_by_one > 0
    assert found[: 2 * TRIPS : 2].tolist() == [value(i) for i in range(TRIPS)]


@pytest.mark.parametrize("holds", [True, False])
def test_a_condition_that_is_the_same_in_all_trips_and_programs_chooses_all_or_none(run, holds):
    body = (cell("first"), *VALUE, *EVEN, *only_if("same", *PUT_AND_TAKE))
    found, one_by_one = run(*around(compared("same", 0, "two", "two" if holds else "three"), *loop(*body)))
    assert (one_by_one, found.tolist()) == (0, expected(lambda p, i: holds))


def test_cells_in_turn_that_share_an_address_are_filled_trip_by_trip(run):
    found, one_by_one = run(*around(*loop(cell("first", "first"), *VALUE, *EVEN, *PUT_AND_TAKE)))
    assert one_by_one > 0 and found.tolist() == expected()


def test_cells_and_elements_of_folded_dimensions_are_stored_all_at_once(run):
    square = cell("first").replace("%cell", "%square").replace("memref<1x", "memref<1x1x")
    folded = square.rpartition(" -> ")[2]
    body = (
        square,
        f'%cell = "memref.collapse_shape"(%square) <{{reassociation = [[0, 1]]}}> : ({folded}) -> {CELL}',
        *(*VALUE, *EVEN, *PUT_AND_TAKE[:-2]),
        f'%flat = "memref.collapse_shape"(%one) <{{reassociation = [[0]]}}> : ({ELEMENT}) -> {ELEMENT}',
        PUT_AND_TAKE[-2].replace("%one", "%flat"),
        PUT_AND_TAKE[-1],
    )
    found, one_by_one = run(*around(*loop(*body)))
    assert (one_by_one, found.tolist()) == (0, expected())
