"""Compiled programs of published configs, kept on disk, so that pricing them again at other figures takes seconds."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilewise.benchmarks.model.judge.cases import Case
from tilewise.db.records import L2State, canonical_json
from tilewise.kernels.spec import Config, Target
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.clock.machine import KernelTime, Machine
from tilewise.tuner.devices.ascend_model.ir import hivm
from tilewise.tuner.hardware.ascend_costs import Costs
from tilewise.tuner.hardware.ascend_parts import part
from tilewise.tuner.measure.launch import resolve_function

__all__ = ["Program", "Step", "record"]

_KEPT = ("hivm.hir.load", "hivm.hir.store", "hivm.hir.pointer_cast", "hivm.hir.get_block_idx")
"""Operations of the chip that a program that only transfers keeps."""


@dataclass(frozen=True, slots=True)
class Step:
    """One launch: the compiled function, the bytes of its buffers in order, its scalars and its grid."""

    function: hivm.Function
    buffers: tuple[int, ...]
    scalars: tuple[int | float, ...]
    grid: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A config's launches on a part with `cores` vector cores, or the compiler's `refusal`."""

    part: str
    cores: int
    l2: L2State
    steps: Sequence[Step]
    refusal: str = ""
    all_blocks_parallel: bool = False

    def time(self, costs: Costs, l2: L2State | None = None) -> KernelTime:
        """Time all launches, one after the other, with the case's L2 cache before them or another."""
        hardware, state = part(self.part), l2 or self.l2
        most = self.cores if self.all_blocks_parallel else None
        machines = [
            (Machine(hardware, self.cores, step.function, step.buffers, costs, l2=state), step) for step in self.steps
        ]
        return KernelTime.in_turn([machine.time(step.scalars, step.grid, most) for machine, step in machines])


def record(case: Case, config: Config, folder: Path) -> Program:
    """Compile one config of a case, or read what an earlier call compiled: same source, config and toolchain."""
    target = toolchain.target(case.part, folder)
    file = folder / "judge" / f"{_key(case, config)}.pickle"
    if file.is_file():
        steps, refusal = pickle.loads(file.read_bytes())
    else:
        steps, refusal = _compile(case, config, target, folder)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pickle.dumps((steps, refusal)))
    if case.transfers_only:
        steps = [replace(step, function=_without_work(step.function)) for step in steps]
    return Program(case.part, target.cores, case.l2, steps, refusal, case.all_blocks_parallel)


def _key(case: Case, config: Config) -> str:
    spec = case.spec()
    sources = [resolve_function(spec, function).cache_key for function in spec.functions()]
    problem: list[object] = [dict(case.problem.dims), case.problem.dtype, case.part, dict(config)]
    if case.all_blocks_parallel:
        problem.append("all blocks parallel")
    return hashlib.sha256(canonical_json([sources, problem, toolchain.fingerprint()]).encode()).hexdigest()[:24]


def _compile(case: Case, config: Config, target: Target, folder: Path) -> tuple[list[Step], str]:
    spec, problem = case.spec(), case.problem
    options = {name: value for name, value in spec.default(problem, target).items() if name in spec.options()}
    whole, steps = {**options, **config}, []
    for launch in spec.plan(whole, problem):
        linalg = toolchain.lower(spec, problem, whole, launch, target.name)
        switches = {"all_blocks_parallel": case.all_blocks_parallel}
        made = toolchain.compile_linalg(linalg, target.name, whole, cache_folder=folder, **switches)
        if not made.code:
            return [], made.refusal
        sizes, scalars = toolchain.arguments(spec, problem, whole, launch)
        steps.append(Step(hivm.parse(made.code), tuple(sizes.values()), tuple(scalars), tuple(launch.grid)))
    return steps, ""


def _without_work(function: hivm.Function) -> hivm.Function:
    """Drop vector work and synchronisation: what a program that only transfers would execute."""
    return replace(function, body=_stripped(function.body))


def _stripped(block: hivm.Block) -> hivm.Block:
    kept = [op for op in block.operations if not op.name.startswith("hivm.hir.") or op.name in _KEPT]
    return replace(
        block,
        operations=tuple(replace(op, regions=tuple(_stripped(region) for region in op.regions)) for op in kept),
    )
