"""One core, in cycles: a clock per pipe, flags between pipes, and counters of the work done."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewise.tuner.devices.ascend_model.ir.hivm import Function
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation, View

__all__ = [
    "CUBE_PIPES",
    "FIX",
    "MTE1",
    "MTE2",
    "MTE3",
    "PIPES",
    "VECTOR_PIPES",
    "Core",
    "M",
    "Memory",
    "ProgramTime",
    "Rate",
    "S",
    "V",
    "added",
    "core_name",
    "pipe_number",
    "pipes_of",
]

PIPES = ("S", "V", "MTE2", "MTE3", "MTE1", "M", "FIX")
"""The scalar unit and the pipes: vector, inward and outward transfers of any core; on a cube core transfers from L1 to
the operands' buffers, products, and results."""

S, V, MTE2, MTE3, MTE1, M, FIX = range(7)

VECTOR_PIPES = PIPES[:4]
CUBE_PIPES = ("S", "MTE2", "MTE1", "M", "FIX")
"""The pipes that each kind of core has."""


def pipes_of(function: Function) -> Sequence[str]:
    """Return the pipes of the kind of core that a function is compiled for."""
    return CUBE_PIPES if function.core == "cube" else VECTOR_PIPES


def pipe_number(name: str, function: Function) -> int:
    """Return the number of the pipe that compiled code calls `PIPE_...`; raises `UnknownOperation` if the function's
    core has no such pipe."""
    pipe = name.removeprefix("PIPE_")
    if pipe not in pipes_of(function):
        raise UnknownOperation(f"the model does not know the pipe {name} of a {function.core} core")
    return PIPES.index(pipe)


def core_name(core: int) -> str:
    """Return the name of one of a mixed kernel's cores: the cube core, then two vector cores."""
    return "cube core" if core == 0 else f"vector core {core - 1}"


