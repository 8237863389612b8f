"""Which loops count as loops over elements: nests put together by hand, each apart from one that is none by one thing.

Values 0 to 9 are made outside: 0, 1 and 2 are bounds, 3 is a tile on chip, 4 a buffer, 5 and 6 are numbers.
"""

from __future__ import annotations

import pytest

from tilewise.tuner.devices.ascend_model.ir.element_loops import ElementLoop, ScatterLoop
from tilewise.tuner.devices.ascend_model.ir.hivm import Block, MemRef, Op

UB, CBUF, GM = (MemRef((8,), (1,), "f32", space) for space in ("ub", "cbuf", "gm"))
OUTER, INNER = 10, 20
"""The values that count the trips of a loop, and of the one inside it."""


def op(name, operands=(), results=(), types=(), regions=(), result_types=("f32",), **attributes):
    return Op(name, tuple(operands), tuple(results), attributes, tuple(types), tuple(result_types), tuple(regions))


YIELD = op("scf.yield")
MARK = op("annotation.mark", [30])


def load(at, result=30):
    return op("memref.load", [3, at], [result], (UB, "index"))


def add(result=31, operands=(30, 5)):
    return op("arith.addf", operands, [result])


def store(at=OUTER, space=UB, value=31):
    return op("memref.store", [value, 3, at], (), ("f32", space, "index"))


def loop(*operations, index=OUTER, bounds=(0, 1, 2), results=(), end=(YIELD,)):
    return op("scf.for", bounds, results, regions=[Block((index,), (*operations, *end))])


def names(operations):
    return [each.name for each in operations]


def an_if(condition, *operations, orelse=(), results=()):
    return op("scf.if", [condition], results, regions=[Block((), operations), Block((), orelse)])


# Loops over elements of a tile ---------------------------------------------------------------------------------------

PLAIN = (load(OUTER), add(), store())


def test_a_loop_that_reads_computes_and_writes_elements_is_one():
    found = ElementLoop.of(loop(MARK, *PLAIN))
    (level,) = found.levels
    assert (level.index, names(level.operations)) == (OUTER, ["memref.load", "arith.addf", "memref.store"])
    assert (found.bounds, found.stored, found.repeated.operations) == ((0, 1, 2), (), ())


def test_a_nest_is_one_with_its_bounds_and_what_each_loop_does_first():
    inner = loop(load(INNER), add(), store(INNER), index=INNER, bounds=(0, 6, 2))
    found = ElementLoop.of(loop(add(40, (5, 6)), inner))
    assert [(level.index, names(level.operations)) for level in found.levels] == [
        (OUTER, ["arith.addf"]),
        (INNER, ["memref.load", "arith.addf", "memref.store"]),
    ]
    assert found.bounds == (0, 1, 2, 0, 6, 2)


@pytest.mark.parametrize(
    "operations",
    [
        (load(OUTER), add()),  # nothing is written
        (*PLAIN[:2], store(space=GM)),
        (*PLAIN, op("hivm.hir.vadd", [3, 3, 3], (), (UB, UB, UB))),
        (*PLAIN, op("arith.select", [5, 3, 3], [40], result_types=[UB])),
        (*PLAIN, op("memref.subview", [3], [40], [UB])),
        (*PLAIN, op("hivm.hir.load", [4, 3], (), (GM, UB))),
        (*PLAIN, an_if(5, store())),
        (store(value=5), load(OUTER), op("func.call", [5])),
    ],
)
def test_a_loop_that_does_anything_else_is_none(operations):
    assert ElementLoop.of(loop(*operations)) is None


@pytest.mark.parametrize(
    "nest",
    [
        PLAIN[0],
        loop(*PLAIN, results=[50]),
        loop(*PLAIN, bounds=(0, 1, 2, 5)),
        loop(loop(*PLAIN, index=INNER, results=[50])),
        loop(add(40, (5, 6)), loop(*PLAIN, index=INNER, bounds=(0, 40, 2))),  # a bound that a trip computes
        loop(loop(*PLAIN, index=INNER, bounds=(0, OUTER, 2))),
        loop(op("hivm.hir.vadd", [3, 3, 3]), loop(*PLAIN, index=INNER)),
        loop(loop(*PLAIN, index=INNER), add(40, (5, 6))),  # it is not perfect
        loop(),
    ],
)
def test_a_nest_of_other_loops_is_none(nest):
    assert ElementLoop.of(nest) is None


