"""Kernels inside functions, under Triton's interpreter: it rewrites a kernel without the variables around it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

__all__ = ["closures_kept"]


@contextmanager
def closures_kept() -> Iterator[None]:
    """Have the interpreter's kernels see the variables around them while the block runs, as compiled ones do."""
    rewriter: Any = importlib.import_module("triton.runtime.interpreter").FunctionRewriter
    executes = rewriter._compile_and_exec

    def execute(self: Any, tree: Any) -> Any:
        function = self.fn
        if given := inspect.getclosurevars(function).nonlocals:
            # a copy: another kernel of the file may have other variables of these names
            names = {**function.__globals__, **given}
            self.fn = SimpleNamespace(__name__=function.__name__, __globals__=names)
        return executes(self, tree)

    rewriter._compile_and_exec = execute
    try:
        yield
    finally:
        rewriter._compile_and_exec = executes
