"""Device families, devices by id, and the list of all devices.

A family is one folder beside this module and one entry of `FAMILIES`. Each entry imports its folder when it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewise.db.records import Clock, L2State
from tilewise.errors import UnknownDevice, UsageError
from tilewise.settings import read_settings
from tilewise.tuner.devices.base import Device, DeviceRow
from tilewise.tuner.hardware.ascend_parts import PARTS, part

__all__ = ["DEFAULT_PART", "FAMILIES", "Family", "choose", "is_device_name", "open_device", "rows"]

DEFAULT_PART = "Ascend910B4"


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of device, named by the part of a device id up to the colon.

    `open(argument, wait, l2)` opens a device; `argument` follows the colon. `rows()` lists the devices that
    `tilewise devices` shows. `argument` names what has to follow the colon, and is empty if nothing does. `l2_states`
    are the states that the L2 cache can have before each run; the first is the default.
    """

    open: Callable[[str, float | None, L2State], Device]
    rows: Callable[[], list[DeviceRow]]
    argument: str = ""
    l2_states: tuple[L2State, ...] = ()


def _open_npu(_: str, wait: float | None, l2: L2State) -> Device:
    from tilewise.tuner.devices.npu.device import NpuDevice

    return NpuDevice(wait=wait, warm=l2 is L2State.WARM)


def _npu_rows() -> list[DeviceRow]:
    from tilewise.tuner.devices.npu.device import row

    return [row()]


def _open_cuda(_: str, wait: float | None, l2: L2State) -> Device:
    from tilewise.tuner.devices.cuda.device import CudaDevice

    return CudaDevice(wait=wait, warm=l2 is L2State.WARM)


def _cuda_rows() -> list[DeviceRow]:
    from tilewise.tuner.devices.cuda.device import row

    return [row()]


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
    from tilewise.tuner.devices.replay import ReplayDevice

    return ReplayDevice(file)


FAMILIES = {
    "npu": Family(_open_npu, _npu_rows, l2_states=(L2State.COLD, L2State.WARM)),
    "cuda": Family(_open_cuda, _cuda_rows, l2_states=(L2State.COLD, L2State.WARM)),
    "model": Family(_open_model, _model_rows, argument="PART", l2_states=(L2State.WARM, L2State.COLD, L2State.DIRTY)),
    "replay": Family(_open_replay, list, argument="FILE"),
}
"""Families by the name that device ids start with, in the order in which `auto` prefers them."""


def choose(text: str) -> str:
    """Return the device id that `text` means: itself, with a modelled part's full name, or for `auto` an NPU, else a
    CUDA GPU, else the modelled default.

    Raises `UnknownDevice` if no device can have that id.
    """
    if text == "auto":
        here = (row for family in FAMILIES.values() if not family.argument for row in family.rows())
        return next((row.id for row in here if row.available), f"model:{DEFAULT_PART}")
    kind, colon, argument = text.partition(":")
    family = FAMILIES.get(kind)
    if family is None or bool(argument) != bool(family.argument) or (colon and not argument):
        expected = [kind + (family.argument and f":{family.argument}") for kind, family in FAMILIES.items()]
        raise UnknownDevice(
            f"unknown device {text!r}; expected auto, {', '.join(expected[:-1])} or {expected[-1]}, "
            f"such as model:{DEFAULT_PART}"
        )
    return f"model:{part(argument).name}" if kind == "model" else text


def open_device(text: str, *, wait: float | None = None, l2: L2State | None = None) -> Device:
    """Open the device called `text`, ready to work. `l2` is the state of its L2 cache before each run (default: empty
    on a chip, and as the last run left it on a model).

    If another process holds the device, wait for it up to `wait` seconds (None: indefinitely). Raises `UnknownDevice`,
    `Unavailable` if this machine has no such device, and `UsageError` if its cache cannot be put in that state.
    """
    kind, _, argument = choose(text).partition(":")
    states = FAMILIES[kind].l2_states
    if l2 is not None and l2 not in states:
        able = " and ".join(name for name, family in FAMILIES.items() if l2 in family.l2_states)
        raise UsageError(f"device {text} cannot start each run with a {l2} L2 cache; only {able} can")
    return FAMILIES[kind].open(argument, wait, l2 or (states[0] if states else L2State.WARM))


def rows() -> list[DeviceRow]:
    """Return the rows of `tilewise devices`: the NPU and GPU of this machine, and every modelled part."""
    return [row for family in FAMILIES.values() for row in family.rows()]


def is_device_name(text: str) -> bool:
    """Return whether results can be stored under that name: a modelled part's or a GPU's."""
    return text in PARTS or text.startswith(("NVIDIA ", "AMD "))
