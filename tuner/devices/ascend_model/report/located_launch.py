"""A config's launches, each compiled again with the lines of its Triton source."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewise.errors import TilewiseError
from tilewise.kernels.spec import Config, KernelSpec, Launch, Problem, Target
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.ir.hivm import Function, parse
from tilewise.tuner.devices.ascend_model.ir.source_lines import Place, without_locations
from tilewise.tuner.measure.launch import resolve_function
from tilewise.tuner.workers.worker import describe

__all__ = ["LocatedFunction", "LocatedLaunch", "located_launches"]


@dataclass(frozen=True, slots=True)
class LocatedFunction:
    """A compiled function, or one half of a mixed kernel's, and the source line of each operation of the module, in
    text order."""

    function: Function
    places: Sequence[Place | None]


@dataclass(frozen=True, slots=True)
class LocatedLaunch:
    """One launch: the compiler's result and its functions, none if it was refused.

    `buffers` are bytes by name and `scalars` the run-time numbers, both in the order of the function's arguments.
    `place` is the line where the kernel is defined.
    """

    name: str
    place: Place | None
    grid: tuple[int, ...]
    compiled: toolchain.Compiled
    functions: Sequence[LocatedFunction]
    buffers: Mapping[str, int]
    scalars: Sequence[int | float]


def located_launches(
    spec: KernelSpec, problem: Problem, config: Config, target: Target, folder: Path
) -> Iterator[LocatedLaunch]:
    """Yield the launches in order. Raises ValueError for one that Triton's front end cannot lower, or whose compiled
    code cannot be read."""
    for launch in spec.plan(config, problem):
        linalg = _lowered(spec, problem, config, launch, target)
        made = toolchain.compile_linalg(linalg, target.name, config, cache_folder=folder, locations=True)
        sizes, scalars = toolchain.arguments(spec, problem, config, launch)
        function = getattr(resolve_function(spec, launch.function), "fn", None)
        yield LocatedLaunch(
            name=str(getattr(function, "__name__", launch.function)),
            place=_definition(function),
            grid=tuple(launch.grid),
            compiled=made,
            functions=_functions(made.code) if made.code else [],
            buffers=sizes,
            scalars=scalars,
        )


def _functions(text: str) -> list[LocatedFunction]:
    code, operations = without_locations(text)
    places = [place for _, place in operations]
    return [LocatedFunction(half, places) for half in parse(code).halves()]


def _lowered(spec: KernelSpec, problem: Problem, config: Config, launch: Launch, target: Target) -> str:
    try:
        return toolchain.lower(spec, problem, config, launch, target.name, locations=True)
    except TilewiseError:
        raise
    except Exception as error:  # the front end raises exceptions of any type
        raise ValueError(describe(error)) from error


def _definition(function: Any) -> Place | None:
    """Return the line of the function's `def`, below its decorators."""
    if function is None:
        return None
    lines, first = inspect.getsourcelines(function)
    below = next((number for number, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    return Place(inspect.getsourcefile(function) or "", first + below)
