"""The names of torch_npu, MSPTI and triton-ascend that the NPU code uses, read from its own source.

The packages cannot run here, so each name is looked up in their sources (`npu_releases`): by the tests in a wheel, and
by `tilewise selftest` in the installed packages. New uses are found in the source and need no listing.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from places import ROOT

__all__ = ["PACKAGES", "RESULT", "Call", "Spelling", "Use", "all_uses", "misspelt", "sources", "spellings", "uses"]

PACKAGES = ("torch_npu", "mspti", "triton")
"""The packages that are looked up. The NPU code's other imports are the standard library, torch and tilewise."""

RESULT = "()"
"""In a path: the result of the call so far, or an instance of a class."""

_KNOWN = {*PACKAGES, *sys.stdlib_module_names, "tilewise", "torch"}

Path_ = tuple[str, ...]
_Names = Mapping[str, Path_]


@dataclass(frozen=True, slots=True)
class Call:
    positional: int
    keywords: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Use:
    """A name as used, called or not: `("torch_npu", "npu", "Event", "()", "record")`. An item is written `[key]`."""

    path: Path_
    call: Call | None = None

    def __str__(self) -> str:
        called = "" if self.call is None else f"({', '.join((*'_' * self.call.positional, *self.call.keywords))})"
        return ".".join(self.path).replace(f".{RESULT}", RESULT).replace(".[", "[") + called


@dataclass(frozen=True, slots=True)
class Spelling:
    """The location of a package's name in our source: lines from 1, columns from 0, in bytes."""

    line: int
    end: int
    text: str


def sources() -> list[Path]:
    """Return the modules that use the packages."""
    return sorted((ROOT / "tuner/devices/npu").glob("*.py"))


def uses(source: str) -> list[Use]:
    """Return all uses of the packages in a module, in the order of the text."""
    reader = _Reader()
    reader.visit(ast.parse(source))
    return reader.uses


def spellings(source: str) -> list[Spelling]:
    """Return every location in a module that spells a package's name: attributes, parameters, items and imports."""
    reader = _Reader()
    reader.visit(ast.parse(source))
    return reader.spellings


class _Reader(ast.NodeVisitor):
    """A visitor that follows names through imports, assignments, annotations and loops, with a scope per function."""

    def __init__(self) -> None:
        self.uses: list[Use] = []
        self.spellings: list[Spelling] = []
        self._names: dict[str, Path_] = {}
        self._elements: dict[str, Path_] = {}

    # Binding names ---------------------------------------------------------------------------------------------

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._import(alias, tuple(alias.name.split(".")))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = tuple((node.module or "").split("."))
        for alias in node.names:
            self._import(alias, (*module, alias.name))
        if module[0] in PACKAGES:
            self.spellings.append(
                Spelling(node.lineno, node.col_offset + len(f"from {node.module}"), node.module or "")
            )

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer = self._names, self._elements
        self._names, self._elements = dict(self._names), dict(self._elements)
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            if argument.annotation is not None:
                self._annotate(argument.arg, argument.annotation)
        self.generic_visit(node)
        self._names, self._elements = outer

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._assign(target, node.value)
            self.visit(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name):
            self._annotate(node.target.id, node.annotation)

    def visit_For(self, node: ast.For) -> None:
        self._bind(node.target, self._element(node.iter))
        self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp | ast.GeneratorExp) -> None:
        for generator in node.generators:
            self._bind(generator.target, self._element(generator.iter))
        self.generic_visit(node)

    visit_GeneratorExp = visit_ListComp  # noqa: N815

    # Using names --------------------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
            self._visit_getattr(node)
        elif (path := self._path(node.func)) is not None:
            keywords = tuple(keyword.arg for keyword in node.keywords if keyword.arg)
            self.uses.append(Use(path, Call(len(node.args), keywords)))
            for keyword in node.keywords:
                self._spelt(keyword.lineno, keyword.col_offset + len(keyword.arg or ""), keyword.arg or "")
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if (path := self._path(node)) is not None:
            self.uses.append(Use(path))
            self._spelt(node.end_lineno or 0, node.end_col_offset or 0, node.attr)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if (path := self._path(node)) is not None and isinstance(node.slice, ast.Constant):
            self.uses.append(Use(path))
            self._spelt(node.slice.end_lineno or 0, (node.slice.end_col_offset or 0) - 1, str(node.slice.value))
        self.generic_visit(node)

    # Paths ----------------------------------------------------------------------------------------------------------

    def _path(self, node: ast.expr) -> Path_ | None:
        """Return the path that an expression refers to, if it is in one of the packages."""
        match node:
            case ast.Name(id=name):
                return self._names.get(name)
            case ast.Attribute(value=value, attr=name) if (path := self._path(value)) is not None:
                return (*path, name)
            case ast.Call(func=function) if (path := self._path(function)) is not None:
                return (*path, RESULT)
            case ast.Subscript(value=value, slice=ast.Constant(value=str(key))) if (
                path := self._path(value)
            ) is not None:
                return (*path, f"[{key}]")
        return None

    def _import(self, alias: ast.alias, path: Path_) -> None:
        if path[0] not in _KNOWN:
            self.uses.append(Use(path))  # its package is not known, so the name cannot be checked
        if path[0] in PACKAGES:
            self.uses.append(Use(path))
            self._names[alias.asname or (alias.name if alias.name == path[-1] else path[0])] = path
            self._spelt(alias.lineno, alias.col_offset + len(alias.name), alias.name)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, its in zip(target.elts, value.elts, strict=True):
                self._assign(one, its)
        else:
            self._bind(target, self._path(value))

    def _annotate(self, name: str, annotation: ast.expr) -> None:
        """Note the type of a variable, or of its elements if it is a list or sequence."""
        holder = isinstance(annotation, ast.Subscript)
        path = self._path(annotation.slice if isinstance(annotation, ast.Subscript) else annotation)
        (self._elements if holder else self._names).pop(name, None)
        if path is not None:
            (self._elements if holder else self._names)[name] = (*path, RESULT)

    def _element(self, node: ast.expr) -> Path_ | None:
        return self._elements.get(node.id) if isinstance(node, ast.Name) else None

    def _bind(self, target: ast.expr, path: Path_ | None) -> None:
        if isinstance(target, ast.Name):
            self._names.pop(target.id, None)
            if path is not None:
                self._names[target.id] = path

    def _visit_getattr(self, node: ast.Call) -> None:
        """Count the name in `getattr(x, "name", ...)` and `hasattr(x, "name")` as a use."""
        match node.args:
            case [owner, ast.Constant(value=str(name)) as constant, *_] if (path := self._path(owner)) is not None:
                self.uses.append(Use((*path, name)))
                self._spelt(constant.end_lineno or 0, (constant.end_col_offset or 0) - 1, name)

    def _spelt(self, line: int, end: int, text: str) -> None:
        if text:
            self.spellings.append(Spelling(line, end, text))


def misspelt(source: str, spelling: Spelling) -> str:
    """Return the module's source with one more letter at the end of that name."""
    lines = source.splitlines(keepends=True)
    line = lines[spelling.line - 1].encode()
    lines[spelling.line - 1] = (line[: spelling.end] + b"x" + line[spelling.end :]).decode()
    return "".join(lines)


def all_uses() -> Iterator[tuple[Path, Use]]:
    """Yield the uses in all modules, each use once per module."""
    for file in sources():
        for use in dict.fromkeys(uses(file.read_text(encoding="utf-8"))):
            yield file, use
