"""Bests as a Python module of `triton.Config`, which can be read, committed, and imported without tilewise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewise.db.exchange.jsonfile import one_line
from tilewise.db.exchange.launchable import launch_of, refuse_choices
from tilewise.db.records import Result, Value

__all__ = ["config_source", "encode_module"]

_HEAD = '''\
"""Tile configs found by tilewise. Written by `tilewise export --format triton`: export again rather than edit.

`best` returns the config of a tuned shape; `configs` returns all configs that won, for `triton.autotune(configs=...)`.
"""

import triton

BEST = {
'''

_TAIL = '''\
}


def best(kernel, device, dtype, **dims):
    """Return the config that won for this shape; raises KeyError for a shape that was not tuned."""
    return BEST[kernel, device, dtype, tuple(sorted(dims.items()))]


def configs(kernel, device, dtype):
    """Return every config that won for some shape, each once."""
    won = {}
    for (its_kernel, its_device, its_dtype, _), config in BEST.items():
        if (its_kernel, its_device, its_dtype) == (kernel, device, dtype):
            won.setdefault(str(config), config)
    return list(won.values())
'''


def encode_module(results: Sequence[Result]) -> bytes:
    """Return the module's text. Outside values are written as Python literals or within a one-line comment.

    Raises `UsageError` for configs that `triton.Config` cannot express.
    """
    refuse_choices(results, "triton.Config")
    return (_HEAD + "".join(map(_entry, results)) + _TAIL).encode()


def _entry(result: Result) -> str:
    scope, winner = result.scope, result.winner
    assert winner is not None, "every best has a winner"
    key = (scope.kernel, scope.device, scope.dtype, tuple(sorted(scope.shape.items())))
    proof = {"reference": "verified", "self": "verified by its own default only"}.get(winner.verified_by or "")
    proof = proof or "NOT verified"
    time = "no time" if winner.time_us is None else f"{winner.time_us:.2f} us"
    known = f"{time} ({scope.clock}), {proof}; {scope.cores} cores, source {scope.source_hash}, {scope.toolchain}"
    return f"    # {one_line(ValueError(known))}\n    {key!r}: {config_source(winner.config)},\n"


def config_source(config: Mapping[str, Value]) -> str:
    """Return the config as Python source: `triton.Config({...}, num_warps=8)`."""
    arguments, options = launch_of(config)
    return f"triton.Config({arguments!r}{''.join(f', {name}={value!r}' for name, value in options.items())})"
