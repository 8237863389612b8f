"""Triton's cache on disk, whose misses are looked for on other hosts: at a fleet's farm, or among shared artefacts.

Triton keeps the files of a kernel in a folder under the hash of its source, constants, types, options, target and
version, and notes them as a group when all are there. Such a folder is an artefact. What Triton keeps otherwise, the
libraries that it loads into this process among them, stays on this host.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilewise.errors import Unavailable, UsageError
from tilewise.settings import read_settings
from tilewise.tuner.workers.artefacts import SharedArtefacts, shared_artefacts
from tilewise.tuner.workers.farm import Order, from_farm

__all__ = ["MANAGER", "made_for_farm", "shared_binaries"]

MANAGER = "tilewise.tuner.devices.measured.triton_cache:SharedCacheManager"
_MAKER = f"{__name__}:made_for_farm"
_VARIABLE = "TRITON_CACHE_MANAGER"
_GROUP = "group.json"
"""The member of an artefact that names the files of the group; the other members are in folders."""


class Session:
    """The artefacts that a compilation fetches and makes: `made` has the keys of those that are compiled here, and
    `groups` the files of all that are there.

    `compile` (`"package.module:function"` and its arguments) is this compilation, as another host repeats it.
    """

    def __init__(self, shared: SharedArtefacts | None, toolchain: str, compile: tuple[str, tuple[Any, ...]]) -> None:  # noqa: A002 - the word for it
        self.shared, self.toolchain, self.compile = shared, toolchain, compile
        self.made: list[str] = []
        self.groups: dict[str, tuple[Any, Mapping[str, str]]] = {}

    def fetch(self, manager: Any, filename: str) -> bool:
        """Fetch a group of files into Triton's cache. Returns False if this process has to compile it."""
        key = self._key(manager, filename)
        if key in self.made:
            return False
        content = from_farm(Order(key, self.toolchain, _MAKER, self.compile))
        if content is None and self.shared is not None:
            content = self.shared.fetch(key)
        if content is None:
            self.made.append(key)
            return False
        manager.place(filename, *_unpacked(content))
        return True

    def note(self, manager: Any, filename: str, group: Mapping[str, str]) -> None:
        """Note that the files of a group are there."""
        self.groups[self._key(manager, filename)] = manager, group

    def settle(self) -> None:
        """Keep what was made for the other hosts, with what was put beside it, and give up what was not."""
        if self.shared is not None:
            for key in self.made:
                self.shared.settle(key, self.packed(key))

    def packed(self, key: str) -> bytes | None:
        """Return an artefact; None if its files are not there."""
        if key not in self.groups:
            return None
        manager, group = self.groups[key]
        return _packed(Path(manager.cache_dir), group)

    def _key(self, manager: Any, filename: str) -> str:
        return hashlib.sha256("\0".join(["triton", self.toolchain, manager.key, filename]).encode()).hexdigest()


_sessions: list[Session] = []
_collected: list[list[Session]] = []
"""The sessions of compilations for a farm, which are asked for what they have made when they are over."""


def session() -> Session | None:
    """Return the session of the compilation that runs."""
    return _sessions[-1] if _sessions else None


@contextmanager
def shared_binaries(toolchain: str, compile: str, *arguments: Any) -> Iterator[None]:  # noqa: A002
    """Have Triton fetch what other hosts have compiled, and share what it compiles, until the block ends.

    `toolchain` says what Triton's own hash does not cover. Another host makes the same by calling `compile` with the
    arguments. Raises `UsageError` and `StoreError`. Without a farm or artefacts to share, Triton's cache stays as it
    is.
    """
    shared = shared_artefacts()
    if shared is None and read_settings().farm is None and not _collected:
        yield
        return
    if os.environ.setdefault(_VARIABLE, MANAGER) != MANAGER:
        raise UsageError(f"{_VARIABLE} and TILEWISE_ARTEFACTS both replace Triton's cache; unset one of them")
    current = Session(shared, toolchain, (compile, arguments))
    _sessions.append(current)
    for sessions in _collected:
        sessions.append(current)
    try:
        yield
    finally:
        _sessions.remove(current)
        current.settle()


def made_for_farm(key: str, compile: str, arguments: tuple[Any, ...]) -> tuple[bytes | None, bool]:  # noqa: A002
    """Compile as another host would, and return the artefact of a key, and whether it was compiled for this.

    Raises what the compilation raises, and `Unavailable` if this host would make another artefact.
    """
    module, _, name = compile.partition(":")
    sessions: list[Session] = []
    _collected.append(sessions)
    try:
        getattr(importlib.import_module(module), name)(*arguments)
    finally:
        _collected.remove(sessions)
    for current in sessions:
        if (content := current.packed(key)) is not None:
            return content, key in current.made
    raise Unavailable("this host has another Triton, toolchain or kernel: it compiled something else")


def _packed(folder: Path, group: Mapping[str, str]) -> bytes:
    """Return the files of a folder of Triton's cache, and which of them are a group."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_GROUP, json.dumps(sorted(group)))
        for file in sorted(folder.iterdir()):
            if file.is_file() and file.name != "lock" and not file.name.startswith("__grp__"):
                archive.writestr(f"files/{file.name}", file.read_bytes())
    return packed.getvalue()


def _unpacked(content: bytes) -> tuple[dict[str, bytes], list[str]]:
    """Return the content of the files by name, and the names of those that are a group."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = [name for name in archive.namelist() if name != _GROUP]
        return {Path(name).name: archive.read(name) for name in names}, json.loads(archive.read(_GROUP))
