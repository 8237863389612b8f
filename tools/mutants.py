"""Mutants: a seeded sample of places in the code, each changed in one way.

The operators are cosmic-ray's, as far as they give code that may be what someone meant: `<` becomes `<=` or `>=`, not
`is`. Two are ours: `DropCall` drops a statement that is a call, and `ScaleNumber` changes large numbers by half, where
cosmic-ray's adds or subtracts 1. Left alone are decorators; annotations and `TYPE_CHECKING` blocks, which do not run;
`strict=True` and `slots=True`, which change no result of code that is right; migrations, whose text is final; and
the functions in Gluon, which no interpreter runs: `make test-gpu` tests them on a Hopper GPU.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import parso
from cosmic_ray.ast import ast_nodes
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.operators.provider import OperatorProvider
from parso.python.tree import Keyword

__all__ = ["PACKAGES", "ROOT", "Mutant", "places", "sample"]

ROOT = Path(__file__).resolve().parents[1]

PACKAGES = {
    "kernels": "kernels/",
    "tuner": "tuner/",
    "model": "tuner/devices/ascend_model/",
    "db": "db/",
    "api": "api/",
}

GPU_ONLY = (
    "kernels/jit/attention/flash_hopper.py",
    "kernels/jit/matrix/block_fp8_hopper.py",
    "kernels/jit/matrix/gemm_hopper.py",
    "kernels/jit/topk_sorted.py",
)

_Position = tuple[int, int]


class DropCall(Operator):  # type: ignore[misc]
    """Replaces a statement that only calls something by `pass`."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[_Position, _Position]]:
        last = node.children[-1] if node.type == "atom_expr" and node.parent.type == "simple_stmt" else None
        if last is not None and last.type == "trailer" and last.children[0].value == "(":
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        return Keyword("pass", node.start_pos, node.get_first_leaf().prefix)

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


class ScaleNumber(Operator):  # type: ignore[misc]
    """Changes a small whole number by 1, and another number by half of it."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[_Position, _Position]]:
        if node.type == "number":
            yield from [(node.start_pos, node.end_pos)] * 2

    def mutate(self, node: Any, index: int) -> Any:
        value = ast.literal_eval(node.value)
        step = value / 2 if isinstance(value, float) else 1 if value < 10 else value // 2
        node.value = repr(value + (step or 1) * (1, -1)[index])
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


_BINARY = "Add_Sub Sub_Add Mul_Div Div_Mul FloorDiv_Mul Mod_Mul Pow_Mul LShift_RShift RShift_LShift BitAnd_BitOr"
_COMPARISON = "Eq_NotEq NotEq_Eq Lt_LtE Lt_GtE LtE_Lt LtE_Gt Gt_GtE Gt_LtE GtE_Gt GtE_Lt Is_IsNot IsNot_Is"
_NAMES = (
    *(f"ReplaceBinaryOperator_{change}" for change in (*_BINARY.split(), "BitOr_BitAnd", "BitXor_BitAnd")),
    *(f"ReplaceComparisonOperator_{change}" for change in _COMPARISON.split()),
    *(f"ReplaceUnaryOperator_Delete_{name}" for name in ("Not", "USub", "Invert")),
    *("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ExceptionReplacer", "ZeroIterationForLoop"),
)
_OPERATORS: dict[str, type[Operator]] = {
    **{name: OperatorProvider()[name] for name in _NAMES},
    "DropCall": DropCall,
    "ScaleNumber": ScaleNumber,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file: the `occurrence`-th that an operator can make there."""

    package: str
    file: str
    line: int
    operator: str
    occurrence: int

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    def text(self) -> str:
        """Return the file's mutated text."""
        if self not in _texts:
            original = (ROOT / self.file).read_text()
            mutated: str | None = mutate_code(original, _OPERATORS[self.operator](), self.occurrence)
            assert mutated is not None, f"{self} is no mutation"
            _texts[self] = mutated
        return _texts[self]

    def is_sound(self) -> bool:
        """Return whether the mutated text is Python, and not only a star among parameters was taken for a product."""
        try:
            mutated = ast.parse(self.text())
        except (SyntaxError, AttributeError):  # the latter: cosmic-ray replaces no exception with a dot in its name
            return False
        if not self.operator.startswith("ReplaceBinaryOperator"):
            return True
        return _operations(mutated) != _operations(ast.parse((ROOT / self.file).read_text()))

    def diff(self) -> list[str]:
        """Return the lines that the mutation removes and adds, with - and + before them."""
        before, after = (ROOT / self.file).read_text().splitlines(), self.text().splitlines()
        lines = list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:]
        return [line[0] + line[1:].strip() for line in lines if line[0] in "+-"]


