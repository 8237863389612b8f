"""NVIDIA GPUs inside the bench process: upstream Triton launches, torch holds the tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewise.errors import Unavailable
from tilewise.kernels.spec import Target
from tilewise.tuner.devices.cuda.compile import status
from tilewise.tuner.devices.cuda.cupti_timer import CuptiTimer, choose_timer
from tilewise.tuner.devices.cuda.energy import energy_per_run_uj
from tilewise.tuner.devices.cuda.event_timer import CudaTimer
from tilewise.tuner.devices.cuda.nvml import Management, driver_version
from tilewise.tuner.devices.measured.accelerator import Description, Failure, Job, Runtime, State
from tilewise.tuner.measure.outcome import Outcome
from tilewise.tuner.workers.worker import describe

__all__ = ["RATE_BYTES", "CudaRuntime", "identity"]

RATE_BYTES = 512 << 20
"""Bytes moved to measure the memory rate: far more than any L2 cache."""


REFERENCE_BYTES = 32 << 20
"""Bytes read and written by the reference, which takes about 20 us."""


class CudaRuntime(Runtime):
    """A GPU; raises `Unavailable` if torch does not see it. Its toolchain names the timing method and the state of the
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
        """Describe the GPU. A problem may use a twentieth of its memory: the float64 references of a 16-bit problem
        hold four tensors of four times its size."""
        target, toolchain = identity(self._properties)
        timed = f"timed by {self.timer.name}, {'warm' if self.warm else 'cold'} L2"
        memory_bytes = int(self._properties.total_memory // 20)
        return Description(target, f"{toolchain}, {timed}", memory_bytes, energy=self._energy_mj() is not None)

    def synchronize(self) -> None:
        import torch

        torch.cuda.synchronize(self.place)

    def failure(self, error: Exception) -> Failure:
        """Interpret an error. A device fault poisons the context, which shows at the next `synchronize`.

        An earlier config may have filled the memory, and only a fresh process can tell, so full memory counts as lost.
        """
        kind = type(error).__name__
        text = str(error).partition("\n")[0] if kind == "AcceleratorError" else describe(error)  # the rest is advice
        return Failure(Outcome(status(kind), f"{kind}: {text}"), lost=kind == "OutOfMemoryError")

    def kernel_facts(self, kernels: Sequence[Any]) -> Mapping[str, Any]:
        """Return the driver's facts about the loaded binaries; of several, the maximum."""
        return {
            "registers": max(kernel.n_regs for kernel in kernels),
            "spills": max(kernel.n_spills for kernel in kernels),
            "shared_bytes": max(kernel.metadata.shared for kernel in kernels),
        }

    @functools.cached_property
    def events(self) -> CudaTimer:
        """The timer for work without known kernel names: a chain of several kernels, a copy."""
        return CudaTimer(self.index)

    def reference(self) -> Job | None:
        """Return an addition over 32 MB: its time follows the memory and multiprocessor clocks and the L2 cache."""
        import torch

        x = torch.zeros(REFERENCE_BYTES // 4, device=self.place)
        return self.job(lambda: x.add_(1.0))

    def job(self, run: Callable[[], Any]) -> Job:
        """Return any work, which is run once, with the names of its kernels, as far as the timer needs them."""
        run()
        return Job(run, self.timer.names(run) if isinstance(self.timer, CuptiTimer) else ())

    def state(self) -> State:
        return self._management.state() if self._management else State()

    def energy_uj(self, job: Job, time_us: float) -> float | None:
        """Measure by the driver's counter, which GPUs before Volta lack."""
        if self._energy_mj() is None:
            return None
        return energy_per_run_uj(job, time_us, lambda: self._energy_mj() or 0.0)

    def _energy_mj(self) -> float | None:
        return self._management.energy_mj() if self._management else None

    def bytes_per_us(self) -> float:
        """Return the higher of the rates at which torch reads and copies a large buffer."""
        import torch

        x = torch.randn(RATE_BYTES // 4, device=self.place)
        y = torch.empty_like(x)
        read = self.events.device_time_us(lambda: torch.sum(x)).time_us
        copied = self.events.device_time_us(lambda: y.copy_(x)).time_us
        return max(RATE_BYTES / read, 2 * RATE_BYTES / copied)


def identity(properties: Any) -> tuple[Target, str]:
    """Return the GPU with these torch properties as a target, and the toolchain of this process."""
    import torch
    import triton

    target = Target(
        family="nvidia",
        name=properties.name,
        cores=properties.multi_processor_count,
        on_chip_bytes=properties.shared_memory_per_multiprocessor,
        align_bytes=16,  # the widest load of one thread
        max_programs=2**31 - 1,  # the grid's first axis
        capability=10 * properties.major + properties.minor,
    )
    parts = (f"triton {triton.__version__}", f"torch {torch.__version__}", f"cuda {torch.version.cuda}")
    capability = f"sm_{properties.major}{properties.minor}"
    return target, ", ".join((*parts, f"driver {driver_version()}", capability))
