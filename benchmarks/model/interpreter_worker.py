"""The interpreter's process: imports everything slow, and the corrections, before the first request."""

from __future__ import annotations

import os

if os.environ.get("TRITON_INTERPRET") != "1":
    raise RuntimeError("the interpreter's worker needs TRITON_INTERPRET=1 in its environment")

import torch  # noqa: F401 - imported early, while the parent does other work
import triton  # noqa: F401

from tilewise.benchmarks.model import interpreter_fixes
from tilewise.benchmarks.model.accuracy import measure as measure_accuracy
from tilewise.benchmarks.model.interpreter import check, outputs

__all__ = ["check", "measure_accuracy", "outputs"]

interpreter_fixes.install()
