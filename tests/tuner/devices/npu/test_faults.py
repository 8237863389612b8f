"""Errors of triton-ascend, torch_npu and CANN, with texts that their users have posted."""

import pytest

from tilewise.db.records import Status
from tilewise.tuner.devices.npu.faults import FAULTS, compiler_refusal, failure

VECTOR = """operator():build/CMakeFiles/torch_npu.dir/compiler_depend.ts:52 NPU function error: call aclnnMaskedSelect \
failed, error code is 507035
[ERROR] 2026-06-09-08:39:14 (PID:94672, Device:0, RankID:-1) ERR00100 PTA call acl api failed
[Error]: The vector core execution is abnormal.
        Rectify the fault based on the error information in the ascend log.
EZ9999: Inner Error!
        TraceBack (most recent call last):
       The extend info: errcode:(0, 0x200000000000000, 0) errorStr: The MPU address access is invalid. fixp_error0 info
"""
SYNCHRONISED = "ACL stream synchronize failed, error code:507035"
CUBE = """[Error]: The aicore execution is abnormal.
EZ9999[PID: 8146] 2026-03-16-20:13:22.806.034 (EZ9999): The error from device, there is an exception of aicore error
       Kernel task happen error, retCode=0x26, [aicore exception].
       rtDeviceSynchronizeWithTimeout execute failed, reason=[aicore exception]
       wait for compute device to finish failed, runtime result = 507015."""
INNER = "EH9999: Inner Error!\n        rtDeviceSynchronizeWithTimeout execute failed, reason=[vector core exception]"


class MLIRCompilationError(Exception):
    """An error with the name of triton-ascend's, by which it is recognised."""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (VECTOR, "device fault 507035 (vector core exception): The MPU address access is invalid"),
        (SYNCHRONISED, f"device fault 507035 (vector core exception): {SYNCHRONISED}"),
        (CUBE, "device fault 507015 (aicore exception): [Error]: The aicore execution is abnormal."),
        (INNER, "device fault EH9999: EH9999: Inner Error!"),
        ("error code is 507899", "device fault 507899: error code is 507899"),
    ],
)
def test_a_device_fault_is_a_runtime_failure_that_loses_the_device(text, reason):
    failed = failure(RuntimeError(text))
    assert failed.lost
    assert failed.outcome.status is Status.RUNTIME
    assert failed.outcome.reason.startswith(reason)
    assert "\n" not in failed.outcome.reason
    assert len(failed.outcome.reason) <= 300


@pytest.mark.parametrize("code", FAULTS)
def test_every_code_is_named_and_only_time_outs_are_time_outs(code):
    failed = failure(RuntimeError(f"rtStreamSynchronize failed, error code is {code}"))
    assert failed.lost
    name = FAULTS[code].lower().replace("_", " ")
    assert f"{code} ({name})" in failed.outcome.reason
    assert failed.outcome.status is (Status.TIMEOUT if "timeout" in name else Status.RUNTIME)


@pytest.mark.parametrize("text", ["1507035 elements differ", "no device fault", "E9999", "E19999: no operator"])
def test_what_only_resembles_a_fault_loses_nothing(text):
    assert not failure(ValueError(text)).lost


@pytest.mark.parametrize(
    "text",
    [
        'grid should be less than 65536! You can try "export TRITON_ALL_BLOCKS_PARALLEL=1" to avoid this problem.',
        "[EE1001][PID: 1] rtKernelLaunch failed: coreDim=70000 can't be greater than UINT16_MAX. 507000",
    ],
)
def test_too_many_programs_are_a_constraint_and_the_device_lives(text):
    failed = failure(RuntimeError(text))
    assert failed.outcome.status is Status.CONSTRAINTS
    assert failed.outcome.reason.startswith("more than 65535 programs: ")
    assert not failed.lost


@pytest.mark.parametrize(("memory", "bits"), [("ub", 2162688), ("cbuf", 9000000)])
def test_an_overflow_tells_both_sizes(memory, bits):
    said = f"error: {memory} overflow, requires {bits} bits while 1572864 bits available! (possible reason: ...)"
    text = f"[ConvertLinalgRToBinary] encounters error:\nloc(x): {said}"
    outcome = failure(MLIRCompilationError(text)).outcome
    assert outcome.status is Status.COMPILE
    assert outcome.reason == f"needs {bits} bits of on-chip memory ({memory.upper()}); 1572864 are available"
    assert outcome.facts["on_chip_bits"] == {"required": bits, "available": 1572864}


def test_a_missing_compiler_is_not_the_configs_failing():
    text = "[Errno 2] No such file or directory: '/opt/cann/bin/bishengir-compile'"
    outcome = compiler_refusal("CompilerRefused", text, text)
    assert outcome.reason == ("the compiler is missing (/opt/cann/bin/bishengir-compile): source CANN's set_env.sh")


def test_any_other_error_is_told_in_its_own_words():
    failed = failure(ZeroDivisionError("division by zero"))
    assert failed.outcome.reason == "ZeroDivisionError: division by zero"
    assert (failed.outcome.status, failed.lost) == (Status.RUNTIME, False)
