"""The jobs that the compile processes of a modelled device run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewise.db.records import L2State
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, Problem, Target
from tilewise.tuner.devices.ascend_model.executor.verification import verify_compiled
from tilewise.tuner.devices.ascend_model.model_config import model_config
from tilewise.tuner.measure.outcome import Outcome, Verdict

__all__ = ["call"]


def call(job: str, *arguments: Any) -> Outcome | Verdict:
    """Run `evaluate` or `verify`."""
    return (evaluate if job == "evaluate" else verify)(*arguments)


def evaluate(
    origin: str, problem: Problem, config: Config, target: Target, folder: Path, l2: L2State = L2State.WARM
) -> Outcome:
    """Compile and time one config of the spec found at `origin`."""
    return model_config(registry.load(origin), problem, config, target, folder, l2=l2)[0]


def verify(origin: str, problem: Problem, config: Config, target: Target, folder: Path) -> Verdict:
    """Compile and execute one config of the spec found at `origin`."""
    return verify_compiled(registry.load(origin), problem, config, target, folder)
