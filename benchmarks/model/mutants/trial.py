"""One mutant: does verification refuse it, and if not, can an independent oracle tell it from the kernel?

A mutant is verified in situations: a kernel that uses the changed function, a dtype, a problem and a config of each
variant, or two. A situation whose code is the unchanged kernel's is passed over. What is not refused there is verified
on a large problem too, where indices exceed 16 bits and rows have several tiles. Verification has missed a mutant if it
agrees in all of them.

The oracle knows nothing of verification's inputs, problems or tolerance. It draws inputs of its own on twenty other
problems, and compares with float64 how far the mutant and the unchanged kernel are off. A mutant that is clearly
further off, or that accesses what no right kernel does, is not equivalent.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tilewise.benchmarks.model.mutants.runners import Runner, Unusable, runner
from tilewise.benchmarks.model.mutants.source import Mutant, mutated_text, path_of
from tilewise.db.records import Status
from tilewise.errors import NothingFeasible
from tilewise.kernels import registry
from tilewise.kernels.source import locate
from tilewise.kernels.spec import Buffer, Config, KernelSpec, Problem, Target, Value
from tilewise.tuner.devices.ascend_model.executor.memory import Fault
from tilewise.tuner.measure.comparison import PRECISION
from tilewise.tuner.measure.verify import Arguments
from tilewise.tuner.space.search_space import enumerate_space

if TYPE_CHECKING:
    import torch

__all__ = [
    "DRAWS_PER_PROBLEM",
    "LARGE_DIMS",
    "ORACLE_DIMS",
    "VERIFIED_DIMS",
    "mutated",
    "tried_large",
    "try_mutant",
    "users",
]

Dims = Mapping[str, int]

VERIFIED_DIMS: Mapping[tuple[str, ...], Sequence[Dims]] = {
    ("N",): [{"N": 20011}, {"N": 8192}, {"N": 100}],
    ("M", "N"): [{"M": 77, "N": 1001}, {"M": 64, "N": 512}, {"M": 5, "N": 40}],
    ("N", "C", "HW"): [{"N": 5, "C": 7, "HW": 131}, {"N": 4, "C": 8, "HW": 256}, {"N": 2, "C": 3, "HW": 9}],
    ("M", "H", "HALF"): [{"M": 23, "H": 5, "HALF": 33}, {"M": 16, "H": 8, "HALF": 32}, {"M": 3, "H": 2, "HALF": 5}],
    ("M", "E", "TOPK"): [{"M": 77, "E": 37, "TOPK": 5}, {"M": 64, "E": 16, "TOPK": 4}, {"M": 5, "E": 8, "TOPK": 1}],
}
"""The problems that mutants are verified on, by a kernel's dimension names: with tails, without, and small."""

LARGE_DIMS: Mapping[tuple[str, ...], Dims] = {
    ("N",): {"N": (1 << 25) + 12345},
    ("M", "N"): {"M": 40009, "N": 1601},
    ("N", "C", "HW"): {"N": 6, "C": 33001, "HW": 131},
}
"""Problems that a model does not execute whole, for the kernels of `source.MODULES`."""

_LARGE_TRIES = 3
"""The most configs of a variant that are tried on a large problem until the unchanged kernel runs with one."""

