"""The proof that a mutant is its kernel after all: symbolic runs of both leave the same, for every problem and config.

The problems are those of verification, those of the oracle, some with many trips of every loop, and the large one, of
which a few programs run. The configs cut most axes, or are drawn at random, for each variant. Where the runs differ,
verification and the oracle are to look: mutant and kernel differ there at least by the order of operations.
"""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

from tilewise.benchmarks.model.mutants import symbolic
from tilewise.benchmarks.model.mutants.runners import runner
from tilewise.benchmarks.model.mutants.source import Mutant
from tilewise.benchmarks.model.mutants.trial import (
    LARGE_DIMS,
    ORACLE_DIMS,
    VERIFIED_DIMS,
    Dims,
    imported,
    mutated,
    orders,
    situation,
    users,
)
from tilewise.errors import TilewiseError
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target

__all__ = ["MORE_DIMS", "PROGRAMS", "compare", "difference"]

MORE_DIMS: Mapping[tuple[str, ...], Sequence[Dims]] = {
    ("N",): [{"N": 70_001}],
    ("M", "N"): [{"M": 530, "N": 70}, {"M": 61, "N": 2600}, {"M": 3, "N": 40_009}],
    ("N", "C", "HW"): [
        {"N": 7, "C": 5, "HW": 1500},
        {"N": 70, "C": 3, "HW": 77},
        {"N": 40_009, "C": 2, "HW": 3},
        {"N": 3, "C": 2, "HW": 40_009},
    ],
}
"""Problems on which loops make many trips, partial results are many and no power of two, and axes exceed 2^15."""

_NARROWED = "int64 -> int16"
"""The change of an index that no problem of a size that can be run proves harmless."""

_ZEROING = ("nvidia",)
"""Families whose compiler zeroes what a masked load leaves open: the code of Triton 3.6 for sm_90 moves 0 to a load's
registers before it, and a copy to shared memory fills up with zeros."""

PROGRAMS, _LARGE_PROGRAMS = 96, 6
"""The most programs of a launch that run."""

_WORK, _OVERHEAD = 1 << 20, 1 << 10
"""The most elements of the tiled space over all programs that run, about a second's, and a trip's overhead in them."""

_KERNELS = 2
"""The most kernels that are compared on the oracle's problems too, where several use the changed function."""

_DIFFERENT = 3
"""Problems with different runs that are enough."""


def compare(mutant: Mutant, device: str, folder: Path, seed: int) -> dict[str, Any]:
    """Return the outcome of a mutant's comparison with its kernel as plain JSON values; called in a process with
    `TRITON_INTERPRET=1`. It is `proven the same`, or `agreed` as before with the first situations that are `different`.
    Where the unchanged kernel's run gives no proof, nothing is proven; nor is that a narrower index suffices."""
    began = time.monotonic()
    target = runner(device, folder).target
    compared, different = 0, list[dict[str, Any]]()
    with tempfile.TemporaryDirectory(prefix="tilewise-mutant-") as place:
        module = imported(mutant, Path(place))
        for problem, config, programs in _situations(mutant, target, seed):
            if different and different[-1]["dims"] == dict(problem.dims):
                continue
            compared += 1
            if why := difference(mutant, module, problem, config, programs, target.family in _ZEROING):
                different.append({**situation(problem, config), "why": why})
            if len(different) == _DIFFERENT:
                break
    same = compared > 0 and not different and mutant.change != _NARROWED
    found = {"compared": compared} if same else {"compared": compared, "different": different}
    outcome = "proven the same" if same else "agreed"
    return {"outcome": outcome, **found, "seconds": round(time.monotonic() - began, 1)}


def _situations(mutant: Mutant, target: Target, seed: int) -> Iterator[tuple[Problem, Config, int]]:
    """Yield problems and configs of every kernel that uses the changed function, and how many programs run; problems
    that show most differences first."""
    for number, name in enumerate(users(mutant)):
        spec = registry.load(name)
        dtypes = ("float32", spec.dtypes[-1])
        for dims in MORE_DIMS.get(spec.dims, ()):
            yield from _of_problem(Problem(name, dict(dims), "float32"), target, seed)
        if spec.dims in LARGE_DIMS:
            yield from _of_large(Problem(name, dict(LARGE_DIMS[spec.dims]), "float32"), target)
        for dims, dtype in product(VERIFIED_DIMS[spec.dims], dtypes):
            yield from _of_problem(Problem(name, dict(dims), dtype), target, seed)
        for dims in ORACLE_DIMS[spec.dims] if number < _KERNELS else ():
            yield from _of_problem(Problem(name, dict(dims), "float32"), target, seed, few=True)


