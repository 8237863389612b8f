"""A kernel's source as text: found without importing it, and hashed so that only what it computes counts."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import io
import threading
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewise.errors import BadSpec
from tilewise.kernels.catalogue import SPECS
from tilewise.kernels.spec import KernelSpec

__all__ = ["digest", "function_hash", "locate", "source_hash"]

_MARKS = {tokenize.NEWLINE: "\n", tokenize.INDENT: "{", tokenize.DEDENT: "}"}
_SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}
_DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

Place = tuple[int, int]
"""Line from 1, and column in characters."""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def locate(spec: KernelSpec) -> list[tuple[Path, str]]:
    """The files that hold the spec's functions, and the functions' names."""
    return [_locate(spec, function) for function in spec.functions()]


def _locate(spec: KernelSpec, function: Any) -> tuple[Path, str]:
    if isinstance(function, str):
        module, _, name = function.partition(":")
        return _module_file(spec, module), name
    while hasattr(function, "fn"):  # a JITFunction, perhaps under triton.heuristics, wraps the Python function
        function = function.fn
    file = inspect.getsourcefile(function)
    if file is None:
        raise BadSpec(f"kernel {spec.name} has a function without a source file; define it in a .py file")
    return Path(file), function.__name__


def _module_file(spec: KernelSpec, module: str) -> Path:
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # no such parent package; an empty or relative name
        found = None
    if found is None or not found.has_location or found.origin is None:
        raise BadSpec(f"kernel {spec.name} names a function in {module!r}, which is no module here")
    return Path(found.origin)


def source_hash(spec: KernelSpec) -> str:
    """Hash of the functions and of what the spec says of arguments, launches and right results, with everything at
    the top of their files that they use, by name, however indirectly. Parameters, their domains and the default do
    not count: a config more must not make other results another kernel's.

    Comments, docstrings, blank lines and positions do not count, so neither does moving or documenting a kernel. What
    the file imports counts by its name in use, not by its content.
    """
    parts = {part for path, name in locate(spec) for part in _parts(path, name)} | set(_contract(spec))
    return digest("\n".join(sorted(parts)))[:16]


_CONTRACT = ("buffers", "scalars", "grid", "launches", "scratch", "reference")


def _contract(spec: KernelSpec) -> Iterator[str]:
    """The normalised text of the spec's contract, for a spec that was loaded by name or from a file.

    Where the spec is not written out as one call of KernelSpec, the whole statement that makes it counts.
    """
    place = spec.origin if ":" in spec.origin else registered(spec.origin)
    if not place:
        return
    path, _, name = place.rpartition(":")
    with tokenize.open(path) as file:
        text = file.read()
    definitions = _definitions(_parsed(text))
    if name not in definitions:
        return
    lines = text.splitlines(keepends=True)
    statement = definitions[name][-1]
    call = getattr(statement, "value", None)
    written_out = isinstance(call, ast.Call) and getattr(call.func, "id", "") == "KernelSpec"
    roots: list[ast.AST] = [statement]
    if written_out:
        assert isinstance(call, ast.Call)
        roots = [keyword.value for keyword in call.keywords if keyword.arg in _CONTRACT]
        for keyword in call.keywords:
            if keyword.arg in _CONTRACT:
                segment = ast.get_source_segment(text, keyword.value) or ""
                yield f"{keyword.arg}={_plain_tokens(f'({segment})')}"
    else:
        yield _tokens(lines, statement)
    used = {node.id for root in roots for node in ast.walk(root) if isinstance(node, ast.Name)} & definitions.keys()
    for reached in sorted({inner for outer in used - {name} for inner in _reachable(outer, definitions)}):
        yield "\n".join(_tokens(lines, node) for node in definitions[reached])


_PARSING = threading.Lock()
"""CPython 3.11 counts how deep the parsers of all threads are together, and fails where two parse at once."""


def _parsed(text: str) -> ast.Module:
    with _PARSING:
        return ast.parse(text)


def registered(name: str) -> str:
    """`path/to/file.py:ATTRIBUTE` of one of the project's own specs; empty for any other name."""
    module, _, attribute = SPECS.get(name, "").partition(":")
    found = importlib.util.find_spec(module) if module else None
    return f"{found.origin}:{attribute}" if found is not None else ""


def _plain_tokens(text: str) -> str:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return " ".join(token.string for token in tokens if token.type not in (*_SKIPPED, tokenize.NEWLINE))


