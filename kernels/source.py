"""A kernel's source as text: found without importing it, and hashed so that only what it computes counts."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tilewise.errors import BadSpec
from tilewise.kernels.spec import KernelSpec

__all__ = ["digest", "locate", "source_hash"]

_SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def locate(spec: KernelSpec) -> tuple[Path, str]:
    """The file that holds the spec's function, and the function's name."""
    if isinstance(spec.function, str):
        module, _, name = spec.function.partition(":")
        found = importlib.util.find_spec(module)
        if found is None or found.origin is None:
            raise BadSpec(f"kernel {spec.name} names a function in {module}, which is no module here")
        return Path(found.origin), name
    function = getattr(spec.function, "fn", spec.function)  # a JITFunction wraps the Python function
    file = inspect.getsourcefile(function)
    if file is None:
        raise BadSpec(f"kernel {spec.name} has a function without a source file; define it in a .py file")
    return Path(file), function.__name__


def source_hash(spec: KernelSpec) -> str:
    """Hash of the function and of everything at the top of its file that it uses, by name, however indirectly.

    Comments, docstrings, blank lines and positions do not count, so neither does moving or documenting a kernel.
    """
    path, name = locate(spec)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    definitions = dict(_definitions(tree))
    if name not in definitions:
        raise BadSpec(f"{path} has no function {name!r} at its top level")
    text = path.read_text(encoding="utf-8").splitlines(keepends=True)
    parts = [_tokens(_segment(text, definitions[n])) for n in sorted(_reachable(name, definitions))]
    return digest("\n".join(parts))[:16]


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name):
                yield name, node
            case ast.Assign(targets=targets):
                yield from ((target.id, node) for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node


def _reachable(name: str, definitions: dict[str, ast.stmt]) -> set[str]:
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            used = {node.id for node in ast.walk(definitions[current]) if isinstance(node, ast.Name)}
            waiting += used & definitions.keys()
    return seen


def _segment(lines: list[str], node: ast.stmt) -> str:
    """The statement's lines, decorators included, docstring blanked."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    assert node.end_lineno is not None
    kept = lines[first - 1 : node.end_lineno]
    if isinstance(node, ast.FunctionDef) and ast.get_docstring(node, clean=False) is not None:
        doc = node.body[0]
        assert doc.end_lineno is not None
        blank = range(doc.lineno - first, doc.end_lineno - first + 1)
        kept = ["\n" if i in blank and len(node.body) > 1 else line for i, line in enumerate(kept)]
    return "".join(kept)


def _tokens(text: str) -> str:
    """The tokens with one space between them; indentation as marks, so that its width does not count."""
    marks = {tokenize.NEWLINE: "\n", tokenize.INDENT: "{", tokenize.DEDENT: "}"}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return " ".join(marks.get(token.type, token.string) for token in tokens if token.type not in _SKIPPED)
