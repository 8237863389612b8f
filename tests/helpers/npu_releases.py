"""Checks that releases of torch_npu, MSPTI and triton-ascend have the names that the NPU code uses, without imports.

A package is a folder or a wheel. Functions, classes, parameters and dictionary keys are found in the Python source.
Code written in C++ has no signature there, so its whole name must be in one of the package's libraries.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from npu_names import PACKAGES, RESULT, Call, Use

__all__ = ["Missing", "Package", "installed", "missing", "wheel"]

Folder = Path | zipfile.Path
Evidence = Literal["source", "spelling"]
"""A definition in the Python source, or a whole name in a library or as a string in the source."""


class Missing(Exception):
    """A name that a package does not have; the message is one line."""


@dataclass(frozen=True, slots=True)
class _Module:
    """A module and its folder. If it is a `package`, the folder holds its modules."""

    folder: Folder
    package: bool
    tree: ast.Module


@dataclass(frozen=True, slots=True)
class _Definition:
    """A function or class, and the module that defines it."""

    node: ast.FunctionDef | ast.ClassDef
    module: _Module


@dataclass(frozen=True, slots=True)
class _Instance:
    of: _Definition


@dataclass(frozen=True, slots=True)
class _Returned:
    """The result of calling a function."""

    of: _Definition


@dataclass(frozen=True, slots=True)
class _Value:
    """A value whose members no source declares: assigned, written in C++, or built at run time."""

    evidence: Evidence


_Thing = _Module | _Definition | _Instance | _Returned | _Value
_ASSIGNED, _SPELT = _Value("source"), _Value("spelling")


class Package:
    """One package's sources, at `folder` under the name `name`."""

    def __init__(self, name: str, folder: Folder) -> None:
        self.name, self._folder = name, folder

    def require(self, use: Use) -> Evidence:
        """Return the evidence that the use is right; raises `Missing`."""
        thing: _Thing = self._module(self._folder)
        evidence: Evidence = "source"
        for i, name in enumerate(use.path[1:], start=1):
            try:
                thing = self._member(thing, name)
            except Missing as error:
                raise Missing(f"{'.'.join(use.path[:i])} has no {name.strip('[]')}: {error}") from error
            if thing is _SPELT:
                evidence = "spelling"
        if use.call is not None and isinstance(thing, _Definition):
            _require_call(thing.node, use.call)
        return evidence

    def mentions(self, text: str) -> bool:
        """Return whether `text` is anywhere in the package's Python or C++ sources and headers."""
        return any(text in source for source in self._texts())

    # Names --------------------------------------------------------------------------------------------------------

    def _member(self, thing: _Thing, name: str) -> _Thing:
        match thing:
            case _ if name == RESULT:
                return _called(thing)
            case _Module():
                return self._in_module(thing, name)
            case _Definition(ast.ClassDef()) | _Instance():
                definition = thing.of if isinstance(thing, _Instance) else thing
                return self._in_class(definition, name)
            case _Returned(definition) if (keys := _returned_keys(definition.node)) is not None:
                if name.strip("[]") in keys:
                    return _ASSIGNED
                raise Missing(f"it returns {', '.join(sorted(keys))}")
        return self._spelt(name.strip("[]"))

    def _in_module(self, module: _Module, name: str) -> _Thing:
        if module.package and (inner := self._inside(module.folder, name)) is not None:
            return inner
        for statement in _statements(module.tree.body):
            match statement:
                case ast.FunctionDef() | ast.ClassDef() if statement.name == name:
                    return _Definition(statement, module)
                case ast.ImportFrom():
                    for alias in statement.names:
                        if (alias.asname or alias.name) == name:
                            return self._imported(module, statement, alias.name)
                        if alias.name == "*" and (found := self._starred(module, statement, name)) is not None:
                            return found
                case ast.Assign() if any(isinstance(t, ast.Name) and t.id == name for t in statement.targets):
                    return self._assigned(module, statement.value)
        raise Missing("its source defines none")

    def _imported(self, module: _Module, statement: ast.ImportFrom, name: str) -> _Thing:
        """Resolve `from ... import name` in a module."""
        steps = statement.module.split(".") if statement.module else []
        folder = module.folder
        if statement.level == 0:
            if steps[:1] != [self.name]:
                return _ASSIGNED  # from another package
            folder, steps = self._folder, steps[1:]
        for _ in range(statement.level - 1):
            folder = _parent(folder)
        found = self._module(folder)
        for step in steps:
            inner = self._inside(found.folder, step) if found.package else None
            if inner is None:  # an extension module
                return self._spelt(name)
            found = inner
        return self._in_module(found, name)

    def _starred(self, module: _Module, statement: ast.ImportFrom, name: str) -> _Thing | None:
        try:
            return self._imported(module, statement, name)
        except Missing:
            return None

    def _assigned(self, module: _Module, value: ast.expr) -> _Thing:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            try:
                return _called(self._in_module(module, value.func.id))
            except Missing:
                return _ASSIGNED
        return _ASSIGNED

    def _in_class(self, definition: _Definition, name: str) -> _Thing:
        node = definition.node
        assert isinstance(node, ast.ClassDef)
        for statement in node.body:
            match statement:
                case ast.FunctionDef() if statement.name == name:
                    return _Definition(statement, definition.module)
                case ast.Assign() if any(isinstance(t, ast.Name) and t.id == name for t in statement.targets):
                    return _ASSIGNED
                case ast.AnnAssign(target=ast.Name(id=found)) if found == name:
                    return _ASSIGNED
        if name in _attributes(node):
            return _ASSIGNED
        for base in node.bases:
            try:
                match base:
                    case ast.Name():
                        return self._member(self._in_module(definition.module, base.id), name)
                    case ast.Attribute():  # of an extension module
                        return self._spelt(name)
            except Missing:
                continue
        raise Missing(f"class {node.name} defines none")

    def _spelt(self, name: str) -> _Thing:
        """Resolve a name that is defined only in C++ or at run time."""
        quoted = (f'"{name}"', f"'{name}'")
        if any(b"\0%s\0" % name.encode() in library for library in self._libraries()):
            return _SPELT
        if any(text in source for source in self._texts() for text in quoted):
            return _SPELT
        raise Missing("neither its sources nor its libraries have the name")

    # Files --------------------------------------------------------------------------------------------------------

    def _inside(self, folder: Folder, name: str) -> _Module | None:
        if (folder / name / "__init__.py").is_file():
            return self._module(folder / name)
        if (folder / f"{name}.py").is_file():
            return _Module(folder, False, _parsed((folder / f"{name}.py").read_text(encoding="utf-8")))
        return None

    def _module(self, folder: Folder) -> _Module:
        return _Module(folder, True, _parsed((folder / "__init__.py").read_text(encoding="utf-8")))

    @functools.cached_property
    def _files(self) -> list[Folder]:
        return list(_walk(self._folder))

    @functools.cache  # noqa: B019 - packages live as long as their users
    def _libraries(self) -> list[bytes]:
        return [file.read_bytes() for file in self._files if file.name.endswith(".so")]

    @functools.cache  # noqa: B019
    def _texts(self) -> list[str]:
        wanted = (".py", ".cpp", ".h")
        return [
            file.read_text(encoding="utf-8", errors="replace") for file in self._files if file.name.endswith(wanted)
        ]