@dataclass(frozen=True, slots=True)
class Rate:
    """Bytes per cycle: the limit of a core's own transfer unit (`core`), and the core's share of the memory (`share`).

    Starting a transfer and stepping from row to row keep the unit busy, not the memory: they add to the time at `core`
    and are hidden behind the time at `share`. `latency` is the cycles until the first byte arrives, which the next
    transfer hides.
    """

    core: float
    share: float
    latency: float = 0.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Rates between global memory and one core, by argument index: caches hold some buffers, not all.

    `clock_ghz` turns times of the memory's into cycles. `vector` has the rates of the vector cores beside a cube core,
    for a mixed kernel. Its workspace follows the arguments.
    """

    inward: Mapping[int, Rate]
    outward: Mapping[int, Rate]
    clock_ghz: float = 1.0
    vector: Memory | None = None


@dataclass(frozen=True, slots=True)
class ProgramTime:
    """Cycles from a program's start to its end, and the busy cycles of each pipe.

    `reads`, `writes` and `atomics`, a part of the writes, are bytes by argument index, without zeros. Of a mixed
    kernel, `busy` has the core whose pipe is busiest, and `beside` the times of its cores. `odd_rows` are the cycles of
    loads to L1 whose price is least known.
    """

    cycles: float
    busy: Mapping[str, float]
    reads: Mapping[int, int]
    writes: Mapping[int, int]
    atomics: Mapping[int, int]
    beside: Sequence[ProgramTime] = ()
    odd_rows: float = 0.0

    @classmethod
    def together(cls, cores: Sequence[ProgramTime]) -> ProgramTime:
        """Combine the cores that run a mixed program side by side."""
        busy = {pipe: max(core.busy.get(pipe, 0.0) for core in cores) for pipe in PIPES}
        return cls(
            max(core.cycles for core in cores),
            busy,
            reads=added([core.reads for core in cores]),
            writes=added([core.writes for core in cores]),
            atomics=added([core.atomics for core in cores]),
            beside=tuple(cores),
            odd_rows=max(core.odd_rows for core in cores),
        )

    @property
    def moving(self) -> float:
        """Cycles in which pipes move data from and to global memory, those of all cores together."""
        cores = self.beside or (self,)
        return sum(core.busy[pipe] for core in cores for pipe in _MOVING if pipe in core.busy)

    @property
    def bytes_in(self) -> int:
        return sum(self.reads.values())

    @property
    def bytes_out(self) -> int:
        return sum(self.writes.values())


_MOVING = ("MTE2", "MTE3", "FIX")
"""Pipes that move data from and to global memory."""


def added(counts: Sequence[Mapping[int, int]]) -> Counter[int]:
    """Return the sums of bytes by argument index."""
    return sum((Counter(each) for each in counts), Counter())


CACHE_LINE = 64
"""Bytes of a line of the scalar unit's data cache (the vendor's manual, "Reading/Writing Data by the Scalar Unit")."""


class Core:
    """The state of one core during a program: clocks and counters in cycles, by pipe.

    `reads`, `writes` and `atomics` count bytes by argument index. `pipes` are those that the core has. `odd_rows` is a
    part of MTE2's busy cycles. `visited` has, by argument index, the place of the element that the scalar unit accessed
    last, and the lines that it fetched for it.
    """

    __slots__ = (
        "atomics",
        "busy",
        "done",
        "elements",
        "flags",
        "free",
        "odd_rows",
        "pipes",
        "program",
        "reads",
        "visited",
        "writes",
    )

    def __init__(self, program: int, arguments: int, pipes: Sequence[str] = VECTOR_PIPES) -> None:
        self.program, self.pipes = program, pipes
        count = 1 + max(map(PIPES.index, pipes))
        self.free = [0.0] * count
        self.done = [0.0] * count
        self.busy = [0.0] * count
        self.flags: dict[tuple[int, int, int], deque[float]] = {}
        self.visited: dict[int, tuple[int | None, float]] = {}
        self.odd_rows = 0.0
        self.elements = 0
        self.reads = [0] * arguments
        self.writes = [0] * arguments
        self.atomics = [0] * arguments

    def touched(self, view: View, inward: bool) -> None:
        """Note a transfer's place in global memory; only a trace keeps it."""

    def occupy(self, pipe: int, cycles: float, latency: float) -> None:
        start = max(self.free[pipe], self.free[S])
        self.free[pipe] = start + cycles
        self.done[pipe] = max(self.done[pipe], start + cycles + latency)
        self.busy[pipe] += cycles

    def scalar(self, cycles: float) -> None:
        self.free[S] += cycles
        self.busy[S] += cycles

    def lines_to(self, base: int, at: int | None, size: int) -> float:
        """Return the lines of its data cache that the scalar unit fetches for an element: a part of one for a neighbour
        of the element of this buffer that it accessed before, spread over the elements of a line. `at` is the element's
        place, None if unknown, `size` its bytes."""
        last, lines = self.visited.get(base, (None, 1.0))
        if at is None:
            lines = 1.0
        elif last is not None:
            lines = min(1.0, abs(at - last) * size / CACHE_LINE)
        self.visited[base] = (at, lines)
        return lines

    def barrier(self, pipe: int | None, cycles: float) -> None:
        if pipe is None:
            everything = max(*self.free, *self.done)
            self.free = [everything + cycles] * len(self.free)
        else:
            self.free[pipe] = max(self.free[pipe], self.done[pipe], self.free[S]) + cycles

    def set_flag(self, source: int, target: int, event: int) -> None:
        ready = max(self.free[S], self.free[source], self.done[source])
        self.flags.setdefault((source, target, event), deque()).append(ready)

    def wait_flag(self, source: int, target: int, event: int, cycles: float) -> None:
        waiting = self.flags.get((source, target, event))
        if not waiting:
            raise ValueError(
                f"deadlock: {PIPES[target]} waits for event {event} of {PIPES[source]}, which is never set"
            )
        self.free[target] = max(self.free[target], waiting.popleft() + cycles)

    def finished(self) -> ProgramTime:
        """Wait for all pipes, and return the program's time."""
        self.barrier(None, 0)
        moved = (self.reads, self.writes, self.atomics)
        reads, writes, atomics = ({i: size for i, size in enumerate(sizes) if size} for sizes in moved)
        busy = {pipe: self.busy[PIPES.index(pipe)] for pipe in self.pipes}
        return ProgramTime(self.free[S], busy, reads, writes, atomics, odd_rows=self.odd_rows)

    def times(self) -> list[float]:
        pending = [time for key in sorted(self.flags) for time in self.flags[key]]
        return [*self.free, *self.done, *pending]

    def counts(self) -> list[float]:
        return [*self.busy, self.odd_rows, self.elements, *self.reads, *self.writes, *self.atomics]

    def advance(self, times: Sequence[float], counts: Sequence[float], periods: int) -> None:
        """Advance every clock, pending flag and counter by this many periods."""
        n = len(self.free)
        self.free = [t + periods * d for t, d in zip(self.free, times[:n], strict=True)]
        self.done = [t + periods * d for t, d in zip(self.done, times[n : 2 * n], strict=True)]
        rest = iter(times[2 * n :])
        for key in sorted(self.flags):
            self.flags[key] = deque(t + periods * next(rest) for t in self.flags[key])
        self.busy = [t + periods * d for t, d in zip(self.busy, counts[:n], strict=True)]
        self.visited = {base: (None, lines) for base, (_, lines) in self.visited.items()}
        self.odd_rows += periods * counts[n]
        work = (round(periods * d) for d in counts[n + 1 :])
        self.elements += next(work)
        for counter in (self.reads, self.writes, self.atomics):
            counter[:] = [size + next(work) for size in counter]

    def copy(self) -> Core:
        twin = Core(self.program, 0, self.pipes)
        twin.free, twin.done, twin.busy = [*self.free], [*self.done], [*self.busy]
        twin.flags = {key: deque(times) for key, times in self.flags.items()}
        twin.visited = dict(self.visited)
        twin.odd_rows, twin.elements = self.odd_rows, self.elements
        twin.reads, twin.writes, twin.atomics = [*self.reads], [*self.writes], [*self.atomics]
        return twin

    def become(self, other: Core) -> None:
        for name in Core.__slots__:
            setattr(self, name, getattr(other, name))
