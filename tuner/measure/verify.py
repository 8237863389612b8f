"""Checks of a config's output against the float64 reference, on the very inputs that the kernel received.

Every buffer lies between two guards filled with NaN (integers: an extreme value), which also fill the gaps of a strided
one. Outputs are poisoned the same way before a checked run. So an element that was never written, a read outside an
input and a write outside an output all show, whatever the memory held before. Inputs are drawn in several ways
(`draws.py`), and `comparison.py` says how far off an output may be.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tilewise.errors import BadSpec
from tilewise.kernels.spec import Axis, Buffer, Config, KernelSpec, Problem, Target
from tilewise.tuner.measure.comparison import PRECISION, compare, disagreement, worst_of
from tilewise.tuner.measure.draws import Edges, Way, draw, edges, magnitude
from tilewise.tuner.measure.launch import launch
from tilewise.tuner.measure.outcome import Verdict
from tilewise.tuner.space.search_space import enumerate_space

if TYPE_CHECKING:
    import torch

__all__ = ["SEED", "Arguments", "DefaultRun", "check_outputs", "reduced_problem", "stand_ins", "verify"]

DefaultRun = Callable[[Problem, "Arguments"], Any]
"""A function that launches a spec's default config for a problem, on its arguments."""

_STAND_INS = 8
"""Configs that may stand in for a default that does not compile."""


