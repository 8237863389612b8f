"""Triton's cache on disk, whose misses are looked for among the artefacts that hosts share.

Triton keeps the files of a kernel in a folder under the hash of its source, constants, types, options, target and
version, and notes them as a group when all are there. Such a folder is an artefact. What Triton keeps otherwise, the
libraries that it loads into this process among them, stays on this host.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilewise.errors import UsageError
from tilewise.tuner.workers.artefacts import SharedArtefacts, shared_artefacts

__all__ = ["MANAGER", "shared_binaries"]

MANAGER = "tilewise.tuner.devices.measured.triton_cache:SharedCacheManager"
_VARIABLE = "TRITON_CACHE_MANAGER"
_GROUP = "group.json"
"""The member of an artefact that names the files of the group; the other members are in folders."""


class Session:
    """The artefacts that a compilation fetches and makes. `made` has the group of each key that is compiled here."""

    def __init__(self, shared: SharedArtefacts, toolchain: str) -> None:
        self.shared, self.toolchain = shared, toolchain
        self.made: dict[str, tuple[Any, Mapping[str, str] | None]] = {}

    def fetch(self, manager: Any, filename: str) -> bool:
        """Fetch a group of files into Triton's cache. Returns False if this process has to compile it."""
        key = self._key(manager, filename)
        if key in self.made:
            return False
        if (content := self.shared.fetch(key)) is None:
            self.made[key] = (manager, None)
            return False
        manager.place(filename, *_unpacked(content))
        return True

    def note(self, manager: Any, filename: str, group: Mapping[str, str]) -> None:
        """Note that the files of a group are there."""
        key = self._key(manager, filename)
        if key in self.made:
            self.made[key] = (manager, group)

    def settle(self) -> None:
        """Keep what was made for the other hosts, with what was put beside it, and give up what was not."""
        for key, (manager, group) in self.made.items():
            self.shared.settle(key, None if group is None else _packed(Path(manager.cache_dir), group))

    def _key(self, manager: Any, filename: str) -> str:
        return hashlib.sha256("\0".join(["triton", self.toolchain, manager.key, filename]).encode()).hexdigest()


_sessions: list[Session] = []


def session() -> Session | None:
    """Return the session of the compilation that runs."""
    return _sessions[-1] if _sessions else None


@contextmanager
def shared_binaries(toolchain: str) -> Iterator[None]:
    """Have Triton fetch what other hosts have compiled, and share what it compiles, until the block ends.

    `toolchain` says what Triton's own hash does not cover. Raises `UsageError` and `StoreError`. Without artefacts to
    share, Triton's cache stays as it is.
    """
    if (shared := shared_artefacts()) is None:
        yield
        return
    if os.environ.setdefault(_VARIABLE, MANAGER) != MANAGER:
        raise UsageError(f"{_VARIABLE} and TILEWISE_ARTEFACTS both replace Triton's cache; unset one of them")
    current = Session(shared, toolchain)
    _sessions.append(current)
    try:
        yield
    finally:
        _sessions.remove(current)
        current.settle()


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
