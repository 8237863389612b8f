"""The problem that a call is of, read back from its arguments.

A spec says what the arguments of a problem are; which of them tell the problem is found by asking it for the arguments
of two made-up problems: a scalar that equals a dimension in both is that dimension, and so is the length of a buffer's
axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.errors import BadSpec
from tilewise.kernels.spec import KernelSpec, Problem

__all__ = ["CallSignature", "DimsOf", "call_signature", "dtype_argument", "signature_from_buffers"]

DimsOf = Callable[[Mapping[str, Any]], Mapping[str, int]]
"""The dimension sizes of a call, from its arguments by name."""

_PROBES = ((101, 103, 107, 109, 113, 127), (211, 223, 227, 229, 233, 239))


@dataclass(frozen=True, slots=True)
class CallSignature:
    """Where a problem is found: `dims` are expressions of the arguments, one a dimension, in the spec's order; `tensor`
    is the name of the argument whose dtype is the problem's."""

    dims: tuple[tuple[str, int | None], ...]
    tensor: str

    def key_of(self, names: Sequence[str]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """A function from positional arguments, named `names`, to (size, ..., dtype, index of the device).

        It is put together as text, as `namedtuple` does it: the hit of a launch is this call and one of a dictionary.
        """
        places = {name: place for place, name in enumerate(names)}
        if missing := [name for name in (*self.names, self.tensor) if name not in places]:
            given = f"the function has {', '.join(names)}"
            raise BadSpec(f"a problem is read from {', '.join(dict.fromkeys(missing))}, but {given}: is it the spec's?")
        parts = [f"a[{places[n]}]" if axis is None else f"a[{places[n]}].shape[{axis}]" for n, axis in self.dims]
        tensor = f"a[{places[self.tensor]}]"
        key: Callable[[Sequence[Any]], tuple[Any, ...]] = eval(  # of integers and places alone
            f"lambda a: ({', '.join([*parts, f'{tensor}.dtype', f'{tensor}.get_device()'])})", {}
        )
        return key

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that tell the dimensions."""
        return tuple(name for name, _ in self.dims)

    def sizes(self, arguments: Mapping[str, Any]) -> tuple[int, ...]:
        """The dimensions of a call, from its arguments by name."""
        return tuple(int(arguments[name] if axis is None else arguments[name].shape[axis]) for name, axis in self.dims)


def call_signature(spec: KernelSpec) -> CallSignature:
    """How to read a problem of the spec from all of its arguments; raises `BadSpec` where a dimension is in none.

    Scalars go before axes: a caller may pass a tensor of another shape with as many elements.
    """
    first, second = (_places(spec, probe, scalars=True) for probe in _PROBES)
    return _reading(spec, first, second, "pass tuned(.., dims=lambda arguments: {..})")


def signature_from_buffers(spec: KernelSpec) -> CallSignature:
    """The same from the buffers alone."""
    first, second = (_places(spec, probe, scalars=False) for probe in _PROBES)
    return _reading(spec, first, second, "an operator needs a buffer with an axis of each dimension")


def _reading(
    spec: KernelSpec,
    first: Mapping[str, Sequence[tuple[str, int | None]]],
    second: Mapping[str, Sequence[tuple[str, int | None]]],
    advice: str,
) -> CallSignature:
    found = {dim: [place for place in first[dim] if place in second[dim]] for dim in spec.dims}
    if missing := [dim for dim, places in found.items() if not places]:
        raise BadSpec(f"kernel {spec.name}: the arguments do not tell {', '.join(missing)}; {advice}")
    return CallSignature(tuple(found[dim][0] for dim in spec.dims), dtype_argument(spec))


def dtype_argument(spec: KernelSpec) -> str:
    """The buffer whose dtype is the problem's: one that changes with it, an input before an output."""
    sizes = dict(zip(spec.dims, _PROBES[0], strict=False))
    buffers = [spec.buffers(Problem(spec.name, sizes, dtype)) for dtype in (spec.dtypes[0], spec.dtypes[-1])]
    same = [
        name
        for name, buffer in buffers[0].items()
        if (buffer.dtype, buffers[1][name].dtype) == (spec.dtypes[0], spec.dtypes[-1])
    ]
    if not same:
        raise BadSpec(f"kernel {spec.name} has no buffer of the problem's dtype")
    return min(same, key=lambda name: buffers[0][name].role == "out")


def _places(spec: KernelSpec, probe: Sequence[int], *, scalars: bool) -> dict[str, list[tuple[str, int | None]]]:
    sizes = dict(zip(spec.dims, probe, strict=False))
    problem = Problem(spec.name, sizes, spec.dtypes[0])
    values: list[tuple[tuple[str, int | None], Any]] = []
    if scalars:
        values += [((name, None), value) for name, value in spec.scalars(problem).items()]
    for name, buffer in spec.buffers(problem).items():
        values += [((name, axis), size) for axis, size in enumerate(buffer.shape)]
    return {dim: [place for place, value in values if value == size] for dim, size in sizes.items()}