def installed() -> dict[str, Package]:
    """Return the packages that this environment has, found without importing them."""
    found = {name: importlib.util.find_spec(name) for name in PACKAGES}
    return {name: Package(name, Path(s.origin).parent) for name, s in found.items() if s is not None and s.origin}


def wheel(name: str, file: Path) -> Package:
    """Return the package `name` of a wheel."""
    return Package(name, zipfile.Path(file, f"{name}/"))


def missing(wanted: Iterable[Use], packages: Mapping[str, Package]) -> list[str]:
    """Return a line for each use that its package does not have. Uses of packages that are not given are skipped."""
    lines = []
    for use in wanted:
        if use.path[0] not in PACKAGES:
            lines.append(f"{use}: its package is not known")
        elif use.path[0] in packages:
            try:
                packages[use.path[0]].require(use)
            except Missing as error:
                lines.append(f"{use}: {error}")
    return lines


@functools.cache
def _parsed(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about their escapes
        return ast.parse(text)


def _parent(folder: Folder) -> Folder:
    if isinstance(folder, Path):
        return folder.parent
    return zipfile.Path(folder.root, f"{folder.at.rstrip('/').rpartition('/')[0]}/")


def _walk(folder: Folder) -> Iterator[Folder]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry)
        else:
            yield entry


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the top-level statements of a module, including those under `if` and `try`. Of two definitions of a name,
    the first counts."""
    for statement in body:
        yield statement
        match statement:
            case ast.If():
                yield from _statements([*statement.body, *statement.orelse])
            case ast.Try():
                handlers = [inner for handler in statement.handlers for inner in handler.body]
                yield from _statements([*statement.body, *handlers, *statement.orelse])


def _called(thing: _Thing) -> _Thing:
    match thing:
        case _Definition(ast.ClassDef()):
            return _Instance(thing)
        case _Definition():
            return _Returned(thing)
    return _ASSIGNED


def _attributes(node: ast.ClassDef) -> set[str]:
    """Return the names that methods assign to `self` or `cls`."""
    targets = (
        t for n in ast.walk(node) for t in (n.targets if isinstance(n, ast.Assign) else [getattr(n, "target", None)])
    )
    return {
        t.attr
        for t in targets
        if isinstance(t, ast.Attribute) and isinstance(t.value, ast.Name) and t.value.id in ("self", "cls")
    }


def _returned_keys(node: ast.AST) -> set[str] | None:
    """Return the keys of the dictionaries that a function returns, or None if it returns anything else."""
    returned = [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]
    dictionaries = [value for value in returned if isinstance(value, ast.Dict)]
    if not dictionaries or len(dictionaries) < len(returned):
        return None
    return {str(key.value) for d in dictionaries for key in d.keys if isinstance(key, ast.Constant)}


def _require_call(node: ast.FunctionDef | ast.ClassDef, call: Call) -> None:
    """Raise `Missing` if the function, or the class's constructor, cannot be called so."""
    if isinstance(node, ast.ClassDef):
        makers = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name in ("__init__", "__new__")]
        if not makers:
            return  # the base's, or generated from fields
        node = makers[0]
    arguments, decorators = node.args, {d.id for d in node.decorator_list if isinstance(d, ast.Name)}
    named = [a.arg for a in [*arguments.posonlyargs, *arguments.args]]
    if named[:1] in (["self"], ["cls"]) and "staticmethod" not in decorators:
        named = named[1:]
    only = [a.arg for a in arguments.kwonlyargs]
    if arguments.kwarg is None and (unknown := sorted({*call.keywords} - {*named, *only})):
        raise Missing(f"{node.name} takes no {', '.join(unknown)}, but {', '.join([*named, *only])}")
    if arguments.vararg is None and call.positional > len(named):
        raise Missing(f"{node.name} takes {len(named)} arguments, {call.positional} are given")
    required = named[call.positional : len(named) - len(arguments.defaults)]
    if lacking := sorted({*required} - {*call.keywords}):
        raise Missing(f"{node.name} is not given {', '.join(lacking)}")
