"""Corrections of Triton's interpreter, for operations that it does wrongly, slowly or not at all.

bfloat16 (3.2 and 3.6): the interpreter keeps its 16 bits in a numpy uint16. A conversion from float32 truncates, while
the hardware rounds to nearest even. Sums, products and comparisons work on the *bits* as integers, and constants cannot
be made at all. Here each such operation is done in float32 and rounded once.

float8 (3.2 and 3.6): a number that is rounded up to a power of two loses the carry and becomes half as large. Here
torch converts, after values beyond the largest number were set to it, as accelerators do. triton-ascend refuses to
convert them at all for most of its parts, and with that masked loads of them.

Masks (3.2): a store or atomic whose mask is a single False writes anyway, because the mask is tested for truth instead
of presence. This affects every kernel with sub-tiles of one row.

Atomic maxima and minima of floats (3.2 of triton-ascend) are refused. Here they use integer ones, as in upstream
Triton: a float without a sign bit compares as a signed integer, one with it, in reverse, as an unsigned one.

Reductions with a kernel's own function (3.2 and 3.6): the function is called for every element, at 20 us each. Here it
is called on halves of the tile, as on a device, with the same result for an associative function.

Bounds of loops (3.2 and 3.6): each is an array of one element, which numpy 2.4 and later refuse to make an integer.

Sums of integers (3.2 and 3.6): numpy adds int32 up to int64, and a store of such a tile writes twice its bytes. Here a
sum has its tile's dtype.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.language import semantic
from triton.runtime import interpreter

__all__ = ["convert_bounds", "install", "keep_masks", "narrow", "widen"]

_BITWISE = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)


def widen(bits: Any) -> Any:
    """Convert an array of bfloat16 bits (uint16) to float32, exactly."""
    return (np.asarray(bits, dtype=np.uint32) << 16).view(np.float32)


def narrow(values: Any) -> Any:
    """Convert an array of numbers to bfloat16 bits (uint16), rounded to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def _as_float8_bits(values: Any) -> Any:
    """Convert an array of numbers to float8_e4m3fn bits (uint8), rounded to nearest even and saturated."""
    import torch

    numbers = torch.from_numpy(np.ascontiguousarray(values)).float()
    largest = torch.finfo(torch.float8_e4m3fn).max
    return numbers.clamp(-largest, largest).to(torch.float8_e4m3fn).view(torch.uint8).numpy()


def install() -> None:
    """Correct the interpreter of this process; raise `AttributeError` if this Triton lacks a replaced function."""
    builder = interpreter.InterpreterBuilder
    builder.cast_impl = _cast(builder.cast_impl)
    builder.create_fp_to_fp = _cast(builder.create_fp_to_fp)
    builder.get_bf16 = lambda self, value: interpreter.TensorHandle(narrow(np.array([value])), tl.bfloat16)  # missing
    for name in ("binary_op", "unary_op", "ternary_op"):
        setattr(builder, name, _operation(getattr(builder, name)))
    builder.create_fma = _in_float32(builder.create_fma)
    builder.create_dot = _dot(builder.create_dot)
    builder.create_atomic_rmw = _atomic(builder.create_atomic_rmw)
    interpreter.ReduceOps.generic_reduce = _by_halves(interpreter.ReduceOps.generic_reduce)
    for scans in (interpreter.ReduceOps, interpreter.ScanOps):
        scans.to_tensor = _of_its_dtype(scans.to_tensor)
    if patched := sys.modules.get("triton.triton_patch.language.semantic"):
        patched.is_compile_on_910_95 = True  # type: ignore[attr-defined]  # the parts that have 8-bit floats
    keep_masks()
    convert_bounds()


def convert_bounds() -> None:
    """Make a tensor of one element an integer wherever Python asks for one, with every version of numpy."""
    patch = interpreter._patch_lang_tensor

    def patch_tensor(tensor: Any, *scope: Any) -> None:
        patch(tensor, *scope)
        tensor.__index__ = lambda self: self.handle.data.item()

    interpreter._patch_lang_tensor = patch_tensor


def keep_masks() -> None:
    """Make stores and atomics of 3.2 respect a mask that is a single False; later releases test the mask for None."""
    if hasattr(semantic, "_store_legacy"):
        semantic._store_legacy = _with_present_mask(semantic._store_legacy)
        semantic.atom_red_typechecking_impl = _with_present_mask(semantic.atom_red_typechecking_impl)


class _PresentMask(tl.tensor):  # type: ignore[misc]  # triton has no types
    """A mask that is true because it is present."""

    def __bool__(self) -> bool:
        return True


def _with_present_mask(original: Callable[..., Any]) -> Callable[..., Any]:
    def write(ptr: Any, val: Any, mask: Any, *rest: Any) -> Any:
        if mask is not None:
            builder = rest[-1]
            shape = ptr.type.get_block_shapes() if ptr.type.is_block() else None
            mask = semantic.broadcast_impl_shape(mask, shape, builder) if shape is not None else mask
            mask = _PresentMask(mask.handle, mask.type)
        return original(ptr, val, mask, *rest)

    return write


