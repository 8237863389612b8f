"""Timelines of modelled configs, drawn in a separate process because a server must not import or wait for compilers."""

from __future__ import annotations

from tilewise.db.records import Clock, Scope, Shape
from tilewise.errors import Unavailable
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.kernels.spec import Config
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.hardware.ascend_parts import PARTS
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.workers.worker import Worker, WorkerError

__all__ = ["draw", "is_drawable", "timeline"]

_ENTRY = "tilewise.tuner.explain.timeline:draw"
_SECONDS = 60.0


def is_drawable(scope: Scope) -> bool:
    """Return whether this machine has the Ascend compiler, and the kernel with the source that was tuned."""
    return (
        scope.clock is Clock.MODELLED
        and scope.device in PARTS
        and scope.kernel in registry.names()
        and not toolchain.unavailable_reason()
        and source_hash(registry.load(scope.kernel)) == scope.source_hash
    )


def timeline(scope: Scope, config: Config) -> str:
    """Return the timeline of one program as SVG; raise `Unavailable` if it cannot be drawn."""
    worker = Worker(_ENTRY, env={"TRITON_INTERPRET": None})
    try:
        return str(
            worker.call(
                registry.place(scope.kernel),
                dict(scope.shape),
                scope.dtype,
                scope.device,
                scope.toolchain,
                dict(config),
                timeout=_SECONDS,
            )
        )
    except WorkerError as error:
        raise Unavailable(f"cannot draw the timeline: {error}") from error
    finally:
        worker.close()


def draw(kernel: str, shape: Shape, dtype: str, part: str, made_with: str, config: Config) -> str:
    """Draw in the worker; raise `Unavailable` if the result was tuned with another toolchain than the one here."""
    from tilewise.tuner.devices.ascend_model.device import ModelDevice
    from tilewise.tuner.devices.ascend_model.report.drawing import drawing

    spec = registry.load(kernel)
    problem = make_problem(spec, shape, dtype)
    with ModelDevice(part, jobs=1) as device:
        if (here := device.scope(spec, problem).toolchain) != made_with:
            raise Unavailable(f"it was tuned with {made_with}, but this machine has {here}; tune it again")
        return drawing(device.analyse(spec, problem, config))
