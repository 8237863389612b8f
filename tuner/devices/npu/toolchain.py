"""Where CANN is, which releases are in use, and what else changes the code that they make: without importing any."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tilewise.settings import read_settings

__all__ = ["COMPILER", "all_blocks_parallel", "cache_folder", "cann_version", "fingerprint", "mspti_library"]

COMPILER = "bishengir-compile"

_SWITCHES = {
    "TRITON_ALL_BLOCKS_PARALLEL": "false",
    "TRITON_DISABLE_LINE_INFO": "true",
    "TRITON_ENABLE_SANITIZER": "false",
    "TRITON_DISABLE_FFTS": "false",
}
"""Environment variables that change what triton-ascend compiles, with its defaults. They are no part of the keys of
Triton's cache, so a binary made under one setting would be found under another."""


def all_blocks_parallel() -> bool:
    """Whether triton-ascend is told to deal any number of programs to the cores by itself."""
    return _switch("TRITON_ALL_BLOCKS_PARALLEL") == "true"


def fingerprint() -> str:
    """Releases of the packages and of CANN, the compiler's own word, and switches that are not at their default."""
    releases = [f"{name} {_version(name)}" for name in ("triton-ascend", "torch", "torch_npu")]
    set_here = [f"{name}={_switch(name)}" for name, default in _SWITCHES.items() if _switch(name) != default]
    return ", ".join([*releases, f"CANN {cann_version()}", _compiler_version(), *set_here])


def cache_folder() -> Path:
    """Where Triton keeps binaries of this toolchain: its own keys name neither the compiler nor the switches."""
    return read_settings().cache_folder / "npu" / hashlib.sha256(fingerprint().encode()).hexdigest()[:16]


def cann_version() -> str:
    """From the toolkit's own files, or `unknown`."""
    root = Path(os.environ.get("ASCEND_HOME_PATH", ""))
    for file in [*sorted(root.glob("*/ascend_toolkit_install.info")), *sorted(root.glob("version.cfg"))]:
        if (found := re.search(r"version\s*=\s*\[?([\w.]+)", file.read_text(errors="replace"))) is not None:
            return found.group(1)
    return "unknown"


def mspti_library() -> Path | None:
    """MSPTI, which must be loaded before CANN's runtime is: releases before 9.1 do not see to that themselves."""
    root = Path(os.environ.get("ASCEND_HOME_PATH", ""))
    places = [root / "lib64/libmspti.so", root / "tools/mspti/lib64/libmspti.so"]
    return next((place for place in places if place.is_file()), None)


def _switch(name: str) -> str:
    value = os.environ.get(name, _SWITCHES[name]).lower()
    return {"1": "true", "0": "false"}.get(value, value)


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:  # built from source, and put on the path
        return "unknown"


def _compiler_version() -> str:
    """As the compiler on PATH says, without its build's path and date."""
    found = shutil.which(COMPILER)
    if found is None:
        return f"{COMPILER} unknown"
    alone = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # no profiler in the compiler
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False, env=alone).stdout
    match = re.match(r"\S+ (\S+)(?: \(\S+ (\w+))?", said)
    words = [word for word in match.groups() if word] if match else ["unknown"]
    return " ".join([COMPILER, *words])
