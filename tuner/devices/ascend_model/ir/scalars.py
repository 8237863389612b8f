"""The scalar unit's arithmetic, on one number or on an array with one number per program."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewise.tuner.devices.ascend_model.ir.hivm import Op
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation

__all__ = ["scalar_function", "straight_line", "wrapping_function"]

_WIDTHS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64}
_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def scalar_function(op: Op) -> Callable[..., Any]:
    """Return the function that an `arith` or `math` operation computes; raises `UnknownOperation`."""
    short = op.name.rpartition(".")[2]
    kind = str(op.result_type)
    if short == "select":
        return _select
    if short == "cmpi":
        return _INTEGER_COMPARISONS[int(op.attributes["predicate"])]
    if short == "cmpf":
        return _float_comparison(int(op.attributes["predicate"]))
    if short in _EXTENSIONS:
        return _extension(short, str(op.types[0]), kind)
    if short == "shrui" and kind in _WIDTHS:
        return _logical_shift(_WIDTHS[kind])
    if short not in _FUNCTIONS:
        raise UnknownOperation(f"the model does not know the operation {op.name}")
    function = _FUNCTIONS[short]
    if kind in _FLOATS:
        return _rounded(function, _FLOATS[kind])
    if kind in _WIDTHS:
        return function
    raise UnknownOperation(f"the model does not know {op.name} of {kind}")


def wrapping_function(op: Op) -> Callable[..., Any]:
    """Return `scalar_function`, but with sums, products and shifts to the left that wrap at the width of their type.

    The clock does without: an address beyond its type's range takes as long, and is refused where it is executed.
    """
    function, width = scalar_function(op), _WIDTHS.get(str(op.result_type), 64)
    if op.name.rpartition(".")[2] not in _WRAPPING or not 1 < width < 64:
        return function
    half = 1 << (width - 1)
    return lambda a, b: ((function(_wide(a), _wide(b)) + half) & (2 * half - 1)) - half


_WRAPPING = ("addi", "subi", "muli", "shli")


def straight_line(operations: Sequence[Op]) -> Callable[[list[Any]], None]:
    """Return a function that executes operations on registers one after the other, on numbers by value number.

    It is Python source compiled once, as a loop of the modelled clock executes these operations thousands of times.
    """
    names: dict[str, Any] = {}
    held: dict[int, str] = {}
    lines = ["def run(values):"]
    for number, op in enumerate(operations):
        operands = [held.get(operand, f"values[{operand}]") for operand in op.operands]
        if op.name == "arith.constant":
            names[f"c{number}"] = op.attributes["value"]
            expression = f"c{number}"
        elif (text := _expression(op)) is not None:
            expression = text.format(*operands)
        else:
            names[f"f{number}"] = scalar_function(op)
            expression = f"f{number}({', '.join(operands)})"
        held[op.result] = f"r{op.result}"
        lines.append(f"    r{op.result} = values[{op.result}] = {expression}")
    exec("\n".join(lines), names)
    run: Callable[[list[Any]], None] = names["run"]
    return run


def _expression(op: Op) -> str | None:
    """Return the Python expression that does what `scalar_function` does for one number each; None if there is none."""
    short = op.name.rpartition(".")[2]
    if short == "cmpi":
        predicate = int(op.attributes["predicate"])
        return f"({{}} {_COMPARED[predicate]} {{}})" if predicate < len(_COMPARED) else None
    if short in ("index_cast", "extsi") and str(op.types[0]) != "i1" and _WIDTHS.get(str(op.result_type)) == 64:
        return "({} * 1)"
    return _INLINE.get(short) if str(op.result_type) in _WIDTHS or short == "select" else None


_COMPARED = ("==", "!=", "<", "<=", ">", ">=")
_INLINE = {"addi": "({} + {})", "subi": "({} - {})", "muli": "({} * {})", "select": "({1} if {0} else {2})"}


def _rounded(function: Callable[..., Any], kind: Any) -> Callable[..., Any]:
    """Make a function compute in the operation's own type, as registers do; undefined results raise no error."""

    def call(*operands: Any) -> Any:
        with np.errstate(all="ignore"):
            numbers = [operand if _is_whole(operand) else np.asarray(operand, kind)[()] for operand in operands]
            return np.asarray(function(*numbers)).astype(kind)[()]

    return call


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, np.ndarray) and value.dtype.kind in "ib")


def _select(condition: Any, a: Any, b: Any) -> Any:
    if isinstance(condition, np.ndarray):
        return np.where(condition, a, b)
    return a if condition else b


def _extension(short: str, before: str, after: str) -> Callable[[Any], Any]:
    """Return a cast between widths: `trunci` wraps, `extui` makes negatives large, a bit is 0 or 1 (signed: -1)."""
    if after == "i1":
        return lambda value: value & 1
    if short == "extsi" and before == "i1":
        return lambda value: -(value * 1)
    if short in ("extui", "index_castui") and before != "i1":
        width = _WIDTHS[before]
        return (lambda value: _wide(value) & ((1 << width) - 1)) if width < 64 else (lambda value: value)
    if short == "trunci":
        half = 1 << (_WIDTHS[after] - 1)
        return lambda value: ((_wide(value) + half) & (2 * half - 1)) - half
    if _WIDTHS[after] == 64:
        return lambda value: _wide(value) * 1
    return lambda value: value * 1  # turns a bool into an int


