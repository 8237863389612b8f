"""Ascend NPUs inside the bench process: triton-ascend launches, torch_npu holds the tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewise.errors import Unavailable
from tilewise.kernels.spec import Target
from tilewise.tuner.devices.measured.accelerator import Description, Failure, Job, Runtime
from tilewise.tuner.devices.npu import faults as npu_faults
from tilewise.tuner.devices.npu import toolchain as npu_toolchain
from tilewise.tuner.devices.npu.timer import NpuTimer, choose_timer
from tilewise.tuner.workers.worker import describe

if TYPE_CHECKING:
    from triton.compiler import CompiledKernel

__all__ = ["NpuRuntime", "identity"]

UB_BYTES = 192 * 1024
"""Unified buffer of one vector core on the 910B and 910_93 families: `UB_SIZE` 1572864 bits in the device spec that
Huawei's compiler puts into every module. The runtime does not report it."""

RATE_BYTES = 512 << 20
"""Bytes moved to measure the memory rate: far more than any L2 cache."""

REFERENCE_BYTES = 32 << 20
"""Bytes of the addition that shows whether the device has changed; it takes about 40 us."""

MANY_PROGRAMS = 2**31 - 1
"""Grid limit when triton-ascend itself distributes programs over the cores: the block count is an int."""


class NpuRuntime(Runtime):
    """An NPU; raises `Unavailable` if torch_npu does not see it or no clock can be trusted."""

    reference_place = "cpu"  # an NPU has no float64
    timer: NpuTimer

    def __init__(self, index: int = 0, warm: bool = False) -> None:
        try:
            import torch_npu
        except (ImportError, OSError) as error:
            raise Unavailable(f"no device npu: torch_npu does not import: {describe(error)}") from error
        if not torch_npu.npu.is_available() or index >= torch_npu.npu.device_count():
            raise Unavailable(f"no device npu:{index}: torch_npu sees {torch_npu.npu.device_count()} NPUs")
        torch_npu.npu.set_device(index)
        self.place, self._index, self.warm = f"npu:{index}", index, warm
        choice = choose_timer(self.place)
        self.timer, self.passed_over = choice.timer, choice.passed_over

    def describe(self) -> Description:
        """Describe the NPU. A problem may use a quarter of its memory: the float64 reference is on the host."""
        import torch_npu

        target, releases = identity(self._index)
        memory = int(torch_npu.npu.mem_get_info(self._index)[1])
        timed = f"timed by {self.timer.name}, {'warm' if self.warm else 'cold'} L2"
        passed_over = tuple(f"not timed by {line}" for line in self.passed_over)
        return Description(target, f"{releases}, {timed}", memory // 4, passed_over)

    def synchronize(self) -> None:
        import torch_npu

        torch_npu.npu.synchronize()

    def failure(self, error: Exception) -> Failure:
        return npu_faults.failure(error)

    def kernel_facts(self, kernels: Sequence[CompiledKernel]) -> Mapping[str, Any]:
        """Return the on-chip memory if the compiler reported it; of several kernels, the maximum."""
        required = max(getattr(kernel.metadata, "required_ub_bits", None) or 0 for kernel in kernels)
        return {"on_chip_bits": {"required": required, "available": 8 * UB_BYTES}} if required else {}

    def reference(self) -> Job | None:
        """Return an addition over 32 MB: its time follows the clocks of memory and cores. None if each of its timings
        would take seconds."""
        import torch

        if not self.timer.cheap:
            return None
        x = torch.zeros(REFERENCE_BYTES // 4, device=self.place)

        def run() -> None:
            x.add_(1.0)

        run()
        return Job(run, self.timer.names(run))

    def bytes_per_us(self) -> float:
        """Return the higher of the rates at which torch reads and copies a large buffer."""
        import torch

        x = torch.ones(RATE_BYTES // 4, device=self.place)
        y = torch.empty_like(x)
        read = self.timer.busy_us(lambda: x.sum())
        copied = self.timer.busy_us(lambda: y.copy_(x))
        return max(RATE_BYTES / read, 2 * RATE_BYTES / copied)


def identity(index: int) -> tuple[Target, str]:
    """Return the NPU as a target, and the releases with which its toolchain begins."""
    import torch_npu

    target = Target(
        family="ascend",
        name=torch_npu.npu.get_device_name(index),
        cores=_cores(index),
        on_chip_bytes=UB_BYTES,
        align_bytes=32,  # one block of the unified buffer
        max_programs=MANY_PROGRAMS if npu_toolchain.all_blocks_parallel() else npu_faults.MAX_PROGRAMS,
    )
    return target, npu_toolchain.fingerprint()


def _cores(index: int) -> int:
    """Return the number of vector cores that this process may use: the part's, or fewer if a limit is set."""
    import torch_npu

    part = int(torch_npu.npu.get_device_properties(index).vector_core_num)
    return min(part, int(torch_npu.npu.get_device_limit(index)["vector_core_num"]))
