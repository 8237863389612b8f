"""Loops over elements: why their addresses form no rows, and what to do about arithmetic on the scalar unit."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tilewise.tuner.devices.ascend_model.ir.hivm import Op
from tilewise.tuner.devices.ascend_model.lint.element_loops import _arithmetic, _cause, _Loop


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
