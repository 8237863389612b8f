"""The names that the statements of a file bind at its top level, and those that they take from it."""

from __future__ import annotations

import ast
import copy
import symtable
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["definitions_of", "nesting_of", "opened", "parsed", "statements_of", "used_names"]

_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

_PARSING = threading.Lock()
"""CPython 3.11 counts parser depth over all threads, so that parsing in two threads at once fails."""


def parsed(text: str) -> ast.Module:
    """Parse a module's text, in one thread at a time."""
    with _PARSING:
        return ast.parse(text)


def statements_of(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements at the top level, and those under `if __name__ == "__main__":` as if they stood there."""
    for node in tree.body:
        if isinstance(node, ast.If) and _asks_for_main(node.test):
            yield from (*node.body, *node.orelse)
        else:
            yield node


def nesting_of(function: Callable[..., Any]) -> str:
    """Return a function's name behind those of the functions and classes around it: `outer.inner`."""
    return function.__qualname__.replace(".<locals>", "")


def opened(tree: ast.Module, name: str) -> tuple[ast.Module, frozenset[str]]:
    """Return the module with the bodies around the function `outer.inner` as if they stood at its top level, last, and
    the arguments of the functions around it, which no text gives."""
    body, inner, arguments = list(tree.body), list(tree.body), set[str]()
    for outer in name.split(".")[:-1]:
        found = next((node for node in _scopes_in(inner) if node.name == outer), None)
        if found is None:
            break
        inner = found.body
        body += inner
        if not isinstance(found, ast.ClassDef):
            arguments |= {node.arg for node in ast.walk(found.args) if isinstance(node, ast.arg)}
    return ast.Module(body, tree.type_ignores), frozenset(arguments)


def _scopes_in(statements: Iterable[ast.AST]) -> Iterator[_Scope]:
    """Yield the functions and classes that some statements define, in their branches too."""
    for node in statements:
        if isinstance(node, _SCOPES):
            yield node
        elif isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield from _scopes_in(ast.iter_child_nodes(node))


def _asks_for_main(test: ast.expr) -> bool:
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return False
    return {ast.unparse(side) for side in (test.left, *test.comparators)} == {"__name__", repr("__main__")}


def definitions_of(tree: ast.Module) -> Mapping[str, Sequence[ast.stmt]]:
    """Map each top-level name to the statements that bind it: several if it is assigned again or in branches."""
    definitions: dict[str, list[ast.stmt]] = {}
    for node in statements_of(tree):
        for name in _bound(node):
            definitions.setdefault(name, []).append(node)
    return definitions


def _bound(node: ast.AST) -> set[str]:
    """Return the names that a module-level statement binds, in its branches too, except imported names."""
    if isinstance(node, _SCOPES):
        return {node.name}
    targets = [*getattr(node, "targets", []), getattr(node, "target", None)]
    names = {n.id for target in targets if target for n in ast.walk(target) if isinstance(n, ast.Name)}
    blocks = (ast.stmt, ast.ExceptHandler, ast.match_case)
    return names.union(*(_bound(child) for child in ast.iter_child_nodes(node) if isinstance(child, blocks)))


def used_names(code: ast.stmt | ast.expr, without: Collection[ast.expr] = ()) -> set[str]:
    """Return the names of the file, or of Python, in some code: without the local names of its functions.

    The decorators `without` do not count.
    """
    if without:
        code = copy.copy(code)
        assert isinstance(code, _SCOPES)
        code.decorator_list = [node for node in code.decorator_list if node not in without]
    with _PARSING:
        return set(_of_the_file(symtable.symtable(ast.unparse(code), "code", "exec")))


def _of_the_file(table: symtable.SymbolTable) -> Iterator[str]:
    at_top = table.get_type() == "module"
    yield from (symbol.get_name() for symbol in table.get_symbols() if at_top or symbol.is_global())
    for inner in table.get_children():
        yield from _of_the_file(inner)
