"""Symbolic runs of mutants in a process of the interpreter, for `test_proof.py`."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import triton.language as tl

from tilewise.benchmarks.model.mutants import symbolic
from tilewise.benchmarks.model.mutants.proof import difference
from tilewise.benchmarks.model.mutants.source import all_mutants
from tilewise.benchmarks.model.mutants.trial import imported


def differences(wanted, problem, config, programs):
    """Return the differences that every mutant with this (module, function, kind, change) makes."""
    with TemporaryDirectory() as place:
        found = {m.name: m for m in all_mutants() if (m.module, m.function, m.kind, m.change) == wanted}.values()
        return [difference(mutant, imported(mutant, Path(place)), problem, config, programs, False) for mutant in found]


def left_open(zeroed):
    """Return how many expressions and which integers loads at 8 addresses leave behind their masks."""
    symbolic.install()
    memory, addresses = symbolic._Memory({}, {}, zeroed), np.arange(8, dtype=np.uint64)
    floats, integers = memory.unloaded(addresses, tl.float32), memory.unloaded(addresses, tl.int32)
    return {"fp32": len(set(floats.tolist())), "int32": sorted(set(integers.tolist()))}
