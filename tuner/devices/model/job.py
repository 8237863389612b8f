"""What the compile processes of a modelled device run. Only they import this: it loads the compiler's front end."""

from __future__ import annotations

from pathlib import Path

import triton.backends.ascend.compiler  # noqa: F401 - loaded while the parent does other things
import xdsl.parser  # noqa: F401

from tilewise.kernels import registry
from tilewise.kernels.spec import Config, Problem, Target
from tilewise.tuner.devices.base import Outcome
from tilewise.tuner.devices.model.device import model_config

__all__ = ["evaluate"]


def evaluate(origin: str, problem: Problem, config: Config, target: Target, folder: Path) -> Outcome:
    """Compile and time one config of the spec found at `origin`."""
    return model_config(registry.load(origin), problem, config, target, folder)[0]
