"""The device that holds a tensor, as a target to look configs up for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewise.errors import UsageError
from tilewise.kernels.spec import Target

__all__ = ["CurrentDevice", "current_device", "is_capturing"]


@dataclass(frozen=True, slots=True)
class CurrentDevice:
    """A device of this process. `toolchain` matches a result's if it equals that, or its start up to a comma."""

    target: Target
    toolchain: str


def current_device(tensor: Any) -> CurrentDevice:
    """Return the accelerator that holds a torch tensor; raise `UsageError` if none does."""
    place = tensor.device
    if place.type == "cuda":
        import torch

        from tilewise.tuner.devices.cuda.accelerator import identity

        return CurrentDevice(*identity(torch.cuda.get_device_properties(place)))
    if place.type == "npu":
        from tilewise.tuner.devices.npu.accelerator import identity as npu_identity

        return CurrentDevice(*npu_identity(place.index or 0))
    raise UsageError(
        f"the tensors are on {place}, not on an NPU or CUDA GPU; pass tuned(.., device=..) to use a device's configs"
    )


def is_capturing() -> bool:
    """Return whether launches are being captured into a graph, during which nothing may wait for the device."""
    import sys

    torch = sys.modules.get("torch")
    if torch is None:
        return False
    device = torch.npu if hasattr(torch, "npu") else torch.cuda
    return bool(device.is_available() and device.is_current_stream_capturing())
