"""MSPTI's Python interface: the names and parameters that its published source has (Ascend/mspti on gitcode.com and
github.com, commit c56e50de38f63ea77bce38f8bd322f3cae5e17fb). CANN brings the package; no registry has it to read."""

from enum import Enum


class MsptiResult(Enum):
    MSPTI_SUCCESS = 0
    MSPTI_ERROR_WITHOUT_LD_PRELOAD = 6


class KernelData:
    """One kernel that ran; `start` and `end` in nanoseconds."""

    def __init__(self, origin_data):
        self.kind = self.start = self.end = self.device_id = self.stream_id = self.correlation_id = origin_data
        self.type = self.name = origin_data


class KernelMonitor:
    def start(self, cb): ...

    def stop(self): ...

    def flush_all(self): ...

    def set_buffer_size(self, size): ...
