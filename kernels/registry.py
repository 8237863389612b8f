"""Kernels by name, and users' kernels by file."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from tilewise.errors import BadSpec, UnknownKernel
from tilewise.kernels.catalogue import ANY_VALUE, SPECS
from tilewise.kernels.function_slice import is_kernel
from tilewise.kernels.source import digest
from tilewise.kernels.spec import KernelSpec
from tilewise.kernels.validated_callback import cut, raised

__all__ = ["forget", "known", "load", "located", "names", "own_places", "place", "register", "vector_names"]

_own: dict[str, str] = {}
"""Users' kernels registered in this process: name to `path/to/file.py:SPEC`."""


def names() -> list[str]:
    return sorted({*SPECS, *_own})


def vector_names() -> list[str]:
    """Return the registered kernels that multiply no matrices: those that the modelled parts time and execute."""
    return [name for name in names() if load(name).matrix_dtype is None]


def place(name: str) -> str:
    """Return the text by which `load` finds a registered kernel in any process: `path/to/file.py:SPEC` for a user's
    kernel, the name itself for one of the project's, and an empty text for any other name."""
    return _own.get(name) or (name if name in SPECS else "")


def own_places() -> tuple[str, ...]:
    """Return the places of the users' kernels registered in this process, for other processes to register."""
    return tuple(_own.values())


def register(text: str) -> str:
    """Register the user's kernel `path/to/file.py:SPEC` in this process and return its name.

    Raises `BadSpec` if the file has no usable spec, or if another kernel has that name.
    """
    spec = load(text)
    if spec.origin != (place(spec.name) or spec.origin):
        raise BadSpec(f"{text} names its kernel {spec.name}, but {place(spec.name)} already has that name; rename one")
    if spec.name not in SPECS:
        _own[spec.name] = spec.origin
    return spec.name


def forget(name: str) -> None:
    """Forget a user's kernel, so that another may have its name. Jobs that run keep it."""
    _own.pop(name, None)


def located(spec: KernelSpec) -> KernelSpec:
    """Return the spec with its origin set, so that other processes can load it.

    The spec must be registered, or be bound to a name at the top level of the file that defines its function. Raises
    `BadSpec` otherwise.
    """
    if not isinstance(spec, KernelSpec):
        raise BadSpec(f"{cut(spec)} is not a KernelSpec; pass a KernelSpec, a registered name or path/to/file.py:SPEC")
    if spec.origin:
        return spec
    if spec.name in SPECS and load(spec.name).function == spec.function:
        return dataclasses.replace(spec, origin=spec.name)
    function = spec.functions()[0]
    home = sys.modules.get(getattr(getattr(function, "fn", function), "__module__", ""))
    names = [name for name, value in vars(home).items() if value is spec] if home else []
    if home is None or not names or not getattr(home, "__file__", None):
        raise BadSpec(
            f"kernel {spec.name} cannot be found by other processes; "
            "assign it to a name at the top level of the file of its function, or pass path/to/file.py:SPEC"
        )
    return dataclasses.replace(spec, origin=f"{home.__file__}:{names[0]}")


def known(text: str) -> str:
    """Return the end of an error message: the registered names, after a suggestion if one is close to `text`."""
    close = difflib.get_close_matches(text, names(), n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    return f"{meant}registered: {', '.join(names())}"


def load(text: str) -> KernelSpec:
    """Load the spec named by `text`: a registered name, or `path/to/file.py:SPEC` for a user's own kernel; a file that
    holds one spec only needs no name behind it.

    Raises `UnknownKernel` for an unregistered name and `BadSpec` for a file without a usable spec.
    """
    if text in SPECS:
        module, _, attribute = SPECS[text].partition(":")
        spec: KernelSpec = getattr(importlib.import_module(module), attribute)
        return dataclasses.replace(spec, origin=text, any_value=ANY_VALUE.get(text, spec.any_value))
    path, colon, attribute = _own.get(text, text).rpartition(":")
    if colon and path.endswith(".py"):
        return _load_file(Path(path), attribute)
    if text.endswith(".py"):
        return _load_file(Path(text), _only_spec(Path(text)))
    raise UnknownKernel(f"unknown kernel {text!r}; {known(text)}, or path/to/file.py:SPEC for your own")


def _load_file(path: Path, attribute: str) -> KernelSpec:
    if path.is_file() and is_kernel(path, attribute):
        raise BadSpec(
            f"{path} has no KernelSpec called {attribute!r}, but a Triton kernel; tilewise tune {path}:{attribute} "
            "--program runs the file to see how it is launched"
        )
    module = _import_file(path)
    spec = getattr(module, attribute, None)
    if not isinstance(spec, KernelSpec):
        hint = f"it holds {', '.join(_specs(module)) or 'none'}"
        raise BadSpec(f"{path} has no KernelSpec called {attribute!r}; {hint}")
    return dataclasses.replace(spec, origin=f"{path.resolve()}:{attribute}")


def _only_spec(path: Path) -> str:
    """Return the name of a file's only spec."""
    found = _specs(_import_file(path))
    if len(found) != 1:
        raise BadSpec(f"{path} names a file but no spec; write {path}:SPEC; it holds {', '.join(found) or 'none'}")
    return found[0]


def _specs(module: ModuleType) -> list[str]:
    return sorted(name for name, value in vars(module).items() if isinstance(value, KernelSpec))


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise BadSpec(f"no file {path}; expected a Python file that holds a KernelSpec")
    return _import_module(path.resolve())


def _import_module(path: Path) -> ModuleType:
    """Import the file under a module name made from its whole path, so that equal file names do not collide."""
    name = f"tilewise_user_{path.stem}_{digest(str(path))[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    location = importlib.util.spec_from_file_location(name, path)
    assert location is not None and location.loader is not None  # a .py path always has one
    module = importlib.util.module_from_spec(location)
    sys.modules[name] = module
    try:
        location.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        reason = f": {error}" if isinstance(error, BadSpec) else f" does not import: {raised(error, str(path))}"
        raise BadSpec(f"{path}{reason}") from error
    return module
