"""A table of what drawn programs of a vector core take by the modelled clock, and of what they compute.

Compiled kernels leave much aside: odd strides, loops whose pipes never meet, a missing flag. Each program loads, works,
stores, loops, branches and moves single numbers, and is ordered by flags or barriers, or now and then not. If a change
of the table is meant, write it anew with `python tests/helpers/drawn_programs.py`, in the tests' environment.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from random import Random
from typing import Any

import numpy as np
from tables import FOLDER

from tilewise.tuner.devices.ascend_model.clock.program_clock import Memory, ProgramClock, Rate
from tilewise.tuner.devices.ascend_model.executor.executor import Executor
from tilewise.tuner.devices.ascend_model.executor.memory import Fault
from tilewise.tuner.devices.ascend_model.ir.hivm import Function, parse
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation
from tilewise.tuner.hardware.ascend_costs import costs

CASES = 80
PROGRAMS, REGION = 3, 2048
"""Programs of a launch, and the elements of the buffer that each has to itself."""

_FILE = FOLDER / "programs.json.gz"
_GM = "memref<?xf32, #hivm.address_space<gm>>"
_MODULE = f"""
"builtin.module"() ({{
  "func.func"() <{{function_type = () -> (), sym_name = "drawn"}}> ({{
  ^bb0(%ffts: i64, %lock: memref<?xi8, #hivm.address_space<gm>>, %workspace: memref<?xi8, #hivm.address_space<gm>>,
       %in: {_GM}, %out: {_GM}, %n: i32, %gx: i32, %gy: i32, %gz: i32):
    %c0 = "arith.constant"() <{{value = 0 : index}}> : () -> index
    %c1 = "arith.constant"() <{{value = 1 : index}}> : () -> index
    %half = "arith.constant"() <{{value = 0.5 : f32}}> : () -> f32
    %region = "arith.constant"() <{{value = {REGION} : index}}> : () -> index
    %block = "hivm.hir.get_block_idx"() : () -> i64
    %program = "arith.index_cast"(%block) : (i64) -> index
    %own = "arith.muli"(%program, %region) : (index, index) -> index
    BODY
    "func.return"() : () -> ()
  }}) {{hacc.entry}} : () -> ()
}}) : () -> ()
"""
_SHAPES = ((64,), (65,), (256,), (1000,), (4, 64), (3, 40), (16, 8), (8, 96), (2, 3, 40), (5, 1))
_ITEMS = {"f32": 4, "f16": 2, "i32": 4}
_DYNAMIC = -9223372036854775808


_Tile = tuple[str, tuple[int, ...], str, str]
"""The name of a tile, its shape and dtype, and its type."""


class _Writer:
    """The lines of one program. Tiles lie one after the other in memory on chip."""

    def __init__(self, random: Random) -> None:
        self.random, self.lines, self._names, self._end = random, list[str](), 0, 0
        self.tiles: list[_Tile] = []

    def name(self) -> str:
        self._names += 1
        return f"%v{self._names}"

    def constant(self, value: int, kind: str = "index") -> str:
        self.lines.append(f'{(name := self.name())} = "arith.constant"() <{{value = {value} : {kind}}}> : () -> {kind}')
        return name

    def tile(self, shape: tuple[int, ...], dtype: str = "f32") -> _Tile:
        """Make a tile, some with a gap between rows."""
        width = shape[-1] + (8 - shape[-1] % 8) * (len(shape) > 1 and self.random.random() < 0.4)
        strides = [1]
        for size in (*shape[:0:-1],):
            strides.insert(0, strides[0] * (width if len(strides) == 1 else size))
        whole = f"memref<{_by((*shape[:-1], width))}x{dtype}, #hivm.address_space<ub>>"
        at, name = self.constant(self._end, "i64"), self.name()
        self.lines.append(
            f'{name} = "hivm.hir.pointer_cast"({at}) <{{operandSegmentSizes = array<i32: 1, 0>}}> : (i64) -> {whole}'
        )
        self._end += -(-strides[0] * shape[0] * _ITEMS[dtype] // 32) * 32 + self.random.choice((0, 32, 256, 1056))
        return (name, shape, dtype, whole) if width == shape[-1] else self._part(name, shape, dtype, whole, strides)

    def _part(self, name: str, shape: tuple[int, ...], dtype: str, whole: str, strides: list[int]) -> _Tile:
        """Return the first columns of a tile."""
        part, steps = self.name(), ", ".join(map(str, strides))
        view = f"memref<{_by(shape)}x{dtype}, strided<[{steps}]>, #hivm.address_space<ub>>"
        zeros, ones = (", ".join([digit] * len(shape)) for digit in "01")
        self.lines.append(
            f'{part} = "memref.subview"({name}) <{{operandSegmentSizes = array<i32: 1, 0, 0, 0>, '
            f"static_offsets = array<i64: {zeros}>, static_sizes = array<i64: {', '.join(map(str, shape))}>, "
            f"static_strides = array<i64: {ones}>}}> : ({whole}) -> {view}"
        )
        return part, shape, dtype, view

    def outside(self, argument: str, shape: tuple[int, ...], within: str) -> tuple[str, str]:
        """Return a view of a part of a program's own region, some of whose rows lie apart."""
        width = shape[-1] + self.random.choice((0, 0, 8, 3)) * (len(shape) > 1)
        strides = [1]
        for size in (*shape[:0:-1],):
            strides.insert(0, strides[0] * (width if len(strides) == 1 else size))
        steps, name = ", ".join(map(str, strides)), self.name()
        view = f"memref<{_by(shape)}xf32, strided<[{steps}], offset: ?>, #hivm.address_space<gm>>"
        self.lines.append(
            f'{name} = "memref.reinterpret_cast"({argument}, {within}) <{{'
            "operandSegmentSizes = array<i32: 1, 1, 0, 0>, "
            f"static_offsets = array<i64: {_DYNAMIC}>, static_sizes = array<i64: {', '.join(map(str, shape))}>, "
            f"static_strides = array<i64: {steps}>}}> : ({_GM}, index) -> {view}"
        )
        return name, view

    def order(self, source: str, target: str) -> None:
        """Order what two pipes do: by a flag, a barrier, or not at all."""
        way, event = self.random.random(), self.random.choice((0, 0, 1))
        if source == target or way < 0.3:
            pipe = "ALL" if source != target else source
            self.lines.append(f'"hivm.hir.pipe_barrier"() <{{pipe = #hivm.pipe<PIPE_{pipe}>}}> : () -> ()')
        elif way < 0.97:
            pipes = f"set_pipe = #hivm.pipe<PIPE_{source}>, wait_pipe = #hivm.pipe<PIPE_{target}>"
            for verb in ("set", "wait"):
                self.lines.append(
                    f'"hivm.hir.{verb}_flag"() <{{{pipes}, static_event_id = #hivm.event<EVENT_ID{event}>}}> : () -> ()'
                )

    def vector(self, name: str, inputs: list[tuple[str, str]], output: tuple[str, str], attributes: str = "") -> None:
        counts = f"operandSegmentSizes = array<i32: {len(inputs)}, 1, 0>"
        words = f"{counts}{', ' * bool(attributes)}{attributes}"
        self.plain(name, [*inputs, output], words)

    def plain(self, name: str, operands: list[tuple[str, str]], attributes: str = "") -> None:
        names, kinds = (", ".join(operand[part] for operand in operands) for part in (0, 1))
        self.lines.append(f'"{name}"({names}) <{{{attributes}}}> : ({kinds}) -> ()')


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _statement(to: _Writer, at: str) -> None:
    """Add a load, some work on it, and a store, of a part that begins at `at`."""
    random = to.random
    tile = to.tile(random.choice(_SHAPES))
    name, shape, _, view = tile
    far, far_view = to.outside("%in", shape, at)
    to.plain("hivm.hir.load", [(far, far_view), (name, view)])
    to.order("MTE2", "V")
    for _ in range(random.randint(0, 3)):
        tile = _work(to, tile)
        if random.random() < 0.9:
            to.order("V", "V")
    name, shape, dtype, view = tile
    if random.random() < 0.3:
        _numbers(to, tile)
    if dtype == "f32":
        to.order("V", "MTE3")
        far, far_view = to.outside("%out", shape, at)
        atomic = "atomic_kind = #hivm.atomic_kind<add>" if random.random() < 0.2 else ""
        to.plain("hivm.hir.store", [(name, view), (far, far_view)], atomic)


