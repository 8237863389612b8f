"""Comparison of outputs with their float64 reference: what a right program may be off by, element by element.

A right program computes in float32, or with float32 sums, and rounds to the output's dtype at the end. An element may
therefore be off by

- `ACCUMULATION` of its own magnitude or of the reference's RMS, whichever is larger: float32 arithmetic. A sum of more
  than `TERMS_ADDED` terms may be off by more, as the square root of their number;
- the `tolerance` that the kernel's spec gives an output, for arithmetic that is less precise than float32;
- half a unit in its last place, times `ROUNDING_MARGIN`: rounding to the output's dtype on storing;
- half a unit in the last place of a value that was rounded before. For an output as large as the inputs that is the
  largest value of its row, or the RMS if larger: 16-bit kernels add and multiply in 16 bits. A reduced output has far
  fewer elements than the inputs, and may be off by `TERMS` half units at its RMS: the rounded terms of a sum partly
  cancel, and a long sum that was itself kept in 16 bits is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from tilewise.db.records import Status
from tilewise.errors import BadSpec
from tilewise.kernels.spec import Buffer
from tilewise.tuner.measure.outcome import Verdict

if TYPE_CHECKING:
    import torch

__all__ = ["PRECISION", "compare", "disagreement", "tolerance", "worst_of"]

ACCUMULATION = 2.0**-15
"""Tolerance for float32 arithmetic, relative to the reference's RMS or the element, whichever is larger.

A running float32 sum of K independent terms is off by sqrt(K / 2) * 2**-24 of its RMS, because each addition rounds a
partial sum that has grown to sqrt(k). Five standard deviations of that, the largest of a million outputs, is 2e-5 at
K = 8192. Half as much again is added for hardware `exp` and division (a few units in the last place). A column lost
from a sum of 8192 sigmoids costs 2.4e-4, eight times the tolerance.
"""

TERMS_ADDED = 8192
"""Terms of a sum for which `ACCUMULATION` is large enough. More are off by sqrt(K / 2) * 2**-24 of the RMS too, so the
tolerance grows with sqrt(K) while a lost term weighs sqrt(1 / K): at a million terms it is 3e-4, and a term 1e-3."""

ROUNDING_MARGIN = 1.25
"""Multiple of the half unit in the last place that storing an element may cost: correct rounding costs at most one; the
rest is for float32 errors that carry a value across the middle between two 16-bit numbers."""

TERMS = 2.0
"""Half units in the last place, at the RMS, that a reduced output may be off because its terms were rounded to 16 bits.

