"""The problem of a call, read back from its arguments.

A spec maps a problem to arguments. Two made-up problems show how to invert this: a scalar, or the length of a buffer's
axis, that equals a dimension in both of them is that dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tilewise.db.records import Flags
from tilewise.errors import BadSpec
from tilewise.kernels.spec import KernelSpec, Problem

__all__ = ["NO_FLAGS", "CallSignature", "DimsOf", "call_signature", "dtype_argument", "signature_from_buffers"]

DimsOf = Callable[[Mapping[str, Any]], Mapping[str, int]]
"""A function that returns the dims of a call, given its arguments by name."""

NO_FLAGS: Flags = MappingProxyType({})

_PRIMES = tuple(n for n in range(101, 800) if all(n % d for d in range(2, 30)))
_PROBES = _PRIMES[:48], _PRIMES[48:]
"""Sizes of the two problems, more than a kernel has dimensions."""


@dataclass(frozen=True, slots=True)
class CallSignature:
    """The arguments that hold a problem.

    `dims` has one pair per dimension, in the spec's order: an argument's name, and an axis of it, or None if the
    argument is the dimension itself. `tensor` names the argument with the problem's dtype.
    """

    dims: tuple[tuple[str, int | None], ...]
    tensor: str

    def key_of(self, names: Sequence[str]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """Return a function from positional arguments, named `names`, to (dim, ..., dtype, device index).

        It is compiled from text, as in `namedtuple`, because each cache hit pays for this call and a dictionary access.
        Raises `BadSpec` if an argument that the problem is read from is not in `names`.
        """
        indexes = {name: index for index, name in enumerate(names)}
        if missing := [name for name in (*self.names, self.tensor) if name not in indexes]:
            taken = f"the function takes {', '.join(names)}"
            raise BadSpec(f"a problem is read from {', '.join(dict.fromkeys(missing))}, but {taken}; pass its own spec")
        key: Callable[[Sequence[Any]], tuple[Any, ...]] = eval(  # the text holds integers and attribute names only
            f"lambda a: {self._text({name: f'a[{index}]' for name, index in indexes.items()})}", {}
        )
        return key

    def key_of_call(
        self, names: Sequence[str], count: int, keywords: Sequence[str]
    ) -> Callable[[Sequence[Any], Mapping[str, Any]], tuple[Any, ...]] | None:
        """Return the same function for calls with `count` positional arguments and these keywords, or None if they lack
        an argument that the problem is read from."""
        places = {name: f"a[{index}]" for index, name in enumerate(names[:count])}
        places |= {name: f"k[{name!r}]" for name in keywords}
        if not {*self.names, self.tensor} <= places.keys():
            return None
        key: Callable[[Sequence[Any], Mapping[str, Any]], tuple[Any, ...]] = eval(
            f"lambda a, k: {self._text(places)}", {}
        )
        return key

    def _text(self, places: Mapping[str, str]) -> str:
        parts = [places[name] if axis is None else f"{places[name]}.shape[{axis}]" for name, axis in self.dims]
        tensor = places[self.tensor]
        return f"({', '.join([*parts, f'{tensor}.dtype', f'{tensor}.get_device()'])})"

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that hold the dimensions."""
        return tuple(name for name, _ in self.dims)

    def sizes(self, arguments: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the dimensions of a call, given its arguments by name."""
        return tuple(int(arguments[name] if axis is None else arguments[name].shape[axis]) for name, axis in self.dims)


def call_signature(spec: KernelSpec, flags: Flags = NO_FLAGS) -> CallSignature:
    """Find a problem of the spec in its scalars and buffers; raise `BadSpec` if a dimension is in none of them.

    Scalars are preferred to axes: a caller may pass a tensor of another shape with the same number of elements.
    """
    first, second = (_locations(spec, probe, flags, scalars=True) for probe in _PROBES)
    return _signature(spec, flags, first, second, "pass tuned(.., dims=lambda arguments: {..})")


def signature_from_buffers(spec: KernelSpec, flags: Flags = NO_FLAGS) -> CallSignature:
    """Find a problem of the spec in its buffers alone; raise `BadSpec` if a dimension is in none of them."""
    first, second = (_locations(spec, probe, flags, scalars=False) for probe in _PROBES)
    return _signature(
        spec, flags, first, second, "an operator needs, for each dimension, a buffer with an axis of that size"
    )


def _signature(
    spec: KernelSpec,
    flags: Flags,
    first: Mapping[str, Sequence[tuple[str, int | None]]],
    second: Mapping[str, Sequence[tuple[str, int | None]]],
    advice: str,
) -> CallSignature:
    found = {dim: [location for location in first[dim] if location in second[dim]] for dim in spec.dims}
    if missing := [dim for dim, locations in found.items() if not locations]:
        raise BadSpec(f"kernel {spec.name}: {', '.join(missing)} cannot be read from the arguments; {advice}")
    return CallSignature(tuple(found[dim][0] for dim in spec.dims), dtype_argument(spec, flags))


def dtype_argument(spec: KernelSpec, flags: Flags = NO_FLAGS) -> str:
    """Return the buffer that has the problem's dtype and changes with it, preferably an input.

    Raises `BadSpec` if the kernel has none.
    """
    dims = dict(zip(spec.dims, _PROBES[0], strict=False))
    buffers = [spec.buffers(Problem(spec.name, dims, dtype, flags)) for dtype in (spec.dtypes[0], spec.dtypes[-1])]
    same = [
        name
        for name, buffer in buffers[0].items()
        if (buffer.dtype, buffers[1][name].dtype) == (spec.dtypes[0], spec.dtypes[-1])
    ]
    if not same:
        raise BadSpec(f"kernel {spec.name} has no buffer of the problem's dtype")
    return min(same, key=lambda name: buffers[0][name].role == "out")


def _locations(
    spec: KernelSpec, probe: Sequence[int], flags: Flags, *, scalars: bool
) -> dict[str, list[tuple[str, int | None]]]:
    dims = dict(zip(spec.dims, probe, strict=False))
    problem = Problem(spec.name, dims, spec.dtypes[0], flags)
    values: list[tuple[tuple[str, int | None], Any]] = []
    if scalars:
        values += [((name, None), value) for name, value in spec.scalars(problem).items()]
    for name, buffer in spec.buffers(problem).items():
        values += [((name, axis), size) for axis, size in enumerate(buffer.shape)]
    return {dim: [location for location, value in values if value == size] for dim, size in dims.items()}