def _work(to: _Writer, tile: _Tile) -> _Tile:
    """Add a vector operation on a tile, and return its result."""
    random, (name, shape, dtype, view) = to.random, tile
    kind = random.choice(("two", "two", "one", "cast", "reduce", "reduce", "number", "sum", "copy"))
    axis = random.randrange(len(shape))
    if kind == "cast" or dtype == "f16":
        other = to.tile(shape, "f32" if dtype == "f16" else random.choice(("f16", "f32")))
        to.vector("hivm.hir.vcast", [(name, view)], (other[0], other[3]), "round_mode = #hivm.round_mode<rint>")
    elif kind == "reduce":
        other = to.tile((*shape[:axis], 1, *shape[axis + 1 :]))
        arith = random.choice(("sum", "max", "min", "prod"))
        words = f"arith = #hivm.reduce_op<{arith}>, reduce_dims = array<i64: {axis}>"
        to.plain("hivm.hir.vreduce", [(name, view), (other[0], other[3])], words)
    elif kind == "sum":
        other = to.tile(shape)
        to.plain("hivm.hir.vcumsum", [(name, view), (other[0], other[3])], f"cum_dims = array<i64: {axis}>")
    elif kind == "number":
        other = to.tile(shape)
        to.vector("hivm.hir.vmul", [(name, view), ("%half", "f32")], (other[0], other[3]))
    elif kind == "copy":
        other = to.tile(shape)
        to.plain("hivm.hir.copy", [(name, view), (other[0], other[3])])
    else:
        other = tile if random.random() < 0.4 else to.tile(shape)
        short = random.choice(("vadd", "vmul", "vmax", "vsub")) if kind == "two" else random.choice(("vabs", "vrelu"))
        to.vector(f"hivm.hir.{short}", [(name, view)] * (2 if kind == "two" else 1), (other[0], other[3]))
    return other


