"""An inferred spec as a short Python file, to keep and to edit."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tilewise.db.records import Config, Value, shape_text
from tilewise.kernels.inferred import NVIDIA_OPTIONS
from tilewise.tuner.inference.division import Division
from tilewise.tuner.inference.expressions import Fit
from tilewise.tuner.inference.form import Form

__all__ = ["Roles", "spec_text"]

Roles = dict[str, str]
"""More fields of each buffer as text, such as `role="out"`."""

_MODULES = {
    "candidate_values": ("only_ascend", "only_nvidia"),
    "inferred": ("around", "between", "config_for", "configs_for", "exactly", "next_power_of_two", "unpacked"),
    "spec": ("Axis", "Buffer", "Dot", "Flag", "KernelSpec", "Launch", "Parameter", "Tiling", "ceil_div"),
}
"""Names that a file may need, by module of `tilewise.kernels`."""

_LAUNCHED = {"num_warps": 4, "num_stages": 3}
"""Triton's own values of compile options that a program does not give."""

_WIDE_OPTIONS = {"num_warps": "1, 2, 4, 8, 16", "num_stages": "1, 2, 3, 4"}


def spec_text(
    form: Form,
    file: Path,
    roles: Roles,
    division: Division | None,
    *,
    widen: bool,
    reference: str = "",
    multiplies: bool = False,
) -> str:
    """Return the text of a file that defines `SPEC`. `multiplies`: the kernel multiplies matrices.

    With `widen`, parameters take powers of two between and around the program's values, and every combination is a
    config; else the configs are those of the program. `reference` is an expression in the names of the inputs, or a
    function of all of them in order.
    """
    parts = [
        _configs(form.configs, widen),
        _function("buffers", form, (), [f"{_literal(name)}: {text}" for name, text in _buffers(form, roles)], "{}"),
        _grid(form),
        _tiling(form, division),
        _flops(form, division),
        _reference(form, roles, reference),
        _spec(form, file, division, widen=widen, reference=bool(reference), multiplies=multiplies),
    ]
    body = "\n\n\n".join(part for part in parts if part)
    head = f'"""{form.name} of {file.name}, inferred from {_launches(form)}.\n\nTuned as it stands by\n\n'
    head += f"    tilewise tune {{this file}}:SPEC -s {shape_text(form.problems[0].shape)} --dtype {form.dtypes[0]}\n"
    notes = "".join(f"\n{note}\n" for note in form.notes)
    return f'{head}{notes}"""\n\n{_imports(body)}\n\n{body}\n'


def _launches(form: Form) -> str:
    return f"{len(form.calls)} launches" if len(form.calls) > 1 else "one launch"


def _imports(body: str) -> str:
    lines = []
    if "tl." in body:
        lines.append("import triton.language as tl\n")
    for module, names in _MODULES.items():
        used = [name for name in names if f"{name}(" in body]
        lines += [f"from tilewise.kernels.{module} import {', '.join(used)}"] if used else []
    return "\n".join(lines)


def _configs(configs: Sequence[Config], widen: bool) -> str:
    added = {name: value for name, value in _LAUNCHED.items() if widen and name not in configs[0]}
    configs = [{**config, **added} for config in configs]
    rows = "".join(
        f"    {_mapping([(name, _literal(value)) for name, value in config.items()])},\n" for config in configs
    )
    return f"CONFIGS = [\n{rows}]\n" + '"""Those of the program; the first is its default."""'


def _unpacked(form: Form, fits: Iterable[Fit]) -> list[str]:
    """Return the statements that give an expression's names their values."""
    names = {name for fit in fits for name in fit.names}
    lines = []
    for source, known in (("problem.dims", form.dims), ("config", form.blocks)):
        used = [name for name in known if name in names]
        if used:
            lines.append(f"    {', '.join(used)} = {', '.join(f'{source}[{_literal(name)}]' for name in used)}")
    return lines


def _function(name: str, form: Form, fits: Iterable[Fit], items: Sequence[str], brackets: str) -> str:
    arguments = "problem" if name in ("buffers", "flops") else "config, problem"
    chosen = fits or [fit for buffer in form.buffers.values() for fit in buffer.sizes]
    inside = "".join(f"        {item},\n" for item in items)
    opened, closed = brackets[0], brackets[-1]
    lines = [f"def {name}({arguments}):", *_unpacked(form, chosen), f"    return {opened}\n{inside}    {closed}"]
    return "\n".join(lines)


