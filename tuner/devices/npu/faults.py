"""Outcomes of configs whose compilation or launch raised an error of triton-ascend, torch_npu or CANN.

CANN reports a six-digit code and a text. A `507xxx` code is an error of the device itself (CANN's `rt_error_codes.h`);
an inner error (`EZ9999` and its kin) has no code. Both come late, from the next call that waits for the device, and
leave the process without a usable device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tilewise.db.records import Status
from tilewise.tuner.devices.measured.accelerator import Failure
from tilewise.tuner.measure.outcome import Outcome
from tilewise.tuner.workers.worker import describe, one_line

__all__ = ["MAX_PROGRAMS", "compiler_refusal", "failure", "fault"]

MAX_PROGRAMS = 65535
"""The runtime's block count is 16 bits ("coreDim=... can't be greater than UINT16_MAX")."""

FAULTS: Mapping[int, str] = {
    107022: "DEVICE_TASK_ABORT",
    507011: "MODEL_EXECUTE",
    507012: "REPORT_TIMEOUT",
    507013: "SYS_DMA",
    507014: "AICORE_TIMEOUT",
    507015: "AICORE_EXCEPTION",
    507016: "AICORE_TRAP_EXCEPTION",
    507017: "AICPU_TIMEOUT",
    507018: "AICPU_EXCEPTION",
    507034: "VECTOR_CORE_TIMEOUT",
    507035: "VECTOR_CORE_EXCEPTION",
    507036: "VECTOR_CORE_TRAP_EXCEPTION",
    507042: "AICORE_TRAP_READ_OVERFLOW",
    507043: "AICORE_TRAP_WRITE_OVERFLOW",
    507044: "VECTOR_CORE_TRAP_READ_OVERFLOW",
    507045: "VECTOR_CORE_TRAP_WRITE_OVERFLOW",
    507046: "STREAM_SYNC_TIMEOUT",
    507047: "EVENT_SYNC_TIMEOUT",
    507048: "FFTS_PLUS_TIMEOUT",
    507049: "FFTS_PLUS_EXCEPTION",
    507050: "FFTS_PLUS_TRAP_EXCEPTION",
    507053: "DEVICE_MEM_ERROR",
    507054: "HBM_MULTI_BIT_ECC_ERROR",
}
"""Faults that a kernel can meet, named as in CANN's `rt_error_codes.h` without the prefix `ACL_ERROR_RT_`. Any other
507xxx is a device fault too."""

_CODE = re.compile(r"\b(107022|507\d{3})\b")
_INNER = re.compile(r"\bE[A-Z]9999\b")
_CAUSE = re.compile(r"errorStr: ([^.\n]+)")
_OVERFLOW = re.compile(r"(\w+) overflow, requires (\d+) bits while (\d+) bits available", re.IGNORECASE)
_GRID = re.compile(r"coreDim=\d+ can't be greater than|grid should be less than 65536")
_COMPILING = {"MLIRCompilationError", "CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct"}
_NO_COMPILER = re.compile(r"No such file or directory: '([^']*(?:bishengir-compile|npuc))'")


def failure(error: Exception) -> Failure:
    """Interpret a failed compile or launch: the config's outcome, and whether the process has lost the NPU."""
    text, kind = str(error), type(error).__name__
    if _GRID.search(text):
        return Failure(Outcome(Status.CONSTRAINTS, f"more than {MAX_PROGRAMS} programs: {describe(error)}"), lost=False)
    if kind in _COMPILING:
        return Failure(compiler_refusal(kind, text, describe(error)), lost=False)
    if (known := fault(text)) is not None:
        return Failure(known, lost=True)
    return Failure(Outcome(Status.RUNTIME, f"{kind}: {describe(error)}"), lost=False)


def compiler_refusal(kind: str, text: str, words: str) -> Outcome:
    """Return the outcome of a config that the compiler refused; `words` is its error in one line.

    The error for too large a tile gives the on-chip memory that it needs and that the core has.
    """
    if (overflow := _OVERFLOW.search(text)) is not None:
        required, available = int(overflow.group(2)), int(overflow.group(3))
        reason = f"needs {required} bits of on-chip memory ({overflow.group(1).upper()}); {available} are available"
        return Outcome(Status.COMPILE, reason, facts={"on_chip_bits": {"required": required, "available": available}})
    if (missing := _NO_COMPILER.search(text)) is not None:
        return Outcome(Status.COMPILE, f"the compiler is missing ({missing.group(1)}): source CANN's set_env.sh")
    return Outcome(Status.COMPILE, f"{kind}: {words}")


def fault(text: str) -> Outcome | None:
    """Return the outcome if `text` reports a device fault, else None."""
    found = _CODE.search(text)
    if found is None and _INNER.search(text) is None:
        return None
    code = int(found.group()) if found else None
    name = FAULTS.get(code, "") if code else ""
    fault_name = f"device fault {code or _INNER.findall(text)[0]}" + (
        f" ({name.lower().replace('_', ' ')})" if name else ""
    )
    causes = list(dict.fromkeys(_CAUSE.findall(text))) or [text]
    return Outcome(
        Status.TIMEOUT if name.endswith("_TIMEOUT") else Status.RUNTIME, one_line(": ".join([fault_name, *causes]))
    )
