"""Chips of a cluster that this process borrows from their actors, each as a device, to spread one problem over them.

An actor lends its chip while no job runs there, and takes no job until it is given back, or until the borrower has not
been heard of for a while. The search, the anchors and the final comparison are in this process, as with chips of one
host.
"""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from tilewise import errors
from tilewise.db.records import Scope
from tilewise.errors import InUse, Unavailable
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.tuner.cluster.lent_chip import Description
from tilewise.tuner.cluster.offer import kind_of
from tilewise.tuner.cluster.ray_engine import NAMESPACE
from tilewise.tuner.devices.base import Device
from tilewise.tuner.measure.outcome import Outcome, Verdict

__all__ = ["LOAN_SECONDS", "BorrowedChip", "borrow"]

LOAN_SECONDS = 60.0
"""Time without a sign of life of the borrower after which an actor takes its chip back."""

_SIGN_SECONDS = 5.0
_OPEN_SECONDS = 180.0
_GIVE_BACK_SECONDS = 10.0


def _tell(line: str) -> None:
    print(f"tilewise: {line}", file=sys.stderr)


def borrow(ray: Any, name: str, most: int | None = None, told: Callable[[str], None] = _tell) -> list[BorrowedChip]:
    """Borrow the chips of this device name that have no job, of one toolchain, at most so many. `told` hears of those
    that are left out.

    Raises `InUse` if all have jobs, and `Unavailable` if the cluster has none with an actor.
    """
    loan, actors = uuid.uuid4().hex, _actors(ray, name)
    if not actors:
        raise Unavailable(f"no actor of the cluster has a chip called {name!r}; tilewise fleet status lists them")
    opening = {title: actor.lend.remote(loan) for title, actor in list(actors.items())[:most]}
    chips, busy = list[BorrowedChip](), 0
    for title, ref in opening.items():
        try:
            chips.append(BorrowedChip(ray, actors[title], loan, ray.get(ref, timeout=_OPEN_SECONDS)))
        except Exception as error:  # Ray's, or the actor's own
            busy += isinstance(cause := _cause(error), InUse)
            told(f"{title} is left out: {cause}")
    others = [chip for chip in chips if chip.toolchain != chips[0].toolchain or chip.target != chips[0].target]
    for chip in others:
        told(f"{chip.id} on {chip.host} is left out: its toolchain is another than that of {chips[0].id}")
        chip.close()
    if not chips:
        kind = InUse if busy else Unavailable
        raise kind(f"none of {len(opening)} chips called {name!r} can be borrowed")
    return [chip for chip in chips if chip not in others]


class BorrowedChip(Device):
    """A chip of another process of the cluster, until it is closed. A chip that is lost raises `Unavailable`."""

    def __init__(self, ray: Any, actor: Any, loan: str, about: Description) -> None:
        self._ray, self._actor, self._loan, self._about = ray, actor, loan, about
        self.id, self.host, self.serial = about.id, about.host, about.serial
        self.clock, self.target, self.toolchain = about.clock, about.target, about.toolchain
        self.batch, self.noisy, self.settle_seconds = about.batch, about.noisy, about.settle_seconds
        self.notes, self.measures_energy = about.notes, about.measures_energy
        self._share = 0
        self._told_us: float | None = None
        self._closing = threading.Event()
        threading.Thread(target=self._show_life, daemon=True, name="loan").start()

    def evaluate(
        self,
        spec: KernelSpec,
        problem: Problem,
        configs: Sequence[Config],
        *,
        to_beat_us: Callable[[], float | None] = lambda: None,
    ) -> Iterator[Outcome]:
        self._share += 1
        self._tell_time(to_beat_us())
        stream = self._actor.evaluate_lent.options(num_returns="streaming")
        about = (registry.located(spec).origin, problem, [dict(config) for config in configs])
        outcomes = iter(stream.remote(self._loan, self._share, *about))
        try:
            for _ in configs:
                outcome: Outcome = self._got(next(outcomes))
                self._tell_time(to_beat_us())
                yield outcome
        except self._ray.exceptions.RayError as error:
            raise self._lost(error) from error
        except StopIteration:
            raise Unavailable(f"{self.id} on {self.host} ended its loan") from None
        finally:
            self._share += 1  # a share that was left ends with the next call

    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Verdict:
        verdict: Verdict = self._ask("verify", spec, problem, dict(config))
        return verdict

    def race(self, spec: KernelSpec, problem: Problem, configs: Sequence[Config], rounds: int) -> Sequence[Outcome]:
        outcomes: Sequence[Outcome] = self._ask("race", spec, problem, [dict(config) for config in configs], rounds)
        return outcomes

    def scope(self, spec: KernelSpec, problem: Problem) -> Scope:
        scope: Scope = self._ask("scope", spec, problem)
        return scope

    def memory_bytes(self) -> int:
        return self._about.memory_bytes

    def floor_us(self, spec: KernelSpec, problem: Problem) -> float | None:
        floor_us: float | None = self._ask("floor_us", spec, problem)
        return floor_us

    def predict_us(
        self, spec: KernelSpec, problem: Problem, configs: Sequence[Config]
    ) -> Sequence[float | None] | None:
        predicted: Sequence[float | None] | None = self._ask(
            "predict_us", spec, problem, [dict(config) for config in configs]
        )
        return predicted

    def close(self) -> None:
        """Give the chip back. If that fails, its actor takes it back by itself."""
        if not self._closing.is_set():
            self._closing.set()
            with suppress(self._ray.exceptions.RayError):
                self._ray.get(self._actor.give_back.remote(self._loan), timeout=_GIVE_BACK_SECONDS)

    def _ask(self, method: str, spec: KernelSpec, problem: Problem, *arguments: Any) -> Any:
        about = (registry.located(spec).origin, problem, *arguments)
        try:
            return self._got(self._actor.ask_lent.remote(self._loan, method, *about))
        except self._ray.exceptions.RayError as error:
            raise self._lost(error) from error

    def _got(self, ref: Any) -> Any:
        return self._ray.get(ref)

    def _tell_time(self, best_us: float | None) -> None:
        if best_us != self._told_us:
            self._told_us = best_us
            self._actor.beat_lent.remote(self._loan, self._share, best_us)

    def _show_life(self) -> None:
        while not self._closing.wait(_SIGN_SECONDS):
            self._actor.keep_lent.remote(self._loan)

    def _lost(self, error: Exception) -> Exception:
        """Return what the chip's own device raised, as it would here; and `Unavailable` for whatever else happened."""
        cause = _cause(error)
        if type(cause).__name__ in errors.__all__:
            return cause
        return Unavailable(f"{self.id} on {self.host}: {' '.join(str(cause).split())[:200]}")


def _actors(ray: Any, name: str) -> dict[str, Any]:
    """Return the actors of chips of this name by their titles, in order."""
    listed = ray.util.list_named_actors(all_namespaces=True)
    titles = [one["name"] for one in listed if one["namespace"] == NAMESPACE and "#" in one["name"]]
    found = dict[str, Any]()
    for title in sorted(title for title in titles if kind_of(title) == name):
        with suppress(ValueError):  # it has ended meanwhile
            found[title] = ray.get_actor(title, namespace=NAMESPACE)
    return found


def _cause(error: Exception) -> Exception:
    """Return the error that a method of an actor raised, or the error itself if Ray raised it."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, Exception) else error
