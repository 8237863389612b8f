"""The simplest expression in named integers that gives recorded values.

A launch shows numbers: a grid of 385, a stride of 781. Several launches and configs show where they come from:
`ceil_div(n, BLOCK)`, `n_cols`. Candidates are tried from the simplest on, against every sample.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewise.kernels.inferred import next_power_of_two
from tilewise.kernels.spec import ceil_div

__all__ = ["Fit", "condition", "expression"]

_LEAST_NAMED = 16
"""Smallest constant value that an expression rather than the number itself may stand for, unless it is one name, and
smallest constant of which a multiple or a square may: small numbers equal a product or a quotient by chance."""

_MOST_SAMPLES = 48

_FEW = 2
"""Different values to which some product, capped by the larger one, is equal by chance."""

_LARGEST_FACTOR = 64
"""Largest constant factor of an expression."""

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
    """Return the quotient of a product of two sizes, such as all elements of a matrix, and parameters."""
    columns = {name: tuple(given[name] for given, _ in samples) for name in (*sizes, *blocks)}
    for one, other in itertools.combinations(sizes, 2):
        product = _product(columns[one], columns[other])
        for text, divisor, names in _divisors(columns, blocks):
            if all(divisor) and wanted == tuple(ceil_div(a, b) for a, b in zip(product, divisor, strict=True)):
                return Fit(f"ceil_div({one} * {other}, {text})", frozenset((one, other, *names)))
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
    """Yield terms, products of two names, multiples, products of two and three terms, and products capped by a
    constant."""
    if wanted in terms:
        yield terms[wanted]
    single = {vector: fit for vector, fit in terms.items() if any(value > 1 for value in vector)}
    telling = {vector: fit for vector, fit in single.items() if _is_telling(vector)}
    yield from _products_of_names(single, wanted)
    yield from _multiples(telling, wanted)
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


def _products_of_names(terms: Mapping[_Vector, Fit], wanted: _Vector) -> Iterator[Fit]:
    names = [(vector, fit) for vector, fit in terms.items() if fit.text in fit.names]
    for (one, first), (other, second) in itertools.combinations(names, 2):
        if _product(one, other) == wanted:
            yield Fit(f"{first.text} * {second.text}", first.names | second.names)


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
