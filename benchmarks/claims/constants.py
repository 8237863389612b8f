"""Constants of the product, with what their docstrings say about their source."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MODULES", "Constant", "constants", "meaning_of_by_hand"]

MODULES = (
    *("tuner/prior/ascend.py", "tuner/prior/nvidia.py", "tuner/prior/tensor_cores.py"),
    *("tuner/samplers/guided.py", "tuner/samplers/gaussian_process.py"),
    *("tuner/samplers/warm_start.py", "tuner/samplers/prior_weights.py"),
    *("tuner/portfolio/build.py", "tuner/portfolio/cost_model.py", "tuner/portfolio/portfolio.py"),
    *("tuner/portfolio/decision_tree.py", "tuner/portfolio/cross_evaluation.py"),
    "tuner/lookup/nearest_shapes.py",
)
"""The modules with most of the constants that decide what is tried, launched or returned."""

_BY_HAND = '"Chosen by hand" below means: '


@dataclass(frozen=True, slots=True)
class Constant:
    """An assignment of numbers at module level, and the docstring below it (empty if there is none)."""

    names: str
    value: str
    source: str

    @property
    def is_chosen(self) -> bool:
        """Return whether somebody chose the value, instead of a data sheet, a definition or a table."""
        return "chosen" in self.source.lower()


def constants(root: Path, module: str) -> list[Constant]:
    """Return the module's constants that hold a number, in their order."""
    body = ast.parse((root / module).read_text()).body
    found = []
    for node, after in itertools.zip_longest(body, body[1:]):
        if isinstance(node, ast.Assign) and any(_holds_number(each) for each in ast.walk(node.value)):
            names = ", ".join(_names(node))
            if names.isupper():
                found.append(Constant(names, ast.unparse(node.value), _text(after)))
    return found


def meaning_of_by_hand(root: Path, module: str) -> str:
    """Return what "chosen by hand" means in the module, by its docstring; empty if each constant says it."""
    prose = " ".join((ast.get_docstring(ast.parse((root / module).read_text())) or "").split())
    return prose.partition(_BY_HAND)[2]


def _holds_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def _names(node: ast.Assign) -> Iterator[str]:
    for target in node.targets:
        yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def _text(node: ast.AST | None) -> str:
    """Return the words of a string that stands alone."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""
