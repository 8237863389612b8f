"""Drawn loops over elements, some of whose trips depend on one another: in one tile, and to elements of global memory.

The lines are those of tests/tuner/devices/ascend_model/conftest.py: `%a` is a tile of 4096 float32, `%arg` the buffer.
"""

from __future__ import annotations

from random import Random

from loop_lines import ANYWHERE, BUFFER, ELEMENT, END, number, whole

CASES = 102
_ALIKE = 90
"""From this case on, a condition is the same in all trips, and the element on chip is seen through a folded view."""

CELL = "memref<1xf32, #hivm.address_space<ub>>"
_SQUARE = "memref<1x1xf32, #hivm.address_space<ub>>"


def lines(case: int) -> list[str]:
    """Return the lines of a program."""
    random = Random(f"loops {case}")
    if case >= _ALIKE:
        return _alike(random)
    return _scatter(random) if case % 2 else _in_a_tile(random)


def _constants() -> list[str]:
    numbers = {"two": 2, "three": 3, "seven": 7, "far": 1000, "row": 64, "none": 0, "few": 5, "trips": 40}
    return [
        '%id = "hivm.hir.get_block_idx"() : () -> i64',
        '%p = "arith.index_cast"(%id) : (i64) -> index',
        *(number(name, value) for name, value in numbers.items()),
        *(number(name, value, "i64") for name, value in (("first", 32768), ("second", 32800))),
        number("half", 0.5, "f32"),
        whole("base", "muli", "p", "far"),
    ]


def _place(random: Random, name: str, index: str, *, base: str = "") -> list[str]:
    """Return the lines that compute a place from the index of a loop."""
    step = random.choice(("c1", "two", "three", "row"))
    way = random.choice(("times", "times", "plus", "rest", "same", "quotient"))
    found = {
        "times": [whole(f"{name}0", "muli", index, step)],
        "plus": [whole(f"{name}0", "addi", index, step)],
        "rest": [whole(f"{name}0", "remui", index, "seven")],
        "quotient": [whole(f"{name}0", "divsi", index, "three")],
        "same": [whole(f"{name}0", "addi", "none", step)],
    }[way]
    return [*found, whole(name, "addi", f"{name}0", base or random.choice(("none", "few", "p")))]


def _loop(index: str, trips: str, body: list[str]) -> list[str]:
    return [f'"scf.for"(%c0, %{trips}, %c1) ({{', f"^bb0(%{index}: index):", *body, *END]


def _nest(step: str, trips: str, body: list[str]) -> list[str]:
    inner = _loop("k", "few", [whole("i", "addi", "before", "k"), *body])
    return _loop("j", trips, [whole("before", "muli", "j", step), *inner])


def _in_a_tile(random: Random) -> list[str]:
    """Return a loop, or two, that reads, computes and writes numbers of a tile."""
    read = [*_place(random, "from", "i"), '%v = "memref.load"(%a, %from) : (UB, index) -> f32']
    if random.random() < 0.25:  # a place that is itself read
        read += [
            '%as_i = "arith.fptosi"(%v) : (f32) -> i64',
            '%at_i = "arith.index_cast"(%as_i) : (i64) -> index',
            f'%one = "memref.reinterpret_cast"(%arg, %at_i) <{{{ANYWHERE}}}> : ({BUFFER}, index) -> {ELEMENT}',
            f'%w = "memref.load"(%one, %c0) : ({ELEMENT}, index) -> f32',
        ]
    else:
        read += [f'%w = "arith.{random.choice(("addf", "mulf"))}"(%v, %half) : (f32, f32) -> f32']
    write = [*_place(random, "at", "i"), '"memref.store"(%w, %a, %at) : (f32, UB, index) -> ()']
    if random.random() < 0.2:
        write += ['"memref.store"(%v, %a, %from) : (f32, UB, index) -> ()']
    body = [*read, *write]
    trips = random.choice(("trips", "trips", "few", "c1", "none", "p"))
    if random.random() < 0.5:
        inner = [
            whole("before", "muli", "j", random.choice(("few", "row"))),
            *_loop("k", "few", [whole("i", "addi", "before", "k"), *body]),
        ]
        made = _loop("j", trips if trips != "trips" else "seven", inner)
    else:
        made = _loop("i", trips, body)
    before = ["load", "set MTE2 S 0", "wait MTE2 S 0"]
    after = (
        ["set S V 0", "wait S V 0", "add", "set V MTE3 0", "wait V MTE3 0"]
        if random.random() < 0.3
        else ["barrier ALL"]
    )
    last = ["store"] if random.random() < 0.6 else ["exp", "barrier V"]
    return [*_constants(), *before, *made, *after, *last]


