"""Several chips of one machine, opened together."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from tilewise.db.records import L2State
from tilewise.errors import InUse, Unavailable, UsageError
from tilewise.tuner.devices.base import Device
from tilewise.tuner.devices.registry import chips, choose, open_device

__all__ = ["open_all", "open_free"]


def open_free(text: str, *, wait: float | None = None, l2: L2State | None = None) -> list[Device]:
    """Open every free chip that `text` names, of one part: the first's. Raises as `open_device` does.

    Chips that other processes hold are left out, and so are those that fail and those of another part, each with a line
    on stderr. If all are in use, wait for one as `open_device` does.
    """
    ids = chips(text)
    if len(ids) == 1:
        return [open_device(text, wait=wait, l2=l2)]
    opened, failed = _opened(ids, 0, l2)
    for device_id, error in failed.items():
        if not isinstance(error, Unavailable):
            _close(opened)
            raise error
        _tell(f"{device_id} is left out: {error}" if not isinstance(error, InUse) else str(error))
    if not opened:
        return [open_device(text, wait=wait, l2=l2)]
    others = [device for device in opened if device.target != opened[0].target]
    for device in others:
        _tell(f"{device.id} is left out: it is another part ({device.target.name}) than {opened[0].id}")
    _close(others)
    return [device for device in opened if device not in others]


def open_all(ids: Sequence[str], *, wait: float | None = None, l2: L2State | None = None) -> list[Device]:
    """Open exactly these devices, which have to be of one part. Raises as `open_device` does, and `UsageError`."""
    chosen = list(map(choose, ids))
    if twice := sorted({one for one in chosen if chosen.count(one) > 1}):
        raise UsageError(f"--devices names {', '.join(twice)} twice; name each device once")
    if several := [one for one in chosen if len(chips(one)) > 1]:
        raise UsageError(f"--devices takes chips by their numbers; {several[0]} names {', '.join(chips(several[0]))}")
    opened, failed = _opened(chosen, wait, l2)
    parts = {device.target.name: device.id for device in opened}
    if failed or len(parts) > 1:
        _close(opened)
        if failed:
            raise next(iter(failed.values()))
        unlike = " and ".join(f"{device_id} ({part})" for part, device_id in parts.items())
        raise UsageError(f"--devices names different parts, whose times are not comparable: {unlike}")
    return opened


def _opened(
    ids: Sequence[str], wait_seconds: float | None, l2: L2State | None
) -> tuple[list[Device], dict[str, BaseException]]:
    """Open the devices at once, since each takes seconds, and return those that opened and the errors of the others."""
    with ThreadPoolExecutor(len(ids)) as threads:
        opening: dict[str, Future[Device]] = {
            device_id: threads.submit(open_device, device_id, wait=wait_seconds, l2=l2) for device_id in ids
        }
        try:
            wait(opening.values())
        except BaseException:
            for future in opening.values():
                future.add_done_callback(_close_late)
            raise
    failed = {one: error for one, future in opening.items() if (error := future.exception()) is not None}
    return [future.result() for one, future in opening.items() if one not in failed], failed


def _close_late(future: Future[Device]) -> None:
    if future.exception() is None:
        future.result().close()


def _close(devices: Sequence[Device]) -> None:
    for device in devices:
        device.close()


def _tell(line: str) -> None:
    print(f"tilewise: {line}", file=sys.stderr)
