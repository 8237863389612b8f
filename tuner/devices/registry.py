"""Devices by id, and the list of all that could be."""

from __future__ import annotations

from tilewise.db.records import Clock
from tilewise.errors import UnknownDevice, UsageError
from tilewise.settings import read_settings
from tilewise.tuner.devices.base import Device, DeviceRow
from tilewise.tuner.hardware.ascend_parts import PARTS

__all__ = ["DEFAULT_PART", "choose", "is_device_name", "open_device", "rows"]

DEFAULT_PART = "Ascend910B4"


def choose(text: str) -> str:
    """The device id that `text` means: itself, or for `auto` an NPU, else a CUDA GPU, else the modelled default.

    Raises `UnknownDevice` where no device can have that id.
    """
    if text == "auto":
        from tilewise.tuner.devices.cuda import device as cuda
        from tilewise.tuner.devices.npu import device as npu

        available = [row.id for row in (npu.row(), cuda.row()) if row.available]
        return available[0] if available else f"model:{DEFAULT_PART}"
    kind, _, rest = text.partition(":")
    if text in ("npu", "cuda") or (kind == "replay" and rest):
        return text
    if kind == "model" and rest:
        if rest not in PARTS:
            raise UnknownDevice(f"unknown Ascend part {rest!r}; modelled: {', '.join(PARTS)}")
        return text
    raise UnknownDevice(
        f"unknown device {text!r}; expected auto, npu, cuda, model:PART, such as model:{DEFAULT_PART}, or replay:FILE"
    )


def open_device(text: str, *, wait: float | None = None, warm: bool = False) -> Device:
    """The device called `text`, ready to work; one that another process holds is waited for, for `wait` seconds at
    most (None: as long as it takes). With `warm` its caches are not cleared before each run.

    Raises `UnknownDevice`, `Unavailable` where this machine has none, and `UsageError` where caches are always cold.
    """
    kind, _, rest = choose(text).partition(":")
    if warm and kind not in ("cuda", "npu"):
        raise UsageError(f"device {text} always starts with cold caches; a warm L2 is for cuda and npu")
    if kind == "npu":
        from tilewise.tuner.devices.npu.device import NpuDevice

        return NpuDevice(wait=wait, warm=warm)
    if kind == "cuda":
        from tilewise.tuner.devices.cuda.device import CudaDevice

        return CudaDevice(wait=wait, warm=warm)
    if kind == "replay":
        from tilewise.tuner.devices.replay import ReplayDevice

        return ReplayDevice(rest)
    from tilewise.tuner.devices.ascend_model.device import ModelDevice

    return ModelDevice(rest)


def rows() -> list[DeviceRow]:
    """What `tilewise devices` lists: the NPU and GPU of this machine, and every modelled part."""
    from tilewise.tuner.devices.ascend_model import toolchain
    from tilewise.tuner.devices.cuda import device as cuda
    from tilewise.tuner.devices.npu import device as npu

    reason = toolchain.unavailable_reason()
    folder = read_settings().cache_folder
    modelled = []
    for name in PARTS:
        cores = None if reason else toolchain.target(name, folder).cores
        modelled.append(DeviceRow(f"model:{name}", name, Clock.MODELLED, cores, not reason, reason))
    return [npu.row(), cuda.row(), *modelled]


def is_device_name(text: str) -> bool:
    """Whether results can be stored under that name: that of a modelled part, or of a GPU."""
    return text in PARTS or text.startswith(("NVIDIA ", "AMD "))