def _numbers(to: _Writer, tile: _Tile) -> None:
    """Read a number of a tile, and write one that follows from it back."""
    name, shape, dtype, view = tile
    if dtype != "f32":
        return
    to.order("V", "S")
    indices = [to.constant(to.random.randrange(size)) for size in shape]
    kinds = ", ".join(["index"] * len(shape))
    read, made = to.name(), to.name()
    to.lines.append(f'{read} = "memref.load"({name}, {", ".join(indices)}) : ({view}, {kinds}) -> f32')
    short = to.random.choice(("addf", "mulf", "maximumf"))
    to.lines.append(f'{made} = "arith.{short}"({read}, %half) : (f32, f32) -> f32')
    to.lines.append(f'"memref.store"({made}, {name}, {", ".join(indices)}) : (f32, {view}, {kinds}) -> ()')
    to.order("S", "V")


def _block(to: _Writer, at: str, depth: int) -> None:
    """Add statements, loops and branches."""
    random = to.random
    for _ in range(random.randint(1, 2)):
        way = random.random()
        if depth and way < 0.45:
            _loop(to, at, depth)
        elif depth and way < 0.6:
            _branch(to, at, depth)
        else:
            _statement(to, at)


def _loop(to: _Writer, at: str, depth: int) -> None:
    random, index = to.random, to.name()
    trips, step = to.constant(random.choice((0, 1, 2, 5, 12))), to.constant(random.choice((0, 7, 8)))
    to.lines += [f'"scf.for"(%c0, {trips}, %c1) ({{', f"^bb0({index}: index):"]
    moved, inner = to.name(), to.name()
    to.lines.append(f'{moved} = "arith.muli"({index}, {step}) : (index, index) -> index')
    to.lines.append(f'{inner} = "arith.addi"({at}, {moved}) : (index, index) -> index')
    _block(to, inner, depth - 1)
    if random.random() < 0.8:
        to.order("MTE3", "MTE2")
        to.order("V", "MTE2")
    to.lines += ['"scf.yield"() : () -> ()', "}) : (index, index, index) -> ()"]


