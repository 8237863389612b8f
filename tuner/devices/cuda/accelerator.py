"""NVIDIA GPUs from inside the bench process: upstream Triton launches, torch holds the tensors."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from tilewise.errors import Unavailable
from tilewise.kernels.spec import Target
from tilewise.tuner.devices.cuda.compile import status
from tilewise.tuner.devices.cuda.cupti_timer import CuptiTimer, choose_timer
from tilewise.tuner.devices.cuda.event_timer import CudaTimer
from tilewise.tuner.devices.cuda.nvml import Management, driver_version
from tilewise.tuner.devices.measured.accelerator import Description, Failure, Job, Runtime, State
from tilewise.tuner.measure.outcome import Outcome
from tilewise.tuner.workers.worker import describe

__all__ = ["RATE_BYTES", "CudaRuntime", "identity"]

RATE_BYTES = 512 << 20
"""Moved to measure the memory rate: far over any L2 cache."""


REFERENCE_BYTES = 32 << 20
"""Read and written by the reference: some 20 us."""


class CudaRuntime(Runtime):
    """One GPU; raises `Unavailable` where torch does not see it. Its toolchain names how it times, and the state of the
    L2 cache."""

    def __init__(self, index: int = 0, warm: bool = False) -> None:
        import torch

        if not torch.cuda.is_available() or index >= torch.cuda.device_count():
            raise Unavailable(
                f"no device cuda:{index}: torch {torch.__version__} sees {torch.cuda.device_count()} GPUs"
            )
        torch.cuda.set_device(index)
        self.place = self.reference_place = f"cuda:{index}"
        self.index, self.warm = index, warm
        self.timer = choose_timer(index)
        self._management = Management.open(torch.cuda.get_device_properties(index).uuid)
        self._properties = torch.cuda.get_device_properties(index)

    def describe(self) -> Description:
        """Of the memory a twentieth: a 16-bit problem's float64 references hold four tensors of four times that."""
        target, toolchain = identity(self._properties)
        timed = f"timed by {self.timer.name}, {'warm' if self.warm else 'cold'} L2"
        return Description(target, f"{toolchain}, {timed}", int(self._properties.total_memory // 20))

    def synchronize(self) -> None:
        import torch

        torch.cuda.synchronize(self.place)

    def failure(self, error: Exception) -> Failure:
        """A fault on the device poisons the context: that shows at the next `synchronize`. Memory that is full may have
        been filled by an earlier config, which only a fresh process can tell."""
        kind = type(error).__name__
        text = str(error).partition("\n")[0] if kind == "AcceleratorError" else describe(error)  # advice follows
        return Failure(Outcome(status(kind), f"{kind}: {text}"), lost=kind == "OutOfMemoryError")

    def kernel_facts(self, kernels: Sequence[Any]) -> Mapping[str, Any]:
        """What the driver says of the loaded binaries; of several, the most."""
        return {
            "registers": max(kernel.n_regs for kernel in kernels),
            "spills": max(kernel.n_spills for kernel in kernels),
            "shared_bytes": max(kernel.metadata.shared for kernel in kernels),
        }

    @functools.cached_property
    def events(self) -> CudaTimer:
        """For what is no kernel of a known name: a chain of several, a copy."""
        return CudaTimer(self.index)

    def reference(self) -> Job | None:
        """An addition over 32 MB: its time follows the clocks of memory and multiprocessors alike, and the L2 cache."""
        import torch

        x = torch.zeros(REFERENCE_BYTES // 4, device=self.place)

        def run() -> None:
            x.add_(1.0)

        run()
        return Job(run, self.timer.names(run) if isinstance(self.timer, CuptiTimer) else ())

    def state(self) -> State:
        return self._management.state() if self._management else State()

    def bytes_per_us(self) -> float:
        """The better of the rates that torch reads and copies a large buffer with."""
        import torch

        x = torch.randn(RATE_BYTES // 4, device=self.place)
        y = torch.empty_like(x)
        read = self.events.device_time_us(lambda: torch.sum(x)).time_us
        copied = self.events.device_time_us(lambda: y.copy_(x)).time_us
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
    return target, ", ".join((*parts, f"driver {driver_version()}", capability))