def _buffers(form: Form, roles: Roles) -> Iterable[tuple[str, str]]:
    for name, buffer in form.buffers.items():
        sizes = ", ".join(fit.text for fit in buffer.sizes) + ("," if len(buffer.sizes) == 1 else "")
        dtype = "problem.dtype" if buffer.dtype is None else _literal(buffer.dtype)
        more = [text for text in (roles.get(name, ""), f"draw={buffer.draw}" if buffer.draw else "") if text]
        yield name, f"Buffer({', '.join([f'({sizes})', dtype, *more])})"


def _grid(form: Form) -> str:
    sizes = ", ".join(fit.text for fit in form.grid) + ("," if len(form.grid) == 1 else "")
    lines = ["def grid(config, problem):", *_unpacked(form, form.grid), f"    return ({sizes})"]
    if not form.computed:
        return "\n".join(lines)
    given = ", ".join(f"{_literal(name)}: {fit.text}" for name, fit in form.computed.items())
    launch = ["def launches(config, problem):", *_unpacked(form, form.computed.values())]
    launch.append(f"    return [Launch(FUNCTION, grid(config, problem), {{{given}}})]")
    return "\n".join([*lines, "", "", *launch])


def _tiling(form: Form, division: Division | None) -> str:
    if division is None:
        return ""
    fits = [fit for axis in division.axes for fit in (axis.size, axis.block, axis.step)]
    fits += [division.streamed, division.resident, division.traffic, division.reductions, *(division.dot or ())]
    axes = [f"Axis({_literal(axis.name)}, {axis.size}, {axis.block}, {axis.step})" for axis in division.axes]
    items = [
        f"({', '.join(axes)}{',' if len(axes) == 1 else ''})",
        f"streamed_bytes={division.streamed}",
        f"resident_bytes={division.resident}",
    ]
    items += [f"traffic={division.traffic}"] if division.traffic.text != "1.0" else []
    items += [f"reductions={division.reductions}"] if division.reductions.text != "0" else []
    block, step = division.axes[-1].block, division.axes[-1].step
    items += ["moved_back=True"] if division.moved_back else []
    items += [f"first_apart={block} > {step}"] if division.first_apart and block.text != step.text else []
    items += ["in_place=True"] if division.in_place else []
    if division.dot is not None:
        stages = ', stages=config.get("num_stages", 1)' if "num_stages" in form.parameters else ""
        alone = ", alone=True" if division.alone else ""
        grouped = next((name for name in form.blocks if name.upper().startswith("GROUP")), "")
        group = f", group=config[{_literal(grouped)}]" if grouped else ""
        items.append(f"dot=Dot({', '.join(fit.text for fit in division.dot)}{stages}{group}{alone})")
    inside = "".join(f"        {item},\n" for item in items)
    return "\n".join(["def tiling(config, problem):", *_unpacked(form, fits), f"    return Tiling(\n{inside}    )"])


def _flops(form: Form, division: Division | None) -> str:
    if division is None:
        return ""
    lines = ["def flops(problem):", *_unpacked(form, [division.elements])]
    count = division.flops_an_element
    text = f"{int(count)} * {division.elements}" if count.is_integer() else f"round({count} * {division.elements})"
    return "\n".join([*lines, f"    return {text}"])


def _reference(form: Form, roles: Roles, expression: str) -> str:
    if not expression:
        return ""
    inputs = [name for name in form.buffers if 'role="out"' not in roles.get(name, "")]
    outputs = [name for name in form.buffers if name in roles]
    if re.fullmatch(r"[\w.]+", expression) and expression not in inputs:
        expression = f"{expression}({', '.join(inputs)})"
    used = [name for name in inputs if re.search(rf"\b{name}\b", expression)]
    lines = ["def reference(inputs):", "    import torch", ""]
    lines += [f"    {', '.join(used)} = {', '.join(f'inputs[{_literal(name)}]' for name in used)}"] if used else []
    if _is_tuple(expression):  # typed without parentheses, it would be two arguments
        expression = f"({expression})"
    if len(outputs) == 1:
        return "\n".join([*lines, f"    return {{{_literal(outputs[0])}: {expression}}}"])
    return "\n".join([*lines, f"    return dict(zip({_tuple(outputs)}, {expression}, strict=True))"])


def _is_tuple(expression: str) -> bool:
    try:
        body = ast.parse(expression, mode="eval").body
    except SyntaxError:
        return False
    return isinstance(body, ast.Tuple)


