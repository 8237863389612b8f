"""A stand-in for CANN's mspti: when it stops, it hands over the kernels that the stand-in NPU ran."""

import os
from enum import Enum
from types import SimpleNamespace

import torch_npu

if torch_npu.MODES.get("mspti") == "absent":
    raise ImportError("libmspti.so: cannot open shared object file")


class MsptiResult(Enum):
    MSPTI_SUCCESS = 0
    MSPTI_ERROR_WITHOUT_LD_PRELOAD = 6


KernelData = SimpleNamespace


class KernelMonitor:
    def start(self, cb):
        if torch_npu.MODES.get("mspti") == "not preloaded" or "libmspti.so" not in os.environ.get("LD_PRELOAD", ""):
            return MsptiResult.MSPTI_ERROR_WITHOUT_LD_PRELOAD
        self.callback, self.first = cb, len(torch_npu.RAN)
        return MsptiResult.MSPTI_SUCCESS

    def stop(self):
        scale = 1000 if torch_npu.MODES.get("mspti") == "picoseconds" else 1
        lost = 1 if torch_npu.MODES.get("mspti") == "loses one" else 0
        for name, start, end in torch_npu.RAN[self.first : len(torch_npu.RAN) - lost]:
            self.callback(KernelData(name=name, start=start * scale, end=end * scale))
        return MsptiResult.MSPTI_SUCCESS
