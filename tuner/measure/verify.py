"""Checks of a config's output against the float64 reference, on the very inputs that the kernel received.

Every buffer lies between two guards filled with NaN (integers: an extreme value). Outputs are poisoned the same way
before a checked run. So an element that was never written, a read outside an input and a write outside an output all
show, whatever the memory held before.

Inputs can be drawn in two ways: standard normal, and twice that with every value negative. A kernel that is right on
only one kind of data (a maximum that starts from 0, a result kept from an earlier run) fails on the other.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tilewise.db.records import Status
from tilewise.kernels.spec import Axis, Buffer, Config, KernelSpec, Problem
from tilewise.tuner.measure.launch import launch
from tilewise.tuner.measure.outcome import Verdict

if TYPE_CHECKING:
    import torch

__all__ = ["DRAWS", "Arguments", "check_outputs", "compare", "disagreement", "reduced_problem", "tolerance", "verify"]

SEED = 20251120
"""Seed of the random inputs; any constant would do."""

DRAWS = 2
"""Number of ways to draw the inputs."""

GUARD_BYTES = 64 * 1024
"""Size of the guard before and after each buffer; it keeps the allocator's alignment."""

ACCUMULATION = 2.0**-15
"""Tolerance for float32 arithmetic, relative to the reference's RMS.

A running float32 sum of K independent terms is off by sqrt(K / 2) * 2**-24 of its RMS, because each addition rounds a
partial sum that has grown to sqrt(k). Five standard deviations of that, the largest of a million outputs, is 2e-5 at
K = 8192. Half as much again is added for hardware `exp` and division (a few units in the last place). A column lost
from a sum of 8192 sigmoids costs 2.4e-4, eight times the tolerance.
"""

ROUNDINGS = 2
"""Number of times that a value may be rounded to the output's dtype: once on storing, once before."""

_PRECISION = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
"""Bits of the significand, hidden bit included (IEEE 754; bfloat16 is the upper half of a float32)."""


def tolerance(dtype: str, peak: float) -> float:
    """Return the largest deviation allowed, in units of the reference's RMS.

    `peak` is the reference's largest magnitude in the same unit: rounding to the output's dtype moves an element by
    at most 2**-precision of itself. Integers must agree exactly.
    """
    if dtype not in _PRECISION:
        return 0.0
    return ACCUMULATION + ROUNDINGS * peak * 2.0 ** -_PRECISION[dtype]