_NUMBER = ('%int = "arith.index_cast"(%i) : (index) -> i32', '%value = "arith.sitofp"(%int) : (i32) -> f32')
_KEPT = (
    "wait MTE3 S 0",
    f'"memref.store"(%value, %cell, %c0) : (f32, {CELL}, index) -> ()',
    "set S MTE3 0",
    "wait S MTE3 0",
    f'%one = "memref.reinterpret_cast"(%arg, %at) <{{{ANYWHERE}}}> : ({BUFFER}, index) -> {ELEMENT}',
)
"""A trip's number as a float32, and how it gets to a cell, with the place in global memory for the cell."""


def _scatter(random: Random) -> list[str]:
    """Return a loop that stores a number to one element of global memory in each trip."""
    cells = random.choice((["first"], ["first"], ["first", "second"]))
    names, kinds = ", ".join(f"%{name}" for name in cells), ", ".join("i64" for _ in cells)
    counts = f"<{{operandSegmentSizes = array<i32: {len(cells)}, 0>}}>"
    cell = f'%cell = "hivm.hir.pointer_cast"({names}) {counts} : ({kinds}) -> {CELL}'
    acts = [
        *_KEPT,
        f'"hivm.hir.store"(%cell, %one) : ({CELL}, {ELEMENT}) -> ()',
        "set MTE3 S 0",
    ]
    if random.random() < 0.15:
        acts = [act for act in acts if act != random.choice(("wait MTE3 S 0", "wait S MTE3 0"))]
    place = _place(random, "at", "i", base=random.choice(("base", "base", "base", "none")))
    if random.random() < 0.4:
        predicate, other = random.choice((0, 1, 2, 4)), random.choice(("p", "c1", "two"))
        place += [
            whole("rest", "remui", "i", random.choice(("three", "two"))),
            f'%some = "arith.cmpi"(%rest, %{other}) <{{predicate = {predicate}}}> : (index, index) -> i1',
        ]
        acts = ['"scf.if"(%some) ({', *acts, '"scf.yield"() : () -> ()', "}, {}) : (i1) -> ()"]
    body = [cell, *_NUMBER, *place, *acts]
    if random.random() < 0.3:
        made = _nest("few", "seven", body)
    else:
        made = _loop("i", random.choice(("trips", "trips", "few", "c1", "none")), body)
    ahead = random.choice((1, 1, 1, len(cells), 3))
    return [*_constants(), *["set MTE3 S 0"] * ahead, *made, *["wait MTE3 S 0"] * ahead]


def _alike(random: Random) -> list[str]:
    """Return a loop that stores to global memory through a folded view, in all trips or in none."""
    predicate = random.choice((2, 2, 2, 4))
    cell = [
        f'%square = "hivm.hir.pointer_cast"(%first) <{{operandSegmentSizes = array<i32: 1, 0>}}> : (i64) -> {_SQUARE}',
        f'%cell = "memref.collapse_shape"(%square) <{{reassociation = [[0, 1]]}}> : ({_SQUARE}) -> {CELL}',
    ]
    acts = [
        *_KEPT,
        f'%flat = "memref.collapse_shape"(%one) <{{reassociation = [[0]]}}> : ({ELEMENT}) -> {ELEMENT}',
        f'"hivm.hir.store"(%cell, %flat) : ({CELL}, {ELEMENT}) -> ()',
        "set MTE3 S 0",
    ]
    place = _place(random, "at", "i", base="base")
    compared = random.choice(("(%few, %row)", "(%few, %p)", "(%p, %few)"))
    condition = f'%some = "arith.cmpi"{compared} <{{predicate = {predicate}}}> : (index, index) -> i1'
    guarded = ['"scf.if"(%some) ({', *acts, '"scf.yield"() : () -> ()', "}, {}) : (i1) -> ()"]
    made = _loop("i", "trips", [condition, *cell, *_NUMBER, *place, *guarded])
    return [*_constants(), "set MTE3 S 0", *made, "wait MTE3 S 0"]
