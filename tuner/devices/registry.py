"""Device families, devices by id, and the list of all devices.

A family is one folder beside this module and one entry of `FAMILIES`. Each entry imports its folder when it is used.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewise.db.records import Clock, L2State
from tilewise.errors import InUse, Unavailable, UnknownDevice, UsageError
from tilewise.settings import read_settings
from tilewise.tuner.devices.base import Device, DeviceRow
from tilewise.tuner.hardware.ascend_parts import PARTS, part

__all__ = ["DEFAULT_PART", "FAMILIES", "Family", "chips", "choose", "is_device_name", "open_device", "rows"]

DEFAULT_PART = "Ascend910B4"
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of device, named by the part of a device id up to the colon.

    `open(argument, wait, l2)` opens a device; `argument` follows the colon. `rows()` lists the devices that
    `tilewise devices` shows. `argument` names what has to follow the colon, and is empty if nothing does; then a chip's
    number may follow. `chips()` counts the chips that this process sees. `l2_states` are the states that the L2 cache
    can have before each run; the first is the default.
    """

    open: Callable[[str, float | None, L2State], Device]
    rows: Callable[[], list[DeviceRow]]
    argument: str = ""
    chips: Callable[[], int] = lambda: 0
    l2_states: tuple[L2State, ...] = ()


def _open_npu(number: str, wait: float | None, l2: L2State) -> Device:
    from tilewise.tuner.devices.npu.device import NpuDevice

    return NpuDevice(int(number or 0), wait=wait, warm=l2 is L2State.WARM)


def _npu_rows() -> list[DeviceRow]:
    from tilewise.tuner.devices.npu.device import row

    return [row(), *map(row, _numbers(_npu_chips()))]


def _npu_chips() -> int:
    from tilewise.tuner.devices.npu.device import chips

    return chips()


def _open_cuda(number: str, wait: float | None, l2: L2State) -> Device:
    from tilewise.tuner.devices.cuda.device import CudaDevice

    return CudaDevice(int(number or 0), wait=wait, warm=l2 is L2State.WARM)


def _cuda_rows() -> list[DeviceRow]:
    from tilewise.tuner.devices.cuda.device import row

    return [row(), *map(row, _numbers(_cuda_chips()))]


def _cuda_chips() -> int:
    from tilewise.tuner.devices.cuda.device import chips

    return chips()


def _numbers(count: int) -> range:
    """Return the numbers by which chips are told apart; one alone needs none."""
    return range(count if count > 1 else 0)


def _open_model(name: str, wait: float | None, l2: L2State) -> Device:
    from tilewise.tuner.devices.ascend_model.device import ModelDevice

    return ModelDevice(name, l2=l2)


def _model_rows() -> list[DeviceRow]:
    from tilewise.tuner.devices.ascend_model import toolchain

    reason = toolchain.unavailable_reason()
    folder = read_settings().cache_folder
    listed = []
    for name in PARTS:
        cores = None if reason else toolchain.target(name, folder).cores
        listed.append(DeviceRow(f"model:{name}", name, Clock.MODELLED, cores, not reason, reason))
    return listed


def _open_replay(file: str, wait: float | None, l2: L2State) -> Device:
    from tilewise.tuner.devices.recorded_chip import SUFFIX, RecordedChip
    from tilewise.tuner.devices.replay import ReplayDevice

    return RecordedChip(file) if file.endswith(SUFFIX) else ReplayDevice(file)


FAMILIES = {
    "npu": Family(_open_npu, _npu_rows, chips=_npu_chips, l2_states=(L2State.COLD, L2State.WARM)),
    "cuda": Family(_open_cuda, _cuda_rows, chips=_cuda_chips, l2_states=(L2State.COLD, L2State.WARM)),
    "model": Family(_open_model, _model_rows, argument="PART", l2_states=(L2State.WARM, L2State.COLD, L2State.DIRTY)),
    "replay": Family(_open_replay, list, argument="FILE"),
}
"""Families by the name that device ids start with, in the order in which `auto` prefers them."""


