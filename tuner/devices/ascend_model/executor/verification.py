"""Verification of a config's *compiled* program: it is executed on the modelled core and compared with the reference.

Inputs, guards, poison and tolerance are those of real devices. A config is wrong if a value is wrong, and also if an
access is out of bounds, pipes or programs race, or a flag is never set, even where no value shows it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewise.db.records import Status, shape_text
from tilewise.errors import TilewiseError
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target, ceil_div
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.executor.hazards import Unordered
from tilewise.tuner.devices.ascend_model.executor.memory import STRAYS, Fault, OutOfBounds
from tilewise.tuner.devices.ascend_model.executor.mixed import executor_of
from tilewise.tuner.devices.ascend_model.executor.reach import fault_at_size
from tilewise.tuner.devices.ascend_model.ir.hivm import Function, parse
from tilewise.tuner.devices.ascend_model.ir.source_lines import without_locations
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation
from tilewise.tuner.measure.comparison import disagreement, worst_of
from tilewise.tuner.measure.draws import DRAWS
from tilewise.tuner.measure.outcome import Verdict
from tilewise.tuner.measure.verify import Arguments, DefaultRun, reduced_problem, stand_ins, verify
from tilewise.tuner.workers.worker import describe

if TYPE_CHECKING:
    import torch

__all__ = ["Execution", "compile_config", "execute", "executed_problem", "judge", "stored", "verify_compiled"]

ELEMENTS = 1 << 24
"""Limit on the tiled space's elements for executing a problem at its own size: about a second of arithmetic."""

PRODUCTS = 1 << 30
"""The same limit for a product of matrices, whose elements are multiplications."""

TRIPS = 2048
"""Limit on the inner loop's trips, in groups of programs that run side by side: about half a millisecond each."""

_SIDE_BY_SIDE = 64

_DATA_DEPENDENT = ("memref.load",)
"""Operations that bring a tensor's contents to the scalar unit, from where they may decide about branches and
addresses."""

_KEPT_BYTES = 1 << 26


def executed_problem(spec: KernelSpec, problem: Problem, config: Config, *others: Config) -> Problem:
    """Return the problem itself if executing it takes a second or two, else the smallest one with the same tails, for
    the other configs too."""
    tiling = spec.tiling(config, problem)
    elements = math.prod(axis.programs * axis.trips * axis.step for axis in tiling.axes)
    if tiling.dot and tiling.dot.head:  # of scores, each of which takes part in two products along a head
        elements *= 2 * tiling.dot.head
    buffers = sum(buffer.elements for buffer in spec.buffers(problem).values())
    trips = ceil_div(tiling.programs, _SIDE_BY_SIDE) * tiling.trips
    if elements <= (PRODUCTS if tiling.dot else ELEMENTS) and buffers <= ELEMENTS and trips <= TRIPS:
        return problem
    return reduced_problem(spec, problem, config, *others)


def verify_compiled(spec: KernelSpec, problem: Problem, config: Config, target: Target, folder: Path) -> Verdict:
    """Compile and execute one config in this process, and return the verdict.

    It is executed on the smallest problem with the same tails, with inputs drawn in every way, and then on
    `executed_problem` with normal inputs: an element left out weighs most where there are few, while the way a problem
    is divided shows at its own size only. Where that is too large, the addresses of some programs are checked at it.
    The reason names the executed dims if they are not the problem's own. A config that cannot be compiled or executed
    has a status of its own, not `correctness`. Raises `BadSpec` if the spec is wrong.

    Of an inferred spec, the sizes that a program launched are known to go together, and others are not: where its
    config fails on the smallest problem, its own size decides, if that can be executed. Without a reference, the
    default config has to be right on the smallest problem too.
    """
    compared = () if spec.has_reference else tuple(filter(None, [spec.default(problem, target)]))
    smallest = reduced_problem(spec, problem, config, *compared)
    whole = executed_problem(spec, problem, config, *compared)
    verdict = _verify_on(smallest, DRAWS, spec, problem, config, target, folder)
    if whole != smallest:
        if not verdict.agreed:
            return _verify_on(whole, DRAWS, spec, problem, config, target, folder) if spec.inferred else verdict
        at_size = _verify_on(whole, 1, spec, problem, config, target, folder)
        verdict = replace(worst_of([verdict, at_size]), warnings=verdict.warnings + at_size.warnings)
    if whole == problem or not verdict.agreed or spec.tiling(config, problem).trips > TRIPS:
        return verdict
    return _within_reach(verdict, spec, problem, config, target, folder)