def _is_bfloat16(handle: Any) -> bool:
    return bool(handle.dtype.scalar == tl.bfloat16)


def _as_float32(handle: Any) -> Any:
    return interpreter.TensorHandle(widen(handle.data), tl.float32) if _is_bfloat16(handle) else handle


def _as_bfloat16(handle: Any) -> Any:
    return interpreter.TensorHandle(narrow(handle.data), tl.bfloat16)


def _cast(original: Callable[..., Any]) -> Callable[..., Any]:
    def cast(self: Any, source: Any, dst_type: Any, *rest: Any) -> Any:
        if _is_bfloat16(source) and dst_type.scalar == tl.bfloat16:
            return source
        if dst_type.scalar == tl.bfloat16:
            return _as_bfloat16(source)
        if dst_type.scalar == tl.float8e4nv and source.dtype.scalar in (tl.float16, tl.float32):
            return interpreter.TensorHandle(_as_float8_bits(source.data), tl.float8e4nv)
        if _is_bfloat16(source):
            source = _as_float32(source)
            return source if dst_type.scalar == tl.float32 else self.cast_impl(source, dst_type)
        return original(self, source, dst_type, *rest)

    return cast


def _operation(original: Callable[..., Any]) -> Callable[..., Any]:
    """Correct an operation that takes its numpy function as last argument."""
    converted = _in_float32(original)

    def operation(self: Any, *arguments: Any) -> Any:
        *handles, function = arguments
        moves_bits = function in _BITWISE or function is np.where
        return (original if moves_bits else converted)(self, *handles, function)

    return operation


def _in_float32(original: Callable[..., Any]) -> Callable[..., Any]:
    def operation(self: Any, *arguments: Any) -> Any:
        if not any(hasattr(a, "dtype") and hasattr(a, "data") and _is_bfloat16(a) for a in arguments):
            return original(self, *arguments)
        result = original(self, *(_as_float32(a) if hasattr(a, "data") else a for a in arguments))
        compared = result.data.dtype == np.bool_
        return interpreter.TensorHandle(result.data, tl.bfloat16) if compared else _as_bfloat16(result)

    return operation


def _dot(original: Callable[..., Any]) -> Callable[..., Any]:
    def dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return original(self, _as_float32(a), _as_float32(b), *rest)

    return dot


def _atomic(original: Callable[..., Any]) -> Callable[..., Any]:
    """Extend the atomic operation to maxima and minima of float32."""
    as_integers = {
        ir.ATOMIC_OP.MAX: (ir.ATOMIC_OP.MAX, ir.ATOMIC_OP.UMIN),
        ir.ATOMIC_OP.MIN: (ir.ATOMIC_OP.MIN, ir.ATOMIC_OP.UMAX),
    }

    def atomic(self: Any, operation: Any, pointer: Any, value: Any, mask: Any, *rest: Any) -> Any:
        if operation not in as_integers or value.dtype.scalar != tl.float32:
            return original(self, operation, pointer, value, mask, *rest)
        negative = np.signbit(value.data)
        before = value.data
        kinds = ((tl.int32, np.int32, ~negative), (tl.uint32, np.uint32, negative))
        for (dtype, bits, chosen), kind in zip(kinds, as_integers[operation], strict=True):
            handle = interpreter.TensorHandle(value.data.view(bits), dtype)
            where = interpreter.TensorHandle(mask.data & chosen, tl.int1)
            found = original(self, kind, pointer, handle, where, *rest).data.view(np.float32)
            before = np.where(where.data, found, before)
        return interpreter.TensorHandle(before, tl.float32)

    return atomic


def _of_its_dtype(original: Callable[..., Any]) -> Callable[..., Any]:
    def to_tensor(self: Any, found: Any, dtype: Any) -> Any:
        if dtype.scalar.is_int() and hasattr(found, "astype"):
            found = found.astype(interpreter._get_np_dtype(dtype.scalar))
        return original(self, found, dtype)

    return to_tensor


def _by_halves(original: Callable[..., Any]) -> Callable[..., Any]:
    """Reduce by halves to one element along the axis (None: of all), and leave the rest to the original."""

    def reduce(self: Any, inputs: Any) -> Any:
        axis = self.axis or 0
        parts = [t.handle.data.reshape(-1) if self.axis is None else t.handle.data for t in inputs]
        dtypes = [t.dtype.scalar for t in inputs]
        while (size := parts[0].shape[axis]) > 1:
            half = size // 2
            low, high, odd = zip(*(np.split(part, [half, 2 * half], axis) for part in parts), strict=True)
            halves = [self.to_tensor(data, dtype) for data, dtype in zip((*low, *high), dtypes * 2, strict=True)]
            combined = self.combine_fn.fn(*halves)
            combined = combined if isinstance(combined, tuple) else (combined,)
            parts = [np.concatenate([c.handle.data, o], axis) for c, o in zip(combined, odd, strict=True)]
        return original(self, tuple(self.to_tensor(data, dtype) for data, dtype in zip(parts, dtypes, strict=True)))

    return reduce