_texts: dict[Mutant, str] = {}


def sample(count: int, seed: int, code: str, kept: Path) -> list[Mutant]:
    """Return the sample of the code with this digest: drawn, which takes minutes, or as the file `kept` has it."""
    made = [count, seed, code]
    if not kept.exists() or (body := json.loads(kept.read_text()))["of"] != made:
        rows = [[astuple(mutant), mutant.text()] for mutant in _draw(count, seed)]
        body = {"of": made, "mutants": rows}
        kept.write_text(json.dumps(body))
    _texts.update({Mutant(*fields): text for fields, text in body["mutants"]})
    return [Mutant(*fields) for fields, _ in body["mutants"]]


def _draw(count: int, seed: int) -> list[Mutant]:
    """Draw places, and a mutation of each, in proportion to the packages' lines.

    Any beginning of the list holds the packages in about the same proportion.
    """
    files = {package: _files(package) for package in PACKAGES}
    lines = {package: sum(_lines(file) for file in files[package]) for package in files}
    drawn = []
    for package in PACKAGES:
        order, share = random.Random(f"{seed}:{package}"), round(count * lines[package] / sum(lines.values()))
        drawable = [place for file in files[package] for place in places(package, file)]
        order.shuffle(drawable)
        mutants = (order.choice(place) for place in drawable)
        chosen = itertools.islice((mutant for mutant in mutants if mutant.is_sound()), share)
        drawn += [((rank + 0.5) / share, mutant) for rank, mutant in enumerate(chosen)]
    return [mutant for _, mutant in sorted(drawn, key=lambda each: each[0])]


def places(package: str, file: str) -> list[list[Mutant]]:
    """Return the mutants of each place in a file."""
    text = (ROOT / file).read_text()
    idle, nodes = _idle(ast.parse(text)), list(ast_nodes(parso.parse(text)))
    found: dict[_Position, list[Mutant]] = defaultdict(list)
    for name, operator in _OPERATORS.items():
        starts = [start for node in nodes for start, _ in operator().mutation_positions(node)]
        for occurrence, start in enumerate(starts):
            if not any(first <= start < last for first, last in idle):
                found[start].append(Mutant(package, file, start[0], name, occurrence))
    return [found[start] for start in sorted(found)]


def _files(package: str) -> list[str]:
    others = [folder for name, folder in PACKAGES.items() if name != package and folder.startswith(PACKAGES[package])]
    paths = [str(path.relative_to(ROOT)) for path in sorted((ROOT / PACKAGES[package]).rglob("*.py"))]
    left = (*others, "/migrations/", *GPU_ONLY)
    return [path for path in paths if not any(part in path for part in left)]


def _operations(tree: ast.Module) -> list[type[ast.operator]]:
    return [type(node.op) for node in ast.walk(tree) if isinstance(node, ast.BinOp)]


def _lines(file: str) -> int:
    return len((ROOT / file).read_text().splitlines())


def _idle(tree: ast.Module) -> list[tuple[_Position, _Position]]:
    """Return the ranges of code that never runs: annotations, what only type checkers see, `strict=` and `slots=`."""
    nodes: list[Any] = []
    for node in ast.walk(tree):
        nodes += [getattr(node, "annotation", None), getattr(node, "returns", None)]
        nodes += [node] if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" else []
        nodes += [node] if isinstance(node, ast.keyword) and node.arg in ("strict", "slots") else []
    return [((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in nodes if n is not None]
