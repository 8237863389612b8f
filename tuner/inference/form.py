"""The form of a kernel's launches: which of its integers are dimensions, and what follows from them."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tilewise.db.records import ITEM_BYTES, Config, Flags, Problem, Value
from tilewise.errors import BadSpec
from tilewise.kernels.inferred import packed
from tilewise.kernels.spec import WORD
from tilewise.tuner.capture.calls import Call, CapturedKernel, TensorArgument, TritonDtype
from tilewise.tuner.inference.expressions import Fit, by_thresholds, condition, expression, quotient_by_number

__all__ = ["BufferForm", "Form", "find_form"]


@dataclass(frozen=True, slots=True)
class BufferForm:
    """A tensor: the expressions of its sizes in memory order, its dtype (None: the problem's), and its draw as text."""

    sizes: tuple[Fit, ...]
    dtype: str | None
    draw: str = ""


@dataclass
class Form:
    """All that the launches say. `fits` are the integers that are passed, `fixed` other constants as Python text.

    `nesting` is the function's name behind those of the functions around it.
    `blocks` are the parameters with their values, in the order of the kernel's arguments, and `options` those among
    them that are compile options. `imported` are names that the kernel's file lacks. `recorded` holds the configs of
    each of the `problems`.
    """

    name: str
    calls: list[Call]
    nesting: str = ""
    dims: list[str] = field(default_factory=list)
    buffers: dict[str, BufferForm] = field(default_factory=dict)
    fits: dict[str, Fit] = field(default_factory=dict)
    fixed: dict[str, str] = field(default_factory=dict)
    flags: dict[str, list[bool | str]] = field(default_factory=dict)
    computed: dict[str, Fit] = field(default_factory=dict)
    configs: list[Config] = field(default_factory=list)
    options: frozenset[str] = frozenset()
    imported: Mapping[str, str] = field(default_factory=dict)
    constants: frozenset[str] = frozenset()
    grid: list[Fit] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    recorded: list[list[Config]] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.nesting = self.nesting or self.name

    @property
    def blocks(self) -> list[str]:
        """The whole-number parameters, in which expressions may be written."""
        return [n for n in self.parameters if n not in self.options and _is_whole(self.configs[0].get(n))]

    @property
    def parameters(self) -> list[str]:
        return list(dict.fromkeys(name for config in self.configs for name in config))

    def integers(self, problem: Problem, config: Config) -> dict[str, int]:
        """Return the dims and the whole-number parameters of a sample."""
        return {**problem.dims, **{name: int(config[name]) for name in self.blocks}}


class _Unexplained(BadSpec):
    """A size, a constant or a grid follows from nothing that is known."""


def find_form(kernel: CapturedKernel) -> Form:
    """Find the form of a kernel's launches. Raises `BadSpec` with one line that says what is missing.

    A constant tile size that equals a dimension may be one or the other: where the grid does not follow with the
    dimension, it is a tile size. Where nothing else does, a plain number divides a dimension. Launches that no form
    explains together leave the first one, alone.
    """
    try:
        return _form(kernel, ())
    except _Unexplained as error:
        tiles = _constant_tiles(kernel)
        for chosen in itertools.chain.from_iterable(itertools.combinations(tiles, n + 1) for n in range(len(tiles))):
            with suppress(_Unexplained):
                return _form(kernel, chosen)
        with suppress(_Unexplained):
            return _form(kernel, (), numbers=True)
        if len(kernel.calls) == 1:
            raise
        try:
            form = _form(replace(kernel, calls=kernel.calls[:1], counts=kernel.counts[:1]), ())
        except _Unexplained:
            raise error from None
        form.notes.append(f"Only the first launch is read, because, in all of them, {error}")
        return form


_MOST_TILES = 4


def _constant_tiles(kernel: CapturedKernel) -> list[str]:
    """Return constants with the names and values of tile sizes that are the same in every launch."""
    columns = {name: {repr(call.arguments.get(name)) for call in kernel.calls} for name in sorted(kernel.constants)}
    same = [name for name, values in columns.items() if _TILE_NAME.search(name) and len(values) == 1]
    return [name for name in same if _is_whole(v := kernel.calls[0].arguments.get(name)) and _is_tile(v, name)][  # type: ignore[arg-type]
        :_MOST_TILES
    ]


def _form(kernel: CapturedKernel, tiles: Sequence[str], *, numbers: bool = False) -> Form:
    """Find the form in which these constants are tile sizes, whatever they equal. `numbers`: dimensions may be divided
    by plain numbers."""
    if kernel.obstacles or not kernel.calls:
        why = "; ".join((*kernel.obstacles, *kernel.left_out)) or "it was never launched"
        raise BadSpec(f"no spec can be inferred for {kernel.name}: {why}")
    form = Form(kernel.name, _alike(kernel.calls), kernel.nesting)
    if unknown := [f"{name} is {t.dtype}" for name, t in form.calls[0].tensors.items() if t.dtype not in ITEM_BYTES]:
        raise BadSpec(
            f"no spec can be inferred for {kernel.name}: {', '.join(unknown)}; a spec takes {', '.join(ITEM_BYTES)}"
        )
    left = len(kernel.calls) - len(form.calls)
    if left:
        form.notes.append(f"{left} different launches with other optional arguments are left out")
    main = _main_dtype(form.calls[0])
    columns = {name: [call.arguments[name] for call in form.calls] for name in form.calls[0].arguments}
    whole = {n: [int(v) for v in values] for n, values in columns.items() if all(map(_is_whole, values))}  # type: ignore[arg-type]
    tensors = {n: [v for v in values if isinstance(v, TensorArgument)] for n, values in columns.items()}
    layouts = {name: _layout(found, whole) for name, found in tensors.items() if found}
    names = _name_dims(layouts, whole, len(form.calls))
    form.dims = list(names.values())
    sizes = [{dim: column[i] for column, dim in names.items()} for i in range(len(form.calls))]
    for name, axes in layouts.items():
        fits = tuple(_required(name, _samples(sizes, axis), form.dims) for axis in axes)
        first = tensors[name][0]
        form.buffers[name] = BufferForm(fits, None if first.dtype == main else first.dtype, _draw(tensors[name]))
    tuned = _tuned_constants(kernel, whole, sizes, form.dims, tiles)
    _sort_others(form, columns, whole, sizes, tuned, kernel.constants)
    _note_tied_tiles(form, kernel.constants)
    form.options, form.constants, form.imported = kernel.options, kernel.constants, kernel.imported
    form.configs = _configs(form.calls, tuned, kernel)
    dtypes = [_main_dtype(call) for call in form.calls]
    form.dtypes = list(dict.fromkeys(dtypes))
    for size, dtype, call in zip(sizes, dtypes, form.calls, strict=True):
        form.problems.append(Problem(kernel.name, size, dtype, _flags(form, call)))
    _fit_launches(form, tuned, numbers=numbers)
    return form


def _alike(calls: Sequence[Call]) -> list[Call]:
    """Return the calls of the most frequent kind: the same arguments are tensors, and of the same dtypes."""
    kinds = [tuple((name, _kind(call, value)) for name, value in call.arguments.items()) for call in calls]
    chosen = Counter(kinds).most_common(1)[0][0]
    return [call for call, kind in zip(calls, kinds, strict=True) if kind == chosen]


def _kind(call: Call, value: object) -> object:
    if isinstance(value, TensorArgument):
        return len(value.shape), "" if value.dtype == _main_dtype(call) else value.dtype
    if isinstance(value, TritonDtype):
        return value.text
    if isinstance(value, str) and not WORD.fullmatch(value):
        return repr(value)  # no flag can have this value
    return "flag" if isinstance(value, (bool, str)) else type(value).__name__


def _main_dtype(call: Call) -> str:
    """Return the dtype of the problem: that of most floating-point tensors, of most tensors if there is none."""
    dtypes = [tensor.dtype for tensor in call.tensors.values()]
    floats = [dtype for dtype in dtypes if "float" in dtype]
    if not dtypes:
        raise BadSpec("no spec can be inferred for a kernel without tensors")
    return Counter(floats or dtypes).most_common(1)[0][0]


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _layout(tensors: Sequence[TensorArgument], whole: Mapping[str, list[int]]) -> list[list[int]]:
    """Return the sizes of each axis in memory order, one number per call.

    A kernel gets a pointer and strides: for it, a permuted tensor is as good as one in the order of memory, and one
    with gaps as good as all its memory. It is one axis if its length is an argument, and its own sizes are not.
    """
    flat = [tensor.span for tensor in tensors]
    orders = {tuple(sorted(range(len(t.shape)), key=lambda axis, t=t: -t.strides[axis])) for t in tensors}  # type: ignore[misc]
    if not all(tensor.is_dense for tensor in tensors) or len(orders) != 1:
        return [flat]
    axes = [[tensor.shape[axis] for tensor in tensors] for axis in next(iter(orders))]
    axes = [axis for axis in axes if any(size > 1 for size in axis)]
    if flat in whole.values() and not any(axis in whole.values() for axis in axes):
        return [flat]
    return axes or [flat]


def _name_dims(
    layouts: Mapping[str, Sequence[Sequence[int]]], whole: Mapping[str, Sequence[int]], calls: int
) -> dict[tuple[int, ...], str]:
    """Return the dimensions' names by their sizes in every call: integers that equal extents in all of them.

    Equal integers are one dimension. Extents that no argument gives are called D0, D1, .. unless they never change.
    """
    found: dict[tuple[int, ...], str] = {}
    columns = [tuple(axis) for axes in layouts.values() for axis in axes]
    by_column: dict[tuple[int, ...], str] = {}
    for name in sorted(whole, key=lambda name: "stride" in name.lower()):
        if not _TILE_NAME.search(name):
            by_column.setdefault(tuple(whole[name]), name)
    for column in columns:
        if column in by_column and any(size > 1 for size in column):
            found.setdefault(column, by_column[column])
    needed = _needed(columns, whole, found)
    unnamed = 0
    for column in columns:
        is_fixed = calls > 1 and len(set(column)) == 1 and column not in needed
        is_known = column in found or all(size == 1 for size in column) or is_fixed
        named = [{name: known[index] for known, name in found.items()} for index in range(calls)]
        if is_known or (found and _follows(column, named, list(found.values()))):
            continue
        found[column] = f"D{unnamed}"
        unnamed += 1
    order = {name: index for index, name in enumerate(whole)}
    return dict(sorted(found.items(), key=lambda item: order.get(item[1], len(order))))


def _needed(
    columns: Sequence[tuple[int, ...]], whole: Mapping[str, Sequence[int]], named: Mapping[tuple[int, ...], str]
) -> set[tuple[int, ...]]:
    """Return the extents that never change and by which a dimension becomes another integer: 512 rows of `n` elements
    are `n_elements`."""
    fixed = {column for column in columns if len(set(column)) == 1 and column[0] > 1}
    others = [tuple(values) for values in whole.values() if len(set(values)) > 1 and tuple(values) not in named]
    return {
        column
        for column, values in itertools.product(fixed, others)
        if tuple(value / column[0] for value in values) in named
    }


_TILE_NAME = re.compile(r"block|tile|^B[A-Z]{1,2}$", re.IGNORECASE)
"""Names of constants that are no dimensions, even where they equal an extent."""


def _follows(column: Sequence[int], sizes: Sequence[Mapping[str, int]], dims: Sequence[str]) -> bool:
    fit = expression(_samples(sizes, column), dims)
    return fit is not None and bool(fit.names)


def _samples(sizes: Sequence[Mapping[str, int]], column: Sequence[int]) -> list[tuple[Mapping[str, int], int]]:
    return list(zip(sizes, column, strict=True))


def _required(name: str, samples: list[tuple[Mapping[str, int], int]], dims: Sequence[str]) -> Fit:
    fit = expression(samples, dims)
    if fit is None:
        raise _Unexplained(f"the size of {name} does not follow from {', '.join(dims)}; capture one shape at a time")
    return fit


_LONGEST_VALUES, _LONGEST_PACKED = 1000, 1 << 15
"""Characters of recorded values in a spec, as they are and packed."""


def _draw(tensors: Sequence[TensorArgument]) -> str:
    """Return the text of a `draw` for integers, whose recorded values or bounds count."""
    first = tensors[0]
    if first.values is not None and len({tensor.values for tensor in tensors}) == 1:
        told = ", ".join(map(str, first.values))
        if len(told) <= _LONGEST_VALUES:
            return f"exactly({told})"
        if len(text := packed(first.values)) <= _LONGEST_PACKED:
            return f'exactly(*unpacked("{text}"))'
    bounds = [(t.low, t.high) for t in tensors if t.low is not None and t.high is not None]
    if not bounds:
        return ""
    return f"between({max(low for low, _ in bounds)}, {min(high for _, high in bounds)})"


def _tuned_constants(
    kernel: CapturedKernel,
    whole: Mapping[str, Sequence[int]],
    sizes: Sequence[Mapping[str, int]],
    dims: Sequence[str],
    tiles: Sequence[str],
) -> dict[str, list[int]]:
    """Return the constants that a program sets itself and that no dimension explains: tile sizes, by call.

    A product of dimensions does not explain one that never changes, and nothing explains `tiles`.
    """
    found = {}
    for name in kernel.parameters:
        column = whole.get(name)
        if name not in kernel.constants or column is None or not all(_is_tile(value, name) for value in column):
            continue
        fit = expression(_samples(sizes, column), dims)
        by_chance = fit is not None and len(set(column)) == 1 and " * " in fit.text
        if name in tiles or by_chance or fit is None or not fit.names:
            found[name] = list(column)
    return found


def _is_tile(value: int, name: str = "") -> bool:
    least = 2 if _TILE_NAME.search(name) else 16
    return value >= least and value & (value - 1) == 0


_NO_SIZE = 1 << 31
"""Numbers from here on, and those below 1, are no sizes: seeds, and offsets into a stream of random numbers."""


def _sort_others(
    form: Form,
    columns: Mapping[str, Sequence[object]],
    whole: Mapping[str, Sequence[int]],
    sizes: list[dict[str, int]],
    tuned: Mapping[str, object],
    constants: frozenset[str],
) -> None:
    """Sort what is neither tensor nor tuned into expressions, flags and constants."""
    for name, values in columns.items():
        if name in form.buffers or name in tuned:
            continue
        column = whole.get(name, ())
        if name in whole and (len(set(column)) == 1 or all(0 < number < _NO_SIZE for number in column)):
            fit = expression(_samples(sizes, column), form.dims)
            if fit is not None and fit.text in form.dims and name in constants and all(map(_is_tile, column)):
                fit = fit if name in form.dims else Fit(f"next_power_of_two({fit.text})", fit.names)
            if fit is None:
                form.dims.append(name)
                for size, number in zip(sizes, column, strict=True):
                    size[name] = number
                fit = Fit(name, frozenset((name,)))
            form.fits[name] = fit
        elif len(set(values)) > 1 and all(isinstance(value, (bool, str)) for value in values):
            form.flags[name] = list(dict.fromkeys(values))  # type: ignore[arg-type]
        else:
            value = values[0]
            form.fixed[name] = value.text if isinstance(value, TritonDtype) else _text(value)
            if len(set(values)) > 1:
                form.notes.append(f"{name} is {value} in the spec, although launches differ in it")


def _note_tied_tiles(form: Form, constants: frozenset[str]) -> None:
    """Note the constants with names of tile sizes that equal a dimension in the only launch."""
    tied = [name for name in form.fits if name in constants and _TILE_NAME.search(name) and form.fits[name].names]
    if len(form.calls) == 1 and tied:
        equal = ", ".join(f"{name} = {form.fits[name]}" for name in tied)
        form.notes.append(f"Not tuned, as the only launch has {equal}; capture another size to tell if that is chance")


def _text(value: object) -> str:
    """Return a value as Python text, infinity and NaN too."""
    return f'float("{value}")' if isinstance(value, float) and not math.isfinite(value) else repr(value)


def _flags(form: Form, call: Call) -> Flags:
    return {n: v for n, values in form.flags.items() if (v := call.arguments[n]) != values[0]}  # type: ignore[misc]


def _configs(calls: Sequence[Call], tuned: Mapping[str, Sequence[int]], kernel: CapturedKernel) -> list[Config]:
    """Return every config once, with the constants that the program sets itself."""
    found: list[Config] = []
    for index, call in enumerate(calls):
        for config in call.configs:
            whole: dict[str, Value] = {name: column[index] for name, column in tuned.items()}
            whole |= config
            if whole not in found:
                found.append(whole)
    names = {name for config in found for name in config}
    return [config for config in found if config.keys() == names]


def _fit_launches(form: Form, tuned: Mapping[str, Sequence[int]], *, numbers: bool) -> None:
    """Find the grid and the computed constants as expressions of dims and parameters."""
    samples = []
    for index, (problem, call) in enumerate(zip(form.problems, form.calls, strict=True)):
        form.recorded.append([])
        for number, config in enumerate(call.configs):
            whole = {**{name: column[index] for name, column in tuned.items()}, **config}
            if whole in form.configs:
                form.recorded[-1].append(whole)
                samples.append((form.integers(problem, whole), call.grids[number], call.computed[number]))
    lengths = {len(grid) for _, grid, _ in samples}
    if len(lengths) != 1:
        raise BadSpec(f"the grid of {form.name} has {' or '.join(map(str, sorted(lengths)))} axes; capture one alone")
    for name in samples[0][2]:
        values = [computed[name] for _, _, computed in samples]
        form.computed[name] = _computed(form, name, [given for given, _, _ in samples], values, numbers=numbers)
    for axis in range(lengths.pop()):
        along = [(given, grid[axis], computed) for given, grid, computed in samples]
        fit = _grid_axis(form, along, numbers=numbers)
        if fit is None:
            raise _Unexplained(
                f"the grid of {form.name} does not follow from {', '.join((*form.dims, *form.blocks))}; "
                "write the spec's grid by hand: tilewise spec shows how"
            )
        form.grid.append(fit)


def _grid_axis(
    form: Form, samples: Sequence[tuple[Mapping[str, int], int, Mapping[str, Value]]], *, numbers: bool
) -> Fit | None:
    """Return the number of programs as an expression of dims and parameters, or of constants from heuristics too.

    Programs that go from tile to tile are told their number, which problems of different sizes share.
    """
    plain = [(given, size) for given, size, _ in samples]
    told = {*form.fixed.values(), *(fit.text for fit in form.fits.values())}
    if len({size for _, size in plain}) == 1 and str(plain[0][1]) in told and len(form.problems) > 1:
        return Fit(str(plain[0][1]))
    if (fit := expression(plain, form.dims, form.blocks)) is not None:
        return fit
    chosen = [name for name in form.computed if all(_is_whole(known[name]) for _, _, known in samples)]
    known = [({**given, **{name: int(computed[name]) for name in chosen}}, size) for given, size, computed in samples]
    fit = expression(known, form.dims, [*form.blocks, *chosen])
    if fit is not None:
        return fit.within(form.computed)
    return quotient_by_number(plain, form.dims) if numbers else None


def _alike_named(one: str, other: str) -> bool:
    """Return whether names end in the same word: EVEN_K, BLOCK_K and K do."""
    return one.rpartition("_")[2].lower() == other.rpartition("_")[2].lower()


def _computed(
    form: Form, name: str, given: Sequence[Mapping[str, int]], values: Sequence[Value], *, numbers: bool
) -> Fit:
    fit = None
    if all(isinstance(value, bool) for value in values):
        sizes, blocks = (sorted(names, key=lambda n: not _alike_named(name, n)) for names in (form.dims, form.blocks))
        fit = condition([(g, int(v)) for g, v in zip(given, values, strict=True)], sizes, blocks)
    elif all(_is_whole(value) for value in values):
        samples = [(g, int(v)) for g, v in zip(given, values, strict=True)]
        fit = expression(samples, form.dims, form.blocks)
        if fit is None and numbers:
            fit = quotient_by_number(samples, form.dims) or by_thresholds(samples, form.dims)
    elif len(set(values)) == 1:
        fit = Fit(_text(values[0]))
    if fit is None:
        raise _Unexplained(
            f"{name} of {form.name}, which triton.heuristics computes, does not follow from its dimensions"
        )
    return fit
