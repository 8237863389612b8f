"""Compiling for an Ascend NPU ahead of the launch, in processes that never open one.

Each process compiles into Triton's cache on disk, where the launch in the bench process finds the binary. What the
compiler says on the way is kept beside the binary: it may drop an option that the config asked for and succeed
without, and triton-ascend 3.2.0 keeps its words only where it fails. To hear them, a script of the compiler's name
stands first on PATH, which runs the real one and keeps a copy of what that prints.
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
from tilewise.tuner.devices.npu.toolchain import COMPILER
from tilewise.tuner.measure.launch import compiled

if TYPE_CHECKING:
    from triton.compiler import CompiledKernel
    from triton.runtime.cache import CacheManager

__all__ = ["ENTRY", "CompilerRefused", "compile_config", "effective_options"]

ENTRY = "tilewise.tuner.devices.npu.compile:compile_config"

OUTPUT = "bishengir-compile.txt"
"""File beside a binary in Triton's cache: what the compiler printed."""

MEMORY_OPTION = "enable-print-memory-allocated-size"
"""Makes the compiler tell how much on-chip memory a kernel takes; not every release has it."""

_SUCCEEDED = re.compile(r"Due to \w+ overflow, automatically (.*); compilation then succeeded")
_SWITCHED_OFF = re.compile(r"set enable-([\w-]+) to false")

_LISTENER = """#!/bin/sh
# Runs the compiler and keeps a copy of what it prints, below the options that it was given.
case "$*" in *--help*) exec {compiler} "$@" ;; esac
echo "$@" >>{heard}
{compiler} "$@" >{folder}/out 2>{folder}/err
code=$?
cat {folder}/out {folder}/err >>{heard}
cat {folder}/out
cat {folder}/err >&2
exit $code
"""


class CompilerRefused(Exception):
    """The Ascend compiler took the kernel and refused the config; the message is its first error, whole."""


def compile_config(origin: str, problem: Problem, config: Config, part: str) -> dict[str, Any]:
    """Compile for the NPU `part` (`Ascend910B4`); returns facts of the binaries and `compile_s`, the wall seconds of
    this process, near 0 where Triton's cache held them.

    Raises `CompilerRefused`, and what Triton's front end raises for a config that it cannot take.
    """
    heard = _prepared(part)
    heard.write_text("")  # a config that was refused has left words
    spec = registry.load(origin)
    began = time.perf_counter()
    words: list[str | None] = []
    try:
        words.extend(_words(kernel, heard) for kernel in compiled(spec, problem, config))
    except Exception as error:
        if type(error).__name__ != "MLIRCompilationError":
            raise
        raise CompilerRefused(_first_error(str(error))) from error
    seconds = time.perf_counter() - began
    return {**effective_options(config, words), "compile_s": round(seconds, 4)}


def effective_options(config: Config, words: list[str | None]) -> dict[str, Any]:
    """The options that hold in all of a config's binaries, by what the compiler said of each; nothing where what it
    said of one is not known."""
    said = [text for text in words if text is not None]
    if len(said) < len(words):
        return {}
    dropped = {option for text in said for note in _SUCCEEDED.findall(text) for option in _SWITCHED_OFF.findall(note)}
    asked = bool(config.get("multibuffer", True))  # triton-ascend's default
    options = {"multibuffer": asked and "auto-multi-buffer" not in dropped, "code_motion": "code-motion" not in dropped}
    return {"effective_options": options}


class _Part:
    """As much of a driver as compiling asks for. It is also the one instance of the driver's `NPUUtils`, with which
    the backend would open CANN's runtime only to be told the part."""

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
def _prepared(part: str) -> Path:
    """Make this process compile for `part`, and listen to the compiler; the file that what it says is added to."""
    from triton.backends.ascend.driver import NPUUtils
    from triton.runtime.driver import driver

    driver.set_active(_Part(part))
    NPUUtils.instance = _Part(part)
    real = shutil.which(COMPILER)
    folder = Path(tempfile.mkdtemp(prefix="tilewise-compiler-"))  # in the worker's own folder, and goes with it
    heard = folder / "heard"
    heard.touch()
    if real is not None:
        listener = folder / "bin" / COMPILER
        listener.parent.mkdir()
        places = {"compiler": real, "folder": str(folder), "heard": str(heard)}
        listener.write_text(_LISTENER.format_map({name: shlex.quote(place) for name, place in places.items()}))
        listener.chmod(listener.stat().st_mode | stat.S_IXUSR)
        os.environ["PATH"] = os.pathsep.join((str(listener.parent), os.environ["PATH"]))
        os.environ.update(_memory_request(real))
    return heard


def _memory_request(compiler: str) -> Mapping[str, str]:
    """What makes triton-ascend ask for the memory a kernel takes, where the compiler can tell."""
    known = subprocess.run([compiler, "--help-hidden"], capture_output=True, text=True, check=False)
    return {"ENABLE_PRINT_UB_BITS": "true" if MEMORY_OPTION in known.stdout else "false"}


def _words(kernel: CompiledKernel, heard: Path) -> str | None:
    """What the compiler said when it made this binary, now or before; None if nobody listened then."""
    from triton.runtime.cache import get_cache_manager

    beside: CacheManager = get_cache_manager(kernel.hash)
    if text := heard.read_text(errors="replace"):
        heard.write_text("")
        beside.put(text, OUTPUT, binary=False)
        return text
    kept = beside.get_file(OUTPUT)
    return Path(kept).read_text(errors="replace") if kept is not None else None


def _first_error(text: str) -> str:
    """The compiler's first error of its own; one that follows from it, or of the framework around, comes later."""
    errors = [line.partition("error: ")[2] for line in text.splitlines() if "error: " in line]
    telling = [error for error in errors if not error.startswith("Failed to run")]
    return (telling or errors or [text])[0]
