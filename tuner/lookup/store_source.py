"""A source of look-ups over a store. Shape indexes and portfolios are made when they are first needed."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator, Sequence

from tilewise.db.records import Dims, Problem, Question, Result, Scope, Trial, shape_text
from tilewise.db.store import Store
from tilewise.kernels.spec import KernelSpec, Target
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.lookup.nearest_shapes import ShapesBySource
from tilewise.tuner.lookup.resolve import NotTuned, clip
from tilewise.tuner.portfolio.build import MOST_SHAPES, portfolios, sample
from tilewise.tuner.portfolio.portfolio import Portfolio

__all__ = ["StoreSource"]

_SHARE = 20
"""An outdated portfolio is rebuilt at the earliest after this many times as long as building it took."""

_MOST_NAMED = 5

_Family = tuple[str, str, str]
"""Kernel, dtype and device name."""


class StoreSource:
    """A `Source` over an open store. It may be called from any thread.

    The next look-up sees a new shape, whichever process stored it. Portfolios see it some seconds later. Unless
    `prepare` was called, the first look-up near a shape reads all shapes of its kernel: a second for a million.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._shapes: dict[_Family, _Shapes] = {}
        self._portfolios: dict[tuple[_Family, str | None], _Portfolios] = {}
        self._targets: dict[str, Target | None] = {}

    @property
    def store(self) -> Store:
        return self._store

    def close(self) -> None:
        self._store.close()

    def answers(self, question: Question, source_hash: str | None) -> Sequence[Result]:
        return self._store.answers(question, source_hash=source_hash)

    def near(self, question: Question, source_hash: str | None, bound: float) -> Sequence[tuple[float, Dims]]:
        return self._of((question.kernel, question.dtype, question.device)).near(question.problem, source_hash, bound)

    def prepare(self) -> None:
        """Build the shape indexes now, so that the first look-ups do not wait for them."""
        for family in self._store.families():
            self._of(family).follow()

    def portfolios(self, question: Question, source_hash: str | None, spec: KernelSpec) -> Sequence[Portfolio]:
        family = (question.kernel, question.dtype, question.device)
        made = self._portfolios.setdefault((family, source_hash), _Portfolios(self._store, family, source_hash))
        return [portfolio for portfolio in made.now(spec) if portfolio.scope.problem.flags == question.problem.flags]

    def not_tuned(self, question: Question) -> NotTuned:
        near = (question.resized(dims) for _, dims in self.near(question, None, math.inf))
        close = [other.dims for other in near if self._store.lookup(other) is not None][:_MOST_NAMED]
        problem = f"{clip(question.kernel)} {shape_text(question.shape)} {clip(question.dtype)}"
        hint = _hint(self._store, question, close)
        return NotTuned(f"{problem} is not tuned for {clip(question.device)}; {hint}", close)

    def target(self, device: str) -> Target | None:
        if device not in self._targets:
            scope = next(self._store.scopes(device=device), None)
            if scope is None:
                return None
            self._targets[device] = known_target(device, scope.cores)
        return self._targets[device]

    def _of(self, family: _Family) -> _Shapes:
        return self._shapes.setdefault(family, _Shapes(self._store, family))


class _Shapes:
    """The shapes of one family, read from the store as they are added."""

    def __init__(self, store: Store, family: _Family) -> None:
        self._store, self._family = store, family
        self._last, self._index = 0, ShapesBySource()
        self._lock = threading.Lock()

    def follow(self) -> None:
        with self._lock:
            for last, page in self._store.shape_pages(*self._family, last=self._last):
                for source_hash, sizes in page.items():
                    self._index.read(source_hash, sizes)
                self._last = last
            self._index.settle()

    def near(self, problem: Problem, source_hash: str | None, bound: float) -> Sequence[tuple[float, Dims]]:
        self.follow()
        with self._lock:
            return self._index.near(problem, source_hash, bound)


class _Portfolios:
    """The portfolios of one family and source, rebuilt after new trials. Only changed scopes are read again."""

    def __init__(self, store: Store, family: _Family, source_hash: str | None) -> None:
        self._store, self._family, self._source = store, family, source_hash
        self._evidence: dict[str, tuple[Scope, Sequence[Trial]]] = {}
        self._made: Sequence[Portfolio] = ()
        self._revision, self._due = -1, 0.0
        self._lock = threading.Lock()

    def now(self, spec: KernelSpec) -> Sequence[Portfolio]:
        """Return the portfolios. While one thread rebuilds them, others get the previous ones, if any."""
        if self._lock.acquire(blocking=self._revision < 0):
            try:
                self._follow(spec)
            finally:
                self._lock.release()
        return self._made

    def _follow(self, spec: KernelSpec) -> None:
        began = time.monotonic()
        if began < self._due or (revision := self._store.revision()) == self._revision:
            return
        if self._read():
            self._made = portfolios(self._evidence.values(), spec)
        self._revision = revision
        self._due = time.monotonic() + _SHARE * (time.monotonic() - began)

    def _written(self) -> Iterable[Scope]:
        """Return the scopes written since the last read; the first time, a sample of all."""
        if self._revision < 0:
            return self._store.draw(*self._family, self._source, most=MOST_SHAPES)
        return self._store.written(self._revision)

    def _is_mine(self, scope: Scope) -> bool:
        return (scope.kernel, scope.dtype, scope.device) == self._family and self._source in (None, scope.source_hash)

    def _read(self) -> bool:
        """Read new evidence; return whether it changed."""
        previous, stale = self._evidence, set[str]()

        def scopes() -> Iterator[Scope]:
            yield from (scope for scope, _ in previous.values())
            for scope in filter(self._is_mine, self._written()):
                if scope.key in previous:
                    stale.add(scope.key)
                yield scope

        chosen = {scope.key: scope for scope in sample(scopes())}
        kept = (chosen.keys() & previous.keys()) - stale
        self._evidence = {
            key: previous[key] if key in kept else (scope, self._store.trials(scope)) for key, scope in chosen.items()
        }
        return len(kept) < len(chosen)


def _hint(store: Store, question: Question, close: Sequence[Dims]) -> str:
    if store.lookup(question) is not None:
        return "a result is stored, but for another version of the kernel's source; tune it again"
    if close:
        return f"nearest tuned shapes: {'; '.join(map(shape_text, close))}"
    devices = store.devices()
    if question.device in devices:
        return "neither is any other shape of it"
    return f"devices with results: {', '.join(devices) or 'none yet'}"
