"""A spec from recorded launches: their form, and the work that the compiled code does."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tilewise.errors import BadSpec, TilewiseError
from tilewise.kernels.inferred import NVIDIA_OPTIONS
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.capture.calls import CapturedKernel
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.hardware.ascend_parts import PARTS
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.inference.code import Work, read_code
from tilewise.tuner.inference.compile_error import describe_at_source
from tilewise.tuner.inference.division import Division, Sample, find_division, with_memory
from tilewise.tuner.inference.form import Form, find_form
from tilewise.tuner.inference.spec_text import Roles, spec_text
from tilewise.tuner.measure.launch import compiled, resolve_function
from tilewise.tuner.space.search_space import check_tilings, enumerate_space
from tilewise.tuner.stand_in.accelerator import accelerator_stand_in
from tilewise.tuner.stand_in.driver import is_ascend

__all__ = ["Inferred", "infer", "loaded"]

_Item = TypeVar("_Item")

_PART, _GPU = "Ascend910B4", "NVIDIA H200"
"""Devices whose compilers read a kernel's work; what is read does not depend on the part."""

_PROBLEMS, _CONFIGS, _PLANNED = 2, 8, 4
"""Recorded problems and configs of each that are compiled, and configs that are compiled until memory is planned."""

_PLAN_SECONDS = 60
"""Time after which no further plan is asked for: most take a second, and none that takes long is worth it."""

_LOWER_SECONDS = 30
"""Time limit of the Ascend front end for a config: it takes a second, or does not end at all."""

_FULL_BYTES = 16
"""Memory for each element of a tile, with that of all operations, at which on-chip memory is about full."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """The text of a file with `SPEC`, the recorded problems, and what could not be told, one line each."""

    text: str
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


def infer(kernel: CapturedKernel, *, cache_folder: Path, widen: bool = False, reference: str = "") -> Inferred:
    """Infer a spec. Raises `BadSpec` with one line that says what is missing.

    `widen` tries powers of two around the program's values; it is set if the program leaves no choice. `reference` is
    the text of the spec's reference.
    """
    form = find_form(kernel)
    if not widen and len(_distinct(form.configs)) == 1:
        widen = True
        form.notes.append("The program has one config here: values around its own are tried too.")
    plain = loaded(spec_text(form, kernel.file, {}, None, widen=False))
    samples = _samples(form, plain, kernel.file)
    roles = _roles(kernel, form, [sample.work for sample in samples])
    how: dict[str, Any] = {"widen": widen, "reference": reference}
    how["multiplies"] = any(sample.work.dots for sample in samples)
    with_roles = spec_text(form, kernel.file, roles, None, **how)
    least = loaded(with_roles).bytes(form.problems[0])
    division = find_division(samples, form.dims, form.blocks, form.grid, least)
    if division is not None:
        division = with_memory(division, _planned(form, plain, division, cache_folder))
    text = spec_text(form, kernel.file, roles, division, **how)
    if division is None or not _fits(text, form.problems):
        form.notes.append("How a config divides the work could not be told, so it is searched without a prior; ")
        form.notes[-1] += "a `tiling` written by hand gives it one."
        text = spec_text(form, kernel.file, roles, None, **how)
    return Inferred(text, tuple(form.problems), tuple(form.notes))


def _distinct(configs: Sequence[Config]) -> list[Config]:
    """Return the configs that differ on the installed Triton's devices."""
    unused = NVIDIA_OPTIONS if is_ascend() else ("multibuffer",)
    found: list[Config] = []
    for config in configs:
        kept = {name: value for name, value in config.items() if name not in unused}
        found += [] if kept in found else [kept]
    return found


def loaded(text: str) -> KernelSpec:
    """Return the spec that an inferred text defines."""
    names: dict[str, object] = {}
    exec(compile(text, "inferred spec", "exec"), names)
    spec = names["SPEC"]
    assert isinstance(spec, KernelSpec)
    return spec


def _samples(form: Form, spec: KernelSpec, file: Path) -> list[Sample]:
    """Compile some configs of some problems. Raises `BadSpec` if none compiles."""
    found: list[Sample] = []
    errors: list[str] = []
    for problem, config in _chosen(form):
        try:
            with accelerator_stand_in():
                found.append(_sample(form, spec, problem, config))
        except Exception as error:  # the front end raises exceptions of any type
            errors.append(describe_at_source(error, file))
    if not found:
        raise BadSpec(f"no spec can be inferred for {form.name}: it does not compile here: {errors[0]}")
    return found


def _chosen(form: Form) -> Iterator[tuple[Problem, Config]]:
    for index in _spread(range(len(form.problems)), _PROBLEMS):
        configs = _distinct(
            form.recorded[index]
        )  # a block that holds a row of one problem may not hold that of another
        if len(_distinct(form.configs)) == 1:  # which number comes from which parameter shows only where they change
            first = configs[0]
            configs += [{**first, name: factor * int(first[name])} for name in form.blocks for factor in (2, 4)]
        for config in _spread(configs, _CONFIGS):
            yield form.problems[index], config


def _spread(items: Sequence[_Item], count: int) -> Sequence[_Item]:
    if len(items) <= count:
        return items
    return [items[round(index * (len(items) - 1) / (count - 1))] for index in range(count)]


