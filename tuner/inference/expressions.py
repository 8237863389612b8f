"""The simplest expression in named integers that gives recorded values.

A launch shows numbers: a grid of 385, a stride of 781. Several launches and configs show where they come from:
`ceil_div(n, BLOCK)`, `n_cols`. Candidates are tried from the simplest on, against every sample.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewise.kernels.inferred import next_power_of_two
from tilewise.kernels.spec import ceil_div

__all__ = ["Fit", "by_thresholds", "condition", "expression", "quotient_by_number"]

_LEAST_NAMED = 16
"""Smallest constant value that an expression rather than the number itself may stand for, unless it is one name, and
smallest constant of which a multiple or a square may: small numbers equal a product or a quotient by chance."""

_MOST_SAMPLES = 48

_FEW = 2
"""Different values to which some product, capped by the larger one, is equal by chance."""

_LARGEST_FACTOR = 64
"""Largest constant factor of an expression."""

_FACTORS = (2, 4, 8, 16)
"""Numbers of blocks that a program may take beside one."""

_MOST_STEPS = 8
"""Thresholds in a size that a value may depend on."""

_MOST_SHIFT = 17
"""Shifts below this make the powers of two by which a size is divided, up to 65536."""

Samples = Sequence[tuple[Mapping[str, int], int]]
"""Named integers and the value that they are to give."""

_Vector = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fit:
    """An expression as Python text, which may call `ceil_div` and `next_power_of_two`, and the names in it."""

    text: str
    names: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.text

    def within(self, fits: Mapping[str, Fit]) -> Fit:
        """Return the expression with other expressions in place of some of its names."""
        used = sorted(self.names & fits.keys(), key=len, reverse=True)
        text = self.text
        for name in used:
            inner = fits[name].text
            text = re.sub(rf"\b{re.escape(name)}\b", f"({inner})" if " " in inner else inner, text)
        return Fit(text, (self.names - fits.keys()).union(*(fits[name].names for name in used)))

    def value(self, integers: Mapping[str, int]) -> int:
        """Return the value that the expression has with these names."""
        return int(eval(self.text, {"ceil_div": ceil_div, "next_power_of_two": next_power_of_two}, dict(integers)))


def expression(samples: Samples, sizes: Sequence[str], blocks: Sequence[str] = ()) -> Fit | None:
    """Return the simplest expression, or None if there is none.

    `sizes` name dimensions, and `blocks` the parameters that divide them, both present in every sample's integers. A
    value that never changes is a constant, unless a name equals it, or it is large and a product or quotient does.
    """
    samples = _spread(samples)
    wanted = tuple(value for _, value in samples)
    constant = len(set(wanted)) == 1
    terms = _terms(samples, sizes, blocks)
    if not constant or wanted[0] > 1:
        named = next((fit for vector, fit in terms.items() if vector == wanted and fit.text in fit.names), None)
        if named is not None and not (constant and named.text in blocks):
            return (constant and _quotient_of_changing(samples, wanted, sizes, blocks)) or named
    if constant and wanted[0] < _LEAST_NAMED:
        return Fit(str(wanted[0]))
    found = next(iter(_compound(terms, wanted)), None)
    if found is None and not constant:
        found = _quotient_of_products(samples, wanted, sizes, blocks)
    return found or (Fit(str(wanted[0])) if constant else None)


def _quotient_of_changing(samples: Samples, wanted: _Vector, sizes: Sequence[str], blocks: Sequence[str]) -> Fit | None:
    """Return the quotient of a size and a parameter that both change where their quotient does not."""
    for size, block in itertools.product(sizes, blocks):
        pairs = [(given[size], given[block]) for given, _ in samples]
        changes = all(len(set(column)) > 1 for column in zip(*pairs, strict=True))
        if changes and wanted == tuple(ceil_div(one, other) for one, other in pairs):
            return Fit(f"ceil_div({size}, {block})", frozenset((size, block)))
    return None


def _quotient_of_products(samples: Samples, wanted: _Vector, sizes: Sequence[str], blocks: Sequence[str]) -> Fit | None:
    """Return the quotient of a product of two or three sizes, such as all elements of a matrix, and parameters; or of
    one or two sizes and a few times the parameters, where a program takes several blocks."""
    columns = {name: tuple(given[name] for given, _ in samples) for name in (*sizes, *blocks)}
    divisors = list(_divisors(columns, blocks))
    several = [(f"{f} * {text}", tuple(f * v for v in column), n) for text, column, n in divisors for f in _FACTORS]
    for count, chosen in ((2, divisors), (3, divisors), (1, several), (2, several)):
        for factors in itertools.combinations_with_replacement(sizes, count):
            product = tuple(map(math.prod, zip(*(columns[name] for name in factors), strict=True)))
            for text, divisor, names in chosen:
                if all(divisor) and wanted == tuple(ceil_div(a, b) for a, b in zip(product, divisor, strict=True)):
                    return Fit(f"ceil_div({' * '.join(factors)}, {text})", frozenset((*factors, *names)))
    return None


def quotient_by_number(samples: Samples, sizes: Sequence[str]) -> Fit | None:
    """Return the quotient of a size and a power of two that gives values which change, or None."""
    wanted = tuple(value for _, value in samples)
    if len(set(wanted)) == 1:
        return None
    for size, number in itertools.product(sizes, (1 << shift for shift in range(1, _MOST_SHIFT))):
        if wanted == tuple(ceil_div(given[size], number) for given, _ in samples):
            return Fit(f"ceil_div({size}, {number})", frozenset((size,)))
    return None


def by_thresholds(samples: Samples, sizes: Sequence[str]) -> Fit | None:
    """Return the value that belongs to the range of a size in which a sample lies, or None if no size decides."""
    for size in sizes:
        known = sorted({(given[size], value) for given, value in samples})
        ranges = [known[0]]
        for number, value in known[1:]:
            ranges[-1:] = [(number, value)] if value == ranges[-1][1] else [ranges[-1], (number, value)]
        is_function = len({number for number, _ in known}) == len(known)
        if is_function and 1 < len(ranges) <= _MOST_STEPS:
            text = "".join(f"{value} if {size} <= {number} else " for number, value in ranges[:-1])
            return Fit(f"{text}{ranges[-1][1]}", frozenset((size,)))
    return None


def condition(samples: Samples, sizes: Sequence[str], blocks: Sequence[str]) -> Fit | None:
    """Return the simplest condition that gives recorded truth values, or None."""
    wanted = [bool(value) for _, value in samples]
    if len(set(wanted)) == 1:
        return Fit(str(wanted[0]))
    for size, block in itertools.product(sizes, blocks):
        names = frozenset((size, block))
        pairs = [(given[size], given[block]) for given, _ in samples]
        tests = {
            f"{size} % {block} == 0": [s % b == 0 for s, b in pairs],
            f"{size} <= {block}": [s <= b for s, b in pairs],
            f"{size} > {block}": [s > b for s, b in pairs],
            f"{size} % {block} != 0": [s % b != 0 for s, b in pairs],
        }
        for text, values in tests.items():
            if values == wanted:
                return Fit(text, names)
    return None


def _spread(samples: Samples) -> Samples:
    """Return at most `_MOST_SAMPLES`, evenly spread, each once."""
    once = list({(tuple(sorted(given.items())), value): (given, value) for given, value in samples}.values())
    return once[:: max(1, -(-len(once) // _MOST_SAMPLES))]


def _terms(samples: Samples, sizes: Sequence[str], blocks: Sequence[str]) -> dict[_Vector, Fit]:
    """Return names and quotients by the values that they take, each value's simplest term first."""
    columns = {name: tuple(given[name] for given, _ in samples) for name in (*sizes, *blocks)}
    found: dict[_Vector, Fit] = {}
    for name, column in columns.items():
        found.setdefault(column, Fit(name, frozenset((name,))))
    for text, divisor, names in _divisors(columns, blocks):
        if not all(divisor):
            continue
        for size in (*sizes, *(block for block in blocks if block not in names)):
            quotient = tuple(ceil_div(a, b) for a, b in zip(columns[size], divisor, strict=True))
            found.setdefault(quotient, Fit(f"ceil_div({size}, {text})", frozenset((size, *names))))
    for size in sizes:
        rounded = tuple(next_power_of_two(value) for value in columns[size])
        found.setdefault(rounded, Fit(f"next_power_of_two({size})", frozenset((size,))))
    return found


