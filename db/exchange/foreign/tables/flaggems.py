"""Bests as FlagGems' `tune_configs.yaml`: for each kernel, the configs that its autotuner chooses from.

FlagGems reads a list of `META` (the kernel's keyword arguments) with `num_warps`, `num_stages` and `num_ctas` beside
it, and times all of them for every new key. The file has no field for a shape, a time or a device. JSON objects are
valid YAML, so no YAML writer is needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tilewise.db.exchange.format import Format, Written
from tilewise.db.exchange.selection import Selection
from tilewise.db.records import Result, Value

__all__ = ["FLAGGEMS", "encode_flaggems"]

_BESIDE = ("num_warps", "num_stages", "num_ctas")


def encode_flaggems(results: Sequence[Result]) -> bytes:
    """Return each config that won for some shape, once, by kernel. Configs of several devices or dtypes get mixed."""
    configs: dict[str, list[str]] = {}
    for result in results:
        assert result.winner is not None, "every best has a winner"
        line = json.dumps(_entry(result.winner.config), allow_nan=False)
        known = configs.setdefault(result.scope.kernel, [])
        if line not in known:
            known.append(line)
    blocks = (
        f"{json.dumps(kernel)}:\n" + "".join(f"- {line}\n" for line in lines) for kernel, lines in configs.items()
    )
    return "".join(blocks).encode()


def _entry(config: Mapping[str, Value]) -> dict[str, Any]:
    meta = {name: value for name, value in config.items() if name not in _BESIDE}
    return {"META": meta} | {name: config[name] for name in _BESIDE if name in config}


def _write(selection: Selection) -> Written:
    results = selection.best_results()
    return Written.single(encode_flaggems(results), len(results))


FLAGGEMS = Format("flaggems", "bests as FlagGems' tune_configs.yaml", write=_write)
