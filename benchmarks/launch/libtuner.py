"""FlagGems' `libentry` over its `libtuner`, as its own operators are launched, with a cache filled without timing.

flag_gems is not a dependency: it pins its own versions, and needs a chip when it is imported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["FILL_SECONDS", "filled", "libtuned"]

FILL_SECONDS = 60.0
"""The time limit for filling its cache; each shape is first read from and written to an SQL table."""


def libtuned(function: Any, configs: Sequence[Any], key: Sequence[str], folder: Path) -> Any:
    """Wrap the jitted function with these configs (`triton.Config`), of which the first wins at every shape.

    The table of configs is kept in `folder` instead of the user's. Raises whatever importing flag_gems raises, which
    is common with a Triton or a chip that it does not know.
    """
    os.environ.setdefault("GEMS_VENDOR", "nvidia")  # otherwise it runs any chip's tools that it finds
    os.environ.setdefault("FLAGGEMS_CACHE_DIR", str(folder))
    os.environ.setdefault("FLAGGEMS_DB_URL", f"sqlite:///{folder / 'configs.db'}")
    from flag_gems.utils.libentry import LibTuner, libentry, libtuner

    first = LibTuner.register_policy("first")(_first)
    return libentry()(libtuner(configs=list(configs), key=list(key), policy=first)(function))


def filled(call: Callable[[int], Any], shapes: Sequence[int], seconds: float = FILL_SECONDS) -> Callable[[int], Any]:
    """Call `call` with each shape and return it; raise `TimeoutError` after `seconds`."""
    began = time.monotonic()
    for count, shape in enumerate(shapes):
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"its cache was filled with {count} of {len(shapes)} shapes in {seconds:.0f} s")
        call(shape)
    return call


def _first(bench: Any, configs: Sequence[Any], args: Any, kwargs: Any) -> tuple[Any, dict[Any, float]]:
    """Choose the first config without timing: a policy for `libtuner`."""
    return next(iter(configs)), {}
