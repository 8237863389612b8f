"""Compile one config for a modelled part, and time the compiled code by the discrete-event clock."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tilewise.db.records import L2State, Status
from tilewise.errors import TilewiseError
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.clock.machine import KernelTime, Machine, cores_for
from tilewise.tuner.devices.ascend_model.index_contents import IndexContents
from tilewise.tuner.devices.ascend_model.ir.element_loops import ElementLoop
from tilewise.tuner.devices.ascend_model.ir.hivm import Function, parse
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation
from tilewise.tuner.hardware.ascend_costs import INTERVAL, Costs, End, costs
from tilewise.tuner.hardware.ascend_parts import ON_CHIP_BYTES
from tilewise.tuner.hardware.ascend_parts import part as part_named
from tilewise.tuner.hardware.calibrated_costs import calibrated
from tilewise.tuner.hardware.cube_costs import ODD_SHARE, SMALL_US, TRUST
from tilewise.tuner.measure.outcome import Outcome, Timing
from tilewise.tuner.workers.worker import describe

__all__ = ["Machines", "model_config", "trust_of"]


def model_config(
    spec: KernelSpec, problem: Problem, config: Config, target: Target, folder: Path, *, l2: L2State = L2State.WARM
) -> tuple[Outcome, Machines | None]:
    """Compile and time one config in this process. Return its outcome, and its machines for timing it at other costs.

    Every launch of the config is compiled; the first that fails decides the outcome. Code that the model cannot read or
    time gives status `unmodelled` and a reason that names the operation, never a time; that is no failure of the
    config. Raises `BadSpec` if the spec is wrong.
    """
    multibuffer = bool(config.get("multibuffer", True))
    compiled = []
    for launch in spec.plan(config, problem):
        try:
            linalg = toolchain.lower(spec, problem, config, launch, target.name)
        except TilewiseError:
            raise
        except UnknownOperation as error:
            return Outcome(Status.UNMODELLED, str(error)), None
        except TimeoutError as error:
            return Outcome(Status.TIMEOUT, str(error)), None
        except Exception as error:  # of any type; each means that this config does not compile
            return Outcome(Status.COMPILE, describe(error)), None
        made = toolchain.compile_linalg(linalg, target.name, config, cache_folder=folder)
        if not made.code:
            return _refusal(made, target), None
        compiled.append(made)
    facts: dict[str, Any] = {}
    try:
        functions = [_parsed(made.code) for made in compiled]
        facts = _facts(functions, {option for made in compiled for option in made.dropped}, multibuffer, target)
        machines = Machines(spec, problem, config, target, functions, l2=l2)
        timed = machines.time("value")
    except UnknownOperation as error:
        return Outcome(Status.UNMODELLED, str(error), facts=facts), None
    except ValueError as error:  # the code deadlocks
        return Outcome(Status.RUNTIME, str(error), facts=facts), None
    facts |= timed.to_json()
    if (trust := trust_of(functions, timed))["class"]:
        facts["trust"] = trust
    return Outcome(Status.CORRECT, timing=Timing(round(timed.time_us, 4), l2=l2), facts=facts), machines


def _parsed(code: str) -> Function:
    try:
        return parse(code)
    except ValueError as error:
        raise UnknownOperation(str(error)) from error


def _refusal(compiled: toolchain.Compiled, target: Target) -> Outcome:
    bits = {"available": compiled.available_bits or target.on_chip_bytes * 8}
    if compiled.required_bits is not None:
        bits["required"] = compiled.required_bits
    status = Status.TIMEOUT if compiled.timed_out else Status.COMPILE
    return Outcome(status, compiled.refusal, facts={"on_chip_bits": bits})


def _facts(functions: Sequence[Function], dropped: set[str], multibuffer: bool, target: Target) -> dict[str, Any]:
    """Return the facts from compiling: the fullest on-chip memory of any launch, and the options that held in all."""
    planned = {space: max(function.planned_bytes(space) for function in functions) for space in ON_CHIP_BYTES}
    sizes = {**ON_CHIP_BYTES, "ub": target.on_chip_bytes}
    fullest = max(planned, key=lambda space: planned[space] / sizes[space])
    return {
        "on_chip_bits": {"required": planned[fullest] * 8, "available": sizes[fullest] * 8},
        "effective_options": {
            "multibuffer": multibuffer and "auto-multi-buffer" not in dropped,
            "code_motion": "code-motion" not in dropped,
        },
        "double_buffered": any(function.multi_buffered() for function in functions),
    }


def trust_of(functions: Sequence[Function], timed: KernelTime) -> dict[str, Any]:
    """Return the class of a cube kernel that says how far its time is to be trusted, and the factors of the time
    between which the real one lies."""
    kind = _class(functions, timed)
    low, high = TRUST[kind] if kind else INTERVAL
    return {"class": kind, "low": low, "high": high}


def _class(functions: Sequence[Function], timed: KernelTime) -> str:
    """Return the class of a cube kernel that says how far its time is to be trusted; empty for a vector kernel."""
    if not any(function.core == "cube" for function in functions):
        return ""
    loops = [found for function in functions for op in function.walk() if (found := ElementLoop.of(op))]
    if loops and (timed.bound_by == "S" or any(loop.stored for loop in loops)):
        return "element-wise"
    if sum(timed.overhead_us.values()) > timed.time_us / 3:
        return "launch-bound"
    if timed.odd_rows_us >= ODD_SHARE * timed.time_us:
        return "odd rows"
    if any(function.vector for function in functions):
        return "cube and vector cores"
    return "small product" if timed.time_us < SMALL_US else "large product"


class Machines:
    """One compiled config on a part, which can be timed at either end of the costs' ranges."""

    def __init__(
        self,
        spec: KernelSpec,
        problem: Problem,
        config: Config,
        target: Target,
        functions: Sequence[Function],
        *,
        l2: L2State = L2State.WARM,
    ) -> None:
        self._part, self._target, self._l2 = part_named(target.name), target, l2
        self._steps: list[tuple[Function, list[int], list[int | float], tuple[int, ...]]] = []
        self._contents = IndexContents(spec, problem, config, functions)
        for launch, function in zip(spec.plan(config, problem), functions, strict=True):
            sizes, scalars = toolchain.arguments(spec, problem, config, launch)
            self._steps.append((function, list(sizes.values()), scalars, launch.grid))

    def time(self, end: End) -> KernelTime:
        """Time the config with all figures at one end of their ranges; calibrated figures replace shipped ones."""
        return self.time_at(costs(end, calibrated(self._part.name)))

    def time_at(self, chosen: Costs) -> KernelTime:
        """Time all launches, one after the other. Raises `UnknownOperation` if the compiled code holds one."""
        return KernelTime.in_turn(
            [
                Machine(
                    self._part,
                    cores_for(function, self._target),
                    function,
                    buffers,
                    chosen,
                    l2=self._l2,
                    contents=partial(self._contents.of, index),
                ).time(scalars, grid)
                for index, (function, buffers, scalars, grid) in enumerate(self._steps)
            ]
        )