def _divisors(columns: Mapping[str, _Vector], blocks: Sequence[str]) -> Iterator[tuple[str, _Vector, tuple[str, ...]]]:
    """Yield what may divide a size: parameters, and products of two."""
    for name in blocks:
        yield name, columns[name], (name,)
    for one, other in itertools.combinations(blocks, 2):
        yield f"{one} * {other}", _product(columns[one], columns[other]), (one, other)


def _compound(terms: Mapping[_Vector, Fit], wanted: _Vector) -> Iterator[Fit]:
    """Yield terms, products of two names, multiples, products of three names, of two and three terms, and products
    capped by a constant."""
    if wanted in terms:
        yield terms[wanted]
    single = {vector: fit for vector, fit in terms.items() if any(value > 1 for value in vector)}
    telling = {vector: fit for vector, fit in single.items() if _is_telling(vector)}
    yield from _products_of_names(single, wanted, 2)
    yield from _multiples(telling, wanted)
    yield from _products_of_names(single, wanted, 3)
    pairs: dict[_Vector, Fit] = {}
    telling_pairs: dict[_Vector, Fit] = {}
    for (one, first), (other, second) in itertools.combinations_with_replacement(single.items(), 2):
        both = Fit(f"{first.text} * {second.text}", first.names | second.names)
        if one in telling and other in telling:
            telling_pairs.setdefault(_product(one, other), both)
        if one in telling or not first.names & second.names:
            pairs.setdefault(_product(one, other), both)
    if wanted in pairs:
        yield pairs[wanted]
    for vector, fit in telling.items():
        rest = _quotient(wanted, vector)
        if rest is not None and rest in pairs:
            yield Fit(f"{fit.text} * {pairs[rest].text}", fit.names | pairs[rest].names)
    yield from _multiples(telling_pairs, wanted)
    most = max(wanted)
    capped = [*single.items(), *(pairs.items() if len(set(wanted)) > _FEW else ())]
    for vector, fit in capped:
        if len(set(wanted)) > 1 and wanted == tuple(min(value, most) for value in vector):
            yield Fit(f"min({fit.text}, {most})", fit.names)


