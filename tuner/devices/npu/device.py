"""Ascend NPUs in the tuning process, which finds them and compiles for them but never opens one.

Importing torch_npu without CANN breaks torch for the whole process. So `unavailable_reason` looks at the machine first,
and only the bench process imports torch_npu.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilewise.db.records import Clock, L2State
from tilewise.errors import Unavailable
from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.base import DeviceRow
from tilewise.tuner.devices.measured import triton_start
from tilewise.tuner.devices.measured.device import Limits, MeasuredDevice
from tilewise.tuner.devices.npu import compile as npu_compile
from tilewise.tuner.devices.npu import faults as npu_faults
from tilewise.tuner.devices.npu import management
from tilewise.tuner.devices.npu import toolchain as npu_toolchain
from tilewise.tuner.hardware.ascend_parts import PARTS
from tilewise.tuner.measure.outcome import Outcome
from tilewise.tuner.workers.worker import WorkerFailed

if TYPE_CHECKING:
    from tilewise.tuner.devices.ascend_model.device import ModelDevice

__all__ = ["RUNTIME", "NpuDevice", "chips", "row", "unavailable_reason"]

RUNTIME = "tilewise.tuner.devices.npu.accelerator:NpuRuntime"


def unavailable_reason() -> str | None:
    """Return in one line why no NPU is usable, or None. Imports neither torch nor torch_npu."""
    if not list(Path("/dev").glob("davinci[0-9]*")):
        return "no Ascend NPU on this machine (no /dev/davinci*): tune on model:PART instead"
    if not os.environ.get("ASCEND_HOME_PATH"):
        return "CANN is not set up (ASCEND_HOME_PATH is unset): source its set_env.sh"
    if shutil.which(npu_toolchain.COMPILER) is None and not os.environ.get("TRITON_NPU_COMPILER_PATH"):
        return f"the Ascend compiler {npu_toolchain.COMPILER} is not on PATH: source CANN's set_env.sh"
    if importlib.util.find_spec("torch_npu") is None:
        return "torch_npu is not installed: pip install 'tilewise[npu]'"
    triton = importlib.util.find_spec("triton")
    if triton is None or triton.origin is None or not (Path(triton.origin).parent / "backends" / "ascend").is_dir():
        return f"triton-ascend is not installed (or another triton is in its place): {toolchain.install_advice('npu')}"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "TRITON_INTERPRET=1 makes Triton interpret on the CPU: unset it"
    return None


def chips() -> int:
    """Return how many NPUs this process sees."""
    return 0 if unavailable_reason() is not None else len(_chips())


def row(index: int | None = None) -> DeviceRow:
    """Return the row of an NPU in `tilewise devices`, by default the first's.

    Its name and cores cannot be read without opening it.
    """
    why_not = unavailable_reason()
    device_id = "npu" if index is None else f"npu:{index}"
    return DeviceRow(
        device_id, "Ascend NPU", Clock.MEASURED, None, available=why_not is None, unavailable_reason=why_not or ""
    )


class NpuDevice(MeasuredDevice):
    """An Ascend NPU. Raises `Unavailable` if there is none, and as `MeasuredDevice` does.

    Configs are compiled by `jobs` processes (default: `TILEWISE_JOBS`) while earlier ones are timed. With `warm` the L2
    cache is not emptied before each run.
    """

    batch = 4

    def __init__(
        self,
        index: int = 0,
        *,
        jobs: int | None = None,
        limits: Limits | None = None,
        wait: float | None = None,
        warm: bool = False,
    ) -> None:
        if (why_not := unavailable_reason()) is not None:
            raise Unavailable(f"no device npu: {why_not}")
        if index and index >= (count := len(_chips())):
            raise Unavailable(f"no device npu:{index}: this process sees {count} NPUs, numbered from 0")
        common = {
            "TRITON_CACHE_DIR": str(npu_toolchain.cache_folder()),
            "TRITON_INTERPRET": None,
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",  # torch alone: the bench process imports torch_npu after the fork
        }
        self._warm = warm
        self._model: ModelDevice | None = None
        self.serial = management.serial(_chip(index))
        super().__init__(
            f"npu:{index}" if index or len(_chips()) > 1 else "npu",
            f"npu-{_chip(index)}",
            (RUNTIME, index, warm),
            npu_compile.ENTRY,
            imports=("torch", "triton"),
            compile_imports=(triton_start.ENTRY,),
            compile_env=common,
            bench_env={**common, **_preloaded()},
            jobs=jobs,
            limits=limits,
            wait=wait,
        )

    def compile_arguments(self) -> tuple[str]:
        return (self.target.name,)

    def refusal(self, error: WorkerFailed) -> Outcome:
        return npu_faults.compiler_refusal(error.kind, error.message, error.message)

    def predict_us(
        self, spec: KernelSpec, problem: Problem, configs: Sequence[Config]
    ) -> Sequence[float | None] | None:
        """Predict with the part's model, if it is modelled and the open Ascend compiler is installed beside CANN's."""
        if (model := self.model()) is None:
            return None
        outcomes = model.evaluate(spec, problem, configs)
        return [outcome.timing.time_us if outcome.timing else None for outcome in outcomes]

    def model(self) -> ModelDevice | None:
        """Return the model of this part, with the cores that this process may use and the L2 cache as it is here."""
        if self._model is None and self.target.name in PARTS and not toolchain.unavailable_reason():
            from tilewise.tuner.devices.ascend_model.device import ModelDevice

            self._model = ModelDevice(
                self.target.name, cores=self.target.cores, l2=L2State.WARM if self._warm else L2State.COLD
            )
        return self._model

    def close(self) -> None:
        super().close()
        if self._model is not None:
            self._model.close()


def _chips() -> list[str]:
    """Return the numbers on this machine of the chips that this process sees."""
    shown = os.environ.get("ASCEND_RT_VISIBLE_DEVICES", "")
    if shown:
        return [number.strip() for number in shown.split(",")]
    return [str(number) for number in range(len(list(Path("/dev").glob("davinci[0-9]*"))))]


def _chip(index: int) -> str:
    """Return the chip's number on this machine, even if the process sees only some of the chips."""
    shown = _chips()
    return shown[index] if index < len(shown) and shown[index] else str(index)


def _preloaded() -> dict[str, str | None]:
    """Return the environment that preloads the library of the bench process's best clock."""
    if (library := npu_toolchain.mspti_library()) is None:
        return {}
    return {"LD_PRELOAD": " ".join([str(library), *os.environ.get("LD_PRELOAD", "").split()])}
