"""Symbolic execution of Triton kernels in Triton's interpreter: two kernels that compute the same for all numbers.

A floating-point element is represented by a 64-bit hash of the expression that it is computed by: which element of
which input, and which operations in which order. Integers, addresses and masks are computed as they are. A run's trace
says which elements it leaves with which expressions. If two kernels leave the same trace for a problem and config, then
they compute the same results from any inputs, up to a collision of hashes: an element behind a mask, for example, is
in no expression that is stored.

Constants are numbers rather than hashes. A sum, difference or product of two is a constant again if it is exact, which
no rounding changes: zero times what is loaded in place of elements outside is zero.

An element that a launch's programs store differently, one that a program reads after another has stored it in the same
launch, an access outside a buffer, and a mask or an address that depends on a floating-point number end the run: it
proves nothing. Atomic sums and extremes are unordered.

`install` changes the interpreter of this process for good; it needs `TRITON_INTERPRET=1`. Hashes are kept as
`datetime64`, a type of 64 bits that moves through numpy unchanged, and with which it refuses to compute.
"""

from __future__ import annotations

import functools
import inspect
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.language import semantic
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from tilewise.benchmarks.model.interpreter_fixes import convert_bounds, keep_masks
from tilewise.kernels.spec import Buffer, Config, KernelSpec, Launch, Problem
from tilewise.tuner.measure.launch import arguments_of, resolve_function

__all__ = ["Unproven", "install", "trace"]

_HASH = np.dtype("M8[s]")
_DTYPES = {"bool": np.dtype(np.bool_), "bfloat16": np.dtype(np.uint16), "float8_e4m3fn": np.dtype(np.uint8)}


class Unproven(Exception):
    """A run whose results the symbols do not determine."""


# Hashes --------------------------------------------------------------------------------------------------------------


def _bits(hashes: Any) -> Any:
    return np.asarray(hashes).view(np.uint64)