def _spec(form: Form, file: Path, division: Division | None, *, widen: bool, reference: bool, multiplies: bool) -> str:
    place = _literal(f"{file}:{form.nesting}")
    parameters = "".join(f"        {text},\n" for text in _parameters(form, widen))
    scalars, constants = _passed(form)
    lines = [
        f"name={_literal(form.name)}",
        f'summary="{form.name} of {file.name}"',
        f"function={'(FUNCTION,)' if form.computed else place}",
        f"dims={_tuple(form.dims)}",
        f"dtypes={_tuple(form.dtypes)}",
        *_flag_lines(form),
        f"parameters=(\n{parameters}    )",
    ]
    if not widen and not _is_product(form.configs):
        lines.append("configs=lambda problem, target: configs_for(target, CONFIGS)")
    lines += ["buffers=buffers", f"scalars=lambda problem: {_mapping(scalars)}"]
    lines += [f"constants=lambda problem: {_mapping(constants)}"] if constants else []
    lines.append("launches=launches" if form.computed else "grid=grid")
    lines.append("tiling=tiling" if division else "tiling=lambda config, problem: Tiling((), 0, 0)")
    lines += ["matrix_dtype=lambda problem: problem.dtype"] if multiplies else []
    lines += ["reference=reference"] if reference else []
    lines.append("flops=flops" if division else "flops=lambda problem: 0")
    lines.append("default=lambda problem, target: config_for(target, CONFIGS[0])")
    imported = [(name, _literal(place)) for name, place in sorted(form.imported.items())]
    lines += [f"imported={_mapping(imported)}"] if imported else []
    lines.append("inferred=True")
    inside = "".join(f"    {line},\n" for line in lines)
    head = f"FUNCTION = {place}\n\n" if form.computed else ""
    return f"{head}SPEC = KernelSpec(\n{inside})"


def _passed(form: Form) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the run-time numbers and the constants that a launch passes, as text."""
    texts = {name: _in_dims(fit) for name, fit in form.fits.items()} | form.fixed
    scalars = {n: t for n, t in texts.items() if n not in form.constants and (n in form.fits or _is_number(t))}
    flags = {n: f"problem.flags.get({_literal(n)}, {_literal(values[0])})" for n, values in form.flags.items()}
    constants = {name: text for name, text in texts.items() if name not in scalars} | flags
    return list(scalars.items()), list(constants.items())


def _in_dims(fit: Fit) -> str:
    """Return an expression whose names are looked up where they stand."""
    text = fit.text
    for name in sorted(fit.names, key=len, reverse=True):
        text = re.sub(rf"(?<![\w'\"]){re.escape(name)}(?![\w'\"])", f"problem.dims[{_literal(name)}]", text)
    return text


def _flag_lines(form: Form) -> list[str]:
    flags = [f"Flag({_literal(name)}, {_literal(tuple(values))})" for name, values in form.flags.items()]
    return [f"flags=({', '.join(flags)},)"] if flags else []


def _parameters(form: Form, widen: bool) -> Iterable[str]:
    for name in _names(form.configs, widen):
        values = list(dict.fromkeys(config[name] for config in form.configs if name in config))
        listed, quoted = ", ".join(map(_literal, values)), _literal(name)
        if name in NVIDIA_OPTIONS:
            listed = _WIDE_OPTIONS.get(name, listed) if widen else listed
            yield f'Parameter({quoted}, only_nvidia({listed}), role="option")'
        elif name != "multibuffer":
            listed = f"around({listed})" if widen and all(map(_widens, values)) else f"[{listed}]"
            role = ', role="option"' if name in form.options else ""
            yield f"Parameter({quoted}, lambda problem, target: {listed}{role})"
    yield 'Parameter("multibuffer", only_ascend(True, False), role="option")'


def _names(configs: Sequence[Config], widen: bool) -> list[str]:
    return list(dict.fromkeys([*(name for config in configs for name in config), *(_LAUNCHED if widen else ())]))


def _widens(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 1 and value & (value - 1) == 0


def _is_product(configs: Sequence[Config]) -> bool:
    """Return whether the configs are all combinations of their values, on either family of devices."""
    names = list(configs[0])
    for kept in (names, [name for name in names if name not in NVIDIA_OPTIONS]):
        rows = {tuple(config[name] for name in kept) for config in configs}
        count = 1
        for index in range(len(kept)):
            count *= len({row[index] for row in rows})
        if count != len(rows):
            return False
    return True


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _tuple(words: Sequence[str]) -> str:
    return f"({', '.join(map(_literal, words))}{',' if len(words) == 1 else ''})"


def _mapping(items: Sequence[tuple[str, str]]) -> str:
    """Return a dictionary as text, in one line if it is short."""
    texts = [f"{_literal(name)}: {text}" for name, text in items]
    if sum(len(text) + 2 for text in texts) <= _WIDTH:
        return f"{{{', '.join(texts)}}}"
    return "{\n" + "".join(f"        {text},\n" for text in texts) + "    }"


_WIDTH = 80
"""Characters of a dictionary that stands in one line."""


def _literal(value: object) -> str:
    """Return a Python literal, with double quotes around text."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
