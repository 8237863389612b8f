"""`Cache` and `lookup`: look-ups for programs that launch kernels themselves."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from tilewise.db.records import Question, Result, Shape
from tilewise.db.store import Store
from tilewise.deprecation import renamed_keywords
from tilewise.errors import UsageError
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.kernels.spec import KernelSpec
from tilewise.tuner.lookup.open_source import close_source, is_server, open_source
from tilewise.tuner.lookup.resolve import Match, NotTuned, device_name, match_of, resolve_with_fallback
from tilewise.tuner.space.problem_checks import make_problem

__all__ = ["Cache", "lookup"]


class Cache:
    """Tuned configs in `source`: an exported file, a database URL, a store, or None for the configured database.

    All caches of a process share one open file or database. Raises `BadImport` for a file and `StoreError` for a
    database that cannot be used.
    """

    @renamed_keywords(place="source")
    def __init__(self, source: str | Path | Store | None = None) -> None:
        if isinstance(source, str) and is_server(source):
            raise UsageError(
                f"{source} is a server; query it with tilewise.Client(..).lookup(..), or pass it to tuned or Operator"
            )
        self._source = open_source(source)

    def lookup(
        self,
        kernel: KernelSpec | str,
        dims: Shape,
        dtype: str = "float32",
        *,
        device: str,
        match: str = Match.EXACT,
        toolchain: str | None = None,
    ) -> Result:
        """Return the best known config of a problem on the named device, relaxed as far as `match` allows.

        Raises `NotTuned` if there is none, and `UsageError` or a subclass for an invalid question.
        """
        spec = registry.load(kernel) if isinstance(kernel, str) else registry.located(kernel)
        question = Question(make_problem(spec, dims, dtype), device_name(device))
        found = resolve_with_fallback(
            self._source, question, spec, source_hash=source_hash(spec), match=match_of(match), toolchain=toolchain
        )
        if found is None:
            raise NotTuned(_miss(question, match))
        return found

    def close(self) -> None:
        """Release files and connections, for every cache of the same source."""
        close_source(self._source)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@renamed_keywords(cache="source")
def lookup(
    kernel: KernelSpec | str,
    dims: Shape,
    dtype: str = "float32",
    *,
    device: str,
    match: str = Match.EXACT,
    source: str | Path | Store | None = None,
) -> Result:
    """Return `Cache(source).lookup(..)`: the best known config of a problem on the named device."""
    return Cache(source).lookup(kernel, dims, dtype, device=device, match=match)


def _miss(question: Question, match: str) -> str:
    return f"no config of {question.problem} for {question.device} with match={match}; tune it, or relax further"
