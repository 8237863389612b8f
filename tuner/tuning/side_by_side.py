"""Several problems tuned at once, each on a device of its own.

A thread per device takes the next problem when its last one is done. The chips do their work in processes of their own,
so that a fault on one costs the others nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from tilewise.errors import Unavailable
from tilewise.tuner.devices.base import Device

__all__ = ["SideBySide"]

T = TypeVar("T")
R = TypeVar("R")

_STOP_SECONDS = 10.0
"""Time that the threads have to end once their devices' processes were killed."""


class SideBySide(Generic[T, R]):
    """Runs `work(number, item, device)` for each item, on the device that is free first.

    Numbers count from 0. `stopping` is set once an error or an interruption ends the whole: `work` should then end too.
    An item whose device is lost (`Unavailable`) is done on another one. `lost` is told of that.
    """

    def __init__(
        self,
        work: Callable[[int, T, Device], R],
        *,
        stopping: threading.Event,
        lost: Callable[[Device, Unavailable], None],
    ) -> None:
        self._work, self._stopping, self._lost = work, stopping, lost
        self._waiting: deque[tuple[int, T]] = deque()
        self._results: dict[int, R] = {}
        self._errors: list[BaseException] = []

    def run(self, items: Sequence[T], devices: Sequence[Device]) -> list[R]:
        """Return the results in the order of the items.

        Raises the first error of `work`, and `Unavailable` if all devices are lost. An interruption closes the devices,
        which ends what they do.
        """
        self._waiting.extend(enumerate(items))
        sound = list(devices)
        while self._waiting:
            lost = self._serve(sound[: len(self._waiting)])
            if self._errors:
                raise self._errors[0]
            sound = [device for device in sound if device not in lost]
            if not sound:
                raise lost[devices[-1]] if devices[-1] in lost else next(iter(lost.values()))
        return [self._results[number] for number in range(len(items))]

    def _serve(self, devices: Sequence[Device]) -> dict[Device, Unavailable]:
        """Have the devices work until nothing waits, and return those that were lost."""
        lost: dict[Device, Unavailable] = {}
        threads = [
            threading.Thread(target=self._lane, args=(device, lost), daemon=True, name=device.id) for device in devices
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:
            self._stopping.set()
            for device in devices:
                device.close()
            for thread in threads:
                thread.join(_STOP_SECONDS)
            raise
        return lost

    def _lane(self, device: Device, lost: dict[Device, Unavailable]) -> None:
        while not self._stopping.is_set():
            try:
                number, item = self._waiting.popleft()
            except IndexError:
                return
            try:
                self._results[number] = self._work(number, item, device)
            except Unavailable as error:
                lost[device] = error
                self._waiting.appendleft((number, item))
                self._lost(device, error)
                return
            except BaseException as error:
                self._errors.append(error)
                self._stopping.set()
                return
