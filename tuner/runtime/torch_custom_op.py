"""Tuned launches as torch operations, which `torch.compile` puts into its graph without tracing them."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tilewise.db.records import Flags
from tilewise.kernels.spec import KernelSpec, Problem

__all__ = ["custom_op", "uncompiled"]

_numbers = itertools.count(1)


def uncompiled(launch: Callable[..., Any]) -> tuple[Callable[[], bool], Callable[..., Any]]:
    """Return a function that tells whether `torch.compile` is reading the caller, and `launch` as a call that it leaves
    to Python. Without torch, nothing is ever compiled."""
    if "torch" not in sys.modules:
        return bool, launch
    compiler: Any = importlib.import_module("torch.compiler")
    return compiler.is_compiling, compiler.disable(launch)


def custom_op(
    spec: KernelSpec, names: Sequence[str], launch: Callable[..., None], flags: Flags, *, first: Sequence[str] = ()
) -> Any:
    """Make a torch operation `(*arguments) -> ()` that calls `launch`.

    Its arguments, called `names`, must be buffers and scalars of a problem of the spec with these flags; those before
    them are declared by `first`. Returns None if one is neither, because its type is then unknown.
    """
    import torch

    problem = Problem(spec.name, dict.fromkeys(spec.dims, 64), spec.dtypes[0], flags)
    buffers, scalars = spec.buffers(problem), spec.scalars(problem)
    written = [name for name in names if name in buffers and buffers[name].role != "in"]
    declared = list(first)
    for name in names:
        if name in buffers:
            declared.append(f"Tensor(a{len(declared)}!) {name}" if name in written else f"Tensor {name}")
        elif name in scalars:
            declared.append(f"{'float' if isinstance(scalars[name], float) else 'SymInt'} {name}")
        else:
            return None
    schema = f"({', '.join(declared)}) -> ()"
    name = f"tilewise::{spec.name}_{next(_numbers)}"
    operation = torch.library.custom_op(name, launch, mutates_args=written, schema=schema)
    operation.register_fake(lambda *arguments: None)
    return operation
