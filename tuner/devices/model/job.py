"""What the compile processes of a modelled device run. Only they import this: it loads the compiler's front end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch  # noqa: F401 - these are loaded while the parent does other things
import triton.backends.ascend.compiler  # noqa: F401
import xdsl.parser  # noqa: F401

from tilewise.kernels import registry
from tilewise.kernels.spec import Config, Problem, Target
from tilewise.tuner.devices.base import Outcome, Verdict
from tilewise.tuner.devices.model.device import model_config
from tilewise.tuner.devices.model.verification import verify_compiled

__all__ = ["call"]


def call(job: str, *arguments: Any) -> Outcome | Verdict:
    """Do one of the jobs below."""
    return (evaluate if job == "evaluate" else verify)(*arguments)


def evaluate(
    origin: str, problem: Problem, config: Config, target: Target, folder: Path, evicted: bool = False
) -> Outcome:
    """Compile and time one config of the spec found at `origin`."""
    return model_config(registry.load(origin), problem, config, target, folder, evicted=evicted)[0]


def verify(origin: str, problem: Problem, config: Config, target: Target, folder: Path) -> Verdict:
    """Compile and execute one config of the spec found at `origin`."""
    return verify_compiled(registry.load(origin), problem, config, target, folder)
