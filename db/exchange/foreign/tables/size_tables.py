"""Tables of configs by size: one file for all sizes of a dimension, the rung, named after everything else.

So `E=8,N=14336,device_name=NVIDIA_H200.json` holds `{"1": {"BLOCK_SIZE_M": 16, ...}, ..., "4096": {...}}`. A reader
opens the file of exactly that name and takes the entry with the nearest size, however far away it is. A table with gaps
is therefore worse than none, and a table is written only if it has every rung of the ladder. The format has no field
for times, evidence or toolchain.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tilewise.db.exchange.file_name import file_name, plain, scope_fields
from tilewise.db.exchange.format import Written
from tilewise.db.exchange.launchable import OPTIONS, launch_of, refuse_choices
from tilewise.db.exchange.selection import Selection
from tilewise.db.records import Config, Result, Scope, Value
from tilewise.errors import NotFound, UsageError

__all__ = ["LADDER", "Layout", "Project", "encode_tables", "write_tables"]

LADDER = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
"""The sizes that the tuning scripts of vLLM and SGLang tune."""

_DTYPES = {"float16": "", "bfloat16": "", "float8_e4m3fn": "fp8_w8a8", "int8": "int8_w8a8"}
"""Words of a file's name for inputs that are not quantised by a flag; any other dtype has its own name."""

_QUANT = re.compile(r"(?P<name>\w+?)(?:_(?P<n>[0-9]+)x(?P<k>[0-9]+))?")
"""The flag `quant`: the name of a scheme, and the block that shares a scale, as in `fp8_w8a8_128x128`."""

_NOT_QUANTISED = "none"
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Layout:
    """The tables that one of a project's functions reads: of problems with these `dims`, by default under `template`.

    `blocks`: only of problems whose quantisation has blocks. `dtypes` are the texts that the reader may look for, where
    it knows only some. `arguments` are those of the function that it launches, `optional` those that a config may have
    beside them, and `fixed` those that it sets itself; without `arguments` they are unknown. `device` makes the text
    of a device's name.
    """

    dims: tuple[str, ...]
    template: str
    blocks: bool = False
    dtypes: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    fixed: Mapping[str, Value] = field(default_factory=dict)
    device: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True)
class Project:
    """A project that reads tables. The first of its `layouts` that suits a problem holds.

    `device` makes the text of a device's name, `block` that of a block from its two sizes. `dtypes` are names of
    quantisations that it writes otherwise.
    """

    name: str
    layouts: tuple[Layout, ...]
    device: Callable[[str], str]
    block: str
    dtypes: Mapping[str, str] = field(default_factory=dict)


def encode_tables(
    results: Sequence[Result], project: Project, rung: str, ladder: Sequence[int] = LADDER, template: str = ""
) -> dict[str, bytes]:
    """Return files by name with the bests of one kernel.

    Raises `NotFound`, naming the sizes, if a table lacks some; `UsageError` if a file's name does not tell two problems
    apart, or if the project's reader could not launch a config.
    """
    refuse_choices(results, f"a table of {project.name}")
    tables: dict[str, dict[int, Result]] = {}
    for result in results:
        name = _name(result.scope, project, rung, template)
        table = tables.setdefault(name, {})
        _require_alike(name, next(iter(table.values()), result).scope, result.scope, rung)
        table[result.scope.dims[rung]] = result
    for name, table in tables.items():
        if missing := [size for size in ladder if size not in table]:
            shown = ", ".join(map(str, missing[:_SHOWN])) + (", ..." if len(missing) > _SHOWN else "")
            raise NotFound(
                f"{name} would lack {rung}={shown}, for which its readers would take the nearest size; "
                "tune these too, or give the sizes that a table must have with --sizes"
            )
    configs = {name: _configs(name, table, project, rung, template) for name, table in tables.items()}
    _require_shared_rows(configs)
    return {name: _encode(table) for name, table in configs.items()}


def write_tables(project: Project, selection: Selection) -> Written:
    """Return the tables of a selection. Raises `NotFound` and `UsageError`."""
    kernels = sorted({scope.kernel for scope in selection.scopes})
    if len(kernels) > 1:
        raise UsageError(
            f"a table holds one kernel, but {len(kernels)} match: {', '.join(kernels)}; choose one with --kernel"
        )
    if any(selection.rung not in scope.dims for scope in selection.scopes):
        raise UsageError(
            f"{kernels[0]} has no dimension {selection.rung}; choose the dimension of the tables with --rung"
        )
    results = selection.best_results()
    files = encode_tables(results, project, selection.rung, selection.sizes or LADDER, selection.name)
    return Written(files, len(results))


# Names


def _layout(scope: Scope, project: Project, rung: str) -> Layout:
    dims = scope.dims.keys() - {rung}
    fits = (one for one in project.layouts if dims.issuperset(one.dims) and (not one.blocks or _blocks(scope)))
    return next(fits)