def _within_reach(
    verdict: Verdict, spec: KernelSpec, problem: Problem, config: Config, target: Target, folder: Path
) -> Verdict:
    """Return the verdict, or a disagreement if programs of the problem at its own size leave its buffers."""
    try:
        functions = compile_config(spec, problem, config, target, folder)
    except TilewiseError:
        raise
    except Exception:  # of any type: evaluation tells of a config that does not compile at this size
        return verdict
    fault = fault_at_size(spec, problem, config, functions, target.on_chip_bytes)
    return disagreement(fault) if fault else verdict


def _verify_on(
    executed: Problem, draws: int, spec: KernelSpec, problem: Problem, config: Config, target: Target, folder: Path
) -> Verdict:
    """Compile and execute the config on one problem, with inputs drawn in the first `draws` ways."""
    try:
        functions = compile_config(spec, executed, config, target, folder)
    except TilewiseError:
        raise
    except TimeoutError as error:
        return disagreement(str(error), status=Status.TIMEOUT)
    except UnknownOperation as error:
        return disagreement(str(error), status=Status.UNMODELLED)
    except Exception as error:  # the front end raises exceptions of any type
        return disagreement(describe(error), status=Status.COMPILE)
    arguments = _arguments(spec, executed, target, folder)
    verdict = judge(spec, executed, config, functions, arguments, target.on_chip_bytes, draws=draws)
    if verdict.agreed and not verdict.warnings:
        return verdict
    where = "" if executed == problem else f"on {shape_text(executed.shape)}: "

    def located(text: str) -> str:
        return where + _with_lines(text, spec, executed, config, functions, target, folder)

    warnings = tuple(located(text) for text in verdict.warnings)
    return replace(verdict, reason=verdict.reason and located(verdict.reason), warnings=warnings)


def _with_lines(
    reason: str,
    spec: KernelSpec,
    problem: Problem,
    config: Config,
    functions: Sequence[Function],
    target: Target,
    folder: Path,
) -> str:
    """Return the reason with source lines in place of operation numbers; unchanged if the compiler gives no lines."""
    named = re.match(r"(?:launch (\d+): )?.*\(operation \d+\)", reason)
    if named is None:
        return reason
    index = int(named.group(1) or 1) - 1
    launch = spec.plan(config, problem)[index]
    linalg = toolchain.lower(spec, problem, config, launch, target.name, locations=True)
    made = toolchain.compile_linalg(linalg, target.name, config, cache_folder=folder, locations=True)
    _, operations = without_locations(made.code)
    if [name for name, _ in operations] != [op.name for op in functions[index].walk()]:
        return reason
    places = {str(at): place for at, (_, place) in enumerate(operations, 1) if place is not None}

    def with_line(found: re.Match[str]) -> str:
        place = places.get(found.group(1))
        return f"({place})" if place else found.group()

    return re.sub(r"\(operation (\d+)\)", with_line, reason)


def compile_config(
    spec: KernelSpec, problem: Problem, config: Config, target: Target, folder: Path
) -> tuple[Function, ...]:
    """Return the scheduled code of each launch of a config. Raises `ValueError` or `TimeoutError` if there is none,
    `UnknownOperation` if the model cannot read it, and whatever the front end raises."""
    functions = []
    for launch in spec.plan(config, problem):
        linalg = toolchain.lower(spec, problem, config, launch, target.name)
        made = toolchain.compile_linalg(linalg, target.name, config, cache_folder=folder)
        if not made.code:
            raise (TimeoutError if made.timed_out else ValueError)(made.refusal)
        try:
            functions.append(parse(made.code))
        except ValueError as error:
            raise UnknownOperation(str(error)) from error
    return tuple(functions)


def judge(
    spec: KernelSpec,
    problem: Problem,
    config: Config,
    functions: Sequence[Function],
    arguments: Arguments,
    on_chip_bytes: int,
    *,
    draws: int = 1,
) -> Verdict:
    """Execute a config's compiled launches on inputs drawn in the first `draws` ways, and return the verdict.

    The order of accesses is checked in the first draw, and in the second where it depends on data. Where a program
    reads beyond a tensor, it is executed once more with other values there. The same results show that a mask throws
    the values away: a warning, not a disagreement.
    """
    tensors = arguments.bind(config)
    warnings: set[str] = set()
    dependent = any(op.name in _DATA_DEPENDENT for function in functions for op in function.walk())
    runs = 0

    def run(stray: int, *, ordered: bool) -> set[str]:
        found = execute(spec, problem, config, functions, tensors, on_chip_bytes, stray=stray, ordered=ordered)
        return found.strays

    def run_with_strays() -> None:
        nonlocal runs
        runs += 1
        if not (strays := run(STRAYS[0], ordered=runs <= 1 + dependent)):
            return
        results = _results(arguments)
        arguments.poison()
        run(STRAYS[1], ordered=False)
        if _results(arguments) != results:
            raise OutOfBounds(f"{min(strays)}, and the result depends on it")
        warnings.update(strays)

    try:
        verdict = verify(spec, problem, config, arguments, run=run_with_strays, draws=draws)
    except Fault as fault:
        return disagreement(str(fault))
    except UnknownOperation as error:
        return disagreement(str(error), status=Status.UNMODELLED)
    except (ValueError, IndexError) as error:  # views that no compiler would make
        return disagreement(f"the compiled program cannot be executed: {error}", status=Status.UNMODELLED)
    return replace(verdict, warnings=tuple(f"{text}; a mask throws it away" for text in sorted(warnings)))


