"""A script that prints as JSON which clock the stand-in NPU gets when one or another is broken."""

import json
import sys

import torch_npu

from tilewise.errors import Unavailable
from tilewise.tuner.devices.measured.accelerator import Job
from tilewise.tuner.devices.npu.records import ClockError
from tilewise.tuner.devices.npu.timer import choose_timer


def kernel():
    torch_npu.ran("halves_kernel", 7.0)


def twice():
    kernel()
    kernel()


def other_kernels():
    torch_npu.ran("aclnnCast_CastAiCore_Cast", 3.0)


def outcome(modes, before=None):
    torch_npu.MODES.clear()
    torch_npu.MODES.update(modes)
    sys.modules.pop("mspti", None)
    try:
        choice = choose_timer("npu:0")
    except Unavailable as error:
        return {"refused": str(error)}
    torch_npu.MODES.update(modes.get("later", {}))
    said = {"name": choice.timer.name, "passed_over": choice.passed_over}
    try:
        said["samples"] = choice.timer.samples_us(kernel, ["halves_kernel"], 3, before)
        said["warm"] = choice.timer.samples_us(kernel, ["halves_kernel"], 2, None, True)
        said["names"] = choice.timer.names(kernel)
        said["turns"] = choice.timer.rounds_us([Job(kernel, ["halves_kernel"]), Job(twice, ["halves_kernel"] * 2)], 2)
        said["read_us"] = choice.timer.busy_us(read)
    except ClockError as error:
        said["clock_error"] = str(error)
    return said


def read():
    torch_npu.ran("aclnnReduceSum", 200.0)


print(json.dumps([outcome(modes, other_kernels) for modes in json.loads(sys.argv[1])]))
