"""FlagGems' `libentry` over its `libtuner`, as its own operators are launched, with a cache that nothing was timed for.

flag_gems is not a dependency: it pins versions of its own, and asks for a chip when it is imported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["FILL_SECONDS", "filled", "libtuned"]

FILL_SECONDS = 60.0
"""How long filling its cache may take: each shape is read from and written to a SQL table first."""


def libtuned(function: Any, configs: Sequence[Any], key: Sequence[str], folder: Path) -> Any:
    """The jitted function with these configs (`triton.Config`), of which the first wins everywhere.

    Its table of configs is kept in `folder`, not in the user's. Raises whatever importing flag_gems raises: that is no
    rare thing beside a Triton or a chip that it does not know.
    """
    os.environ.setdefault("GEMS_VENDOR", "nvidia")  # or it runs what chips' tools it finds
    os.environ.setdefault("FLAGGEMS_CACHE_DIR", str(folder))
    os.environ.setdefault("FLAGGEMS_DB_URL", f"sqlite:///{folder / 'configs.db'}")
    from flag_gems.utils.libentry import LibTuner, libentry, libtuner

    first = LibTuner.register_policy("first")(_first)
    return libentry()(libtuner(configs=list(configs), key=list(key), policy=first)(function))


def filled(call: Callable[[int], Any], shapes: Sequence[int], seconds: float = FILL_SECONDS) -> Callable[[int], Any]:
    """The call, once it has been called with each shape. Raises `TimeoutError` after `seconds`."""
    began = time.monotonic()
    for count, shape in enumerate(shapes):
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"in {seconds:.0f} s its cache took {count} of {len(shapes)} shapes")
        call(shape)
    return call


def _first(bench: Any, configs: Sequence[Any], args: Any, kwargs: Any) -> tuple[Any, dict[Any, float]]:
    """A policy that times nothing."""
    return next(iter(configs)), {}
