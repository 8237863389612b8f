"""tilewise: find, keep and serve the fastest tile config of a Triton kernel.

    tilewise.tune("row_reduce", {"M": 1000, "N": 8192})                           # find and store
    tilewise.lookup("row_reduce", {"M": 1000, "N": 8192}, device="NVIDIA H200")   # look up
    kernel = tilewise.tuned(SPEC, "configs.json")(jitted)                         # launch with stored configs
    softmax = tilewise.Operator("softmax", "configs.json")                        # the same for a built-in kernel
    @tilewise.autotune(configs, key)                                              # instead of triton.autotune

The names in `__all__` are public and stable. The packages `tilewise.kernels` (what is tuned), `tilewise.tuner` (tuning
and look-up), `tilewise.db` (storage) and `tilewise.api` (the service) are internal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewise.client import Client
    from tilewise.db.records import Result
    from tilewise.errors import TilewiseError
    from tilewise.kernels.spec import (
        Axis,
        Buffer,
        Constraint,
        Dot,
        Flag,
        KernelSpec,
        Launch,
        Parameter,
        Problem,
        Target,
        Tiling,
        ceil_div,
    )
    from tilewise.tuner.ingest.autotune_listener import harvesting
    from tilewise.tuner.lookup.cache import Cache, lookup
    from tilewise.tuner.lookup.resolve import Match, NotTuned
    from tilewise.tuner.runtime.autotune import autotune
    from tilewise.tuner.runtime.operators import Operator
    from tilewise.tuner.runtime.tuned import tuned
    from tilewise.tuner.tuning.tune import tune

    __version__: str

__all__ = [
    "Axis",
    "Buffer",
    "Cache",
    "Client",
    "Constraint",
    "Dot",
    "Flag",
    "KernelSpec",
    "Launch",
    "Match",
    "NotTuned",
    "Operator",
    "Parameter",
    "Problem",
    "Result",
    "Target",
    "TilewiseError",
    "Tiling",
    "__version__",
    "autotune",
    "ceil_div",
    "harvesting",
    "lookup",
    "tune",
    "tuned",
]

_SPEC = "tilewise.kernels.spec"
_HOMES = {
    "Cache": "tilewise.tuner.lookup.cache",
    "Client": "tilewise.client",
    **dict.fromkeys(("KernelSpec", "Axis", "Buffer", "Constraint", "Dot", "Flag", "Launch", "Parameter"), _SPEC),
    **dict.fromkeys(("Problem", "Target", "Tiling", "ceil_div"), _SPEC),
    "Match": "tilewise.tuner.lookup.resolve",
    "NotTuned": "tilewise.tuner.lookup.resolve",
    "Operator": "tilewise.tuner.runtime.operators",
    "Result": "tilewise.db.records",
    "TilewiseError": "tilewise.errors",
    "autotune": "tilewise.tuner.runtime.autotune",
    "harvesting": "tilewise.tuner.ingest.autotune_listener",
    "lookup": "tilewise.tuner.lookup.cache",
    "tune": "tilewise.tuner.tuning.tune",
    "tuned": "tilewise.tuner.runtime.tuned",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: a search needs Optuna, a look-up does not."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    if name == "__version__":  # reading it costs 30 ms
        return _version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tilewise")
    except PackageNotFoundError:  # a source tree on the path, never installed
        return "0+unknown"
