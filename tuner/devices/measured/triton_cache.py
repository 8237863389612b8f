"""The class that Triton loads as its cache where hosts share artefacts, `SharedCacheManager`.

It is made when Triton asks for it, as this module imports without Triton.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from tilewise.tuner.devices.measured.shared_binaries import session


def __getattr__(name: str) -> Any:
    if name == "SharedCacheManager":
        return _manager()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _manager() -> type:
    from triton.runtime.cache import FileCacheManager

    class SharedCacheManager(FileCacheManager):  # type: ignore[misc]
        """Triton's cache on disk. A group that it lacks may come from another host."""

        def get_group(self, filename: str) -> Any:
            found, current = super().get_group(filename), session()
            if not found and current is not None and current.fetch(self, filename):
                found = super().get_group(filename)
            if found and current is not None:
                current.note(self, filename, found)
            return found

        def put_group(self, filename: str, group: Mapping[str, str]) -> Any:
            put = super().put_group(filename, group)
            if (current := session()) is not None:
                current.note(self, filename, group)
            return put

        def place(self, filename: str, files: Mapping[str, bytes], group: Sequence[str]) -> None:
            """Put the files of another host here, and note those of the group under its file's name."""
            paths = {name: self.put(data, name) for name, data in files.items()}
            super().put_group(filename, {name: paths[name] for name in group})

    return SharedCacheManager
