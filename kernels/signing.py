"""An operator signs a kernel's file, and workers that have the same key accept it from the database."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from tilewise.db.signed_kernels import SignedKernel
from tilewise.errors import BadSpec, NotFound, UsageError
from tilewise.kernels import registry
from tilewise.kernels.source import locate
from tilewise.settings import read_settings

__all__ = ["Arrivals", "Shelf", "arrivals_here", "read_key", "sign"]

_LEAST_KEY_BYTES = 32
_LARGEST_FILE = 1 << 20


class Shelf(Protocol):
    """Where signed kernels lie: `SignedKernels`."""

    def digests(self) -> Mapping[str, str]: ...

    def get(self, name: str) -> SignedKernel: ...


def read_key(path: Path) -> bytes:
    """Return the key in a file. Raises `UsageError` if it is short, or if others than its owner may read it."""
    try:
        mode, key = path.stat().st_mode, path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the kernel key {path}: {error.strerror or error}") from error
    if stat.S_IMODE(mode) & 0o077:
        raise UsageError(f"others may read the kernel key {path}; chmod 600 it")
    if len(key) < _LEAST_KEY_BYTES:
        raise UsageError(f"the kernel key {path} has {len(key)} bytes; expected {_LEAST_KEY_BYTES} random ones or more")
    return key


def sign(text: str, key: bytes) -> SignedKernel:
    """Import `path/to/file.py:SPEC`, and return it signed. Raises `BadSpec` if one file is not all that it needs."""
    spec = registry.load(text)
    path, _, attribute = spec.origin.rpartition(":")
    if not path:
        raise BadSpec(f"{spec.name} is the project's own kernel, which every worker has; sign a file of yours")
    ours = Path(__file__).resolve().parent
    for file, name in locate(spec):
        if file.resolve() != Path(path) and ours not in file.resolve().parents:
            raise BadSpec(f"kernel {spec.name} uses {name} of {file}; put all of it into {path}: one file is signed")
    content = Path(path).read_text()
    if len(content.encode()) > _LARGEST_FILE:
        raise BadSpec(f"{path} has more than {_LARGEST_FILE >> 20} MiB")
    kernel = SignedKernel(spec.name, Path(path).name, attribute, content)
    return replace(kernel, signature=kernel.signature_by(key))


class Arrivals:
    """The signed kernels that have arrived in this process, which registers them. Their files are kept in `folder`."""

    def __init__(self, shelf: Shelf, key: bytes, folder: Path) -> None:
        self._shelf, self._key, self._folder = shelf, key, folder
        self._seen: dict[str, str] = {}

    def receive(self) -> list[str]:
        """Register what is new on the shelf, and return a line for each kernel that is refused, once."""
        refused = []
        for name, digest in self._shelf.digests().items():
            if self._seen.get(name) == digest:
                continue
            self._seen[name] = digest
            try:
                self._register(name, self._shelf.get(name))
            except NotFound:  # removed since
                continue
            except BadSpec as error:
                refused.append(f"the kernel {name} is refused: {error}")
        return refused

    def _register(self, name: str, kernel: SignedKernel) -> None:
        """Raises `BadSpec` before it imports anything that this process's key did not sign."""
        if kernel.name != name or not kernel.is_signed_by(self._key):
            raise BadSpec("it is not signed with this worker's key")
        if Path(kernel.file).name != kernel.file or not kernel.file.endswith(".py"):
            raise BadSpec(f"{kernel.file!r} is not the name of a Python file")
        file = self._folder / kernel.digest / kernel.file
        _write(file, kernel.text)
        if Path(registry.place(name).rpartition(":")[0]).is_relative_to(self._folder.resolve()):
            registry.forget(name)  # this replaces it
        if (found := registry.register(f"{file}:{kernel.spec}")) != name:
            registry.forget(found)
            raise BadSpec(f"its file holds the kernel {found}")


def arrivals_here(shelf: Shelf) -> Arrivals | None:
    """Return the arrivals of this process; None if it has no key, and so takes no kernel. Raises `UsageError`."""
    settings = read_settings()
    if settings.kernel_key_file is None:
        return None
    return Arrivals(shelf, read_key(settings.kernel_key_file), settings.cache_folder / "kernels")


def _write(file: Path, text: str) -> None:
    """Write the file under its name only when it is complete: other workers of this host may import it meanwhile."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=file.parent, prefix=".")
    with os.fdopen(handle, "w") as written:
        written.write(text)
    os.replace(partial, file)
