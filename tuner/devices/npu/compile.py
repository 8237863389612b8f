"""Compiling for an Ascend NPU ahead of the launch, in processes that never open an NPU.

Each process compiles into Triton's cache on disk, where the launch in the bench process finds the binary. The
compiler's output is kept beside the binary, because the compiler may succeed by dropping an option that the config
requested, and triton-ascend 3.2.0 keeps its output only on failure. To capture it, a script with the compiler's name
comes first on PATH, runs the real compiler and keeps a copy of its output.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewise.kernels import registry
from tilewise.kernels.spec import Config, Problem
from tilewise.tuner.devices.measured.shared_binaries import shared_binaries
from tilewise.tuner.devices.npu.toolchain import COMPILER, fingerprint
from tilewise.tuner.measure.launch import compiled

if TYPE_CHECKING:
    from triton.compiler import CompiledKernel
    from triton.runtime.cache import CacheManager

__all__ = ["ENTRY", "CompilerRefused", "compile_config", "effective_options"]

ENTRY = "tilewise.tuner.devices.npu.compile:compile_config"

OUTPUT = "bishengir-compile.txt"
"""File beside a binary in Triton's cache that holds the compiler's output."""

MEMORY_OPTION = "enable-print-memory-allocated-size"
"""Option that makes the compiler report a kernel's on-chip memory; not every release has it."""

_SUCCEEDED = re.compile(r"Due to \w+ overflow, automatically (.*); compilation then succeeded")
_SWITCHED_OFF = re.compile(r"set enable-([\w-]+) to false")

_WRAPPER = """#!/bin/sh
# Runs the compiler and keeps a copy of its output, below its options.
case "$*" in *--help*) exec {compiler} "$@" ;; esac
echo "$@" >>{log}
{compiler} "$@" >{folder}/out 2>{folder}/err
code=$?
cat {folder}/out {folder}/err >>{log}
cat {folder}/out
cat {folder}/err >&2
exit $code
"""


class CompilerRefused(Exception):
    """A config that the Ascend compiler refused although it took the kernel; the message is its whole first error."""


def compile_config(origin: str, problem: Problem, config: Config, part: str) -> dict[str, Any]:
    """Compile for the NPU `part` (`Ascend910B4`) and return facts about the binaries.

    `compile_s` is the wall seconds that this process took, near 0 if Triton's cache held the binaries. Raises
    `CompilerRefused`, and whatever Triton's front end raises for a config that it cannot compile.
    """
    log, toolchain = _set_up(part)
    log.write_text("")  # it may hold the output of a refused config
    spec = registry.load(origin)
    began = time.perf_counter()
    outputs: list[str | None] = []
    try:
        with shared_binaries(toolchain, ENTRY, origin, problem, config, part):
            outputs.extend(_compiler_output(kernel, log) for kernel in compiled(spec, problem, config))
    except Exception as error:
        if type(error).__name__ != "MLIRCompilationError":
            raise
        raise CompilerRefused(_first_error(str(error))) from error
    seconds = time.perf_counter() - began
    return {**effective_options(config, outputs), "compile_s": round(seconds, 4)}


def effective_options(config: Config, words: list[str | None]) -> dict[str, Any]:
    """Return the options in effect in all of a config's binaries, given the compiler's output for each.

    Empty if the output for one of them is not known.
    """
    known = [text for text in words if text is not None]
    if len(known) < len(words):
        return {}
    dropped = {option for text in known for note in _SUCCEEDED.findall(text) for option in _SWITCHED_OFF.findall(note)}
    requested = bool(config.get("multibuffer", True))  # triton-ascend's default
    buffered = requested and "auto-multi-buffer" not in dropped
    options = {"multibuffer": buffered, "code_motion": "code-motion" not in dropped}
    return {"effective_options": options}


class _Part:
    """The part of a driver that compilation needs.

    It is also the single instance of the driver's `NPUUtils`, with which the backend would open CANN's runtime only to
    learn the part.
    """

    def __init__(self, part: str) -> None:
        self._part = part

    def get_arch(self) -> str:
        return self._part

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("npu", self._part, 0)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@functools.cache
def _set_up(part: str) -> tuple[Path, str]:
    """Make this process compile for `part` and capture the compiler's output; return the file that receives it, and
    the toolchain's fingerprint."""
    from triton.backends.ascend.driver import NPUUtils
    from triton.runtime.driver import driver

    driver.set_active(_Part(part))
    NPUUtils.instance = _Part(part)
    toolchain = fingerprint()  # before its compiler's output is captured
    real = shutil.which(COMPILER)
    folder = Path(tempfile.mkdtemp(prefix="tilewise-compiler-"))  # in the worker's own folder, and goes with it
    log = folder / "log"
    if real is not None:
        wrapper = folder / "bin" / COMPILER
        wrapper.parent.mkdir()
        paths = {"compiler": real, "folder": str(folder), "log": str(log)}
        wrapper.write_text(_WRAPPER.format_map({name: shlex.quote(path) for name, path in paths.items()}))
        wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
        os.environ["PATH"] = os.pathsep.join((str(wrapper.parent), os.environ["PATH"]))
        os.environ.update(_memory_request(real))
    return log, toolchain


def _memory_request(compiler: str) -> Mapping[str, str]:
    """Return the environment that makes triton-ascend request a kernel's memory use, if the compiler can report it."""
    known = subprocess.run([compiler, "--help-hidden"], capture_output=True, text=True, check=False)
    return {"ENABLE_PRINT_UB_BITS": "true" if MEMORY_OPTION in known.stdout else "false"}


def _compiler_output(kernel: CompiledKernel, log: Path) -> str | None:
    """Return the compiler's output when it made this binary, now or before; None if it was not captured."""
    from triton.runtime.cache import get_cache_manager

    beside: CacheManager = get_cache_manager(kernel.hash)
    if text := log.read_text(errors="replace"):
        log.write_text("")
        beside.put(text, OUTPUT)
        return text
    kept = beside.get_file(OUTPUT)
    return Path(kept).read_text(errors="replace") if kept is not None else None


def _first_error(text: str) -> str:
    """Return the compiler's own first error. Errors that follow from it or from the framework around come later."""
    errors = [line.partition("error: ")[2] for line in text.splitlines() if "error: " in line]
    telling = [error for error in errors if not error.startswith("Failed to run")]
    return (telling or errors or [text])[0]
