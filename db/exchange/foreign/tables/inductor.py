"""Bests of matrix products as a lookup table of `torch.compile` (`torch._inductor.lookup_table` of torch 2.13).

A table holds the configs of inductor's own templates, by a key of device, inputs and operation. Where a key matches,
inductor launches these configs and times no others. The template `triton::mm` has one tile per program, with the
parameters that `gemm` has without parts of K and without descriptors; its code is another kernel's all the same, so
times differ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tilewise.db.exchange.format import Format, Written
from tilewise.db.exchange.launchable import DEFAULTS
from tilewise.db.exchange.selection import Selection
from tilewise.db.records import Config, Problem, Scope, Status, Trial
from tilewise.errors import NotFound, UsageError

__all__ = ["INDUCTOR"]

_TEMPLATE, _OPERATION = "triton::mm", "mm"
_DIMS = ("M", "N", "K")
_TILE = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")
_DTYPES = ("float32", "float16", "bfloat16")
_COLUMN_MAJOR = "column_major"

_NEUTRAL: Mapping[str, object] = {"VARIANT": "pointers", "SPLIT_K": 1, "PROGRAMS": 0}
"""The only values of these parameters that the template can express: one tile per program, loaded by pointers, and
whole sums."""


def _write(selection: Selection) -> Written:
    table: dict[str, list[dict[str, Any]]] = {}
    for scope in (result.scope for result in selection.best_results()):
        _check(scope)
        if best := _best(selection, scope):
            table[_key(scope)] = [_entry(best.config, scope.problem)]
    if not table:
        raise NotFound(
            "no verified config has one tile per program, whole sums and pointers, as inductor's template does; "
            "tune more, or add --unverified"
        )
    return Written.single((json.dumps(table, indent=1, allow_nan=False) + "\n").encode(), len(table))


def _check(scope: Scope) -> None:
    """Raise `UsageError` for a problem that is no plain product of two matrices."""
    flags = {name: value for name, value in scope.problem.flags.items() if name != _COLUMN_MAJOR}
    if set(scope.dims) != set(_DIMS) or flags or scope.dtype not in _DTYPES:
        raise UsageError(
            f"{scope.problem} is no plain product of matrices of {', '.join(_DTYPES)}; choose others with --kernel"
        )


def _best(selection: Selection, scope: Scope) -> Trial | None:
    able = [
        t for t in selection.store.trials(scope) if t.status is Status.CORRECT and (t.verified or selection.unverified)
    ]
    return min(filter(_is_expressible, able), key=lambda trial: trial.time_us or 0.0, default=None)


def _is_expressible(trial: Trial) -> bool:
    config = trial.config
    return all(name in config for name in _TILE) and all(
        config.get(name, neutral) == neutral for name, neutral in _NEUTRAL.items()
    )


def _entry(config: Config, problem: Problem) -> dict[str, Any]:
    options = {name: config.get(name, default) for name, default in DEFAULTS.items()}
    even = problem.dims["K"] % int(config["BLOCK_K"]) == 0
    return {"template_id": _TEMPLATE, **{name: config[name] for name in _TILE}, "EVEN_K": even, **options}


def _key(scope: Scope) -> str:
    """Return the key that inductor makes: the device, and of each input its dtype, sizes and strides."""
    m, n, k = (scope.dims[name] for name in _DIMS)
    columns = [1, k] if scope.problem.flags.get(_COLUMN_MAJOR) else [n, 1]
    dtype = f"torch.{scope.dtype}"
    inputs = f"(({dtype}, {[m, k]}, {[k, 1]}), ({dtype}, {[k, n]}, {columns}))"
    return f"{scope.device}+{inputs}+{_OPERATION}"


INDUCTOR = Format("inductor", "bests of matrix products as torch.compile's lookup table", write=_write)
