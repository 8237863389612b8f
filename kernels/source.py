"""A kernel's source as text: located without importing it, and hashed so that only changes to the code count."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import io
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tilewise.errors import BadSpec
from tilewise.kernels.catalogue import SPECS
from tilewise.kernels.definitions import definitions_of, nesting_of, opened, parsed, used_names
from tilewise.kernels.spec import KernelSpec

__all__ = ["digest", "function_hash", "locate", "source_hash"]

_MARKS = {tokenize.NEWLINE: "\n", tokenize.INDENT: "{", tokenize.DEDENT: "}"}
_SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}
_DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

Place = tuple[int, int]
"""A line, counted from 1, and a column in characters."""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def locate(spec: KernelSpec) -> list[tuple[Path, str]]:
    """Return the file and the name of each of the spec's functions."""
    return [_locate(spec, function) for function in spec.functions()]


def _locate(spec: KernelSpec, function: Any) -> tuple[Path, str]:
    if isinstance(function, str):
        module, _, name = function.rpartition(":")
        return (Path(module) if module.endswith(".py") else _module_file(spec, module)), name
    while hasattr(function, "fn"):  # a JITFunction, perhaps under triton.heuristics, wraps the Python function
        function = function.fn
    file = inspect.getsourcefile(function)
    if file is None:
        raise BadSpec(f"kernel {spec.name} has a function without a source file; define it in a .py file")
    return Path(file), nesting_of(function)


def _module_file(spec: KernelSpec, module: str) -> Path:
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # no such parent package; an empty or relative name
        found = None
    if found is None or not found.has_location or found.origin is None:
        raise BadSpec(f"kernel {spec.name} names a function in {module!r}, but no such module was found")
    return Path(found.origin)


def source_hash(spec: KernelSpec) -> str:
    """Hash the kernel's functions, and the spec's arguments, launches and reference.

    Every top-level name of their files that they use, directly or indirectly, is hashed too. Parameters, candidate
    values and the default are not: results must stay valid when the space gains a config.

    Comments, docstrings, blank lines and positions are not hashed, so a kernel may be moved or documented. Nor is what
    the file binds under the name of a function's argument or local variable, as scripts do. An imported
    name is hashed where it is used, the content of its module is not.
    """
    parts = {part for path, name in locate(spec) for part in _parts(path, name, spec.imported)} | set(_contract(spec))
    return digest("\n".join(sorted(parts)))[:16]


_CONTRACT = ("buffers", "scalars", "constants", "fill", "grid", "launches", "scratch", "reference")


def _contract(spec: KernelSpec) -> Iterator[str]:
    """Yield the normalised text of the spec's contract, if the spec was loaded by name or from a file.

    If the spec is not defined by a direct call of KernelSpec, the whole statement that defines it is yielded. Nothing
    is yielded if the spec was inferred: a program that launches the function has no spec to compare with.
    """
    if spec.inferred:
        return
    place = spec.origin if ":" in spec.origin else registered(spec.origin)
    if not place:
        return
    path, _, name = place.rpartition(":")
    with tokenize.open(path) as file:
        text = file.read()
    definitions = definitions_of(parsed(text))
    if name not in definitions:
        return
    lines = text.splitlines(keepends=True)
    statement = definitions[name][-1]
    call = getattr(statement, "value", None)
    written_out = isinstance(call, ast.Call) and getattr(call.func, "id", "") == "KernelSpec"
    roots: list[ast.stmt | ast.expr] = [statement]
    if written_out:
        assert isinstance(call, ast.Call)
        roots = [keyword.value for keyword in call.keywords if keyword.arg in _CONTRACT]
        for keyword in call.keywords:
            if keyword.arg in _CONTRACT:
                segment = ast.get_source_segment(text, keyword.value) or ""
                yield f"{keyword.arg}={_plain_tokens(f'({segment})')}"
    else:
        yield _tokens(lines, statement)
    used = set[str]().union(*map(used_names, roots)) & definitions.keys()
    for reached in sorted({inner for outer in used - {name} for inner in _reachable(outer, definitions)}):
        yield "\n".join(_tokens(lines, node) for node in definitions[reached])