def _products_of_names(terms: Mapping[_Vector, Fit], wanted: _Vector, count: int) -> Iterator[Fit]:
    names = [(vector, fit) for vector, fit in terms.items() if fit.text in fit.names]
    for chosen in itertools.combinations(names, count):
        if tuple(map(math.prod, zip(*(vector for vector, _ in chosen), strict=True))) == wanted:
            yield Fit(" * ".join(fit.text for _, fit in chosen), frozenset().union(*(fit.names for _, fit in chosen)))


def _is_telling(vector: _Vector) -> bool:
    """Return whether an equal number is hardly chance: it changes between samples, or is large."""
    return len(set(vector)) > 1 or vector[0] >= _LEAST_NAMED


def _multiples(terms: Mapping[_Vector, Fit], wanted: _Vector) -> Iterator[Fit]:
    for vector, fit in terms.items():
        if (factor := _factor(vector, wanted)) is not None:
            yield Fit(f"{factor} * {fit.text}", fit.names)


def _product(one: _Vector, other: _Vector) -> _Vector:
    return tuple(a * b for a, b in zip(one, other, strict=True))


def _factor(vector: _Vector, wanted: _Vector) -> int | None:
    quotient = _quotient(wanted, vector)
    same = quotient is not None and len(set(quotient)) == 1 and 1 < quotient[0] <= _LARGEST_FACTOR
    return quotient[0] if same and quotient is not None else None


def _quotient(wanted: _Vector, vector: _Vector) -> _Vector | None:
    if any(not b or a % b for a, b in zip(wanted, vector, strict=True)):
        return None
    return tuple(a // b for a, b in zip(wanted, vector, strict=True))