def _sample(form: Form, spec: KernelSpec, problem: Problem, config: Config) -> Sample:
    (launch,) = spec.plan(config, problem)
    function = resolve_function(spec, launch.function)
    scalars = spec.scalars(problem)
    fixed = {**spec.constants(problem), **config, **launch.constants}
    names = [
        p.name
        for p in function.params
        if not p.is_constexpr
        and p.name not in fixed
        and not (type(scalars.get(p.name)) is int and scalars[p.name] == 1 and not p.do_not_specialize)
    ]
    if is_ascend():
        text = toolchain.triton_ir(spec, problem, config, launch, _PART)
    else:
        text = next(compiled(spec, problem, config)).asm["ttir"]
    integers = {name: value for name, value in scalars.items() if isinstance(value, int)}
    work = read_code(text, names, integers, launch.grid)
    if work is None:
        raise BadSpec(f"the compiled {form.name} takes other arguments than the launch")
    sizes = {name: buffer.shape for name, buffer in spec.buffers(problem).items()}
    return Sample(form.integers(problem, config), launch.grid, work, sizes)


def _planned(form: Form, spec: KernelSpec, division: Division, cache_folder: Path) -> list[tuple[dict[str, int], int]]:
    """Return the dims and parameters of a few configs with the on-chip memory that the compiler plans for them.

    They come nearer and nearer to filling it: with small tiles there is no need to reuse memory. Raises `BadSpec` if
    the front end ends for none, nor for the smallest tile: each trial would wait for it in vain.
    """
    if not is_ascend():
        return []
    problem, capacity = form.problems[0], _target().on_chip_bytes
    by_tile = {division.tile.value(form.integers(problem, config)): config for config in _distinct(form.recorded[0])}
    wanted, found, endless = capacity / _FULL_BYTES, list[tuple[dict[str, int], int]](), False
    latest = time.monotonic() + _PLAN_SECONDS
    for _ in range(min(_PLANNED, len(by_tile))):
        if time.monotonic() > latest:
            break
        tile = min(by_tile, key=lambda size: abs(math.log(size / wanted)))
        config = by_tile.pop(tile)
        try:
            with accelerator_stand_in():
                on_chip = _on_chip_bytes(spec, problem, config, cache_folder)
        except TimeoutError:  # the compiler would take as long for others
            break
        except _Endless as error:
            if found:  # it ends for smaller tiles
                break
            if endless or not by_tile:
                raise BadSpec(_endless(form, config, error)) from error
            endless, wanted = True, 1  # the smallest tile is the last hope
            continue
        except Exception:  # a config that does not compile tells nothing, whatever the front end raises
            continue
        if on_chip is not None:
            found.append((form.integers(problem, config), on_chip))
            wanted = tile * capacity / on_chip
    return found


class _Endless(Exception):
    """The front end does not end for a config; the text says after how long."""


def _endless(form: Form, config: Config, error: _Endless) -> str:
    shown = " for " + ", ".join(f"{name}={value}" for name, value in config.items()) if config else ""
    return (
        f"no spec can be inferred for {form.name}: the Ascend compiler's {error}{shown}; "
        "divide the kernel, or do with less of what is unrolled: sorts, static_range, large blocks"
    )


def _on_chip_bytes(spec: KernelSpec, problem: Problem, config: Config, cache_folder: Path) -> int | None:
    """Return the memory that the compiler plans for a config without double buffers, also if it is too much.

    Raises `TimeoutError` if the compiler does not end, `_Endless` if its front end does not, and what that raises.
    """
    from tilewise.tuner.devices.ascend_model.ir.hivm import parse
    from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation

    (launch,) = spec.plan(config, problem)
    try:
        linalg = toolchain.lower(spec, problem, config, launch, _PART, seconds=_LOWER_SECONDS)
    except TimeoutError as error:
        raise _Endless(str(error)) from error
    except (UnknownOperation, ValueError):
        return None
    try:
        made = toolchain.compile_linalg(linalg, _PART, {"multibuffer": False}, cache_folder=cache_folder)
        if made.timed_out:
            raise TimeoutError(made.refusal)
        return parse(made.code).planned_bytes("ub") if made.code else (made.required_bits or 0) // 8 or None
    except (UnknownOperation, ValueError):  # a kernel that the model cannot read has a division all the same
        return None


def _roles(kernel: CapturedKernel, form: Form, works: Sequence[Work]) -> Roles:
    """Return which tensors are written: those that the code stores to. Raises `BadSpec` if it stores nothing."""
    roles: Roles = {}
    for name in form.buffers:
        written, read = (any(getattr(work, way)(name) for work in works) for way in ("written", "read"))
        if not written:
            continue
        if name in kernel.reset_to_zero:
            roles[name] = 'role="out", initial=0.0'
        else:
            gaps = any(not call.tensors[name].is_dense for call in form.calls)
            roles[name] = f'role="{"inout" if read or gaps or name in kernel.restore_value else "out"}"'
    if not roles:
        raise BadSpec(f"no spec can be inferred for {kernel.name}: it stores nothing that can be followed")
    return roles


def _fits(text: str, problems: Sequence[Problem]) -> bool:
    """Return whether the division agrees with the grid for every config, as a tuning will check."""
    spec = loaded(text)
    try:
        for problem in _spread(problems, _PROBLEMS):
            check_tilings(spec, problem, enumerate_space(spec, problem, _target()).configs)
    except TilewiseError:
        return False
    return True


def _target() -> Target:
    return known_target(_PART, PARTS[_PART].cores) if is_ascend() else known_target(_GPU, 132)