@pytest.mark.parametrize("name", ["math.exp", "arith.mulf", "memref.reinterpret_cast", "memref.load"])
def test_numbers_and_views_are_computed_in_each_trip(name):
    assert ElementLoop.of(loop(*PLAIN, op(name, [30], [40]))) is not None
    assert ElementLoop.of(loop(*PLAIN, op(name.replace(".", "_"), [30], [40]))) is None


ROW = (
    op("memref.subview", [4], [40], [GM]),
    op("memref.collapse_shape", [40], [41], [GM]),
    op("hivm.hir.load", [41, 3], (), (GM, UB)),
)


@pytest.mark.parametrize(
    ("operations", "taken"),
    [
        (ROW, True),
        ((*ROW[:2], op("hivm.hir.load", [41, 3], (), (GM, CBUF))), False),
        ((*ROW[:2], op("hivm.hir.load", [41, 3], (), (GM, UB), pad_mode="PadValue")), False),
        ((*ROW[:2], op("hivm.hir.load", [41, 3], (), (GM, UB), pad_mode="PadNull")), True),
        ((*ROW[:2], op("hivm.hir.load", [41, 3], (), (GM, UB), init_out_buffer=True)), False),
        ((*ROW[:2], op("hivm.hir.load", [41, 3], (), (GM, UB), init_out_buffer=False)), True),
        ((*ROW, op("memref.expand_shape", [41], [42], [GM])), False),
        (ROW[:2], False),
    ],
)
def test_rows_may_be_loaded_in_each_trip_where_that_is_asked_for(operations, taken):
    assert (ElementLoop.of(loop(*operations), rows=True) is not None) is taken
    assert ElementLoop.of(loop(*operations)) is None


TILE_STORE = op("hivm.hir.store", [3, 4], (), (UB, GM))
BARRIER = op("hivm.hir.pipe_barrier")


def test_what_is_the_same_in_every_trip_is_apart():
    workspace = op("memref_ext.alloc_workspace", [5], [40])
    target = op("hivm.hir.store", [3, 40], (), (UB, GM))
    found = ElementLoop.of(loop(load(OUTER), workspace, BARRIER, target, add(), store()))
    (level,) = found.levels
    assert names(level.operations) == ["memref.load", "arith.addf", "memref.store"]
    assert found.repeated.operations == tuple(level.repeated) == (workspace, BARRIER, target)
    assert found.stored == (3,)


@pytest.mark.parametrize(
    "repeated",
    [
        op("hivm.hir.store", [3, 30], (), (UB, GM)),  # 30 is loaded in each trip
        op("hivm.hir.store", [3, OUTER], (), (UB, GM)),
        an_if(30, TILE_STORE),
        an_if(5, op("hivm.hir.store", [3, 30], (), (UB, GM))),
        op("hivm.hir.store", [3, 4], (), (UB, GM), atomic_kind="add"),
    ],
)
def test_a_store_of_something_else_in_each_trip_is_not_the_same(repeated):
    assert ElementLoop.of(loop(*PLAIN, repeated)) is None


@pytest.mark.parametrize("atomic", [{}, {"atomic_kind": "none"}])
def test_a_condition_may_hold_for_what_is_the_same(atomic):
    tile = op("hivm.hir.store", [3, 4], (), (UB, GM), **atomic)
    found = ElementLoop.of(loop(*PLAIN, an_if(5, tile, YIELD, orelse=[BARRIER])))
    assert names(found.repeated.operations) == ["scf.if"]
    assert found.stored == (3,)
    assert ElementLoop.of(loop(*PLAIN, an_if(5, tile, orelse=[add(40)]))) is None
    assert ElementLoop.of(loop(*PLAIN, an_if(5, tile, results=[40]))) is None


# Loops that scatter --------------------------------------------------------------------------------------------------

CAST = op("hivm.hir.pointer_cast", [5], [40], result_types=[UB])
PUT = op("memref.store", [31, 40, 6], (), ("f32", UB, "index"))
ONE = op("memref.reinterpret_cast", [4, OUTER], [41], [GM], result_types=[GM])
MOVED = op("hivm.hir.store", [40, 41], (), (UB, GM))
FLAGS = (op("hivm.hir.wait_flag"), op("hivm.hir.set_flag"))
SCATTER = (load(OUTER), add(), CAST, FLAGS[0], PUT, ONE, MOVED, FLAGS[1])


def test_a_loop_that_stores_an_element_in_each_trip_scatters():
    found = ScatterLoop.of(loop(MARK, *SCATTER))
    (level,) = found.levels
    assert (level.index, names(level.operations)) == (OUTER, names(SCATTER))
    assert (found.bounds, found.views, found.tiles, found.stored) == ((0, 1, 2), (), (), ())