ORACLE_DIMS: Mapping[tuple[str, ...], Sequence[Dims]] = {
    ("N",): [
        {"N": n}
        for n in (
            1,
            2,
            7,
            31,
            64,
            129,
            255,
            256,
            300,
            777,
            1024,
            1500,
            2047,
            4097,
            5003,
            6000,
            9999,
            12288,
            16384,
            16390,
        )
    ],
    ("M", "N"): [
        {"M": m, "N": n}
        for m, n in (
            *((1, 1), (1, 300), (300, 1), (2, 2), (3, 7), (7, 64), (9, 1023), (16, 16), (17, 129), (31, 255)),
            *(
                (32, 256),
                (40, 640),
                (41, 33),
                (50, 127),
                (63, 500),
                (65, 192),
                (100, 60),
                (128, 100),
                (130, 40),
                (11, 2050),
            ),
        )
    ],
    ("N", "C", "HW"): [
        {"N": n, "C": c, "HW": hw}
        for n, c, hw in (
            *((1, 1, 1), (1, 1, 300), (1, 5, 1), (2, 1, 2), (3, 2, 7), (4, 4, 64), (2, 9, 100), (7, 3, 49), (8, 2, 33)),
            *((1, 17, 50), (3, 8, 127), (6, 6, 36), (16, 2, 16), (2, 2, 512), (5, 3, 200), (9, 4, 25), (3, 33, 10)),
            *((2, 4, 640), (11, 1, 90), (4, 7, 65)),
        )
    ],
    ("M", "H", "HALF"): [
        {"M": m, "H": h, "HALF": half}
        for m, h, half in (
            *((1, 1, 1), (1, 1, 64), (1, 9, 1), (20, 1, 1), (2, 3, 2), (3, 2, 7), (4, 4, 16), (5, 12, 32), (6, 1, 100)),
            *((7, 3, 40), (8, 8, 64), (9, 5, 12), (10, 33, 4), (13, 2, 65), (17, 6, 20), (25, 4, 48), (31, 1, 31)),
            *((32, 2, 32), (40, 3, 9), (50, 5, 5)),
        )
    ],
    ("M", "E", "TOPK"): [
        {"M": m, "E": e, "TOPK": k}
        for m, e, k in (
            *((1, 1, 1), (1, 64, 6), (300, 2, 1), (2, 2, 2), (3, 7, 3), (7, 64, 8), (9, 100, 2), (16, 16, 4)),
            *((17, 129, 5), (31, 255, 3), (32, 256, 8), (40, 60, 7), (41, 33, 1), (50, 127, 6), (63, 8, 8)),
            *((65, 192, 2), (100, 12, 3), (128, 32, 4), (130, 40, 1), (11, 300, 10)),
        )
    ],
}
"""Twenty problems that verification never uses, by a kernel's dimension names."""

DRAWS_PER_PROBLEM = 3
"""Draws of the oracle for each of its problems: sixty in all."""

_KERNELS = 3
"""The most kernels in which a mutant is tried, where several use the changed function."""

_CHOICES = 3
"""Different random choices of configs for a kernel's problem; mutants share them, so that each is compiled once."""

_CLEARLY = 4.0
"""A mutant is clearly further off than its kernel at four times the deviation."""

