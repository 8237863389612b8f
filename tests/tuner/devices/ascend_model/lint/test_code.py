"""A compiled function as rules read it: loops, memory behind views, numbers, strides and what values come from."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from loop_lines import number, whole

from tilewise.tuner.devices.ascend_model.ir.source_lines import Place
from tilewise.tuner.devices.ascend_model.lint.code import Code, written

PART = "operandSegmentSizes = array<i32: 1, 1, 0, 0>, static_offsets = array<i64: -9223372036854775808>"


def cut(name, source, at, size, stride, space):
    kind = f"memref<{size}xf32, strided<[{stride}], offset: ?>, #hivm.address_space<{space}>>"
    attributes = f"{PART}, static_sizes = array<i64: {size}>, static_strides = array<i64: {stride}>"
    return f'%{name} = "memref.subview"(%{source}, %{at}) <{{{attributes}}}> : (UB, index) -> {kind}', kind


SUBVIEW, KIND = cut("part", "a", "i", 64, 1, "ub")
LINES = (
    *(number("five", 5), number("fifty", 50), '%given = "arith.index_cast"(%n) : (i32) -> index'),
    *('"scf.for"(%c0, %fifty, %five) ({', "^bb0(%i: index):", SUBVIEW),
    *('"scf.for"(%i, %given, %c1) ({', "^bb0(%j: index):", whole("sum", "addi", "i", "j")),
    '%v = "memref.load"(%part, %sum) : (KIND, index) -> f32'.replace("KIND", KIND),
    '"memref.store"(%v, %a, %j) : (f32, UB, index) -> ()',
    *('"scf.yield"() : () -> ()', "}) : (index, index, index) -> ()"),
    *('"scf.yield"() : () -> ()', "}) : (index, index, index) -> ()"),
    *(whole("ten", "addi", "five", "five"), whole("more", "muli", "ten", "given")),
    '"scf.for"(%c0, %more, %ten) ({',
    *("^bb0(%k: index):", "exp", '"scf.yield"() : () -> ()', "}) : (index, index, index) -> ()"),
)


@pytest.fixture
def code(program):
    function = program(*LINES)
    places = [None] * 100
    launch = SimpleNamespace(scalars=[7], grid=(3,), buffers=["x_ptr"])
    return Code(SimpleNamespace(function=function, places=places), launch)


def ops(code, name):
    return [op for op in code.walk() if op.name == name]


def test_loops_are_told_from_the_outermost_to_the_innermost_with_their_trips_if_known(code):
    first, inner, last = ops(code, "scf.for")
    (load,) = ops(code, "memref.load")
    assert code.loops(load) == [first, inner]
    assert code.loops(inner) == [first]
    assert code.loops(first) == []
    assert [code.trips(loop) for loop in (first, inner, last)] == [10, None, 7]
    assert code.trips(load) is None


def test_numbers_follow_from_constants_and_the_launch_but_not_from_loops(code):
    ten, more = (op for op in code.walk() if op.name in ("arith.addi", "arith.muli") and not code.loops(op))
    assert (code.number(ten.results[0]), code.number(more.results[0])) == (10, 70)
    (inside,) = (op for op in ops(code, "arith.addi") if code.loops(op))
    assert code.number(inside.results[0]) is None
    (load,) = ops(code, "memref.load")
    assert code.number(load.results[0]) is None


def test_a_view_leads_to_its_memory_and_to_what_is_written_there(code):
    (part,) = ops(code, "memref.subview")
    (memory,) = ops(code, "hivm.hir.pointer_cast")
    assert code.root(part.results[0]) == memory.results[0]
    (store,), (computed,) = ops(code, "memref.store"), ops(code, "hivm.hir.vexp")
    assert [written(op) for op in (store, computed)] == [(memory.results[0],)] * 2
    assert code.writers(memory.results[0]) == [store, computed]
    assert code.argument(part.results[0]) == ""
    (outside,) = (op for op in ops(code, "memref.reinterpret_cast"))
    assert code.argument(outside.results[0]) == "x_ptr"


def test_strides_are_those_of_the_view_or_of_its_source(code):
    (part,), (outside,) = ops(code, "memref.subview"), ops(code, "memref.reinterpret_cast")
    assert code.strides(outside.results[0]) == [1]
    assert code.strides(part.results[0]) == [1]
    assert code.strides(-1) == []


def test_a_value_comes_from_what_computes_it_and_from_memory_on_chip(code):
    (load,) = ops(code, "memref.load")
    names = [op.name for op in code.slice(load.results[0])]
    assert names[0] == "memref.load"
    assert {"memref.subview", "memref.store", "hivm.hir.vexp", "arith.addi"} <= set(names)
    assert "scf.for" not in names


CARRIED = (
    *(number("most", 128), number("two", 2), '%b = "hivm.hir.pointer_cast"(%at) <{PART}> : (i64) -> UB'),
    '%r:3 = "scf.for"(%c0, %two, %c1, %a, %b, %most) ({',
    "^bb0(%k: index, %p: UB, %q: UB, %s: index):",
    '"hivm.hir.vexp"(%p, %q) <{operandSegmentSizes = array<i32: 1, 1, 0>}> : (UB, UB) -> ()',
    *(whole("less", "subi", "s", "c1"), '"scf.yield"(%p, %q, %less) : (UB, UB, index) -> ()'),
    "}) : (index, index, index, UB, UB, index) -> (UB, UB, index)",
    '%v = "memref.load"(%r#1, %r#2) : (UB, index) -> f32',
    '"memref.store"(%v, %r#0, %c0) : (f32, UB, index) -> ()',
)


@pytest.fixture
def carrying(program):
    at = '%at = "arith.constant"() <{value = 65536 : i64}> : () -> i64'
    lines = [line.replace("PART", "operandSegmentSizes = array<i32: 1, 0>") for line in CARRIED]
    launch = SimpleNamespace(scalars=[7], grid=(3,), buffers=["x_ptr"])
    return Code(SimpleNamespace(function=program(at, *lines), places=[]), launch)


def test_a_buffer_that_a_loop_carries_is_the_one_it_begins_with_inside_and_after(carrying):
    first, second = (op.results[0] for op in ops(carrying, "hivm.hir.pointer_cast"))
    (inside,), (load,), (store,) = (ops(carrying, name) for name in ("hivm.hir.vexp", "memref.load", "memref.store"))
    assert [carrying.root(number) for number in inside.operands] == [first, second]
    assert (carrying.root(store.operands[1]), carrying.root(load.operands[0])) == (first, second)
    assert carrying.writers(first) == [store]
    assert carrying.writers(second) == [inside]


def test_a_number_that_a_loop_carries_comes_from_its_start_and_from_each_trip(carrying):
    (load,), (less,) = ops(carrying, "memref.load"), ops(carrying, "arith.subi")
    found = carrying.slice(load.operands[1])
    one, most = (carrying.definition(number) for number in (less.operands[1], ops(carrying, "scf.for")[0].operands[5]))
    assert [each.number for each in found] == [less.number, one.number, most.number]
    inside = carrying.slice(less.operands[0])
    assert [each.number for each in inside] == [most.number, less.number, one.number]
    (inside,) = ops(carrying, "hivm.hir.vexp")
    assert inside in carrying.slice(load.operands[0])


def test_the_line_of_an_operation_without_one_is_that_of_the_first_operation_inside(carrying):
    (loop,), (inside,), (less,) = (ops(carrying, name) for name in ("scf.for", "hivm.hir.vexp", "arith.subi"))
    places = [None] * max(op.number for op in carrying.walk())
    places[less.number - 1] = Place("kernel.py", 3)
    launch = SimpleNamespace(scalars=[7], grid=(3,), buffers=["x_ptr"])
    code = Code(SimpleNamespace(function=carrying.function, places=places), launch)
    assert [code.place(op) for op in (loop, less, inside)] == [Place("kernel.py", 3)] * 2 + [None]
    places[inside.number - 1] = Place("kernel.py", 2)
    assert code.place(loop) == Place("kernel.py", 2)
    places[loop.number - 1] = Place("kernel.py", 1)
    assert code.place(loop) == Place("kernel.py", 1)
