"""The format `triton`: writes bests as a Python module of `triton.Config`, and reads triton's autotune cache."""

from __future__ import annotations

from tilewise.db.exchange.foreign.caches.triton_cache import read_triton_cache
from tilewise.db.exchange.foreign.caches.triton_module import encode_module
from tilewise.db.exchange.format import Format, Written
from tilewise.db.exchange.selection import Selection

__all__ = ["TRITON"]


def _write(selection: Selection) -> Written:
    results = selection.best_results()
    return Written.single(encode_module(results), len(results))


TRITON = Format(
    "triton",
    "bests as a Python module of triton.Config",
    write=_write,
    read=lambda data, name, about, written: read_triton_cache(data, about, written=written),
    mark=r'"configs_timings"',
)