class Arguments:
    """A problem's tensors on one device: inputs drawn once, outputs reset or poisoned before a run.

    The kernel runs on `device`; the float64 reference is computed on `reference_device`, since some devices have no
    float64.
    """

    def __init__(
        self,
        spec: KernelSpec,
        problem: Problem,
        *,
        device: str = "cpu",
        reference_device: str | None = None,
        seed: int = SEED,
    ) -> None:

        self._spec, self._problem, self._device = spec, problem, device
        self._reference_device = reference_device or device
        self.buffers: Mapping[str, Buffer] = dict(spec.buffers(problem))
        self._seed, self._draw_number = seed, 0
        self._storage = {name: _allocate(buffer, device) for name, buffer in self.buffers.items()}
        self.tensors = {name: _inside(self._storage[name], buffer) for name, buffer in self.buffers.items()}
        self._scratch: Mapping[str, Buffer] = {}
        self._expected: dict[int, dict[str, torch.Tensor]] = {}
        self._redraw()

    def draw(self, number: int) -> None:
        """Fill the inputs in one of the ways from 0 to `DRAWS` - 1; 0 is the first."""
        if number != self._draw_number:
            self._draw_number = number
            self._redraw()

    def _redraw(self) -> None:
        self._fill()
        self._drawn = self._input_sums()
        self._originals = {n: self.tensors[n].clone() for n, b in self.buffers.items() if b.role == "inout"}

    def _fill(self) -> None:
        """Fill the buffers that the kernel reads, with the same values every time."""
        import torch

        generator = torch.Generator(self._device).manual_seed(self._seed + self._draw_number)
        for name, buffer in self.buffers.items():
            if buffer.role != "out":
                _fill(self.tensors[name], buffer, generator, negative=self._draw_number > 0)

    def _input_sums(self) -> dict[str, int]:
        """Return a checksum of each read-only buffer, guards included."""
        return {n: _bits_sum(self._storage[n]) for n, b in self.buffers.items() if b.role == "in"}

    def changed_input(self) -> str | None:
        """Return the first read-only buffer that has been written to, if any."""
        sums = self._input_sums()
        return next((name for name in sums if sums[name] != self._drawn[name]), None)

    def damage(self) -> str | None:
        """Describe a write outside the kernel's own outputs since the last `poison`, if there was one."""
        if (changed := self.changed_input()) is not None:
            return f"{changed}: the kernel wrote to its input"
        if (outside := self.written_outside()) is not None:
            return f"{outside}: the kernel wrote outside the tensor"
        return None

    def restore(self) -> None:
        """Draw the inputs again if a kernel has written to them, so that a config is not judged by another's fault."""
        if self.changed_input() is not None:
            for name, buffer in self.buffers.items():
                if buffer.role == "in":
                    self._storage[name].fill_(_poison(buffer.dtype))
            self._fill()

    @property
    def inputs(self) -> dict[str, torch.Tensor]:
        """The tensors that the kernel reads, as first drawn."""
        return {n: self._originals.get(n, self.tensors[n]) for n, b in self.buffers.items() if b.role != "out"}

    @property
    def outputs(self) -> dict[str, torch.Tensor]:
        return {name: self.tensors[name] for name, buffer in self.buffers.items() if buffer.role != "in"}

    @property
    def scales(self) -> dict[str, float]:
        """The expected magnitude of each output, by name; 0 if only the reference can tell."""
        return {name: buffer.scale for name, buffer in self.buffers.items() if buffer.role != "in"}

    @property
    def needs_reset(self) -> bool:
        """True if a second run without `reset` would compute something else."""
        every = (*self.buffers.values(), *self._scratch.values())
        return bool(self._originals) or any(buffer.initial is not None for buffer in every)

    def bind(self, config: Config) -> dict[str, torch.Tensor]:
        """Return the tensors to launch `config` on: the problem's and the config's scratch, made anew if it changes."""
        wanted = dict(self._spec.scratch(config, self._problem))
        if wanted != self._scratch:
            for name in self._scratch:
                del self._storage[name]
            self._scratch = wanted
            self._storage |= {name: _allocate(buffer, self._device) for name, buffer in wanted.items()}
        return {**self.tensors, **self._scratch_tensors()}

    def _scratch_tensors(self) -> dict[str, torch.Tensor]:
        return {name: _inside(self._storage[name], buffer) for name, buffer in self._scratch.items()}

    def reset(self) -> None:
        """Prepare for a run: set accumulators to their initial values and `inout` buffers to those first drawn."""
        self.resetter()()

    def resetter(self) -> Callable[[], None]:
        """Return `reset` for the config that is bound now, whatever is bound later."""
        initial = {n: b.initial for n, b in (*self.buffers.items(), *self._scratch.items()) if b.initial is not None}
        tensors = {**self.tensors, **self._scratch_tensors()}
        filled = [(tensors[name], value) for name, value in initial.items()]
        copied = [(self.tensors[name], original) for name, original in self._originals.items() if name not in initial]

        def reset() -> None:
            for tensor, value in filled:
                tensor.fill_(value)
            for tensor, original in copied:
                tensor.copy_(original)

        return reset

    def poison(self) -> None:
        """Reset, and fill everything that the kernel must write, and the guards, with values that no kernel writes."""
        for name, buffer in self.buffers.items():
            if buffer.role != "in":
                self._storage[name].fill_(_poison(buffer.dtype))
        for name, buffer in self._scratch.items():
            self._storage[name].fill_(_poison(buffer.dtype))
        self.reset()

    def expected(self) -> dict[str, torch.Tensor]:
        """Return the float64 reference of the outputs, computed once for each way to draw the inputs."""
        import torch

        if self._draw_number not in self._expected:
            with torch.no_grad():
                upcast = {
                    name: _upcast(tensor).to(self._reference_device) for name, tensor in self._on_reference_device()
                }
                self._expected[self._draw_number] = dict(self._spec.reference(upcast))
        return self._expected[self._draw_number]

    def written_outside(self) -> str | None:
        """Return the first output or scratch buffer whose guards were written to, if any."""
        import torch

        written = {n: b for n, b in self.buffers.items() if b.role != "in"} | dict(self._scratch)
        for name, buffer in written.items():
            storage, guard = self._storage[name], _guard(buffer)
            edges = torch.cat([storage[:guard], storage[-guard:]])
            untouched = edges.isnan() if edges.is_floating_point() else edges == _poison(buffer.dtype)
            if not bool(untouched.all()):
                return name
        return None

    def _on_reference_device(self) -> list[tuple[str, torch.Tensor]]:
        return [(name, tensor.to(self._reference_device)) for name, tensor in self.inputs.items()]


