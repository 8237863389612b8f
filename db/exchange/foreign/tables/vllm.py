"""Tables of configs by size, as vLLM and SGLang store them.

A file covers one dimension; its name gives everything else. So
`N=8192,device_name=NVIDIA_H200,dtype=float32.json` holds `{"1": {"BLOCK_SIZE_M": 16, ...}, ..., "4096": {...}}`. A
reader takes the entry with the nearest size, however far away it is. A table with gaps is therefore worse than none,
and a table is written only if it has every rung of the ladder. The format has no field for times, evidence or
toolchain.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from tilewise.db.exchange.format import Format, Written
from tilewise.db.exchange.import_file import About, ImportFile, Refusal
from tilewise.db.exchange.jsonfile import one_line, parse, text_of
from tilewise.db.exchange.selection import Selection
from tilewise.db.exchange.typed import Config, Object, typed
from tilewise.db.records import Problem, Result, Shape, Suggestion
from tilewise.errors import BadImport, NotFound, UsageError

__all__ = ["LADDER", "VLLM", "encode_tables", "read_table"]

LADDER = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
"""The sizes that vLLM's own tuning script tunes."""

_NOT_CONFIGS = ("triton_version",)
_SHOWN = 6


def encode_tables(results: Sequence[Result], rung: str, ladder: Sequence[int] = LADDER) -> dict[str, bytes]:
    """Return files by name with the bests of one kernel. Raises `NotFound`, naming the sizes, if a table lacks some."""
    tables: dict[str, dict[int, Result]] = {}
    for result in results:
        tables.setdefault(_file_name(result, rung), {})[result.scope.dims[rung]] = result
    for name, table in tables.items():
        if missing := [size for size in ladder if size not in table]:
            shown = ", ".join(map(str, missing[:_SHOWN])) + (", ..." if len(missing) > _SHOWN else "")
            raise NotFound(
                f"{name} would lack {rung}={shown}, for which its readers would take the nearest size; "
                "tune these too, or give the sizes that a table must have with --sizes"
            )
    return {name: _encode(table) for name, table in tables.items()}


def _file_name(result: Result, rung: str) -> str:
    scope = result.scope
    others = [f"{name}={size}" for name, size in scope.dims.items() if name != rung]
    device = re.sub(r"[\s/]+", "_", scope.device)
    name = ",".join([*others, f"device_name={device}", f"dtype={scope.dtype}"])
    return re.sub(r"[^\w=,.()\[\]+-]+", "_", name) + ".json"


def _encode(table: Mapping[int, Result]) -> bytes:
    winners = {size: table[size].winner for size in sorted(table)}
    body = {str(size): dict(winner.config) for size, winner in winners.items() if winner is not None}
    return (json.dumps(body, indent=4, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_table(data: bytes, name: str, about: About) -> ImportFile:
    """Read a table as suggestions, since it shows neither that its configs are fast nor that they are correct.

    The dtype and device in the file's name take precedence over `about`, the dims of `about` over those in the name.
    Raises `BadImport`.
    """
    try:
        document = typed(parse(text_of(data)), Object)
        named = _read_name(name)
        kernel, dtype = about.kernel, named.pop("dtype", about.dtype)
        device = named.pop("device_name", "").replace("_", " ") or about.device
        dims: Shape = {**{dim: int(text) for dim, text in named.items() if text.isdecimal()}, **about.dims}
        if missing := [o for o, v in {"--kernel": kernel, "--dtype": dtype, "--device": device}.items() if not v]:
            raise ValueError(f"neither the file nor its name identifies its problems; give {', '.join(missing)}")
    except (ValueError, RecursionError) as error:
        raise BadImport(f"not a usable table of configs: {one_line(error)}") from error
    suggestions, refusals = [], []
    for size, config in document.items():
        if size in _NOT_CONFIGS:
            continue
        try:
            shape = {**dims, about.rung: _rung(size)}
            suggestions.append(
                Suggestion(Problem.of(kernel, shape, dtype), device, typed(config, Config), f"table {name}")
            )
        except ValueError as error:
            refusals.append(Refusal(f"size {size[:20]}", one_line(error)))
    return ImportFile(suggestions=tuple(suggestions), refusals=tuple(refusals))


def _read_name(name: str) -> dict[str, str]:
    """Split `E=8,N=14336,device_name=NVIDIA_H200,dtype=fp8_w8a8.json` by name, ignoring parts without a value."""
    parts = re.split(r",(?![^\[]*\])", name.removesuffix(".json"))
    return {key: value for key, equals, value in (part.partition("=") for part in parts) if equals}


def _rung(text: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", text) or int(text) < 1:
        raise ValueError(f"its size is {text[:20]!r}; expected a whole number of 1 or more")
    return int(text)


def _write(selection: Selection) -> Written:
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
    return Written(encode_tables(results, selection.rung, selection.sizes or LADDER), len(results))


VLLM = Format(
    "vllm",
    "bests of one kernel as tables for vLLM and SGLang, in a folder",
    write=_write,
    read=lambda data, name, about, written: read_table(data, name, about),
    mark=r'^\s*\{\s*"([0-9]+|triton_version)"\s*:',
)