def registered(name: str) -> str:
    """Return `path/to/file.py:ATTRIBUTE` of one of the project's own specs, or an empty text for any other name."""
    module, _, attribute = SPECS.get(name, "").partition(":")
    found = importlib.util.find_spec(module) if module else None
    return f"{found.origin}:{attribute}" if found is not None else ""


def _plain_tokens(text: str) -> str:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return " ".join(token.string for token in tokens if token.type not in (*_SKIPPED, tokenize.NEWLINE))


def function_hash(function: Any) -> str:
    """Hash a function that belongs to no spec as `source_hash` does: without comments, docstrings and positions.

    Raises `BadSpec` if no file defines it, or only together with the arguments of a function around it.
    """
    while hasattr(function, "fn"):
        function = function.fn
    file = inspect.getsourcefile(function)
    if file is None or not Path(file).is_file():
        raise BadSpec(f"function {function.__name__} has no source file")
    return digest("\n".join(sorted(set(_parts(Path(file), nesting_of(function))))))[:16]


def _parts(path: Path, place: str, imported: Mapping[str, str] = MappingProxyType({})) -> Iterator[str]:
    """Yield the normalised text of a function and of each definition that it uses, directly or indirectly, and the
    places of what the functions around it were given."""
    with tokenize.open(path) as file:
        lines = file.readlines()
    tree, arguments = opened(parsed("".join(lines)), place)
    definitions, name = definitions_of(tree), place.rpartition(".")[2]
    if name not in definitions:
        raise BadSpec(f"{path} has no function {place!r} at its top level")
    reached = _reachable(name, {**definitions, **dict.fromkeys(arguments, ())})
    given = reached & arguments
    if unknown := sorted(given - imported.keys()):
        raise BadSpec(f"{place} in {path} uses {', '.join(unknown)}, given to a function around it")
    yield from (f"{known} = {imported[known]}" for known in sorted(given))
    for used in sorted(reached - given):
        yield "\n".join(_tokens(lines, node) for node in definitions[used])


def _reachable(name: str, definitions: Mapping[str, Sequence[ast.stmt]]) -> set[str]:
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            for statement in definitions[current]:
                choosing = [node for node in getattr(statement, "decorator_list", ()) if _chooses(node)]
                waiting += used_names(statement, choosing) & definitions.keys()
    return seen


def _tokens(lines: Sequence[str], node: ast.stmt) -> str:
    """Return the statement's tokens, with decorators and without docstrings, joined by single spaces.

    Indents and dedents become marks, so that the width of the indentation does not matter.
    """
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []) if not _chooses(d))])
    docstrings = list(_docstrings(lines, node))
    kept: list[str] = []
    in_docstring = False  # drop the end of its statement too
    for token in tokenize.generate_tokens(io.StringIO("".join(lines[first - 1 : node.end_lineno])).readline):
        place = (token.start[0] + first - 1, token.start[1])
        if any(start <= place < end for start, end in docstrings):
            in_docstring = True
        elif in_docstring and (token.type == tokenize.NEWLINE or token.string == ";"):
            in_docstring = False
        elif token.type not in _SKIPPED:
            kept.append(_MARKS.get(token.type, token.string))
    return " ".join(kept)


_CHOOSERS = {"tuned", "autotune", "libtuner", "libentry"}
"""Decorators that choose the config of a launch; the last two are FlagGems'."""


def _chooses(decorator: ast.expr) -> bool:
    """Return whether this is `@tuned(spec, ..)`, `@triton.autotune(..)` or another that only chooses a launch's config.

    They stand outside those that count.
    """
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(called, "attr", getattr(called, "id", "")) in _CHOOSERS


def _docstrings(lines: Sequence[str], node: ast.stmt) -> Iterator[tuple[Place, Place]]:
    """Yield the start and end of each docstring of the functions and classes in a statement."""
    for inner in ast.walk(node):
        if isinstance(inner, _DOCUMENTED) and ast.get_docstring(inner, clean=False) is not None:
            doc = inner.body[0]
            assert doc.end_lineno is not None and doc.end_col_offset is not None
            yield _place(lines, doc.lineno, doc.col_offset), _place(lines, doc.end_lineno, doc.end_col_offset)


def _place(lines: Sequence[str], line: int, byte: int) -> Place:
    return line, len(lines[line - 1].encode()[:byte].decode())