def _results(arguments: Arguments) -> dict[str, bytes]:
    return {name: stored(tensor).tobytes() for name, tensor in arguments.outputs.items()}


@dataclass(frozen=True, slots=True)
class Execution:
    """The findings of an execution: operations on one pipe that no barrier separates although one uses the other's
    result, and that the pipe's own order keeps apart; and reads a little beyond a tensor."""

    unbarriered: set[str]
    strays: set[str]


def execute(
    spec: KernelSpec,
    problem: Problem,
    config: Config,
    functions: Sequence[Function],
    tensors: Mapping[str, torch.Tensor],
    on_chip_bytes: int,
    *,
    stray: int = STRAYS[0],
    ordered: bool = True,
) -> Execution:
    """Run a config's launches on tensors by argument name; raises `Fault` and `UnknownOperation`.

    Reads beyond a tensor give values made of the byte `stray`. Without `ordered`, races are not looked for.
    """
    found = Execution(set(), set())
    for number, (launch, function) in enumerate(zip(spec.plan(config, problem), functions, strict=True), 1):
        sizes, scalars = toolchain.arguments(spec, problem, config, launch)
        executor = executor_of(function, on_chip_bytes, order=None if ordered else Unordered, stray=stray)
        label = f"launch {number}: " if len(functions) > 1 else ""
        try:
            executor.run({name: stored(tensors[name]) for name in sizes}, scalars, launch.grid)
        except Fault as fault:
            if not label:
                raise
            raise type(fault)(f"{label}{fault}") from fault
        found.unbarriered.update(executor.unbarriered)
        found.strays.update(f"{label}{text}" for text in executor.memory.strays)
    return found


def stored(tensor: torch.Tensor) -> Any:
    """Return the tensor's memory, from its first element to its last, as an array; bfloat16, which numpy lacks, as the
    integers of its bits."""
    import torch

    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    flat = tensor.as_strided((span,), (1,))
    return (flat.view(torch.int16) if flat.dtype == torch.bfloat16 else flat).numpy()


def _arguments(spec: KernelSpec, problem: Problem, target: Target, folder: Path) -> Arguments:
    """Return inputs and reference, cached per problem if they are small: a search checks several configs."""
    size = sum(buffer.bytes for buffer in spec.buffers(problem).values())
    if not spec.origin or size > _KEPT_BYTES:
        return Arguments(spec, problem, run_default=_default_run(spec, target, folder))
    return _kept(spec.origin, tuple(problem.shape.items()), problem.dtype, target, folder)


@lru_cache(maxsize=8)
def _kept(
    origin: str, shape: tuple[tuple[str, int | bool | str], ...], dtype: str, target: Target, folder: Path
) -> Arguments:
    spec = registry.load(origin)
    problem = Problem.of(spec.name, dict(shape), dtype)
    return Arguments(spec, problem, run_default=_default_run(spec, target, folder))


def _default_run(spec: KernelSpec, target: Target, folder: Path) -> DefaultRun:
    """Return a function that executes the compiled default config, the stand-in for a reference; if it does not
    compile, the first of some others that does."""

    def run(problem: Problem, arguments: Arguments) -> None:
        failure: Exception | None = None
        for config in stand_ins(spec, problem, target):
            try:
                functions = compile_config(spec, problem, config, target, folder)
            except (UnknownOperation, TilewiseError):
                raise
            except Exception as error:  # the front end raises exceptions of any type
                failure = failure or error
                continue
            execute(spec, problem, config, functions, arguments.bind(config), target.on_chip_bytes, ordered=False)
            return
        raise UnknownOperation(
            f"there is nothing to compare with, as the default config does not compile: {failure}"
        ) from failure

    return run
