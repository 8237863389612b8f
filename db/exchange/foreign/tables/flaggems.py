"""Bests as FlagGems' `tune_configs.yaml`: for each operation, the configs that its autotuner chooses from.

FlagGems reads a list of `META` (the kernel's keyword arguments) with `num_warps`, `num_stages` and `num_ctas` beside
it, and times all of them for every new key. The file has no field for a shape, a time or a device. JSON objects are
valid YAML, so no YAML writer is needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tilewise.db.exchange.file_name import file_name, scope_fields
from tilewise.db.exchange.foreign.tables.flaggems_operations import PARAMETERS
from tilewise.db.exchange.format import Format, Written
from tilewise.db.exchange.launchable import DEFAULTS, launch_of, refuse_choices
from tilewise.db.exchange.selection import Selection
from tilewise.db.records import Config, Result, Value
from tilewise.errors import UsageError

__all__ = ["FLAGGEMS", "encode_flaggems"]

_BESIDE = ("num_warps", "num_stages", "num_ctas")
_COMPILE_OPTIONS = ("maxnreg", "multibuffer")
"""Options that Triton takes among a kernel's keyword arguments."""

_PREFIX = re.compile(r"^(?:BLOCK_SIZE|BLOCK|TILE)_|^(GROUP)_SIZE_")


def encode_flaggems(results: Sequence[Result], operation: str = "{kernel}") -> bytes:
    """Return each config that won for some shape, once, by operation. Configs of several devices or dtypes get mixed.

    `operation` is the template of an operation's name. Raises `UsageError` for a config that FlagGems could not launch.
    """
    refuse_choices(results, "FlagGems")
    configs: dict[str, list[str]] = {}
    for result in results:
        assert result.winner is not None, "every best has a winner"
        name = file_name(operation, scope_fields(result.scope, rung=""))
        line = json.dumps(_entry(name, result.winner.config), allow_nan=False)
        known = configs.setdefault(name, [])
        if line not in known:
            known.append(line)
    blocks = (f"{json.dumps(name)}:\n" + "".join(f"- {line}\n" for line in lines) for name, lines in configs.items())
    return "".join(blocks).encode()


def _entry(operation: str, config: Config) -> dict[str, Any]:
    arguments, options = launch_of(config)
    beside = {**DEFAULTS, **{name: value for name, value in options.items() if name in _BESIDE}}
    rest = {name: value for name, value in options.items() if name not in _BESIDE}
    return {"META": _renamed(operation, arguments) | rest} | beside


def _renamed(operation: str, arguments: Mapping[str, Value]) -> dict[str, Value]:
    """Return the arguments under the names that the operation has for them, if it is one of FlagGems' own.

    `BLOCK_SIZE_M`, `BLOCK_M` and `TILE_M` are names of one thing.
    """
    if operation not in PARAMETERS:
        return dict(arguments)
    extra = {name: value for name, value in arguments.items() if name in _COMPILE_OPTIONS}
    ours = {_common(name): value for name, value in arguments.items() if name not in _COMPILE_OPTIONS}
    for parameters in PARAMETERS[operation]:
        if {_common(name) for name in parameters} == ours.keys():
            return {name: ours[_common(name)] for name in parameters} | extra
    takes = " or ".join(", ".join(names) or "no parameters" for names in PARAMETERS[operation])
    raise UsageError(
        f"FlagGems' {operation} takes {takes}, not {', '.join(arguments)}; "
        "give the operation that these configs are for with --name"
    )


def _common(name: str) -> str:
    return _PREFIX.sub(lambda match: f"{match[1]}_" if match[1] else "TILE_", name)


def _write(selection: Selection) -> Written:
    results = selection.best_results()
    return Written.single(encode_flaggems(results, selection.name or "{kernel}"), len(results))


FLAGGEMS = Format("flaggems", "bests as FlagGems' tune_configs.yaml", write=_write)