K terms of magnitude 1, each off by at most half a unit, deviate by sqrt(K / 3) half units, where their sum has an RMS
of sqrt(K): 0.6 half units of it, of which this is three and a half standard deviations. One column of 65536 weighs
0.4% of the RMS; this is 0.1% in float16.
"""

_REDUCED = 2
"""An output with this many times fewer elements than the largest input is a reduced one."""

PRECISION = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8, "float8_e4m3fn": 4, "float8_e5m2": 3}
"""Bits of the significand, hidden bit included (IEEE 754; bfloat16 is the upper half of a float32; the 8-bit floats are
those of the Open Compute Project's specification)."""

_DEFAULT_MARGIN = 2.0
"""Multiple of the largest deviation of the default config from itself in float32, or of a user's reference from itself
in float64, that a config may show: both round in between, in another order."""

_TOGETHER = 1 << 16
"""Elements that are compared at once."""

_SATURATING = ("float8_e4m3fn", "float8_e5m2")
"""Dtypes whose conversion gives the largest number where a value exceeds it: accelerators do that for 8-bit floats."""


def tolerance(
    dtype: str, wanted: torch.Tensor, rms: float, *, reduced: bool, terms: int = 1, extra: float = 0.0
) -> torch.Tensor:
    """Return the largest deviation allowed for each element of a float64 reference.

    `terms` are added up for each element. `extra` is relative to the element or the RMS, whichever is larger. Integers
    must agree within `extra`.
    """
    import torch

    if dtype not in PRECISION:
        return torch.full_like(wanted, extra)
    size = wanted.abs().nan_to_num(0.0, posinf=0.0)  # NaN and infinity are compared apart
    half_unit = 2.0 ** -PRECISION[dtype]
    smallest = torch.finfo(getattr(torch, dtype)).smallest_normal * half_unit  # below it, units do not shrink further
    before = 0.0 if dtype in _SATURATING else _rounded_before(size, rms, reduced=reduced)  # no kernel adds in 8 bits
    arithmetic = (ACCUMULATION * math.sqrt(max(1.0, terms / TERMS_ADDED)) + extra) * size.clamp(min=rms)
    return arithmetic + half_unit * (ROUNDING_MARGIN * size + before) + smallest


def _rounded_before(size: torch.Tensor, rms: float, *, reduced: bool) -> torch.Tensor | float:
    """Return the magnitude, for each element, of a value that may have been rounded to 16 bits before it."""
    if reduced or not size.numel():
        return TERMS * rms
    rows = size.reshape(1) if not size.dim() else size
    return rows.amax(-1, keepdim=True).clamp(min=rms)


def disagreement(
    reason: str, error: float = math.inf, allowed: float = 0.0, *, status: Status = Status.CORRECTNESS
) -> Verdict:
    """Return a verdict for a run that gave nothing to compare, or that failed otherwise."""
    return Verdict(agreed=False, error=error, tolerance=allowed, reason=reason, status=status)


def compare(
    outputs: Mapping[str, torch.Tensor],
    expected: Mapping[str, torch.Tensor],
    scales: Mapping[str, float] = MappingProxyType({}),
    *,
    inputs: int = 0,
    buffers: Mapping[str, Buffer] = MappingProxyType({}),
    default: Mapping[str, torch.Tensor] = MappingProxyType({}),
    rounded: Mapping[str, torch.Tensor] = MappingProxyType({}),
) -> Verdict:
    """Return the verdict on the worst output: a disagreement first, then the largest share of the tolerance.

    The RMS of an output is that of the reference, or the output's scale if that is larger. `inputs` is the number of
    elements of the largest input. `buffers` may give an output's `terms` and `tolerance`. `default` holds what the
    default config or the reference itself computes in 16 bits: a config may be as far off, and need not be finite where
    that is not. `rounded` is the reference computed in float32: a config may be as far off. The verdict's error and
    tolerance are those of the worst element, divided by the RMS. Raises `BadSpec` if names or shapes differ.
    """
    if outputs.keys() != expected.keys():
        given, wanted = (", ".join(sorted(names)) or "nothing" for names in (expected, outputs))
        raise BadSpec(f"the reference gives {given}, the kernel's outputs are {wanted}; correct the spec's reference")
    plain = Buffer((), "float32")
    return worst_of(
        [
            _compare(
                name,
                got,
                expected[name],
                scales.get(name, 0.0),
                inputs,
                buffers.get(name, plain),
                default.get(name),
                rounded.get(name),
            )
            for name, got in outputs.items()
        ]
    )


def worst_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the first disagreement or, if there is none, the agreement that came closest to one."""
    return max(verdicts, key=lambda v: (not v.agreed, v.error / v.tolerance if v.tolerance else v.error))


def _compare(
    name: str,
    got: torch.Tensor,
    reference: torch.Tensor,
    scale: float,
    inputs: int,
    buffer: Buffer,
    default: torch.Tensor | None,
    in_float32: torch.Tensor | None,
) -> Verdict:
    import torch

    if tuple(got.shape) != tuple(reference.shape):
        shapes = f"shape {tuple(reference.shape)}, the output {tuple(got.shape)}"
        raise BadSpec(f"the reference gives {name} the {shapes}; correct the spec's reference")
    if got.dtype is torch.bool:
        got = got.view(torch.uint8)  # a byte that is neither 0 nor 1 was never written
    dtype = str(got.dtype).removeprefix("torch.")
    wanted = reference.to(torch.float64)
    if dtype in _SATURATING:
        wanted = wanted.clamp(-torch.finfo(got.dtype).max, torch.finfo(got.dtype).max)
    reduced = got.numel() * _REDUCED <= inputs
    if default is None and in_float32 is None and _is_plain(got, wanted):
        return _compare_plain(name, got.to(reference.device), wanted, scale, buffer, reduced=reduced)
    rounded = wanted.to(got.dtype).to(torch.float64) if got.is_floating_point() else wanted  # it may rightly overflow
    actual = got.to(reference.device).to(torch.float64)
    finite = rounded.isfinite()
    rms = _rms(wanted[finite], scale)
    allowed = tolerance(dtype, wanted, rms, reduced=reduced, terms=buffer.terms, extra=buffer.tolerance)
    others = [other for other in (default, in_float32) if other is not None]
    allowed = allowed + _DEFAULT_MARGIN * max((_farthest(other, wanted, finite) for other in others), default=0.0)
    if default is not None:
        overflows = ~default.isfinite()
        rounded, finite = torch.where(overflows, actual, rounded), finite & ~overflows
    if got.is_floating_point():
        at_the_limit = _at_the_limit(actual, wanted, allowed, torch.finfo(got.dtype).max)
        rounded, finite = torch.where(at_the_limit, actual, rounded), finite & ~at_the_limit
    if (mismatch := _nonfinite_mismatch(name, actual, rounded)) is not None:
        return mismatch
    deviation = torch.where(finite, (actual - wanted).abs(), torch.zeros_like(actual))
    if not deviation.numel():
        return Verdict(agreed=True, error=0.0, tolerance=0.0)
    shares = deviation / allowed if dtype in PRECISION else deviation
    worst = int(torch.where(finite, shares, 0.0).argmax())
    error, limit = float(deviation.flatten()[worst]), float(allowed.flatten()[worst])
    return _verdict(name, got, wanted, worst, error, limit, rms)


def _verdict(
    name: str, got: torch.Tensor, wanted: torch.Tensor, worst: int, error: float, limit: float, rms: float
) -> Verdict:
    """Return the verdict on the worst element, which is off by `error` where `limit` is allowed."""
    if error <= limit:
        return Verdict(agreed=True, error=error / rms, tolerance=limit / rms)
    values = f"{_number(got, worst)} instead of {_number(wanted, worst)} at {_index(got, worst)}"
    return disagreement(
        f"{name}: {values}, off by {error / rms:.1e} of the RMS where {limit / rms:.1e} is allowed",
        error / rms,
        limit / rms,
    )


def _is_plain(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Return whether both are finite floats below the largest number, so that no element needs a rule of its own."""
    import torch

    if not got.is_floating_point() or got.element_size() == 1 or not got.numel():
        return False
    return float(wanted.abs().max()) < torch.finfo(got.dtype).max and bool(got.isfinite().all())


def _compare_plain(
    name: str, got: torch.Tensor, wanted: torch.Tensor, scale: float, buffer: Buffer, *, reduced: bool
) -> Verdict:
    """Return the verdict on finite floats, some rows at a time: all of them at once would not fit the host's caches."""
    import torch

    rms, length = _rms(wanted, scale), got.shape[-1] if got.dim() else 1
    actual, exact = got.reshape(-1, length), wanted.reshape(-1, length)
    rows, worst = max(1, _TOGETHER // length), (-1.0, 0, 0.0, 0.0)
    for first in range(0, len(exact), rows):
        part = exact[first : first + rows]
        dtype = str(got.dtype).removeprefix("torch.")
        allowed = tolerance(dtype, part, rms, reduced=reduced, terms=buffer.terms, extra=buffer.tolerance)
        deviation = actual[first : first + rows].to(torch.float64).sub_(part).abs_()
        shares = deviation / allowed
        at = int(shares.argmax())
        if (share := _value(shares, at)) > worst[0]:
            worst = (share, first * length + at, _value(deviation, at), _value(allowed, at))
    return _verdict(name, got, wanted, *worst[1:], rms)


def _farthest(other: torch.Tensor, wanted: torch.Tensor, finite: torch.Tensor) -> float:
    """Return the largest deviation where both are finite."""
    same = other.isfinite() & finite
    return float((other - wanted)[same].abs().max()) if bool(same.any()) else 0.0


def _at_the_limit(actual: torch.Tensor, wanted: torch.Tensor, allowed: torch.Tensor, largest: float) -> torch.Tensor:
    """Return where an output is infinite and the reference is not, or the reverse, for a value near the dtype's largest
    number: a deviation within the tolerance decides about the overflow there."""
    same_sign = (actual > 0) == (wanted > 0)
    overflowed = actual.isinf() & wanted.isfinite() & (wanted.abs() + allowed >= largest)
    held = actual.isfinite() & wanted.isfinite() & (wanted.abs() > largest) & ((actual - wanted).abs() <= allowed)
    return same_sign & (overflowed | held)


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


def _rms(values: torch.Tensor, least: float) -> float:
    """Return the RMS, or `least` if larger; 1 makes errors absolute if all are zero."""
    rms = max(float(values.square().mean().sqrt()), least) if values.numel() else least
    return rms if rms > 0 else 1.0


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