def _name(scope: Scope, project: Project, rung: str, template: str) -> str:
    layout = _layout(scope, project, rung)
    dtype = _dtype(scope, project)
    if not template and layout.dtypes and dtype not in ("", *layout.dtypes):
        raise UsageError(
            f"{project.name} looks for no table of {dtype}, but of 16-bit inputs and {', '.join(layout.dtypes)}; "
            "give the name of the files with --name"
        )
    block = project.block.format(*_blocks(scope)) if _blocks(scope) else ""
    device = (layout.device or project.device)(scope.device)
    fields = scope_fields(scope, rung) | {"dtype": plain(dtype), "block_shape": block, "device": plain(device)}
    if not template and "{triton}" in layout.template and not fields["triton"]:
        raise UsageError(
            f"{project.name} keeps tables by version of Triton; {scope.toolchain[:60]!r} does not give it, so "
            f"write it in --name, as in {layout.template.replace('{triton}', '3_6_0')}"
        )
    return file_name(template or layout.template, fields)


def _quant(scope: Scope) -> re.Match[str] | None:
    quant = scope.problem.flags.get("quant", _NOT_QUANTISED)
    return _QUANT.fullmatch(quant) if isinstance(quant, str) and quant != _NOT_QUANTISED else None


def _blocks(scope: Scope) -> tuple[int, ...]:
    quant = _quant(scope)
    return (int(quant["n"]), int(quant["k"])) if quant and quant["n"] else ()


def _dtype(scope: Scope, project: Project) -> str:
    quant = _quant(scope)
    text = quant["name"] if quant else _DTYPES.get(scope.dtype, scope.dtype)
    return project.dtypes.get(text, text)


def _require_alike(name: str, first: Scope, other: Scope, rung: str) -> None:
    """Raise `UsageError` if two problems of one file differ in more than the rung."""
    facts = [{"--device": one.device, "--dtype": one.dtype, **one.shape} for one in (first, other)]
    for fact in sorted({*facts[0], *facts[1]} - {rung}):
        here, there = (str(one.get(fact, "nothing")) for one in facts)
        if here != there:
            option = fact if fact.startswith("--") else "-s"
            raise UsageError(
                f"{name} would mix {fact.removeprefix('--')} {here} and {there}, which its name does not tell apart; "
                f"choose one with {option}, or add it to the name with --name"
            )


# Configs


def _configs(
    name: str, table: Mapping[int, Result], project: Project, rung: str, template: str
) -> dict[int, dict[str, Value]]:
    found = {}
    for size in sorted(table):
        winner, scope = table[size].winner, table[size].scope
        assert winner is not None, "every best has a winner"
        layout = _layout(scope, project, rung)
        if layout.arguments and not template:
            found[size] = _launched(f"{name}, {rung}={size}", winner.config, layout, project, _blocks(scope))
        else:
            arguments, options = launch_of(winner.config)
            found[size] = arguments | options
    return found


def _launched(
    place: str, config: Config, layout: Layout, project: Project, blocks: tuple[int, ...]
) -> dict[str, Value]:
    """Return the config as the project's function takes it. Raises `UsageError` if it would not launch it so."""
    arguments, options = launch_of(config)
    expected = ", ".join((*layout.arguments, *OPTIONS))
    if missing := [name for name in layout.arguments if name not in arguments]:
        raise UsageError(f"{place}: {project.name} needs {', '.join(missing)}; it takes {expected}")
    for name, value in layout.fixed.items():
        if arguments.pop(name, value) != value:
            raise UsageError(f"{place}: {project.name} always launches {name}={value}; tune with that value only")
    if unknown := [name for name in arguments if name not in layout.arguments + layout.optional]:
        raise UsageError(
            f"{place}: {project.name}'s kernel takes no {', '.join(unknown)}, but {expected}; "
            "for another reader, give the name of the files with --name"
        )
    step = arguments["BLOCK_SIZE_K"]
    if blocks and (not isinstance(step, int) or step < 1 or min(blocks) % step):
        raise UsageError(
            f"{place}: BLOCK_SIZE_K is {step}, which crosses the blocks of {blocks[0]}x{blocks[1]} that share a scale; "
            f"{project.name} would launch another config"
        )
    return arguments | options


def _require_shared_rows(tables: Mapping[str, Mapping[int, Mapping[str, Value]]]) -> None:
    """Raise `UsageError` if a table of second projections has another BLOCK_SIZE_M than that of the first.

    SGLang sorts the tokens once for both, and would change the second.
    """
    for name, down in tables.items():
        first = tables.get(name.replace("_down.json", ".json"), {}) if name.endswith("_down.json") else {}
        for size in sorted(first.keys() & down.keys()):
            here, there = (table[size].get("BLOCK_SIZE_M") for table in (first, down))
            if here != there:
                raise UsageError(
                    f"{name}: BLOCK_SIZE_M is {there} at {size}, but {here} for the first projection, which shares it; "
                    "tune the second with the first's BLOCK_SIZE_M"
                )


def _encode(table: Mapping[int, Mapping[str, Value]]) -> bytes:
    body = {str(size): dict(config) for size, config in table.items()}
    return (json.dumps(body, indent=4, ensure_ascii=False, allow_nan=False) + "\n").encode()
