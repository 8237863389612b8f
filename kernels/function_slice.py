"""A function of a user's program, without running the program.

Only the statements of the file that the function uses are compiled: the definitions and imports at the top level that
it reaches by name. Of its decorators only `triton.jit` stays, also where they are calls, `kernel = decorator(kernel)`:
a spec gives what the others (`triton.autotune`, `triton.heuristics`, libraries' own) would add to a launch. A function
inside others is called `outer.inner`: the statements around it count as if they stood at the top level.
"""

from __future__ import annotations

import ast
import builtins
import tokenize
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from tilewise.errors import BadSpec
from tilewise.kernels.definitions import definitions_of, opened, parsed, statements_of, used_names

__all__ = ["function_slice", "given_names", "is_kernel", "missing_names", "package_of", "unknown_arguments"]


def function_slice(path: Path, name: str, given: Collection[str] = ()) -> CodeType:
    """Return the code of the file's statements that define the function `name`. Raises `BadSpec` if there is none, or
    if it uses an argument of a function around it that is not `given`."""
    file = _read(path, name, given)
    wanted, used = file.reached()
    if unknown := used & file.arguments - set(given):
        raise BadSpec(unknown_arguments(path, name, unknown))
    body = [node for node in statements_of(file.tree) if node in wanted or _is_future(node)]
    try:
        return compile(ast.Module(body, file.tree.type_ignores), str(path), "exec")
    except SyntaxError as error:  # a statement of a function around it, such as `return`
        raise BadSpec(f"{name} depends on more than names around it: {error}; move it to the top level") from error


def missing_names(path: Path, name: str) -> set[str]:
    """Return the names that these statements use and neither the file nor Python defines: a program that generates
    code may set them. Raises `BadSpec` if there is no such function."""
    file = _read(path, name)
    _, used = file.reached()
    return used - file.definitions.keys() - file.imports.keys() - vars(builtins).keys() - file.arguments


def given_names(path: Path, name: str) -> set[str]:
    """Return the arguments of functions around a function that these statements use."""
    file = _read(path, name)
    _, used = file.reached()
    return used & file.arguments


def unknown_arguments(path: Path, name: str, unknown: Iterable[str]) -> str:
    """Return the reason why a function cannot be told by its file: arguments of functions around it."""
    return (
        f"{name.rpartition('.')[2]} uses {', '.join(sorted(unknown))}, given to a function around it in {path.name}, "
        "so that its text does not say what it does; pass that as a tl.constexpr argument, or move it to the top level"
    )


@dataclass(frozen=True, slots=True)
class _File:
    """A parsed file, of which the function `name` is wanted, what it defines and imports, and the arguments of the
    functions around that one."""

    path: Path
    name: str
    tree: ast.Module
    definitions: Mapping[str, Sequence[ast.stmt]]
    imports: Mapping[str, Sequence[ast.stmt]]
    arguments: frozenset[str]

    def reached(self) -> tuple[set[ast.stmt], set[str]]:
        """Return the statements that the function uses, directly or indirectly, and all names in them."""
        return _reached(self.name, self.definitions, self.imports)


def _read(path: Path, place: str, given: Collection[str] = ()) -> _File:
    """Return the parsed file, with the decorators of the function that count, and without definitions of names that
    are `given`; `place` is its name, or `outer.inner`."""
    try:
        with tokenize.open(path) as file:
            tree, arguments = opened(parsed(file.read()), place)
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise BadSpec(f"{path} cannot be read: {error}") from error
    name = place.rpartition(".")[2]
    tree = ast.Module(list(_out_of_branches(tree.body, name)), tree.type_ignores)
    definitions = definitions_of(tree)
    if name not in definitions:
        raise BadSpec(f"{path} has no function {place!r} at its top level")
    for statement in definitions[name]:
        if isinstance(statement, ast.FunctionDef):
            statement.decorator_list = [node for node in statement.decorator_list if _word(node) == "jit"]
    kept = [node for node in definitions[name] if not _wraps(node, name)]
    definitions = {known: nodes for known, nodes in {**definitions, name: kept}.items() if known not in given}
    imports = {known: nodes for known, nodes in _imports(tree).items() if known not in given}
    return _File(path, name, tree, definitions, imports, arguments)


def _out_of_branches(statements: Iterable[ast.stmt], name: str) -> Iterator[ast.stmt]:
    """Yield the statements, but of an `if` or `try` around the kernel only the branch that defines it: it was run."""
    for node in statements:
        branch = next((block for block in _branches(node) if _defines_kernel(block, name)), None)
        if branch is None:
            yield node
        else:
            yield from _out_of_branches(branch, name)


def _branches(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    if isinstance(node, (ast.If, ast.Try, ast.With)):
        yield from (getattr(node, part, []) for part in ("body", "orelse", "finalbody"))
        yield from (handler.body for handler in getattr(node, "handlers", []))


def _defines_kernel(statements: Iterable[ast.stmt], name: str) -> bool:
    return any(
        _is_jitted(node, name) or any(_defines_kernel(block, name) for block in _branches(node)) for node in statements
    )


def _is_jitted(node: ast.stmt, name: str) -> bool:
    """Return whether a statement defines `name` as a `triton.jit` function."""
    return (
        isinstance(node, ast.FunctionDef)
        and node.name == name
        and any(_word(decorator) == "jit" for decorator in node.decorator_list)
    )


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
    return any(_is_jitted(node, name) for node in found)


def package_of(path: Path) -> tuple[Path, str]:
    """Return the folder that a file's imports start from, and the name of its package, empty for a plain script."""
    folder, parts = path.resolve().parent, []
    while (folder / "__init__.py").is_file():
        parts.append(folder.name)
        folder = folder.parent
    return folder, ".".join(reversed(parts))
