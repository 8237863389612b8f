"""Launches without a stored result, kept in the user's data folder to be tuned later.

A file of JSON lines for each kernel, one per launch that differs. Any number of processes may add to it at once, and a
line that a crash cut short is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilewise.errors import StoreError
from tilewise.kernels.source import digest
from tilewise.tuner.capture.calls import Argument, Call, CapturedKernel, TensorArgument, TritonDtype

__all__ = ["keep_launch", "kept_launches"]

_LIMIT_BYTES = 4 << 20
"""Size of a file, some thousands of launches, beyond which nothing is added."""


def keep_launch(kernel: CapturedKernel, data_folder: Path) -> None:
    """Append the kernel's newest launch. Raises `StoreError` if it cannot be written."""
    call = kernel.calls[-1]
    body = {
        "nesting": kernel.nesting,
        "parameters": kernel.parameters,
        "constants": sorted(kernel.constants),
        "key": kernel.key,
        "reset_to_zero": kernel.reset_to_zero,
        "restore_value": kernel.restore_value,
        "imported": dict(kernel.imported),
        "obstacles": kernel.obstacles,
        "arguments": {name: _to_json(value) for name, value in call.arguments.items()},
        "configs": [dict(config) for config in call.configs],
        "grids": call.grids,
        "computed": [dict(computed) for computed in call.computed],
    }
    file = _file(kernel.file, kernel.name, data_folder)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab", buffering=0) as opened:
            if opened.tell() < _LIMIT_BYTES:
                opened.write((json.dumps(body) + "\n").encode())  # a single append: lines of processes do not mix
    except OSError as error:
        raise StoreError(f"cannot write {file}: {error.strerror}; set TILEWISE_DATA to another folder") from error


def kept_launches(file: Path, name: str, data_folder: Path) -> CapturedKernel | None:
    """Return the kernel `name` of a program's `file` with its kept launches, or None if there are none."""
    lines = _lines(_file(file, name, data_folder))
    if not lines:
        return None
    newest = lines[-1]  # an earlier version of the kernel may have taken other arguments
    key, reset, restore = (tuple(newest[part]) for part in ("key", "reset_to_zero", "restore_value"))
    parameters, constants = tuple(newest["parameters"]), frozenset(newest["constants"])
    kernel = CapturedKernel(name, file, parameters, constants, key, reset, restore, newest.get("imported", {}))
    kernel.obstacles, kernel.nesting = list(newest["obstacles"]), newest.get("nesting", name)
    for line in lines:
        if line["parameters"] == newest["parameters"]:
            kernel.add(_call(line))
    return kernel


def _file(file: Path, name: str, data_folder: Path) -> Path:
    return data_folder / "launches" / f"{name}-{digest(str(file))[:12]}.jsonl"


def _lines(file: Path) -> list[Mapping[str, Any]]:
    found = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:  # cut short by a crash
            continue
    return found


def _call(line: Mapping[str, Any]) -> Call:
    arguments = {name: _from_json(value) for name, value in line["arguments"].items()}
    grids = tuple(tuple(grid) for grid in line["grids"])
    return Call(arguments, tuple(line["configs"]), grids, tuple(line["computed"]))


def _to_json(value: Argument) -> Any:
    if isinstance(value, TensorArgument):
        return {"tensor": asdict(value)}
    return {"dtype": value.text} if isinstance(value, TritonDtype) else value


def _from_json(value: Any) -> Argument:
    if not isinstance(value, dict):
        known: Argument = value
        return known
    if "dtype" in value:
        return TritonDtype(value["dtype"])
    return TensorArgument(**{name: _tuple(part) for name, part in value["tensor"].items()})


def _tuple(part: Any) -> Any:
    return tuple(part) if isinstance(part, Sequence) and not isinstance(part, str) else part
