"""Symbolic runs of mutants in a process of the interpreter, for `test_proof.py`."""

from pathlib import Path
from tempfile import TemporaryDirectory

from tilewise.benchmarks.model.mutants.proof import difference
from tilewise.benchmarks.model.mutants.source import all_mutants
from tilewise.benchmarks.model.mutants.trial import imported


def differences(wanted, problem, config, programs):
    """Return the differences that every mutant with this (module, function, kind, change) makes."""
    with TemporaryDirectory() as place:
        found = {m.name: m for m in all_mutants() if (m.module, m.function, m.kind, m.change) == wanted}.values()
        return [difference(mutant, imported(mutant, Path(place)), problem, config, programs) for mutant in found]
