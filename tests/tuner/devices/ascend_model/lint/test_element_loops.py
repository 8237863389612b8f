"""Loops over elements: why their addresses form no rows, and what to do about arithmetic on the scalar unit."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tilewise.tuner.devices.ascend_model.ir.hivm import Block, MemRef, Op
from tilewise.tuner.devices.ascend_model.lint.element_loops import (
    _arithmetic,
    _cause,
    _Loop,
    element_loops,
    row_loops,
)


def op(name, *types, operands=(0,), number=1, regions=()):
    return Op(name, operands, (), {}, types, (), regions, number)


def code(*computed, loops=(), argument="", trips=None):
    return SimpleNamespace(
        slice=lambda number: computed,
        loops=lambda each: loops,
        argument=lambda number: argument,
        place=lambda each: f"the line of {each.name}",
        trips=lambda loop: trips,
    )


AROUND = op("scf.for", regions=(SimpleNamespace(walk=lambda: iter(())),))


@pytest.mark.parametrize(
    ("name", "why", "remedy", "line"),
    [
        ("arith.remsi", "its offsets are wrapped by a remainder (%)", "compute them without", True),
        ("arith.divui", "its offsets are divided (//)", "where neighbours share a quotient", True),
        ("hivm.hir.vmin", "its offsets are clamped", "compute them without: use the offsets from tl.arange", True),
        ("arith.addi", "the compiler sees no rows in its offsets", "write the offsets as base + rows * stride", False),
    ],
)
def test_addresses_that_form_no_rows_are_told_by_what_computes_them(name, why, remedy, line):
    found = _cause(code(op(name), loops=(AROUND,)), op("memref.load"))
    assert found[0] == why
    assert found[1].startswith(remedy)
    assert found[2] == (f"the line of {name}" if line else None)


def test_addresses_of_a_list_name_the_list():
    found = _cause(code(op("hivm.hir.load"), loops=(AROUND,), argument="rows_ptr"), op("memref.load"))
    assert found == (
        "the addresses come from the list rows_ptr",
        "load whole rows in a loop over the list, one contiguous load per row, or sort the rows beforehand",
        "the line of hivm.hir.load",
    )


COSTS = SimpleNamespace(of=lambda operations: float(len(operations)))


def arithmetic(*inside, addresses=None, **more):
    walk = SimpleNamespace(walk=lambda: iter(inside))
    return _arithmetic(code(**more), COSTS, _Loop(op("scf.for", regions=(walk,)), inside, ()), addresses or {})


@pytest.mark.parametrize(
    ("name", "kind", "message", "remedy"),
    [
        ("arith.addi", "i64", "i64 ", "keep tiles of integers in int32"),
        ("arith.remsi", "i32", "i32 ", "take quotients and remainders of the program's index"),
        ("arith.minsi", "i32", "i32 minima", "compute it once, outside loops, or in a type"),
    ],
)
def test_arithmetic_that_is_done_one_by_one_has_a_remedy_by_its_kind(name, kind, message, remedy):
    found = arithmetic(op(name, kind), trips=8)
    assert found.message.startswith(message)
    assert found.message.endswith("run one by one on the scalar unit, 8 elements")
    assert found.remedy.startswith(remedy)
    assert (found.rule.id, found.cost_us, found.cause) == ("scalar-arithmetic", 2.0, None)


def test_arithmetic_on_an_index_or_none_at_all_is_no_finding():
    assert arithmetic(op("arith.addi", "index")) is None
    assert arithmetic(op("memref.load", "f32")) is None


def test_addresses_of_accesses_are_told_once_and_go_with_the_accesses():
    served = {1: "k.py:7"}
    assert arithmetic(op("arith.addi", "i32"), addresses=served) is None  # the accesses' finding names it
    found = arithmetic(op("arith.addi", "i32"), addresses=served, loops=(AROUND,), trips=4)
    words = "4 elements on each trip of the loop, for the addresses of the element-wise accesses on k.py:7"
    assert found.message.endswith(words)
    assert (found.remedy, found.cause) == ("they go with those accesses", "k.py:7")


# The loops that findings are about

UB, GM, L1 = (MemRef((64,), (1,), "f32", space) for space in ("ub", "gm", "cbuf"))


def access(number, verb, at, memory=UB, buffer=3):
    """Load from memory, or store to it, at a place."""
    operands, types = (
        ((buffer, at), (memory, "index")) if verb == "load" else ((9, buffer, at), ("f32", memory, "index"))
    )
    return op(f"memref.{verb}", *types, operands=operands, number=number)


def loop(number, *inside, index=10):
    return op("scf.for", number=number, regions=(Block((index,), inside),))


def written(*operations, around=None, names=None, slices=None, places=None, trips=None, copied=(), views=None):
    """Code of these operations; `around` has the loops around an operation, by its number."""
    walked = [
        each for operation in operations for each in (operation, *(o for r in operation.regions for o in r.walk()))
    ]
    return SimpleNamespace(
        walk=lambda: iter(walked),
        loops=lambda each: list((around or {}).get(each.number, ())),
        argument=lambda number: (names or {}).get(number, ""),
        slice=lambda number: (slices or {}).get(number, []),
        place=lambda each: (places or {}).get(each.number, f"k.py:{each.number}"),
        trips=lambda each: trips,
        is_copied_to_workspace=lambda each: each.number in copied,
        views=lambda number: iter((views or {}).get(number, ())),
    )


NUMBERS = SimpleNamespace(of=lambda operations: float(sum(each.number for each in operations)))


def test_an_access_to_global_memory_in_a_loop_over_a_tile_is_a_finding_per_line_and_buffer():
    read, again, other = (access(number, "load", 10, GM, buffer) for number, buffer in ((2, 3), (3, 3), (4, 5)))
    put, back = access(5, "store", 10), access(6, "store", 10, GM, 7)
    whole = loop(1, read, again, other, put, back)
    inside = {each.number: [whole] for each in (read, again, other, put, back)}
    code = written(whole, around=inside, names={3: "x_ptr", 7: "out_ptr"}, places={3: "k.py:2"}, trips=64)
    found = list(element_loops(code, NUMBERS))
    assert [each.message.partition(":")[0] for each in found] == [
        "x_ptr is read element by element, 64 elements",
        "memory is read element by element, 64 elements",
        "out_ptr is written element by element, 64 elements",
    ]
    assert [each.place for each in found] == ["k.py:2", "k.py:4", "k.py:6"]
    assert {(each.rule.id, each.cost_us) for each in found} == {("element-access", 21.0)}


def test_an_access_to_the_same_buffer_on_another_line_is_another_finding():
    read, again = access(2, "load", 10, GM), access(3, "load", 10, GM)
    whole = loop(1, read, again, access(4, "store", 10))
    found = element_loops(written(whole, around={2: [whole], 3: [whole]}, names={3: "x_ptr"}), NUMBERS)
    assert [each.place for each in found] == ["k.py:2", "k.py:3"]


@pytest.mark.parametrize(
    "inside",
    [
        (access(2, "load", 10, GM), access(3, "store", 11)),  # the place on chip is none that the loop counts
        (access(2, "load", 10, GM),),
        (access(2, "load", 10, GM), access(3, "store", 10), op("hivm.hir.vadd", number=4)),
        (op("hivm.hir.load", number=2), access(3, "store", 10)),
        (op("arith.addi", "i32", operands=(10, 10), number=2),),
    ],
)
def test_loops_that_go_through_no_tile_or_do_more_than_the_scalar_unit_are_none(inside):
    whole = loop(1, *inside)
    assert list(element_loops(written(whole, around={each.number: [whole] for each in inside}), NUMBERS)) == []


def test_a_nest_is_one_loop_the_outermost_in_which_the_scalar_unit_works_alone():
    put = access(4, "store", 11)
    inner = loop(3, access(5, "load", 11, GM), put, index=11)
    outer = loop(2, inner)
    whole = loop(1, op("hivm.hir.vadd", number=6), outer, index=12)
    around = {2: [whole], 3: [whole, outer], 4: [whole, outer, inner], 5: [whole, outer, inner], 6: [whole]}
    (found,) = element_loops(written(whole, around=around, trips=8), NUMBERS)
    assert found.message.startswith("memory is read element by element, 64 elements on each trip of the loop: ")
    assert found.cost_us == 14.0


def test_arithmetic_for_the_addresses_of_accesses_names_their_line():
    computed = op("arith.addi", "i32", "i32", operands=(10, 10), number=6)
    read = access(2, "load", 10, GM)
    first = loop(1, read, access(3, "store", 10))
    second = loop(5, computed, access(7, "store", 10), index=10)
    outer = loop(8, first, second, op("hivm.hir.vadd", number=9), index=12)
    around = {1: [outer], 2: [outer, first], 5: [outer], 6: [outer, second]}
    code = written(outer, around=around, slices={3: [computed]}, trips=4)
    accesses, arithmetic_ = element_loops(code, NUMBERS)
    assert accesses.place == "k.py:2"
    assert arithmetic_.cause == "k.py:2"
    assert "for the addresses of the element-wise accesses on k.py:2" in arithmetic_.message


def test_rows_that_are_loaded_one_by_one_for_a_cube_core_are_a_finding():
    row = op("hivm.hir.load", GM, UB, operands=(3, 4), number=2)
    view = op("memref.subview", GM, operands=(30, 10), number=3)
    whole = loop(1, view, row)
    around = {2: [whole], 3: [whole]}
    more = {"around": around, "names": {3: "x_ptr"}, "views": {4: [view]}}
    (found,) = row_loops(written(whole, copied=[2], trips=16, **more), NUMBERS)
    assert found.message == (
        "rows of x_ptr are loaded one by one, 16 per tile, and vector cores copy the tile to workspace for the cube "
        "core: the compiler sees no rows in its offsets"
    )
    assert (found.rule.id, found.place, found.cost_us) == ("row-access", "k.py:2", 5.0)
    (unknown,) = row_loops(written(whole, copied=[2], **more), NUMBERS)
    assert unknown.message.startswith("rows of x_ptr are loaded one by one, and vector cores copy")
    assert list(row_loops(written(whole, trips=16, **more), NUMBERS)) == []
    assert list(row_loops(written(whole, copied=[2], **more | {"around": {}}), NUMBERS)) == []
    assert list(row_loops(written(whole, copied=[2], **more | {"views": {}}), NUMBERS)) == []


def test_a_list_is_what_is_read_by_a_transfer_or_number_by_number():
    listed = op("hivm.hir.load", GM, UB, operands=(7, 8), number=4)
    one = access(5, "load", 10, GM, 7)
    read = access(2, "load", 10, GM)
    scalar, other = loop(1, read, access(3, "store", 10)), loop(6, one, access(7, "store", 10))
    names = {7: "rows_ptr"}
    by_transfer = written(scalar, around={2: [scalar]}, names=names, slices={3: [read, listed]})
    assert _cause(by_transfer, read)[0] == "the addresses come from the list rows_ptr"
    by_number = written(scalar, around={2: [scalar], 5: [other]}, names=names, slices={3: [one]})
    assert _cause(by_number, read)[0] == "the addresses come from the list rows_ptr"
    once = written(scalar, around={2: [scalar], 5: []}, names=names, slices={3: [one]})
    assert _cause(once, read)[0] == "the compiler sees no rows in its offsets"
