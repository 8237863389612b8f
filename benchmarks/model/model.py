"""`tilewise bench model`: modelled times against timings that others measured, each kernel left out of the fit."""

from __future__ import annotations

import platform
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tilewise.benchmarks.model.judge.judgement import judge
from tilewise.benchmarks.model.judge.look import look
from tilewise.errors import Unavailable
from tilewise.settings import read_settings
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.hardware.ascend_parts import part
from tilewise.tuner.hardware.calibrated_costs import model_fingerprint

__all__ = ["bench_model"]

_PART = "Ascend910B4"
"""The part of most published timings, whose model's fingerprint stands for all."""


def bench_model(*, only: str | None = None, progress: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Compare every published timing whose program is known with the model, and return the JSON: each kernel left out
    of the fit that times it or, with the shipped figures, one of the lists of `LOOKS` only.

    Compiled programs are kept in the cache folder. Raises `Unavailable` if the Ascend toolchain is not installed.
    """
    if reason := toolchain.unavailable_reason():
        raise Unavailable(f"bench model {reason}")
    folder = read_settings().cache_folder
    return {
        "command": f"tilewise bench model{f' --look {only}' if only else ''} --json",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "python": platform.python_version(),
        "clock": "modelled",
        "toolchain": f"{toolchain.fingerprint()}, model {model_fingerprint(part(_PART))}",
        **(look(only, folder, progress=progress) if only else judge(folder, progress=progress)),
    }
