"""Tuned launches as torch operations, which `torch.compile` puts into its graph without tracing them.

An operation's name follows from what it launches, so that a program that `torch.export` saved finds it in any process
that has made it, in whatever order. Torch refuses a program whose operation the process has not made.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilewise.db.records import Flags, digest
from tilewise.errors import UsageError
from tilewise.kernels.spec import KernelSpec, Problem

__all__ = ["custom_op", "uncompiled"]

_made: Counter[str] = Counter()
"""How many operations of a name this process has made: those after the first are called by their number too."""


def uncompiled(launch: Callable[..., Any], name: str) -> tuple[Callable[[], bool], Callable[..., Any]]:
    """Return a function that tells whether `torch.compile` is reading the caller, and `launch` as a call that it leaves
    to Python, and that `torch.export` cannot have. Without torch, nothing is ever compiled."""
    if "torch" not in sys.modules:
        return bool, launch
    compiler: Any = importlib.import_module("torch.compiler")

    def not_exported(*args: Any, **kwargs: Any) -> Any:
        if compiler.is_exporting():
            raise UsageError(
                f"{name} cannot be exported, as another process could not repeat its launch; use a kernel under "
                "tilewise.tuned, or a tilewise.Operator, in programs for torch.export"
            )
        return launch(*args, **kwargs)

    return compiler.is_compiling, compiler.disable(not_exported)


def custom_op(
    spec: KernelSpec,
    names: Sequence[str],
    launch: Callable[..., None],
    flags: Flags,
    *,
    place: str,
    first: Sequence[str] = (),
) -> Any:
    """Make a torch operation `(*arguments) -> ()` that calls `launch`.

    Its arguments, called `names`, must be buffers and scalars of a problem of the spec with these flags; those before
    them are declared by `first`. `place` is the module and name of what is launched. Returns None if an argument is
    neither buffer nor scalar, because its type is then unknown.
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
    operation = torch.library.custom_op(_name(spec, place, flags, schema), launch, mutates_args=written, schema=schema)
    operation.register_fake(lambda *arguments: None)
    return operation


def _name(spec: KernelSpec, place: str, flags: Flags, schema: str) -> str:
    module, _, function = place.partition(":")
    if module == "__main__":  # another process imports the file under its name
        module = Path(getattr(sys.modules[module], "__file__", None) or module).stem
    name = f"tilewise::{spec.name}_{digest([spec.name, module, function, dict(flags), schema])[:12]}"
    _made[name] += 1
    return name if _made[name] == 1 else f"{name}_{_made[name]}"