def _mixed(bits: Any) -> Any:
    """Return SplitMix64's finaliser of 64-bit numbers (Steele, Lea, Flood 2014)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@functools.cache
def _tag(name: str) -> Any:
    low, high = zlib.crc32(name.encode()), zlib.crc32(b"high " + name.encode())
    return np.uint64(low | high << 32)


def _expression(name: str, *operands: Any) -> Any:
    """Return the hashes of an operation on operands (64-bit numbers), in their order."""
    found = _tag(name)
    with np.errstate(over="ignore"):
        for operand in operands:
            found = _mixed(found * np.uint64(0x9E3779B97F4A7C15) + _mixed(operand) + np.uint64(1))
    found = np.atleast_1d(found)
    return np.where(_is_constant(found), ~found, found).view(_HASH)


# Constants -----------------------------------------------------------------------------------------------------------

_PREFIX, _WIDTHS = 0xC057, {"fp16": 10, "bf16": 7, "fp32": 23}
"""The upper 16 bits of each constant, which no hash has; below them are the width of the dtype's mantissa, and the
number in float32."""


def _is_constant(bits: Any) -> Any:
    return bits >> np.uint64(48) == np.uint64(_PREFIX)


def _constant(values: Any, dtype: Any) -> Any:
    """Return constants of a dtype that has these values."""
    numbers = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if str(dtype) not in _WIDTHS:
        return _expression(f"constant {dtype}", numbers.view(np.uint64))
    with np.errstate(over="ignore"):
        bits = numbers.astype(np.float32).view(np.uint32)
    return (bits | np.uint64(_PREFIX << 48 | _WIDTHS[str(dtype)] << 32)).view(_HASH)


def _numbers(bits: Any) -> Any:
    """Return the float64 values of constants, and any numbers of other expressions."""
    return (bits & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.float32).astype(np.float64)


def _has(values: Any, dtype: Any) -> Any:
    """Return which float64 values a dtype has."""
    with np.errstate(over="ignore", invalid="ignore"):
        if str(dtype) == "fp16":
            return values.astype(np.float16) == values
        single = values.astype(np.float32)
        return (single == values) & ((str(dtype) != "bf16") | (single.view(np.uint32) & 0xFFFF == 0))


def _folded(function: Callable[..., Any], dtype: Any, operands: Sequence[Any], found: Any) -> Any:
    """Return expressions (`found`), of constants alone their result in a dtype, if it is exact."""
    alone = functools.reduce(np.logical_and, map(_is_constant, operands))
    if str(dtype) not in _WIDTHS or not alone.any():
        return found
    with np.errstate(all="ignore"):
        values = function(*map(_numbers, operands))
    return np.where(alone & _has(values, dtype), _constant(values, dtype), found)


def _is_hashed(handle: Any) -> bool:
    return bool(handle.data.dtype == _HASH)


# Memory --------------------------------------------------------------------------------------------------------------


@dataclass
class _Shadow:
    """The expressions of a buffer's elements (0: untouched), and who stored them. numpy gives memory out when it is
    touched, so that a large buffer of which little is used takes little."""

    name: str
    base: int
    dtype: np.dtype[Any]
    is_float: bool
    elements: int
    values: Any = None
    owners: Any = None
    touched: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.values is None:
            self.values = np.zeros(self.elements, dtype=np.uint64 if self.is_float else self.dtype)
        self.owners = np.zeros(self.elements, dtype=np.int64)

    def load(self, at: Any, launch: int, program: int) -> Any:
        owner = self.owners[at]
        if bool(((owner >> 32 == launch) & (owner != launch << 32 | program)).any()):
            raise Unproven(f"reads what another program stores to {self.name}")
        if not self.is_float:
            return self.values[at]
        return self._symbols(at).view(_HASH)

    def _symbols(self, at: Any) -> Any:
        values = self.values[at]
        return np.where(values == 0, _bits(_expression(f"element {self.name}", at.astype(np.uint64))), values)

    def store(self, at: Any, values: Any, launch: int, program: int) -> None:
        numbers = _bits(values) if self.is_float else values.astype(self.dtype)
        mine, owner = launch << 32 | program, self.owners[at]
        if bool(((owner >> 32 == launch) & (owner != mine) & (self.values[at] != numbers)).any()):
            raise Unproven(f"programs store different values to {self.name}")
        self.values[at] = numbers
        if bool((self.values[at] != numbers).any()):
            raise Unproven(f"stores different values to an element of {self.name}")
        self.owners[at] = mine
        self.touched.append(at)

    def add(self, name: str, at: Any, values: Any) -> None:
        """Add to elements in any order."""
        if not self.is_float:
            raise Unproven("an atomic operation on integers")
        self.values[at] = self._symbols(at)
        with np.errstate(over="ignore"):
            np.add.at(self.values, at, _bits(_expression(f"atomic {name}", _bits(values))))
        self.touched.append(at)

    def digest(self) -> int:
        """Return a number for all elements stored, and what they are."""
        if not self.touched:
            return 0
        at = np.unique(np.concatenate(self.touched))
        with np.errstate(over="ignore"):
            return int(_bits(_expression("left", at.astype(np.uint64), self.values[at].astype(np.uint64))).sum())


_SPACE = 1 << 44
"""Addresses between the starts of buffers, more bytes than any has."""


class _Memory:
    def __init__(self, buffers: Mapping[str, Buffer], data: Mapping[str, Any], zeroed: bool) -> None:
        self.shadows = [
            _Shadow(name, (n + 1) * _SPACE, _dtype(buffer), buffer.dtype.startswith(("float", "bfloat")), buffer.span,
                    data.get(name))
            for n, (name, buffer) in enumerate(buffers.items())
        ]  # fmt: skip
        self.launch, self.program, self._zeroed = 0, 0, zeroed

    def unloaded(self, addresses: Any, dtype: Any) -> Any:
        """Return what a load leaves in elements behind its mask, if it does not say what: zero, or something that no
        other expression has."""
        if dtype.is_floating() and not self._zeroed:
            return _expression("undefined", addresses).reshape(addresses.shape)
        number = _constant(0.0, dtype)[0] if dtype.is_floating() else 0 if self._zeroed else 0x5A5A5A5A
        return np.full(addresses.shape, number).astype(interpreter._get_np_dtype(dtype))

    def at(self, addresses: Any) -> tuple[_Shadow, Any]:
        """Return the buffer that the addresses lie in, and the elements."""
        shadow = self.shadows[min(max(int(addresses[0]) // _SPACE - 1, 0), len(self.shadows) - 1)]
        at, odd = np.divmod(addresses.astype(np.int64) - shadow.base, shadow.dtype.itemsize)
        if bool((at < 0).any()) or bool((at >= shadow.elements).any()) or bool(odd.any()):
            raise Unproven(f"accesses memory outside {shadow.name}")
        return shadow, at


def _dtype(buffer: Buffer) -> np.dtype[Any]:
    return _DTYPES.get(buffer.dtype) or np.dtype(buffer.dtype)


_current: _Memory
"""The memory of the run under way; the interpreter has one builder a process."""


# The interpreter -----------------------------------------------------------------------------------------------------


@functools.cache
def install() -> None:
    """Make the interpreter of this process compute with expressions."""
    builder = interpreter.InterpreterBuilder
    original = interpreter._get_np_dtype
    interpreter._get_np_dtype = lambda dtype: _HASH if dtype.scalar.is_floating() else original(dtype)
    for name in ("fp16", "bf16", "fp32", "fp64"):
        setattr(builder, f"get_{name}", functools.partialmethod(_get_constant, getattr(tl, _LONG[name])))
    for name in ("maximumf", "minimumf", "maxnumf", "minnumf", "fma", "clampf", "fabs", "erf", "rsqrt"):
        setattr(builder, f"create_{name}", _operation(name))
    builder.get_null_value = _null_value(builder.get_null_value)
    for name in ("binary_op", "unary_op"):
        setattr(builder, name, _by_function(getattr(builder, name)))
    builder.cast_impl = _cast(builder.cast_impl)
    builder.create_fp_to_fp = lambda self, source, dtype, rounding: self.cast_impl(source, dtype)
    builder.create_bitcast = _only_integers(builder.create_bitcast)
    builder.create_splat = _splat
    if hasattr(TensorHandle, "__post_init__"):  # in later releases it compares the array's bits with the dtype's
        TensorHandle.__post_init__ = lambda self: None
    builder.create_select = _select
    builder.create_masked_load, builder.create_masked_store = _load, _store
    builder.create_atomic_rmw = _atomic
    later = getattr(semantic, "TritonSemantic", None)  # 3.2 has functions
    for name in ("max", "min"):
        extreme = getattr(later or semantic, f"atomic_{name}")
        setattr(later or semantic, f"atomic_{name}", _extreme(name, extreme, is_method=later is not None))
    interpreter.ReduceOps.apply_impl = _reduction(interpreter.ReduceOps.apply_impl)
    keep_masks()
    convert_bounds()


_LONG = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}


def _get_constant(self: Any, dtype: Any, value: float) -> Any:
    return TensorHandle(_constant(value, dtype), dtype)


def _null_value(original: Callable[..., Any]) -> Callable[..., Any]:
    def null_value(self: Any, dtype: Any) -> Any:
        return _get_constant(self, dtype, 0.0) if dtype.scalar.is_floating() else original(self, dtype)

    return null_value


def _splat(self: Any, *given: Any) -> Any:
    """Fill a shape with a number; later releases give a type before the number, and 3.2 a shape after it."""
    number, shape = given if isinstance(given[0], TensorHandle) else (given[1], given[0].shape)
    return TensorHandle(np.full(shape, number.data.reshape(-1)[0], dtype=number.data.dtype), number.dtype.scalar)


def _operation(name: str) -> Callable[..., Any]:
    def operation(self: Any, *operands: Any) -> Any:
        handles = [operand for operand in operands if isinstance(operand, TensorHandle)]
        rest = [str(operand) for operand in operands if not isinstance(operand, TensorHandle)]
        return _applied(" ".join([name, *rest]), handles)

    return operation


def _applied(name: str, handles: Sequence[Any]) -> Any:
    if not all(map(_is_hashed, handles)):
        raise Unproven(f"{name} of a number that depends on others, and one that does not")
    shaped = np.broadcast_arrays(*(handle.data for handle in handles))
    return TensorHandle(_expression(name, *map(_contiguous_bits, shaped)), handles[0].dtype.scalar)


def _contiguous_bits(hashes: Any) -> Any:
    return np.ascontiguousarray(hashes).view(np.uint64)


def _by_function(original: Callable[..., Any]) -> Callable[..., Any]:
    def operation(self: Any, *arguments: Any) -> Any:
        *handles, function = arguments
        if not any(map(_is_hashed, handles)):
            return original(self, *arguments)
        found = _applied(function.__name__, handles)
        if function in (np.add, np.subtract, np.multiply):
            operands = [_contiguous_bits(np.broadcast_to(handle.data, found.data.shape)) for handle in handles]
            found.data = _folded(function, found.dtype.scalar, operands, found.data)
        return found

    return operation


def _cast(original: Callable[..., Any]) -> Callable[..., Any]:
    def cast(self: Any, source: Any, dtype: Any) -> Any:
        to = dtype.scalar
        if not _is_hashed(source):
            return TensorHandle(_constants(source.data, to), to) if to.is_floating() else original(self, source, dtype)
        if not to.is_floating() or source.dtype.scalar == tl.int1:
            raise Unproven("an integer depends on a floating-point number")
        if source.dtype.scalar == to:
            return source
        bits = _contiguous_bits(source.data)
        return TensorHandle(_folded(np.positive, to, [bits], _expression(f"to {to}", bits)), to)

    return cast


def _constants(values: Any, dtype: Any) -> Any:
    return _constant(values, dtype).reshape(np.shape(values))


def _only_integers(original: Callable[..., Any]) -> Callable[..., Any]:
    def bitcast(self: Any, source: Any, dtype: Any) -> Any:
        if _is_hashed(source) or dtype.scalar.is_floating():
            raise Unproven("the bits of a floating-point number are used")
        return original(self, source, dtype)

    return bitcast


def _select(self: Any, condition: Any, one: Any, other: Any) -> Any:
    if _is_hashed(condition):
        return TensorHandle(_applied("select", [condition, one, other]).data, other.dtype.scalar)
    return TensorHandle(np.where(condition.data, one.data, other.data), other.dtype.scalar)


def _chosen(pointers: Any, mask: Any) -> Any:
    if _is_hashed(mask):
        raise Unproven("a mask depends on a floating-point number")
    return np.broadcast_to(mask.data, pointers.data.shape).astype(bool)


def _load(self: Any, pointers: Any, mask: Any, other: Any, *rest: Any) -> Any:
    dtype, chosen = pointers.get_element_ty(), _chosen(pointers, mask)
    if other is not None:
        found = np.array(np.broadcast_to(other.data, pointers.data.shape))
    else:
        found = _current.unloaded(pointers.data, dtype)
    if chosen.any():
        shadow, at = _current.at(pointers.data[chosen])
        found[chosen] = shadow.load(at, _current.launch, _current.program)
    return TensorHandle(found, dtype)


def _store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> None:
    chosen = _chosen(pointers, mask)
    if chosen.any():
        shadow, at = _current.at(pointers.data[chosen])
        values = np.broadcast_to(value.data, pointers.data.shape)[chosen]
        shadow.store(at, values, _current.launch, _current.program)


def _atomic(self: Any, operation: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
    chosen, name = _chosen(pointers, mask), "sum" if operation == ir.ATOMIC_OP.FADD else operation
    if name not in ("sum", "max", "min"):
        raise Unproven(f"an atomic {operation}")
    if chosen.any():
        shadow, at = _current.at(pointers.data[chosen])
        shadow.add(name, at, np.broadcast_to(value.data, pointers.data.shape)[chosen])
    return TensorHandle(_expression("undefined", pointers.data).reshape(pointers.data.shape), value.dtype.scalar)


def _extreme(name: str, original: Callable[..., Any], is_method: bool) -> Callable[..., Any]:
    """Make an atomic extreme of floats one operation; Triton has two, of their bits as integers, by the sign."""

    def extreme(*given: Any) -> Any:
        operands, value = (given[1:4], given[2]) if is_method else (given[:3], given[1])
        if not value.type.scalar.is_floating():
            return original(*given)
        check, rest = (given[0], ()) if is_method else (semantic, given[-1:])
        checked = check.atom_red_typechecking_impl(*operands, name, *rest)
        made = interpreter.interpreter_builder.create_atomic_rmw(name, *(each.handle for each in checked))
        return tl.tensor(made, value.type)

    return extreme


def _reduction(original: Callable[..., Any]) -> Callable[..., Any]:
    """Reduce expressions by halves with the kernel's own function; leave integers to the original."""

    def reduce(self: Any, inputs: Any) -> Any:
        hashed = [_is_hashed(each.handle) for each in inputs]
        if not any(hashed):
            return original(self, inputs)
        if not all(hashed):
            raise Unproven("a reduction of floating-point numbers and integers")
        axis, dtypes = self.axis or 0, [each.dtype.scalar for each in inputs]
        parts = [each.handle.data.reshape(-1) if self.axis is None else each.handle.data for each in inputs]
        while parts[0].shape[axis] > 1:
            parts = _halved(self, parts, dtypes, axis)
        kept = parts if self.keep_dims else [np.squeeze(part, axis) for part in parts]
        found = [self.to_tensor(np.atleast_1d(part), dtype) for part, dtype in zip(kept, dtypes, strict=True)]
        if not self.keep_dims and parts[0].ndim == 1:
            found = [tl.core.tensor(each.handle, dtype) for each, dtype in zip(found, dtypes, strict=True)]
        return found[0] if len(found) == 1 else tuple(found)

    return reduce