_FLOOR = {"float32": 2.0**-20, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Deviation below which nothing is told apart, relative to the element plus the RMS: some rounding, by dtype."""


def try_mutant(
    mutant: Mutant,
    device: str,
    folder: Path,
    seed: int,
    agreed: Sequence[Mapping[str, Any]] = (),
    different: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the outcome of one mutant as plain JSON values; this is called in a process of its own.

    `outcome` is `refused`, `not compiled` (in the first situation where its code differs), `same code` (in all) or
    `agreed`, with the situations. Given those, verification is asked where the runs of mutant and kernel are
    `different`, and then the oracle decides: `equivalent` or `survived`.
    """
    began = time.monotonic()
    used = runner(device, folder)
    with tempfile.TemporaryDirectory(prefix="tilewise-mutant-") as place:
        module = imported(mutant, Path(place))
        judged = (agreed, different)
        found = _judged(mutant, module, used, seed, *judged) if agreed else _tried(mutant, module, used, seed)
    return found | {"seconds": round(time.monotonic() - began, 1)}


def _tried(mutant: Mutant, module: ModuleType, used: Runner, seed: int) -> dict[str, Any]:
    agreed: list[dict[str, Any]] = []
    for spec, problem, config in _situations(mutant, used, random.Random(f"{seed} {mutant.name}")):
        found = _in_situation(mutant, module, used, spec, problem, config)
        if found["outcome"] == "agreed":
            agreed.append(situation(problem, config))
        elif found["outcome"] != "same code":
            return found
    large = tried_large(mutant, module, used, seed)
    if not isinstance(large, list):
        return large
    agreed += large
    return {"outcome": "agreed", "verified": agreed} if agreed else {"outcome": "same code"}


def _in_situation(
    mutant: Mutant, module: ModuleType, used: Runner, spec: KernelSpec, problem: Problem, config: Config
) -> dict[str, Any]:
    """Return the outcome in one situation: `same code`, `not compiled`, `unmodelled`, `refused` or `agreed`."""
    changed = mutated(spec, mutant.module, module)
    try:
        if used.code(changed, problem, config) == _code_of(used, spec.name, problem, config):
            return {"outcome": "same code"}
    except Unusable as error:
        return {"outcome": "not compiled", **situation(problem, config), "reason": str(error)}
    verdict = used.verify(changed, problem, config)
    if verdict.agreed:
        return {"outcome": "agreed"}
    names = {Status.COMPILE: "not compiled", Status.UNMODELLED: "unmodelled"}
    outcome = names.get(verdict.status, "refused")
    return {"outcome": outcome, **situation(problem, config), "reason": verdict.reason}


def tried_large(mutant: Mutant, module: ModuleType, used: Runner, seed: int) -> list[dict[str, Any]] | dict[str, Any]:
    """Return the large situations in which verification agrees, or the outcome of the first in which it refuses the
    mutant and not the unchanged kernel."""
    agreed = []
    kernels = [name for name in users(mutant) if registry.load(name).dims in LARGE_DIMS]
    random.Random(f"{seed} {mutant.name} large").shuffle(kernels)
    for name in kernels[:_KERNELS]:
        spec = registry.load(name)
        problem = Problem(name, dict(LARGE_DIMS[spec.dims]), "float32")
        for order in orders(used.target, problem, "large")[::2]:
            for config in order[:_LARGE_TRIES]:
                found = _in_situation(mutant, module, used, spec, problem, config)
                if found["outcome"] == "refused" and used.verify(spec, problem, config).agreed:
                    return found
                if found["outcome"] == "agreed":
                    agreed.append(situation(problem, config))
                if found["outcome"] in ("agreed", "same code"):
                    break
    return agreed


def situation(problem: Problem, config: Config) -> dict[str, Any]:
    return {"kernel": problem.kernel, "dims": dict(problem.dims), "dtype": problem.dtype, "config": dict(config)}


def _situations(mutant: Mutant, used: Runner, generator: random.Random) -> Iterator[tuple[KernelSpec, Problem, Config]]:
    """Yield situations, those of one kernel after another."""
    kernels = users(mutant)
    generator.shuffle(kernels)
    for name in kernels[:_KERNELS]:
        spec = registry.load(name)
        narrow = generator.choice([dtype for dtype in spec.dtypes if dtype != "float32"])
        for index, dims in enumerate(VERIFIED_DIMS[spec.dims]):
            problem = Problem(name, dict(dims), narrow if index % 2 else "float32")
            for config in _configs(used, problem, f"verified {generator.randrange(_CHOICES)}"):
                yield spec, problem, config


def users(mutant: Mutant) -> list[str]:
    """Return the kernels with functions in the mutant's module, of which one uses the changed function."""
    path = path_of(mutant.module)
    return [
        name
        for name in registry.vector_names()
        if any(
            file == path and mutant.function in _used_by(str(file), function)
            for file, function in locate(registry.load(name))
        )
    ]


@functools.cache
def _used_by(file: str, function: str) -> frozenset[str]:
    """Return the names of the functions of a file that one uses, directly or indirectly, and its own."""
    import ast

    defined = {node.name: node for node in ast.parse(Path(file).read_text()).body if isinstance(node, ast.FunctionDef)}
    seen: set[str] = set()
    waiting = [function]
    while waiting:
        name = waiting.pop()
        if name in defined and name not in seen:
            seen.add(name)
            waiting += [node.id for node in ast.walk(defined[name]) if isinstance(node, ast.Name)]
    return frozenset(seen)


def _configs(used: Runner, problem: Problem, seed: str) -> list[Config]:
    """Return up to two configs of each variant for which the unchanged kernel runs, as tunings meet both: one that cuts
    most axes, and a random one."""
    found = (_first_usable(used, problem, order) for order in orders(used.target, problem, seed))
    return [*{str(config): config for config in found if config is not None}.values()]


def _one_config(used: Runner, problem: Problem, seed: str, generator: random.Random) -> Config | None:
    """Return one of those, drawn at random, or None if the unchanged kernel runs with none."""
    found = orders(used.target, problem, seed)
    drawn = generator.sample(found, len(found))
    return next((one for order in drawn if (one := _first_usable(used, problem, order)) is not None), None)


_ORDERS: dict[tuple[str, str], list[list[Config]]] = {}


def orders(target: Target, problem: Problem, seed: str) -> list[list[Config]]:
    """Return two lists of twenty configs of each variant: those that cut most axes, and random ones."""
    key = (str(problem), seed)
    if key not in _ORDERS:
        _ORDERS[key] = _drawn_orders(target, problem, seed)
    return _ORDERS[key]


def _drawn_orders(target: Target, problem: Problem, seed: str) -> list[list[Config]]:
    spec = registry.load(problem.kernel)
    try:
        space = enumerate_space(spec, problem, target)
    except NothingFeasible:
        return []
    configs = list(space.configs)
    random.Random(seed).shuffle(configs)
    found = []
    for variant in dict.fromkeys(config.get("VARIANT") for config in configs):
        same = [config for config in configs if config.get("VARIANT") == variant]
        divided = sorted(same[:200], key=lambda config: -_cuts(spec, problem, config))
        found += [divided[:20], same[:20]]
    return found


def _cuts(spec: KernelSpec, problem: Problem, config: Config) -> int:
    """Return how many axes are divided among programs, and how many are walked in several trips."""
    axes = spec.tiling(config, problem).axes
    return sum((axis.programs > 1) + (axis.trips > 1) for axis in axes)


_USABLE: dict[tuple[str, tuple[tuple[str, Value], ...]], bool] = {}


def _first_usable(used: Runner, problem: Problem, configs: Sequence[Config]) -> Config | None:
    return next((config for config in configs if _is_usable(used, problem, config)), None)


def _is_usable(used: Runner, problem: Problem, config: Config) -> bool:
    key = (str(problem), tuple(config.items()))
    if key not in _USABLE:
        spec = registry.load(problem.kernel)
        try:
            used.run(spec, problem, config, Arguments(spec, problem, device=used.place))
            _USABLE[key] = True
        except (Unusable, Fault):
            _USABLE[key] = False
    return _USABLE[key]


_CODES: dict[tuple[object, ...], tuple[str, ...]] = {}


def _code_of(used: Runner, name: str, problem: Problem, config: Config) -> tuple[str, ...]:
    """Return the unchanged kernel's code, made once."""
    key = (name, str(problem), tuple(config.items()))
    if key not in _CODES:
        _CODES[key] = used.code(registry.load(name), problem, config)
    return _CODES[key]


# The changed kernel ------------------------------------------------------------------------------------------------


def imported(mutant: Mutant, folder: Path) -> ModuleType:
    """Write the changed module to a file, which Triton reads functions from, and import it."""
    name = f"tilewise_mutant_{mutant.name.replace('-', '_')}"
    file = folder / f"{name}.py"
    file.write_text(mutated_text(mutant))
    location = importlib.util.spec_from_file_location(name, file)
    assert location is not None and location.loader is not None
    module = importlib.util.module_from_spec(location)
    sys.modules[name] = module
    location.loader.exec_module(module)
    return module


def mutated(spec: KernelSpec, name: str, module: ModuleType) -> KernelSpec:
    """Return the spec with its functions taken from `module` instead of the project's module of that name."""
    prefix = f"tilewise.kernels.jit.{name}:"

    def swapped(function: Any) -> Any:
        ours = isinstance(function, str) and function.startswith(prefix)
        return getattr(module, function.removeprefix(prefix)) if ours else function

    if spec.launches is None:
        return replace(spec, function=swapped(spec.function))
    launches = spec.launches

    def changed(config: Config, problem: Problem) -> list[Any]:
        return [replace(step, function=swapped(step.function)) for step in launches(config, problem)]

    return replace(spec, function=tuple(map(swapped, spec.function)), launches=changed)


def _judged(
    mutant: Mutant,
    module: ModuleType,
    used: Runner,
    seed: int,
    agreed: Sequence[Mapping[str, Any]],
    different: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the outcome where the runs of mutant and kernel differ if verification refuses the mutant there, and not
    the kernel; else what the oracle finds."""
    usable = []
    for at in different:
        spec, problem, config = _restored(at)
        large = problem.dims == LARGE_DIMS.get(spec.dims)  # it is verified in part, and never run whole
        if not large and not _is_usable(used, problem, config):
            continue
        found = _in_situation(mutant, module, used, spec, problem, config)
        if found["outcome"] == "refused" and used.verify(spec, problem, config).agreed:
            return found | {"where": at["why"]}
        if not large:
            usable.append(situation(problem, config))
    return _separated(mutant, module, used, [*agreed, *usable], usable, seed)


def _restored(at: Mapping[str, Any]) -> tuple[KernelSpec, Problem, Config]:
    return registry.load(at["kernel"]), Problem(at["kernel"], dict(at["dims"]), at["dtype"]), at["config"]


# The oracle ----------------------------------------------------------------------------------------------------------


def _separated(
    mutant: Mutant,
    module: ModuleType,
    used: Runner,
    agreed: Sequence[Mapping[str, Any]],
    different: Sequence[Mapping[str, Any]],
    seed: int,
) -> dict[str, Any]:
    """Say how the oracle tells an unrefused mutant from its kernel, if it does, and whether verification would too with
    the oracle's config and problem: it was not asked before, and a tuning of that problem would ask it."""
    draws, problems, missed = 0, 0, {"verified": list(agreed)}
    for index, (spec, problem, config) in enumerate(_looked_at(mutant, used, agreed, different, seed)):
        changed = mutated(spec, mutant.module, module)
        problems += 1
        if _is_same_code(used, spec, changed, problem, config):
            draws += DRAWS_PER_PROBLEM
            continue
        for draw in range(DRAWS_PER_PROBLEM):
            draws += 1
            if how := _told_apart(used, spec, changed, problem, config, 1000 * index + draw):
                there = used.verify(changed, problem, config)
                found = {"oracle": how, "refused_there": not there.agreed, "reason": there.reason}
                return {"outcome": "survived", **found, **situation(problem, config), **missed}
    return {"outcome": "equivalent", "draws": draws, "problems": problems, "kernel": agreed[0]["kernel"], **missed}


def _looked_at(
    mutant: Mutant,
    used: Runner,
    agreed: Sequence[Mapping[str, Any]],
    different: Sequence[Mapping[str, Any]],
    seed: int,
) -> Iterator[tuple[KernelSpec, Problem, Config]]:
    """Yield the oracle's problems with a config each, then the situations where the runs differ."""
    generator = random.Random(f"{seed} {mutant.name} oracle")
    spec = registry.load(agreed[0]["kernel"])
    narrow = next((at["dtype"] for at in agreed if at["dtype"] != "float32"), "float32")
    for index, dims in enumerate(ORACLE_DIMS[spec.dims]):
        problem = Problem(spec.name, dict(dims), narrow if index % 4 == 3 else "float32")
        config = _one_config(used, problem, f"oracle {spec.name} {index}", generator)
        if config is not None:
            yield spec, problem, config
    yield from map(_restored, different)


def _is_same_code(used: Runner, spec: KernelSpec, changed: KernelSpec, problem: Problem, config: Config) -> bool:
    try:
        return used.code(changed, problem, config) == _code_of(used, spec.name, problem, config)
    except Unusable:
        return False


_RIGHT: dict[tuple[object, ...], dict[str, float]] = {}
"""Deviations of the unchanged kernels, by problem, config and draw."""


def _told_apart(
    used: Runner, spec: KernelSpec, changed: KernelSpec, problem: Problem, config: Config, seed: int
) -> str:
    """Return how the mutant's outputs differ from float64 where the kernel's do not, or an empty text."""
    arguments = Arguments(spec, problem, device=used.place)
    _fill(arguments, seed)
    wanted = spec.reference_of(problem)({name: _wide(tensor) for name, tensor in arguments.inputs.items()})
    key = (str(problem), tuple(config.items()), seed)
    if key not in _RIGHT:
        used.run(spec, problem, config, arguments)
        _RIGHT[key] = _deviations(arguments, wanted)
    try:
        used.run(changed, problem, config, arguments)
    except Fault as fault:
        return f"{fault}"
    except Unusable as error:
        return f"does not compile here: {error}"
    off, floor = _deviations(arguments, wanted), _FLOOR[problem.dtype]
    for name in wanted:
        right, wrong = _RIGHT[key][name], off[name]
        if not wrong <= _CLEARLY * max(right, floor):
            return f"{name}: off by {wrong:.1e} where the kernel is off by {right:.1e}"
    return ""


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor.long()


def _deviations(arguments: Arguments, wanted: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Return each output's largest deviation relative to the element plus the RMS; infinite for a wrong NaN."""
    found = {}
    for name, reference in wanted.items():
        got = arguments.outputs[name]
        rounded = reference.to(got.dtype).double() if got.is_floating_point() else reference.double()
        finite = rounded.isfinite()
        actual = got.double()
        alike = (actual == rounded) | (actual.isnan() & rounded.isnan())
        if bool((~finite & ~alike).any()) or bool((finite & ~actual.isfinite()).any()):
            found[name] = math.inf
            continue
        exact = reference.double()[finite]
        rms = float(exact.square().mean().sqrt()) if exact.numel() else 0.0
        deviation = (actual[finite] - exact).abs() / (exact.abs() + rms + 1e-30)
        found[name] = float(deviation.max()) if deviation.numel() else 0.0
    return found


_KINDS: Sequence[Callable[[Any, Any, random.Random], None]] = (
    lambda x, g, r: x.normal_(generator=g),
    lambda x, g, r: x.normal_(generator=g).mul_(10 ** r.uniform(-2, 2)),
    lambda x, g, r: x.normal_(generator=g).add_(r.uniform(-5, 5)),
    lambda x, g, r: x.uniform_(0.5, 4.0, generator=g),
    lambda x, g, r: x.uniform_(-40.0, -30.0, generator=g),
    lambda x, g, r: x.exponential_(1.0, generator=g),
    lambda x, g, r: x.uniform_(0.0, 1.0, generator=g).pow_(30).mul_(150.0),
)
"""Ways of the oracle to draw an input; the last has a few large numbers among many small ones."""


def _fill(arguments: Arguments, seed: int) -> None:
    """Draw all inputs anew, each in a way of its own, with one element in ten rows far out."""
    import torch

    chosen = random.Random(seed)
    generator = torch.Generator(next(iter(arguments.tensors.values())).device).manual_seed(7919 + seed)
    for name, buffer in arguments.buffers.items():
        if buffer.role != "out":
            _fill_one(arguments.tensors[name], buffer, generator, chosen)
    arguments.adopt()


def _fill_one(tensor: torch.Tensor, buffer: Buffer, generator: torch.Generator, chosen: random.Random) -> None:
    if buffer.draw is not None or buffer.dtype not in PRECISION:
        if buffer.draw is not None:
            buffer.draw(tensor, generator)
        return
    chosen.choice(_KINDS)(tensor, generator, chosen)
    rows = tensor.view(-1, tensor.shape[-1])
    for _ in range(max(1, len(rows) // 10)):
        at = (chosen.randrange(len(rows)), chosen.choice([0, rows.shape[1] - 1, chosen.randrange(rows.shape[1])]))
        rows[at] = chosen.choice([-1, 1]) * chosen.uniform(20, 120)
