"""NVIDIA GPUs from inside the bench process: upstream Triton launches, torch holds the tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from tilewise.errors import Unavailable
from tilewise.kernels.spec import Target
from tilewise.tuner.devices.base import Outcome
from tilewise.tuner.devices.cuda_compile import status
from tilewise.tuner.devices.cuda_timer import CudaTimer
from tilewise.tuner.devices.runtime import Description, Failure, Runtime
from tilewise.tuner.worker import describe

__all__ = ["RATE_BYTES", "CudaRuntime", "identity"]

RATE_BYTES = 512 << 20
"""Moved to measure the memory rate: far over any L2 cache."""


class CudaRuntime(Runtime):
    """One GPU; raises `Unavailable` where torch does not see it."""

    timer: CudaTimer

    def __init__(self, index: int = 0) -> None:
        import torch

        if not torch.cuda.is_available() or index >= torch.cuda.device_count():
            raise Unavailable(
                f"no device cuda:{index}: torch {torch.__version__} sees {torch.cuda.device_count()} GPUs"
            )
        torch.cuda.set_device(index)
        self.place = self.reference_place = f"cuda:{index}"
        self.timer = CudaTimer(index)
        self._properties = torch.cuda.get_device_properties(index)

    def describe(self) -> Description:
        """Of the memory a twentieth: a 16-bit problem's float64 references hold four tensors of four times that."""
        return Description(*identity(self._properties), int(self._properties.total_memory // 20))

    def synchronize(self) -> None:
        import torch

        torch.cuda.synchronize(self.place)

    def failure(self, error: Exception) -> Failure:
        """A fault on the device poisons the context: that shows at the next `synchronize`. Memory that is full may have
        been filled by an earlier config, which only a fresh process can tell."""
        kind = type(error).__name__
        return Failure(Outcome(status(kind), f"{kind}: {describe(error)}"), lost=kind == "OutOfMemoryError")

    def kernel_facts(self, kernels: Sequence[Any]) -> Mapping[str, Any]:
        """What the driver says of the loaded binaries; of several, the most."""
        return {
            "registers": max(kernel.n_regs for kernel in kernels),
            "spills": max(kernel.n_spills for kernel in kernels),
            "shared_bytes": max(kernel.metadata.shared for kernel in kernels),
        }

    def bytes_per_us(self) -> float:
        """The better of the rates that torch reads and copies a large buffer with."""
        import torch

        x = torch.randn(RATE_BYTES // 4, device=self.place)
        y = torch.empty_like(x)
        read = self.timer.device_time_us(lambda: torch.sum(x)).time_us
        copied = self.timer.device_time_us(lambda: y.copy_(x)).time_us
        return max(RATE_BYTES / read, 2 * RATE_BYTES / copied)


def identity(properties: Any) -> tuple[Target, str]:
    """The GPU of these properties (torch's) as a target, and the toolchain of this process."""
    import torch
    import triton

    target = Target(
        family="nvidia",
        name=properties.name,
        cores=properties.multi_processor_count,
        on_chip_bytes=properties.shared_memory_per_multiprocessor,
        align_bytes=16,  # the widest load of one thread
        max_programs=2**31 - 1,  # the grid's first axis
    )
    parts = (f"triton {triton.__version__}", f"torch {torch.__version__}", f"cuda {torch.version.cuda}")
    capability = f"sm_{properties.major}{properties.minor}"
    return target, ", ".join((*parts, f"driver {_driver_version()}", capability))


def _driver_version() -> str:
    """As `nvidia-smi` prints it; `unknown` where the management library is missing."""
    text = ctypes.create_string_buffer(96)
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return "unknown"
    if library.nvmlInit_v2() != 0 or library.nvmlSystemGetDriverVersion(text, len(text)) != 0:
        return "unknown"
    return text.value.decode()