def _wide(value: Any) -> Any:
    """Return whole numbers as 64-bit ones, as registers hold them: an array may come from memory of 32 bits."""
    return value.astype(np.int64) if isinstance(value, np.ndarray) else value


_EXTENSIONS = ("index_cast", "index_castui", "extsi", "extui", "trunci")


def _logical_shift(width: int) -> Callable[[Any, Any], Any]:
    """Return a shift to the right that fills with zeros."""

    def shift(value: Any, by: Any) -> Any:
        bits = _unsigned(value) & (2**width - 1)
        if isinstance(bits, np.ndarray) or isinstance(by, np.ndarray):
            return (np.asarray(bits, np.uint64) >> np.asarray(by, np.uint64)).astype(np.int64)
        return bits >> by

    return shift


def _quotient(a: Any, b: Any) -> Any:
    """Divide, rounding towards zero whatever the signs; n / 0 gives 0, as no program may use the result."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        with np.errstate(all="ignore"):
            return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _floor_quotient(a: Any, b: Any) -> Any:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        with np.errstate(all="ignore"):
            return a // b
    return 0 if b == 0 else a // b


def _maximum(a: Any, b: Any) -> Any:
    return np.maximum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else max(a, b)


def _minimum(a: Any, b: Any) -> Any:
    return np.minimum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else min(a, b)


def _unsigned(value: Any) -> Any:
    return value.astype(np.int64).view(np.uint64) if isinstance(value, np.ndarray) else int(value) % 2**64


def _to_whole(value: Any) -> Any:
    """Round towards zero; NaN becomes 0."""
    whole = np.trunc(np.nan_to_num(np.asarray(value, np.float64), nan=0.0, posinf=2.0**62, neginf=-(2.0**62)))
    return whole.astype(np.int64) if isinstance(value, np.ndarray) else int(whole)


_erf = np.vectorize(math.erf, otypes=[np.float64])


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "addi": operator.add,
    "subi": operator.sub,
    "muli": operator.mul,
    "divsi": _quotient,
    "remsi": lambda a, b: a - b * _quotient(a, b),
    "divui": _floor_quotient,
    "remui": lambda a, b: a - b * _floor_quotient(a, b),
    "ceildivsi": lambda a, b: -_floor_quotient(-a, b),
    "floordivsi": _floor_quotient,
    "maxsi": _maximum,
    "minsi": _minimum,
    "maxui": _maximum,  # sizes and indices, which are not negative
    "minui": _minimum,
    "andi": operator.and_,
    "ori": operator.or_,
    "xori": operator.xor,
    "shli": operator.lshift,
    "shrsi": operator.rshift,
    "absi": abs,
    "addf": np.add,
    "subf": np.subtract,
    "mulf": np.multiply,
    "divf": np.divide,
    "remf": np.fmod,
    "negf": np.negative,
    "maximumf": np.maximum,
    "minimumf": np.minimum,
    "maxnumf": np.fmax,
    "minnumf": np.fmin,
    "sitofp": lambda a: a,
    "uitofp": lambda a: a,
    "truncf": lambda a: a,
    "extf": lambda a: a,
    "fptosi": _to_whole,
    "fptoui": _to_whole,
    "absf": np.abs,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "floor": np.floor,
    "ceil": np.ceil,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": _erf,
    "fma": lambda a, b, c: a * b + c,
}

_INTEGER_COMPARISONS: Sequence[Callable[[Any, Any], Any]] = (
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
    lambda a, b: _unsigned(a) < _unsigned(b),
    lambda a, b: _unsigned(a) <= _unsigned(b),
    lambda a, b: _unsigned(a) > _unsigned(b),
    lambda a, b: _unsigned(a) >= _unsigned(b),
)

_FLOAT_ORDER: Sequence[Callable[[Any, Any], Any]] = (
    lambda a, b: a == b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: (a < b) | (a > b),
)


def _float_comparison(predicate: int) -> Callable[[Any, Any], Any]:
    """Return the comparison with MLIR's number: 0 false, 1-6 fail on NaN, 7 ordered, 8-13 hold on NaN, 14 unordered,
    15 true."""

    def unordered(a: Any, b: Any) -> Any:
        return np.isnan(a) | np.isnan(b)

    if predicate in (0, 15):
        return lambda a, b: predicate == 15
    if predicate in (7, 14):
        return lambda a, b: unordered(a, b) == (predicate == 14)
    if predicate < 7:
        return _FLOAT_ORDER[predicate - 1]
    compare = _FLOAT_ORDER[predicate - 8]
    return lambda a, b: compare(a, b) | unordered(a, b)
