"""A function of a user's program, without running the program.

Only the statements of the file that the function uses are compiled: the definitions and imports at the top level that
it reaches by name. Of its decorators only `triton.jit` stays, also where they are calls, `kernel = decorator(kernel)`:
a spec gives what the others (`triton.autotune`, `triton.heuristics`, libraries' own) would add to a launch.
"""

from __future__ import annotations

import ast
import builtins
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType

from tilewise.errors import BadSpec
from tilewise.kernels.definitions import definitions_of, parsed, statements_of, used_names

__all__ = ["function_slice", "is_kernel", "missing_names", "package_of"]


def function_slice(path: Path, name: str) -> CodeType:
    """Return the code of the file's statements that define the function `name`. Raises `BadSpec` if there is none."""
    tree, definitions = _read(path, name)
    wanted, _ = _reached(name, definitions, _imports(tree))
    body = [node for node in statements_of(tree) if node in wanted or _is_future(node)]
    return compile(ast.Module(body, tree.type_ignores), str(path), "exec")


def missing_names(path: Path, name: str) -> set[str]:
    """Return the names that these statements use and neither the file nor Python defines: a program that generates
    code may set them. Raises `BadSpec` if there is no such function."""
    tree, definitions = _read(path, name)
    imports = _imports(tree)
    _, used = _reached(name, definitions, imports)
    return used - definitions.keys() - imports.keys() - vars(builtins).keys()


def _read(path: Path, name: str) -> tuple[ast.Module, Mapping[str, Sequence[ast.stmt]]]:
    """Return the parsed file, with the decorators of the function `name` that count, and what it defines."""
    try:
        with tokenize.open(path) as file:
            tree = parsed(file.read())
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise BadSpec(f"{path} cannot be read: {error}") from error
    definitions = definitions_of(tree)
    if name not in definitions:
        raise BadSpec(f"{path} has no function {name!r} at its top level")
    for statement in definitions[name]:
        if isinstance(statement, ast.FunctionDef):
            statement.decorator_list = [node for node in statement.decorator_list if _word(node) == "jit"]
    return tree, {**definitions, name: [node for node in definitions[name] if not _wraps(node, name)]}


def _wraps(statement: ast.stmt, name: str) -> bool:
    """Return whether a statement decorates a function under its own name, other than by `triton.jit`."""
    if not isinstance(statement, ast.Assign) or not isinstance(call := statement.value, ast.Call):
        return False
    return _word(call) != "jit" and any(isinstance(given, ast.Name) and given.id == name for given in call.args)


def _reached(
    name: str, definitions: Mapping[str, Sequence[ast.stmt]], imports: Mapping[str, Sequence[ast.stmt]]
) -> tuple[set[ast.stmt], set[str]]:
    """Return the statements that the function uses, directly or indirectly, and all names in them."""
    found: set[ast.stmt] = set(imports.get("*", ()))
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        for statement in (*definitions.get(current, ()), *imports.get(current, ())):
            found.add(statement)
            waiting += used_names(statement)
    return found, seen


def _imports(tree: ast.Module) -> dict[str, list[ast.stmt]]:
    """Map each name that the file imports, in its branches too, to the top-level statements that do so."""
    found: dict[str, list[ast.stmt]] = {}
    for statement in statements_of(tree):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for name in _imported(statement):
            found.setdefault(name, []).append(statement)
    return found


def _imported(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _word(decorator: ast.expr) -> str:
    """Return the last word of a decorator: `jit` of `@triton.jit(..)`."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return str(getattr(called, "attr", getattr(called, "id", "")))


def is_kernel(path: Path, name: str) -> bool:
    """Return whether the file defines `name` at its top level as a `triton.jit` function."""
    try:
        with tokenize.open(path) as file:
            found = definitions_of(parsed(file.read())).get(name, ())
    except (OSError, SyntaxError, UnicodeDecodeError):
        return False
    return any(
        isinstance(node, ast.FunctionDef) and any(_word(decorator) == "jit" for decorator in node.decorator_list)
        for node in found
    )


def package_of(path: Path) -> tuple[Path, str]:
    """Return the folder that a file's imports start from, and the name of its package, empty for a plain script."""
    folder, parts = path.resolve().parent, []
    while (folder / "__init__.py").is_file():
        parts.append(folder.name)
        folder = folder.parent
    return folder, ".".join(reversed(parts))