def verify(
    spec: KernelSpec,
    problem: Problem,
    config: Config,
    arguments: Arguments,
    *,
    run: Callable[[], Any] | None = None,
    draws: int = 1,
) -> Verdict:
    """Run the config on poisoned outputs and compare, on inputs drawn in `draws` ways.

    Return the first disagreement, or the agreement that came closest to one. `run` launches the config (default:
    `launch` on the arguments).
    """
    tensors = arguments.bind(config)
    verdicts = []
    for number in range(draws):
        arguments.draw(number)
        arguments.restore()
        arguments.expected()  # before the kernel can touch an input
        arguments.poison()
        if run is None:
            launch(spec, problem, config, tensors)
        else:
            run()
        verdicts.append(check_outputs(arguments))
        if not verdicts[-1].agreed:
            break
    arguments.draw(0)
    return _worst(verdicts)


def check_outputs(arguments: Arguments) -> Verdict:
    """Check that a run on poisoned outputs wrote the right values, and wrote nowhere else."""
    verdict = compare(arguments.outputs, arguments.expected(), arguments.scales)
    if (damage := arguments.damage()) is not None:
        return disagreement(damage, verdict.error, verdict.tolerance)
    return verdict


def disagreement(
    reason: str, error: float = math.inf, allowed: float = 0.0, *, status: Status = Status.CORRECTNESS
) -> Verdict:
    """Return a verdict for a run that gave nothing to compare, or that failed otherwise."""
    return Verdict(agreed=False, error=error, tolerance=allowed, reason=reason, status=status)


def compare(
    outputs: Mapping[str, torch.Tensor],
    expected: Mapping[str, torch.Tensor],
    scales: Mapping[str, float] = MappingProxyType({}),
) -> Verdict:
    """Return the verdict on the worst output: a disagreement first, then the largest share of the tolerance.

    Deviations are in units of the reference's RMS, or of the output's scale if that is larger.
    """
    if outputs.keys() != expected.keys():
        given, wanted = (", ".join(sorted(names)) or "nothing" for names in (expected, outputs))
        return disagreement(f"the reference gives {given}, the kernel's outputs are {wanted}")
    return _worst([_compare(name, outputs[name], expected[name], scales.get(name, 0.0)) for name in outputs])


def _worst(verdicts: Sequence[Verdict]) -> Verdict:
    return max(verdicts, key=lambda v: (not v.agreed, v.error / v.tolerance if v.tolerance else v.error))


def _compare(name: str, got: torch.Tensor, reference: torch.Tensor, scale: float) -> Verdict:
    import torch

    if tuple(got.shape) != tuple(reference.shape):
        return disagreement(f"{name}: the reference has shape {tuple(reference.shape)}, the output {tuple(got.shape)}")
    dtype = str(got.dtype).removeprefix("torch.")
    wanted = reference.to(torch.float64)
    rounded = wanted.to(got.dtype) if got.is_floating_point() else wanted  # a float16 output may rightly overflow
    actual = got.to(reference.device).to(torch.float64)
    if (mismatch := _nonfinite_mismatch(name, actual, rounded.to(torch.float64))) is not None:
        return mismatch
    finite = rounded.isfinite()
    deviation = torch.where(finite, (actual - wanted).abs(), torch.zeros_like(actual))
    rms, peak = _scale(wanted[finite], scale)
    worst = int(deviation.argmax())
    error, allowed = float(deviation.flatten()[worst]) / rms, tolerance(dtype, peak / rms)
    if error <= allowed:
        return Verdict(agreed=True, error=error, tolerance=allowed)
    values = f"{_number(actual, worst)} instead of {_number(wanted, worst)} at {_index(got, worst)}"
    return disagreement(
        f"{name}: {values}, off by {error:.1e} of the RMS where {allowed:.1e} is allowed", error, allowed
    )


def _nonfinite_mismatch(name: str, actual: torch.Tensor, wanted: torch.Tensor) -> Verdict | None:
    """Return a disagreement if NaN or infinity is in one tensor and not in the other."""
    import torch

    wrong = actual.isnan() != wanted.isnan()
    wrong |= (actual.isinf() | wanted.isinf()) & (actual != wanted) & ~actual.isnan()
    if not bool(wrong.any()):
        return None
    count, first = int(wrong.sum()), int(torch.argmax(wrong.flatten().to(torch.uint8)))
    values = f"{_number(actual, first)} instead of {_number(wanted, first)} at {_index(actual, first)}"
    hint = ", never written or computed from outside the inputs" if math.isnan(_value(actual, first)) else ""
    return disagreement(f"{name}: {count} of {wrong.numel()} elements wrong{hint}: first {values}")


def _scale(values: torch.Tensor, least: float) -> tuple[float, float]:
    """Return the RMS, or `least` if larger, and the largest magnitude; (1, 0) makes errors absolute if all are zero."""
    if values.numel() == 0:
        return 1.0, 0.0
    rms = max(float(values.square().mean().sqrt()), least)
    return (rms, float(values.abs().max())) if rms > 0 else (1.0, 0.0)