def stand_ins(spec: KernelSpec, problem: Problem, target: Target) -> Iterator[Config]:
    """Yield the default config, and some others to take its place where it does not compile, small tiles first."""
    default = spec.default(problem, target)
    yield default
    configs = sorted(enumerate_space(spec, problem, target).configs, key=_size)
    yield from [config for config in configs[:: -(-len(configs) // _STAND_INS)] if config != default]


def _size(config: Config) -> int:
    return math.prod(value for value in config.values() if isinstance(value, int) and value > 0)


SEED = 20251120
"""Seed of the random inputs; any constant would do."""

GUARD_BYTES = 64 * 1024
"""Size of the guard before and after each buffer; it keeps the allocator's alignment."""

_KEPT_BYTES = 1 << 26
"""Size up to which a reference is kept for the next config; that of the first draw, which all configs need, always."""


class Arguments:
    """A problem's tensors on one device: inputs drawn, outputs reset or poisoned before a run.

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
        run_default: DefaultRun | None = None,
    ) -> None:
        """`run_default` launches the default config, for a spec without a reference."""
        self._run_default = run_default
        self._spec, self._problem, self._device = spec, problem, device
        self._reference_device = reference_device or device
        self.buffers: Mapping[str, Buffer] = dict(spec.buffers(problem))
        self._seed = seed
        self._drawn_as: tuple[Way, Edges] = (Way.NORMAL, {})
        self._storage = {name: _allocate(buffer, device) for name, buffer in self.buffers.items()}
        self.tensors = {name: _inside(self._storage[name], buffer) for name, buffer in self.buffers.items()}
        self._scratch: Mapping[str, Buffer] = {}
        self._expected: dict[tuple[Way, object], dict[str, torch.Tensor]] = {}
        self._raised = False
        self._redraw()

    def draw(self, way: Way, edges: Edges | None = None) -> None:
        """Fill the inputs in one of the ways, with extremes at these edges, unless they are still as drawn so."""
        wanted = (way, edges or {})
        if wanted == self._drawn_as:
            self.restore()
            return
        self._drawn_as = wanted
        self._redraw()

    def _redraw(self) -> None:
        for name, buffer in self.buffers.items():
            if buffer.role == "in":  # an earlier kernel may have written to the guards
                guard = _guard(buffer)
                self._storage[name][:guard].fill_(_poison(buffer.dtype))
                self._storage[name][-guard:].fill_(_poison(buffer.dtype))
        self._fill()
        self.adopt()

    def adopt(self) -> None:
        """Take the inputs as they are now for those drawn: they may be read, and must not change."""
        self._drawn = self._input_sums()
        self._originals = {n: self.tensors[n].clone() for n, b in self.buffers.items() if b.role == "inout"}

    def _fill(self) -> None:
        """Fill the buffers that the kernel reads, with the same values every time."""
        import torch

        way, places = self._drawn_as
        generator = torch.Generator(self._device).manual_seed(self._seed + way)
        axes = max((len(buffer.shape) for buffer in self.buffers.values() if buffer.role != "out"), default=0)
        for name, buffer in self.buffers.items():
            if buffer.role != "out":
                any_value = name in self._spec.any_value
                beside = len(buffer.shape) < axes
                draw(self.tensors[name], buffer, generator, way, places, any_value=any_value, beside=beside)
        if self._spec.fill is not None:
            read = {name: self.tensors[name] for name, buffer in self.buffers.items() if buffer.role != "out"}
            self._spec.fill(read, self._problem, generator)

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
        factor = magnitude(self._drawn_as[0])
        return {name: factor * buffer.scale for name, buffer in self.buffers.items() if buffer.role != "in"}

    @property
    def largest_input(self) -> int:
        """The number of elements of the largest tensor that the kernel reads."""
        return max((buffer.elements for buffer in self.buffers.values() if buffer.role != "out"), default=0)

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
        """Return the float64 reference for the present inputs; it is computed once, and kept if it is small."""
        way, places = self._drawn_as
        key = (way, tuple(sorted(places.items())))
        if key not in self._expected:
            self._expected = {k: kept for k, kept in self._expected.items() if _is_kept(k[0], kept)}
            self._expected[key] = self._reference()
        return self._expected[key]

    def _reference(self) -> dict[str, torch.Tensor]:
        import torch

        if not self._spec.has_reference:
            return self._default_outputs()
        with torch.no_grad():
            upcast = {name: _upcast(tensor).to(self._reference_device) for name, tensor in self._on_reference_device()}
            return dict(self._spec.reference_of(self._problem)(upcast))

    def _default_outputs(self) -> dict[str, torch.Tensor]:
        """Return what the default config computes from the present inputs: in float32 if it can, to round but once."""
        if self._run_default is None:
            raise BadSpec(f"kernel {self._spec.name} has no reference to compare with; write one into its spec")
        self._raised = False
        if self._problem.dtype in ("float16", "bfloat16"):
            with contextlib.suppress(Exception):  # of a kernel that does not take float32, of any type
                found = self._outputs_of_default(dataclasses.replace(self._problem, dtype="float32"), self._run_default)
                self._raised = True
                return found
        return self._outputs_of_default(self._problem, self._run_default)

    def default_as_it_is(self) -> dict[str, torch.Tensor]:
        """Return what the default config computes from the present inputs in the problem's own dtype, if `expected`
        is in float32 instead; else nothing."""
        if not self._raised or self._run_default is None:
            return {}
        return self._outputs_of_default(self._problem, self._run_default)

    def less_precise(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return what an inferred spec's reference computes from the present inputs in their own dtypes (`default`) and
        in float32 (`rounded`): how precise the expression is, of which its user says nothing else."""
        if not (self._spec.inferred and self._spec.has_reference):
            return {}
        import torch

        found = {}
        for name, dtype in (("default", None), ("rounded", torch.float32)):
            given = {name: _converted(tensor, dtype) for name, tensor in self._on_reference_device()}
            with (
                torch.no_grad(),
                contextlib.suppress(Exception),
            ):  # of any type: torch lacks the operation in this dtype
                made = self._spec.reference_of(self._problem)(given)
                found[name] = {output: _upcast(tensor) for output, tensor in made.items()}
        return found

    def _outputs_of_default(self, problem: Problem, run: DefaultRun) -> dict[str, torch.Tensor]:
        own = Arguments(self._spec, problem, device=self._device, seed=self._seed)
        for name, tensor in self.inputs.items():
            own.tensors[name].copy_(tensor)
        own.adopt()
        own.poison()
        run(problem, own)
        outputs = {name: _upcast(_bytes(tensor)).to(self._reference_device) for name, tensor in own.outputs.items()}
        floats = [tensor for tensor in outputs.values() if tensor.is_floating_point()]
        if self._drawn_as[0] is Way.NORMAL and floats and not any(bool(t.isfinite().any()) for t in floats):
            raise BadSpec(
                f"kernel {self._spec.name} computes nothing finite from random inputs, so its configs cannot be "
                "compared; give the inputs that must be positive, say, a draw in its spec"
            )
        return outputs

    def written_outside(self) -> str | None:
        """Return the first output or scratch buffer whose guards were written to, if any."""
        import torch

        written = {n: b for n, b in self.buffers.items() if b.role != "in"} | dict(self._scratch)
        for name, buffer in written.items():
            storage, guard = self._storage[name], _guard(buffer)
            parts = (storage[:guard], storage[-guard:], storage[guard:-guard][_between(buffer, storage)])
            small = storage.is_floating_point() and storage.element_size() == 1  # of which torch knows little
            outside = torch.cat([part.float() if small else part for part in parts])
            untouched = outside.isnan() if outside.is_floating_point() else outside == _poison(buffer.dtype)
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
    """Run the config on poisoned outputs and compare, on inputs drawn in the first `draws` ways.

    Return the first disagreement, or the agreement that came closest to one. `run` launches the config (default:
    `launch` on the arguments).
    """
    tensors = arguments.bind(config)
    places = edges(spec, problem, config)
    verdicts = []
    try:
        for way in list(Way)[:draws]:
            arguments.draw(way, {} if way is Way.NORMAL else places)
            arguments.expected()  # before the kernel can touch an input
            arguments.poison()
            if run is None:
                launch(spec, problem, config, tensors)
            else:
                run()
            verdicts.append(_on(way, check_outputs(arguments)))
            if not verdicts[-1].agreed:
                break
    finally:
        arguments.draw(Way.NORMAL)
    return worst_of(verdicts)


def _on(way: Way, verdict: Verdict) -> Verdict:
    """Name the inputs in the reason of a disagreement, unless they are the usual ones."""
    if verdict.agreed or way is Way.NORMAL:
        return verdict
    return dataclasses.replace(verdict, reason=f"{verdict.reason}, on {way.name.lower()} inputs")


def check_outputs(arguments: Arguments) -> Verdict:
    """Check that a run on poisoned outputs wrote the right values, and wrote nowhere else."""
    outputs, expected, scales = arguments.outputs, arguments.expected(), arguments.scales
    how: dict[str, Any] = {"inputs": arguments.largest_input, "buffers": arguments.buffers}
    verdict = compare(outputs, expected, scales, **how)
    if not verdict.agreed and (default := arguments.default_as_it_is()):
        verdict = compare(outputs, expected, scales, default=default, **how)
    if not verdict.agreed and (less := arguments.less_precise()):
        verdict = compare(outputs, expected, scales, **how | less)
    if (damage := arguments.damage()) is not None:
        return disagreement(damage, verdict.error, verdict.tolerance)
    return verdict


def _poison(dtype: str) -> float | int:
    import torch

    if dtype in PRECISION:
        return math.nan
    limits = torch.iinfo(_stored_dtype(dtype))
    return limits.min if limits.min < 0 else limits.max


def _bits_sum(storage: torch.Tensor) -> int:
    """Return the sum of the memory's words as integers, in which no NaN can hide a change."""
    import torch

    raw = storage.view(torch.uint8)
    whole = raw.numel() // 8 * 8
    return int(raw[:whole].view(torch.int64).sum()) + int(raw[whole:].sum())


def _guard(buffer: Buffer) -> int:
    return GUARD_BYTES * buffer.elements // buffer.bytes


def _stored_dtype(dtype: str) -> torch.dtype:
    """Return the torch dtype of a buffer's memory: that of bytes for truth values, of which most bytes are none."""
    import torch

    stored: torch.dtype = getattr(torch, "uint8" if dtype == "bool" else dtype)
    return stored


def _allocate(buffer: Buffer, device: str) -> torch.Tensor:
    import torch

    elements = buffer.span + 2 * _guard(buffer)
    return torch.full((elements,), _poison(buffer.dtype), dtype=_stored_dtype(buffer.dtype), device=device)


def _inside(storage: torch.Tensor, buffer: Buffer) -> torch.Tensor:
    """Return the buffer as a view of its memory, between the guards."""
    import torch

    guard = _guard(buffer)
    inside = storage[guard : guard + buffer.span].view(getattr(torch, buffer.dtype))
    return inside.view(buffer.shape) if buffer.strides is None else inside.as_strided(buffer.shape, buffer.strides)


def _between(buffer: Buffer, storage: torch.Tensor) -> torch.Tensor | slice:
    """Return where, from its first to its last element, a strided buffer has gaps."""
    import torch

    if buffer.strides is None or buffer.span == buffer.elements:
        return slice(0, 0)
    gaps = torch.ones(buffer.span, dtype=torch.bool, device=storage.device)
    gaps.as_strided(buffer.shape, buffer.strides).fill_(False)
    return gaps


def _is_kept(way: Way, reference: Mapping[str, torch.Tensor]) -> bool:
    return way is Way.NORMAL or sum(tensor.numel() * 8 for tensor in reference.values()) <= _KEPT_BYTES


def _upcast(tensor: torch.Tensor) -> torch.Tensor:
    """Convert floats to float64, and integers to int64 so that they still index; truth values still choose."""
    import torch

    return _converted(tensor, torch.float64)


def _converted(tensor: torch.Tensor, floats: torch.dtype | None) -> torch.Tensor:
    """Convert floats to a dtype, or leave them as they are, and convert integers as `_upcast` does."""
    import torch

    if tensor.is_floating_point():
        return tensor if floats is None else tensor.to(floats)
    return tensor if tensor.dtype is torch.bool else tensor.to(torch.int64)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return truth values as their bytes: one that a kernel never wrote is neither 0 nor 1."""
    import torch

    return tensor.view(torch.uint8) if tensor.dtype is torch.bool else tensor


def reduced_problem(spec: KernelSpec, problem: Problem, *configs: Config) -> Problem:
    """Return a smaller problem on which each of the configs meets the same cases as on the given one.

    An axis cut into several programs keeps two full blocks and its tail program. An axis that one program takes whole
    keeps two full steps and its tail trip. This preserves the blocks and steps, the remainders of the size by both,
    whether there are several programs and several trips, and whether the block is larger than the axis. A size for
    which that would not hold stays as it is. An axis that grows along a dimension keeps at least three blocks or steps.
    """
    divided = [spec.tiling(config, problem).axes for config in configs]
    for axis_index, axes in enumerate(zip(*divided, strict=False)):
        unit = math.lcm(*(one.block if one.programs > 1 else one.step for one in axes))
        for smaller in _smaller(problem, axes[0], unit):
            if all(_meets_the_same(spec, config, problem, smaller, axis_index, unit) for config in configs):
                problem = smaller
                break
    return problem


def _smaller(problem: Problem, axis: Axis, unit: int) -> Iterator[Problem]:
    """Yield problems in which the axis is shorter, the shortest first."""
    if axis.name in problem.dims:
        if (size := min(axis.size // unit, 2) * unit + axis.size % unit) < axis.size:
            yield _resized(problem, axis.name, size)
        return
    size = problem.dims.get(axis.along, 0)
    for halvings in range(size.bit_length() - 1, 0, -1):
        half, rest = divmod(size, 1 << halvings)
        if half > 1 and not rest and (half % 16 == 0 or size % 16 or size == 16):  # the compiler tells multiples of 16
            yield _resized(problem, axis.along, half)


def _resized(problem: Problem, dimension: str, size: int) -> Problem:
    return dataclasses.replace(problem, dims={**problem.dims, dimension: size})


def _meets_the_same(spec: KernelSpec, config: Config, old: Problem, new: Problem, resized: int, unit: int) -> bool:
    """Return whether all axes but the resized one stay as they are, and that one meets the same cases."""
    before, after = spec.tiling(config, old).axes, spec.tiling(config, new).axes
    if len(before) != len(after):
        return False
    size, name = after[resized].size, before[resized].name
    if size != new.dims[name] if name in new.dims else size < 3 * unit:
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
