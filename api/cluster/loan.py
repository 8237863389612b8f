"""The loan of an actor's chip to a tuning elsewhere in the cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tilewise.api.jobs.runner import Runner
from tilewise.errors import InUse, Unavailable
from tilewise.tuner.cluster.borrowed_chip import LOAN_SECONDS
from tilewise.tuner.cluster.lent_chip import LentChip
from tilewise.tuner.devices.registry import open_device

__all__ = ["Loans"]


class Loans:
    """Lends one lane of a runner, to one borrower at a time. The runner starts no job there meanwhile."""

    def __init__(self, runner: Runner, lane: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._runner, self._lane, self._clock = runner, lane, clock
        self._lock = threading.Lock()
        self._chip: LentChip | None = None
        self._name, self._heard = "", 0.0

    def lend(self, name: str) -> LentChip:
        """Open the chip for a borrower. Raises `InUse` if it has a job or another borrower, and `Unavailable`."""
        with self._lock:
            if not self._runner.reserve(self._lane):
                raise InUse(f"{self._lane} has a job, or is lent already")
            try:
                self._chip = LentChip(open_device(self._lane, wait=0))
            except BaseException:
                self._runner.release(self._lane)
                raise
            self._name, self._heard = name, self._clock()
            return self._chip

    def lent(self, name: str) -> LentChip:
        """Return the borrower's chip, and note its sign of life. Raises `Unavailable` if its loan has ended."""
        chip = self._chip
        if chip is None or name != self._name:
            raise Unavailable(f"the loan of {self._lane} has ended")
        self._heard = self._clock()
        return chip

    def end(self, name: str) -> None:
        """End a loan, if it has not ended."""
        with self._lock:
            if self._chip is None or name != self._name:
                return
            chip, self._chip = self._chip, None
            chip.close()
            self._runner.release(self._lane)

    def end_silent(self) -> None:
        """End the loan of a borrower that has given no sign of life for too long."""
        if self._clock() - self._heard > LOAN_SECONDS:
            self.end(self._name)

    def close(self) -> None:
        self.end(self._name)
