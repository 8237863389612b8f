"""The device that a tensor is on, as what configs are looked up for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewise.errors import UsageError
from tilewise.kernels.spec import Target

__all__ = ["CurrentDevice", "current_device", "is_capturing"]


@dataclass(frozen=True, slots=True)
class CurrentDevice:
    """A device of this process. `toolchain` is compared with results' from its start, up to a comma."""

    target: Target
    toolchain: str


def current_device(tensor: Any) -> CurrentDevice:
    """The accelerator that holds a torch tensor; raises `UsageError` for a tensor that is on none."""
    place = tensor.device
    if place.type == "cuda":
        import torch

        from tilewise.tuner.devices.cuda.accelerator import identity

        return CurrentDevice(*identity(torch.cuda.get_device_properties(place)))
    if place.type == "npu":
        from tilewise.tuner.devices.npu.accelerator import identity as npu_identity

        return CurrentDevice(*npu_identity(place.index or 0))
    raise UsageError(
        f"the tensors are on {place}, which is no tuned device; name the one whose configs to use: tuned(.., device=..)"
    )


def is_capturing() -> bool:
    """Whether launches are being recorded into a graph, so that nothing may wait for the device."""
    import sys

    torch = sys.modules.get("torch")
    if torch is None:
        return False
    device = torch.npu if hasattr(torch, "npu") else torch.cuda
    return bool(device.is_available() and device.is_current_stream_capturing())
