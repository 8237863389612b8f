"""CANN's location, the releases in use, and the switches that change their code, all found without imports."""

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
"""Environment variables that change the code that triton-ascend compiles, with its defaults. Triton's cache keys do not
include them, so a binary made under one setting would be found under another."""


def all_blocks_parallel() -> bool:
    """Return whether triton-ascend itself distributes any number of programs over the cores."""
    return _switch("TRITON_ALL_BLOCKS_PARALLEL") == "true"


def fingerprint() -> str:
    """Return the releases of the packages, CANN and the compiler, and the switches that are not at their default."""
    releases = [f"{name} {_version(name)}" for name in ("triton-ascend", "torch", "torch_npu")]
    set_here = [f"{name}={_switch(name)}" for name, default in _SWITCHES.items() if _switch(name) != default]
    return ", ".join([*releases, f"CANN {cann_version()}", _compiler_version(), *set_here])


def cache_folder() -> Path:
    """Return the folder of this toolchain's binaries: Triton's own keys name neither the compiler nor the switches."""
    return read_settings().cache_folder / "npu" / hashlib.sha256(fingerprint().encode()).hexdigest()[:16]


def cann_version() -> str:
    """Return the version in the toolkit's own files, or `unknown`."""
    root = Path(os.environ.get("ASCEND_HOME_PATH", ""))
    for file in [*sorted(root.glob("*/ascend_toolkit_install.info")), *sorted(root.glob("version.cfg"))]:
        if (found := re.search(r"version\s*=\s*\[?([\w.]+)", file.read_text(errors="replace"))) is not None:
            return found.group(1)
    return "unknown"


def mspti_library() -> Path | None:
    """Return MSPTI's library. It must be loaded before CANN's runtime, which releases before 9.1 do not ensure."""
    root = Path(os.environ.get("ASCEND_HOME_PATH", ""))
    paths = [root / "lib64/libmspti.so", root / "tools/mspti/lib64/libmspti.so"]
    return next((path for path in paths if path.is_file()), None)


def _switch(name: str) -> str:
    value = os.environ.get(name, _SWITCHES[name]).lower()
    return {"1": "true", "0": "false"}.get(value, value)


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:  # built from source, and put on the path
        return "unknown"


def _compiler_version() -> str:
    """Return the version that the compiler on PATH prints, without its build's path and date."""
    found = shutil.which(COMPILER)
    if found is None:
        return f"{COMPILER} unknown"
    alone = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # no profiler in the compiler
    output = subprocess.run([found, "--version"], capture_output=True, text=True, check=False, env=alone).stdout
    match = re.match(r"\S+ (\S+)(?: \(\S+ (\w+))?", output)
    words = [word for word in match.groups() if word] if match else ["unknown"]
    return " ".join([COMPILER, *words])