def _halved(self: Any, parts: Sequence[Any], dtypes: Sequence[Any], axis: int) -> list[Any]:
    half = parts[0].shape[axis] // 2
    low, high, odd = zip(*(np.split(part, [half, 2 * half], axis) for part in parts), strict=True)
    halves = [self.to_tensor(data, dtype) for data, dtype in zip((*low, *high), [*dtypes, *dtypes], strict=True)]
    combined = getattr(self.combine_fn, "fn", self.combine_fn)(*halves)  # later releases pass the function itself
    combined = combined if isinstance(combined, tuple) else (combined,)
    return [np.concatenate([each.handle.data, rest], axis) for each, rest in zip(combined, odd, strict=True)]


# A run ---------------------------------------------------------------------------------------------------------------


class _Pointer:
    """A stand-in for a tensor at an address."""

    def __init__(self, base: int, dtype: Any) -> None:
        self.base, self.dtype = base, dtype

    def data_ptr(self) -> int:
        return self.base

    def cpu(self) -> _Pointer:
        return self


def trace(
    spec: KernelSpec, problem: Problem, config: Config, data: Mapping[str, Any], programs: int, zeroed: bool
) -> tuple[tuple[str, int], ...]:
    """Return a number for each buffer that the config's launches store to. `data` has the values of integer buffers as
    numpy arrays, which are changed. Of a launch with more than `programs`, that many run, first and last ones among
    them. `zeroed`: the compiler zeroes elements behind a load's mask that the load leaves open. Raises `Unproven`, and
    whatever the interpreter raises."""
    import torch

    global _current
    buffers = {**spec.buffers(problem), **spec.scratch(config, problem)}
    _current = _Memory(buffers, data, zeroed)
    pointers = {s.name: _Pointer(s.base, getattr(torch, buffers[s.name].dtype)) for s in _current.shadows}
    for number, step in enumerate(spec.plan(config, problem), 1):
        _current.launch = number
        _run(spec, problem, config, step, pointers, programs)
    return tuple((shadow.name, shadow.digest()) for shadow in _current.shadows)


def _run(spec: KernelSpec, problem: Problem, config: Config, step: Launch, pointers: Any, programs: int) -> None:
    function = resolve_function(spec, step.function)
    given = arguments_of(spec, problem, config, step, pointers, function)
    executor = interpreter.GridExecutor(function.rewrite(), function.arg_names, step.grid)
    interpreter._patch_lang(executor.fn)
    called = inspect.getcallargs(executor.fn, **given)
    called = {n: a if n in executor.constexprs else interpreter._implicit_cvt(a) for n, a in called.items()}
    grid = (*step.grid, 1, 1)[:3]
    interpreter.interpreter_builder.set_grid_dim(*grid)
    for program in _some(int(np.prod(grid)), programs):
        _current.program = program
        x, rest = divmod(program, grid[1] * grid[2])
        interpreter.interpreter_builder.set_grid_idx(x, *divmod(rest, grid[2]))
        executor.fn(**called)


def _some(every: int, most: int) -> Iterable[int]:
    if every <= most:
        return range(every)
    third = most // 3
    between = np.linspace(third, every - third - 1, most - 2 * third).astype(int).tolist()
    return dict.fromkeys([*range(third), *between, *range(every - third, every)])
