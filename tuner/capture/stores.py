"""The arguments of a kernel through which it stores, by its text."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["stored_arguments"]

_Sources = Mapping[str, frozenset[str]]
"""The arguments from which a name's value follows."""


@functools.cache
def stored_arguments(function: Callable[..., Any]) -> frozenset[str]:
    """Return the arguments that a kernel stores through, or hands on to functions of its own; all if it has no text."""
    names = inspect.signature(function).parameters
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return frozenset(names)
    sources: _Sources = {name: frozenset((name,)) for name in names}
    while (found := _followed(tree, sources)) != sources:
        sources = found
    return frozenset().union(*_stored(tree, sources))


def _followed(tree: ast.AST, sources: _Sources) -> dict[str, frozenset[str]]:
    """Return the sources with those of each assignment added to its targets."""
    found = dict(sources)
    for node in ast.walk(tree):
        value = getattr(node, "iter" if isinstance(node, ast.For) else "value", None)
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr, ast.For)) and value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in {inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}:
                found[name] = found.get(name, frozenset()) | _sources_of(value, found)
    return found


def _sources_of(code: ast.AST, sources: _Sources) -> frozenset[str]:
    """Return the arguments in some code, without those that are only loaded from."""
    if isinstance(code, ast.Call) and _word(code) == "load":
        return frozenset()
    own = sources.get(code.id, frozenset()) if isinstance(code, ast.Name) else frozenset()
    return own.union(*(_sources_of(child, sources) for child in ast.iter_child_nodes(code)))


def _stored(tree: ast.AST, sources: _Sources) -> Iterator[frozenset[str]]:
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if _word(call).startswith(("store", "atomic_")):
            yield from (_sources_of(place, sources) for place in (call.func, *call.args[:1], *call.keywords))
        elif isinstance(call.func, ast.Name):
            yield from (_sources_of(given, sources) for given in (*call.args, *call.keywords))


def _word(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))