def _branch(to: _Writer, at: str, depth: int) -> None:
    number, hit = to.constant(to.random.choice((0, 1, 5))), to.name()
    predicate = to.random.choice((0, 1, 2, 3, 4, 5))
    to.lines.append(
        f'{hit} = "arith.cmpi"(%program, {number}) <{{predicate = {predicate} : i64}}> : (index, index) -> i1'
    )
    to.lines.append(f'"scf.if"({hit}) ({{')
    _block(to, at, depth - 1)
    to.lines += ['"scf.yield"() : () -> ()', "}, {"]
    if to.random.random() < 0.5:
        _statement(to, at)
    to.lines += ['"scf.yield"() : () -> ()', "}) : (i1) -> ()"]


@cache
def drawn() -> list[str]:
    """Return the text of each program."""
    random, made = Random("programs"), []
    for _ in range(CASES):
        to = _Writer(random)
        _block(to, "%own", 2)
        made.append(_MODULE.replace("BODY", "\n".join(to.lines)))
    return made


def now(number: int) -> dict[str, Any]:
    function = parse(drawn()[number])
    return {"times": _times(function), "result": _result(function)}


@cache
def before() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = json.loads(gzip.decompress(_FILE.read_bytes()))
    return made


def _times(function: Function) -> list[Any]:
    """Return the cycles of the second program and the last, and those of each pipe, on memory of two speeds."""
    made: list[Any] = []
    for program, rate, end in ((1, Rate(32.0, 1e9, 260.0), "value"), (2, Rate(64.0, 9.0, 100.0), "high")):
        rates = dict.fromkeys(range(len(function.arguments)), rate)
        try:
            time = ProgramClock(function, costs(end)).run((1, PROGRAMS, 1, 1), program, Memory(rates, rates))
        except (ValueError, UnknownOperation) as error:
            made.append(str(error))
            continue
        busy = [round(cycles, 4) for cycles in time.busy.values()]
        made.append([round(time.cycles, 4), *busy, *(dict(b) for b in (time.reads, time.writes, time.atomics))])
    return json.loads(json.dumps(made))  # numbers of arguments become text


def _result(function: Function) -> Any:
    """Return sums of what the programs compute, or the fault of the program."""
    given = np.cos(np.arange(PROGRAMS * REGION + 4096, dtype=np.float32))
    found = np.zeros_like(given)
    try:
        Executor(function, 196608).run({"in_ptr": given, "out_ptr": found}, [1], (PROGRAMS,))
    except (Fault, UnknownOperation) as error:
        return f"{type(error).__name__}: {error}"
    weights = np.sin(np.arange(len(found)))
    known = np.nan_to_num(found, posinf=7.0, neginf=-7.0)
    return [int(np.isnan(found).sum()), int((found != 0).sum()), float((np.tanh(known) * weights).sum())]


def write() -> None:
    _FILE.write_bytes(gzip.compress(json.dumps([now(number) for number in range(CASES)]).encode(), mtime=0))


if __name__ == "__main__":
    write()