def _of_problem(
    problem: Problem, target: Target, seed: int, few: bool = False
) -> Iterator[tuple[Problem, Config, int]]:
    """Yield of each variant the config that cuts most axes, another that cuts many, and one drawn at random; or, if
    they are to be `few`, only the last."""
    drawn, chosen, found = random.Random(f"{seed} {problem}"), list[Config](), orders(target, problem, "proof")
    for most_cut, at_random in zip(found[::2], found[1::2], strict=True):
        cheap = [[config for config in order if _is_cheap(problem, config)] for order in (most_cut, at_random)]
        firsts = [] if few else [order[0] for order in cheap if order]
        chosen += firsts + ([drawn.choice(cheap[1])] if cheap[1] else [])
    yield from ((problem, config, PROGRAMS) for config in {str(config): config for config in chosen}.values())


def _of_large(problem: Problem, target: Target) -> Iterator[tuple[Problem, Config, int]]:
    """Yield of each variant the config whose programs are shortest."""
    found = orders(target, problem, "large proof")
    for most_cut, at_random in zip(found[::2], found[1::2], strict=True):
        yield problem, min((*most_cut, *at_random), key=partial(_work, problem)), _LARGE_PROGRAMS


def _is_cheap(problem: Problem, config: Config) -> bool:
    programs = min(registry.load(problem.kernel).tiling(config, problem).programs, PROGRAMS)
    return programs * _work(problem, config) <= _WORK


def _work(problem: Problem, config: Config) -> int:
    """Return how many elements a program computes, a trip as many as take as long as its overhead at least."""
    tiling = registry.load(problem.kernel).tiling(config, problem)
    return tiling.trips * (_OVERHEAD + math.prod(axis.step for axis in tiling.axes))


_TRACES: dict[tuple[object, ...], tuple[tuple[str, int], ...] | str] = {}
"""Traces of the unchanged kernels, or why there is none."""


def difference(
    mutant: Mutant, module: ModuleType, problem: Problem, config: Config, programs: int, zeroed: bool
) -> str:
    """Return how the runs of mutant and kernel differ, or an empty text; of a launch, at most `programs` run. `zeroed`
    as for `symbolic.trace`."""
    symbolic.install()
    spec = registry.load(problem.kernel)
    key = (str(problem), tuple(config.items()), programs, zeroed)
    if key not in _TRACES:
        _TRACES[key] = _traced(spec, problem, config, programs, zeroed)
    right = _TRACES[key]
    if isinstance(right, str):
        return f"the unchanged kernel {right}"
    found = _traced(mutated(spec, mutant.module, module), problem, config, programs, zeroed)
    if isinstance(found, str):
        return found
    names = [name for (name, left), (_, wanted) in zip(found, right, strict=True) if left != wanted]
    return f"{', '.join(names)}: computed in another way" if names else ""


def _traced(
    spec: KernelSpec, problem: Problem, config: Config, programs: int, zeroed: bool
) -> tuple[tuple[str, int], ...] | str:
    try:
        return symbolic.trace(spec, problem, config, _integers(spec, problem), programs, zeroed)
    except Exception as error:  # the interpreter raises exceptions of any type
        return f"{type(error).__name__}: {error}".splitlines()[0]


def _integers(spec: KernelSpec, problem: Problem) -> dict[str, Any]:
    """Return the values of inputs that are integers, drawn as verification draws them."""
    import torch

    drawn = {}
    for name, buffer in spec.buffers(problem).items():
        if buffer.role != "out" and not buffer.dtype.startswith(("float", "bfloat")):
            if buffer.draw is None:
                raise TilewiseError(f"{spec.name} does not say how {name} is drawn")
            tensor = torch.empty(buffer.shape, dtype=getattr(torch, buffer.dtype))
            buffer.draw(tensor, torch.Generator().manual_seed(11))
            drawn[name] = tensor.numpy().reshape(-1)
    return drawn
