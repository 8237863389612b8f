"""A witness of compilations that is no part of the product.

Programs in the place of the Ascend compiler's note the content that they are given, the host that `COMPILING_HOST`
names, and when, and run the real ones.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from tilewise.tuner.devices.ascend_model.toolchain import tool

__all__ = ["Compilation", "counts", "read", "witness"]

_PROGRAM = "bishengir-compile"
_WITNESS = """#!/bin/sh
file="$1"; shift
case "$file" in *empty.mlir) exec {real} "$file" "$@" ;; esac
content=$({{ cat "$file"; echo "$@"; }} | sha256sum | cut -c 1-64)
echo "$COMPILING_HOST $content $$ begin $(date +%s.%N)" >>{log}
{real} "$file" "$@"
code=$?
echo "$COMPILING_HOST $content $$ end $(date +%s.%N)" >>{log}
exit $code
"""


@dataclass(frozen=True, slots=True)
class Compilation:
    """One run of the compiler, in seconds of this machine's clock. One that was killed has no end."""

    host: str
    content: str
    begin: float
    end: float | None


def witness(folder: Path, log: Path) -> str:
    """Make a package in the place of the Ascend compiler's, and return the import path on which it comes first."""
    real = Path(tool(_PROGRAM))
    programs = folder / "ascendnpuir" / "bin"
    programs.mkdir(parents=True)
    (programs.parent / "__init__.py").touch()
    for program in real.parent.iterdir():
        if program.name != _PROGRAM:
            (programs / program.name).symlink_to(program)
    file = programs / _PROGRAM
    file.write_text(_WITNESS.format(real=shlex.quote(str(real)), log=shlex.quote(str(log))))
    file.chmod(0o755)
    return os.pathsep.join([str(folder), *filter(None, sys.path)])


def read(log: Path) -> list[Compilation]:
    """Return the compilations that the witness has noted, in the order in which they began."""
    begun: dict[tuple[str, str, str], Compilation] = {}
    for host, content, run, what, moment in map(str.split, log.read_text().splitlines()):
        if what == "begin":
            begun[host, content, run] = Compilation(host, content, float(moment), None)
        else:
            begun[host, content, run] = replace(begun[host, content, run], end=float(moment))
    return list(begun.values())


def counts(found: Sequence[Compilation], hosts: Sequence[str]) -> dict[str, Any]:
    by_content: dict[str, list[Compilation]] = {}
    for one in found:
        by_content.setdefault(one.content, []).append(one)
    at_once = sum(_overlap(one, other) for each in by_content.values() for one, other in combinations(each, 2))
    return {
        "compilations": len(found),
        "by_host": {host: sum(one.host == host for one in found) for host in hosts},
        "compiled_again": len(found) - len(by_content),
        "twice_at_once": at_once,
    }


def _overlap(one: Compilation, other: Compilation) -> bool:
    """Return whether two compilations ran at the same time. One without an end was killed: it ran for a moment."""
    return one.begin < (other.end or other.begin) and other.begin < (one.end or one.begin)