def _value(tensor: torch.Tensor, flat_index: int) -> float:
    return float(tensor.flatten()[flat_index])


def _number(tensor: torch.Tensor, flat_index: int) -> str:
    return f"{_value(tensor, flat_index):.6g}"


def _index(tensor: torch.Tensor, flat_index: int) -> list[int]:
    index: list[int] = []
    for size in reversed(tensor.shape):
        index.insert(0, flat_index % size)
        flat_index //= size
    return index


def _poison(dtype: str) -> float | int:
    import torch

    if dtype in _PRECISION:
        return math.nan
    limits = torch.iinfo(getattr(torch, dtype))
    return limits.min if limits.min < 0 else limits.max


def _bits_sum(storage: torch.Tensor) -> int:
    """Return the sum of the memory's words as integers, in which no NaN can hide a change."""
    import torch

    raw = storage.view(torch.uint8)
    whole = raw.numel() // 8 * 8
    return int(raw[:whole].view(torch.int64).sum()) + int(raw[whole:].sum())


def _guard(buffer: Buffer) -> int:
    return GUARD_BYTES * buffer.elements // buffer.bytes


def _allocate(buffer: Buffer, device: str) -> torch.Tensor:
    import torch

    elements = buffer.elements + 2 * _guard(buffer)
    return torch.full((elements,), _poison(buffer.dtype), dtype=getattr(torch, buffer.dtype), device=device)


def _inside(storage: torch.Tensor, buffer: Buffer) -> torch.Tensor:
    guard = _guard(buffer)
    return storage[guard : guard + buffer.elements].view(buffer.shape)


def _fill(tensor: torch.Tensor, buffer: Buffer, generator: torch.Generator, *, negative: bool) -> None:
    """Fill a tensor as its buffer says. By default floats are standard normal (`negative`: all negative and twice as
    large), and integers are uniform over a range small enough to add up."""
    if buffer.draw is not None:
        buffer.draw(tensor, generator)
    elif buffer.dtype in _PRECISION:
        tensor.normal_(generator=generator)
        if negative:
            tensor.abs_().mul_(-2)
    else:
        tensor.random_(0 if buffer.dtype == "uint8" else -8, 8, generator=generator)


def _upcast(tensor: torch.Tensor) -> torch.Tensor:
    """Convert floats to float64, and integers to int64 so that they still index."""
    import torch

    return tensor.to(torch.float64 if tensor.is_floating_point() else torch.int64)


def reduced_problem(spec: KernelSpec, problem: Problem, config: Config) -> Problem:
    """Return a smaller problem on which the config meets the same cases as on the given one.

    An axis cut into several programs keeps two full blocks and its tail program. An axis that one program takes whole
    keeps two full steps and its tail trip. This preserves the blocks and steps, the remainders of the size by both,
    whether there are several programs and several trips, and whether the block is larger than the axis. A size for
    which that would not hold stays as it is, as does an axis that is not a dimension.
    """
    for axis_index, axis in enumerate(spec.tiling(config, problem).axes):
        if axis.name in problem.dims:
            unit = axis.block if axis.programs > 1 else axis.step
            smaller = _resized(problem, axis.name, min(axis.size // unit, 2) * unit + axis.size % unit)
            if 0 < smaller.dims[axis.name] < axis.size and _meets_the_same(spec, config, problem, smaller, axis_index):
                problem = smaller
    return problem


def _resized(problem: Problem, dimension: str, size: int) -> Problem:
    return dataclasses.replace(problem, dims={**problem.dims, dimension: size})


def _meets_the_same(spec: KernelSpec, config: Config, old: Problem, new: Problem, resized: int) -> bool:
    """Return whether all axes but the resized one stay as they are, and that one meets the same cases."""
    before, after = spec.tiling(config, old).axes, spec.tiling(config, new).axes
    if len(before) != len(after) or after[resized].size != new.dims[before[resized].name]:
        return False
    others = all(a == b for i, (a, b) in enumerate(zip(before, after, strict=True)) if i != resized)
    return others and _cases(before[resized]) == _cases(after[resized])


def _cases(axis: Axis) -> tuple[object, ...]:
    """Return what decides the branches that an axis takes in a kernel; its block counts unless it is the whole axis."""
    tail = axis.size % axis.block
    return (
        axis.step,
        axis.programs > 1,
        axis.trips > 1,
        axis.block if axis.block != axis.size else None,
        tail,
        tail % axis.step,
        axis.taken % axis.step,
    )