def choose(text: str) -> str:
    """Return the device id that `text` means: itself, with a modelled part's full name, or for `auto` an NPU, else a
    CUDA GPU, else the modelled default. `npu` and `cuda` are any free chip that this process sees, `cuda:1` the second.

    Raises `UnknownDevice` if no device can have that id.
    """
    if text == "auto":
        here = (row for family in FAMILIES.values() if not family.argument for row in family.rows())
        return next((row.id for row in here if row.available), f"model:{DEFAULT_PART}")
    kind, colon, argument = text.partition(":")
    family = FAMILIES.get(kind)
    if family is None or not _fits(argument, family) or (colon and not argument):
        expected = [kind + (family.argument and f":{family.argument}") for kind, family in FAMILIES.items()]
        raise UnknownDevice(
            f"unknown device {text!r}; expected auto, {', '.join(expected[:-1])} or {expected[-1]}, "
            f"such as model:{DEFAULT_PART}, or a chip by its number, such as cuda:1"
        )
    return f"model:{part(argument).name}" if kind == "model" else text


def _fits(argument: str, family: Family) -> bool:
    """Return whether an id of this family may have that argument; one without may have a chip's number below 100."""
    return bool(argument) if family.argument else not argument or re.fullmatch("0|[1-9][0-9]?", argument) is not None


def chips(text: str) -> list[str]:
    """Return the ids that `text` may stand for: each chip's if it names several, otherwise its own.

    Raises `UnknownDevice`.
    """
    chosen = choose(text)
    numbers = _numbers(0 if ":" in chosen else FAMILIES[chosen].chips())
    return [f"{chosen}:{number}" for number in numbers] or [chosen]


def open_device(text: str, *, wait: float | None = None, l2: L2State | None = None) -> Device:
    """Open the device called `text`, ready to work. `l2` is the state of its L2 cache before each run (default: empty
    on a chip, and as the last run left it on a model).

    Where `text` names several chips, open the first that is free and comes up. If other processes hold all of them,
    wait up to `wait` seconds (None: indefinitely). Raises `UnknownDevice`, `Unavailable` if this machine has no such
    device, and `UsageError` if its cache cannot be put in that state.
    """
    ids = chips(text)
    return _open(ids[0], wait, l2) if len(ids) == 1 else _open_any(ids, wait, l2)


def _open_any(ids: Sequence[str], wait: float | None, l2: L2State | None) -> Device:
    """Open the first chip that is free. Raises `InUse` if all are in use for too long, `Unavailable` if all fail."""
    end, failures, waiting = None if wait is None else time.monotonic() + wait, dict[str, Unavailable](), False
    while True:
        for device_id in (one for one in ids if one not in failures):
            try:
                return _open(device_id, 0, l2)
            except InUse as error:
                in_use = error
            except Unavailable as error:
                failures[device_id] = error
                _tell(f"{device_id} is left out: {error}")
        if len(failures) == len(ids):
            raise failures[ids[-1]]
        if end is not None and time.monotonic() >= end:
            raise in_use
        if not waiting:
            _tell(f"{', '.join(one for one in ids if one not in failures)} are all in use; waiting for the first")
            waiting = True
        time.sleep(_POLL_SECONDS)


def _tell(line: str) -> None:
    print(f"tilewise: {line}", file=sys.stderr)


def _open(device_id: str, wait: float | None, l2: L2State | None) -> Device:
    kind, _, argument = device_id.partition(":")
    states = FAMILIES[kind].l2_states
    if l2 is not None and l2 not in states:
        able = " and ".join(name for name, family in FAMILIES.items() if l2 in family.l2_states)
        raise UsageError(f"device {device_id} cannot start each run with a {l2} L2 cache; only {able} can")
    return FAMILIES[kind].open(argument, wait, l2 or (states[0] if states else L2State.WARM))


def rows() -> list[DeviceRow]:
    """Return the rows of `tilewise devices`: the NPUs and GPUs of this machine, and every modelled part.

    Several chips of a kind have a row each, after one for whichever is free.
    """
    return [row for family in FAMILIES.values() for row in family.rows()]


def is_device_name(text: str) -> bool:
    """Return whether results can be stored under that name: a modelled part's or a GPU's."""
    return text in PARTS or text.startswith(("NVIDIA ", "AMD "))