def function_hash(function: Any) -> str:
    """Hash of a function that no spec names, as `source_hash` takes it: without comments, docstrings and positions.

    Raises `BadSpec` where its text cannot be found at the top of a file.
    """
    while hasattr(function, "fn"):
        function = function.fn
    file = inspect.getsourcefile(function)
    if file is None or not Path(file).is_file():
        raise BadSpec(f"function {function.__name__} has no source file")
    return digest("\n".join(sorted(set(_parts(Path(file), function.__name__)))))[:16]


def _parts(path: Path, name: str) -> Iterator[str]:
    """The normalised text of a function and of each definition that it reaches."""
    with tokenize.open(path) as file:
        lines = file.readlines()
    definitions = _definitions(_parsed("".join(lines)))
    if name not in definitions:
        raise BadSpec(f"{path} has no function {name!r} at its top level")
    for used in sorted(_reachable(name, definitions)):
        yield "\n".join(_tokens(lines, node) for node in definitions[used])


def _definitions(tree: ast.Module) -> Mapping[str, list[ast.stmt]]:
    """The top-level statements that give each name its value; several where it is assigned again or in branches."""
    definitions: dict[str, list[ast.stmt]] = {}
    for node in tree.body:
        for name in _bound(node):
            definitions.setdefault(name, []).append(node)
    return definitions


def _bound(node: ast.AST) -> set[str]:
    """The names that a statement at module level binds, in its branches too; imported ones do not count."""
    if isinstance(node, _DOCUMENTED):
        return {node.name}
    targets = [*getattr(node, "targets", []), getattr(node, "target", None)]
    names = {n.id for target in targets if target for n in ast.walk(target) if isinstance(n, ast.Name)}
    blocks = (ast.stmt, ast.ExceptHandler, ast.match_case)
    return names.union(*(_bound(child) for child in ast.iter_child_nodes(node) if isinstance(child, blocks)))


def _reachable(name: str, definitions: Mapping[str, Sequence[ast.stmt]]) -> set[str]:
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            inner = (node for statement in definitions[current] for node in _nodes(statement))
            waiting += {node.id for node in inner if isinstance(node, ast.Name)} & definitions.keys()
    return seen


def _nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """All of a statement's nodes but those of a `tuned` decorator."""
    decorators = [node for node in getattr(statement, "decorator_list", []) if _is_tuned(node)]
    left_out = {id(node) for decorator in decorators for node in ast.walk(decorator)}
    return (node for node in ast.walk(statement) if id(node) not in left_out)


def _tokens(lines: Sequence[str], node: ast.stmt) -> str:
    """The statement's tokens, decorators included and docstrings not, with one space between them.

    Indentation is told by marks, so that its width does not count.
    """
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []) if not _is_tuned(d))])
    docstrings = list(_docstrings(lines, node))
    kept: list[str] = []
    in_docstring = False  # the end of its statement goes with it
    for token in tokenize.generate_tokens(io.StringIO("".join(lines[first - 1 : node.end_lineno])).readline):
        place = (token.start[0] + first - 1, token.start[1])
        if any(start <= place < end for start, end in docstrings):
            in_docstring = True
        elif in_docstring and (token.type == tokenize.NEWLINE or token.string == ";"):
            in_docstring = False
        elif token.type not in _SKIPPED:
            kept.append(_MARKS.get(token.type, token.string))
    return " ".join(kept)


def _is_tuned(decorator: ast.expr) -> bool:
    """Whether it says only which configs to launch with, as `@tuned(spec, ..)` does, which stands before all others."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(called, "attr", getattr(called, "id", "")) == "tuned"


def _docstrings(lines: Sequence[str], node: ast.stmt) -> Iterator[tuple[Place, Place]]:
    """Where the docstrings of the functions and classes in a statement start and end."""
    for inner in ast.walk(node):
        if isinstance(inner, _DOCUMENTED) and ast.get_docstring(inner, clean=False) is not None:
            doc = inner.body[0]
            assert doc.end_lineno is not None and doc.end_col_offset is not None
            yield _place(lines, doc.lineno, doc.col_offset), _place(lines, doc.end_lineno, doc.end_col_offset)


def _place(lines: Sequence[str], line: int, byte: int) -> Place:
    return line, len(lines[line - 1].encode()[:byte].decode())