def test_a_nest_scatters_in_its_innermost_loop():
    found = ScatterLoop.of(loop(load(OUTER), loop(*SCATTER, index=INNER, bounds=(0, 6, 2))))
    assert [(level.index, len(level.operations)) for level in found.levels] == [(OUTER, 1), (INNER, len(SCATTER))]
    assert found.bounds == (0, 1, 2, 0, 6, 2)


@pytest.mark.parametrize(
    ("condition", "taken"),
    [
        (an_if(30, *SCATTER[2:]), True),
        (an_if(30, *SCATTER[2:], YIELD, orelse=[YIELD]), True),
        (an_if(30, *SCATTER[2:], orelse=[add(60)]), False),
        (an_if(30, *SCATTER[2:], orelse=[YIELD, BARRIER]), False),
        (an_if(30, *SCATTER[2:], results=[60]), False),
        (an_if(30, load(OUTER, 60), *SCATTER[2:]), False),
        (an_if(30, *SCATTER[2:], op("hivm.hir.vadd", [3, 3, 3])), False),
    ],
)
def test_a_condition_may_choose_the_trips_that_store(condition, taken):
    assert (ScatterLoop.of(loop(load(OUTER), condition)) is not None) is taken


@pytest.mark.parametrize(
    "nest",
    [
        PUT,
        loop(*SCATTER, results=[60]),
        loop(*SCATTER, bounds=(0, 1, 2, 5)),
        loop(*SCATTER[:6]),  # nothing is stored
        loop(*SCATTER[:6], op("hivm.hir.store", [40, 41], (), (UB, GM), atomic_kind="add")),
        loop(*SCATTER, op("hivm.hir.vadd", [3, 3, 3])),
        loop(*SCATTER, op("memref.subview", [41], [60], [GM])),
        loop(PUT, loop(*SCATTER, index=INNER)),  # a number is put before the loop inside
        loop(FLAGS[0], loop(*SCATTER, index=INNER)),
        loop(load(OUTER), loop(*SCATTER, index=INNER, bounds=(0, 30, 2))),
        loop(loop(*SCATTER, index=INNER, bounds=(0, OUTER, 2))),
        loop(loop(*SCATTER, index=INNER), load(OUTER)),
    ],
)
def test_other_loops_do_not_scatter(nest):
    assert ScatterLoop.of(nest) is None


@pytest.mark.parametrize("kind", [{}, {"atomic_kind": "none"}])
def test_a_tile_that_is_stored_in_every_trip_is_apart(kind):
    workspace, folded = op("memref_ext.alloc_workspace", [5], [60]), op("memref.collapse_shape", [60], [61])
    tile = op("hivm.hir.store", [3, 61], (), (UB, GM), **kind)
    found = ScatterLoop.of(loop(workspace, folded, tile, *SCATTER))
    (level,) = found.levels
    assert names(level.operations) == names(SCATTER)
    assert (found.views, found.tiles, found.stored) == ((workspace, folded), (tile,), (3,))
    assert found.bounds == (0, 1, 2)


def test_a_tile_may_be_stored_on_a_condition_from_outside():
    found = ScatterLoop.of(loop(an_if(6, TILE_STORE, YIELD), *SCATTER))
    assert (names(found.tiles), found.stored, found.bounds) == (["scf.if"], (3,), (0, 1, 2, 6))
    made = op("memref_ext.alloc_workspace", [5], [60])
    inside = op("hivm.hir.store", [60, 4], (), (UB, GM))
    assert ScatterLoop.of(loop(an_if(6, made, inside), *SCATTER)) is None


def test_a_barrier_does_not_stand_beside_what_is_the_same():
    assert ScatterLoop.of(loop(*SCATTER, BARRIER)) is not None
    assert ScatterLoop.of(loop(TILE_STORE, *SCATTER)) is not None
    assert ScatterLoop.of(loop(TILE_STORE, *SCATTER, BARRIER)) is None


def test_what_depends_on_a_trip_is_part_of_it():
    """The last store's place is computed anew in each trip, which the first one's is not."""
    later = op("hivm.hir.store", [40, 30], (), (UB, GM))
    found = ScatterLoop.of(loop(*SCATTER, TILE_STORE, later))
    (level,) = found.levels
    assert names(level.operations) == [*names(SCATTER), "hivm.hir.store"]
    assert found.tiles == (TILE_STORE,)
