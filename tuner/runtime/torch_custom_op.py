"""Tuned launches as torch operations, which `torch.compile` puts into its graph without tracing them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from tilewise.db.records import Flags
from tilewise.kernels.spec import KernelSpec, Problem

__all__ = ["custom_op"]

_numbers = itertools.count(1)


def custom_op(spec: KernelSpec, names: Sequence[str], launch: Callable[..., None], flags: Flags) -> Any:
    """Make a torch operation `(*arguments) -> ()` that calls `launch`.

    Its arguments, called `names`, must be buffers and scalars of a problem of the spec with these flags. Returns None
    if one is neither, because its type is then unknown.
    """
    import torch

    problem = Problem(spec.name, dict.fromkeys(spec.dims, 64), spec.dtypes[0], flags)
    buffers, scalars = spec.buffers(problem), spec.scalars(problem)
    written = [name for name in names if name in buffers and buffers[name].role != "in"]
    declared: list[str] = []
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
