"""Work of Triton that each process would do before its first compilation, done once before the forks."""

from __future__ import annotations

import importlib
from contextlib import suppress

__all__ = ["ENTRY", "prepare"]

ENTRY = "tilewise.tuner.devices.measured.triton_start:prepare"

_KEY_MODULES = ("triton.runtime.cache", "triton.compiler.compiler")
"""Modules that define `triton_key`: since Triton 3.5, and before."""


def prepare() -> None:
    """Have Triton hash its own files, for the keys of its cache, and import Gluon, which it does at the first launch.

    Both together take 0.6 s of a process's first compilation where another takes 0.2 s, and more where dozens of
    processes read half a gigabyte at once. Triton keeps both for the life of a process and of its forks.
    """
    for module in _KEY_MODULES:
        key = getattr(importlib.import_module(module), "triton_key", None)
        if key is not None:
            key()
            break
    with suppress(ImportError):  # before Triton 3.4 there is no Gluon
        importlib.import_module("triton.experimental.gluon")
