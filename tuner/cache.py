"""`Cache` and `lookup`: answers for programs that ask themselves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tilewise.db.records import Question, Result
from tilewise.db.store import Store
from tilewise.errors import UsageError
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.kernels.spec import KernelSpec
from tilewise.tuner.lookup import Match, NotTuned, device_name, match_of, relaxed
from tilewise.tuner.problem import make_problem, question, sizes_text
from tilewise.tuner.sources import is_server, open_source

__all__ = ["Cache", "lookup"]


class Cache:
    """Tuned configs to look up in: an exported file, a database URL, a store, or None for the configured database.

    Opened once in a process, however many caches name it. Raises `BadImport` for a file and `StoreError` for a database
    that cannot be used.
    """

    def __init__(self, place: str | Path | Store | None = None) -> None:
        if isinstance(place, str) and is_server(place):
            raise UsageError(
                f"{place} is a server: ask it with tilewise.Client(..).lookup(..), or give it to tuned or Operator"
            )
        self._source = open_source(place)

    def lookup(
        self,
        kernel: KernelSpec | str,
        dims: Mapping[str, int],
        dtype: str = "float32",
        *,
        device: str,
        match: str = Match.EXACT,
        toolchain: str | None = None,
    ) -> Result:
        """The best config known for a problem on the device of that name, as far relaxed as `match` allows.

        Raises `NotTuned` where there is none, and `UsageError` (and its kinds) for a question that makes no sense.
        """
        spec = registry.load(kernel) if isinstance(kernel, str) else registry.located(kernel)
        asked = question(make_problem(spec, dims, dtype), device_name(device))
        found = relaxed(
            self._source, asked, spec, source_hash=source_hash(spec), match=match_of(match), toolchain=toolchain
        )
        if found is None:
            raise NotTuned(_miss(asked, match))
        return found

    def close(self) -> None:
        """Release files and connections, of every cache of the same place."""
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def lookup(
    kernel: KernelSpec | str,
    dims: Mapping[str, int],
    dtype: str = "float32",
    *,
    device: str,
    match: str = Match.EXACT,
    cache: str | Path | Store | None = None,
) -> Result:
    """`Cache(cache).lookup(..)`: the best config known for a problem on the device of that name."""
    return Cache(cache).lookup(kernel, dims, dtype, device=device, match=match)


def _miss(asked: Question, match: str) -> str:
    problem = f"{asked.kernel} {sizes_text(asked.dims)} {asked.dtype}"
    return f"{problem} has no answer for {asked.device} with match={match}; tune it, or relax further"
