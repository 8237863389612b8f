"""Loops over elements drawn at random: what they leave, the loops run trip by trip, and the faults of wrong ones."""

from __future__ import annotations

import json
import os

import drawn_loops
import numpy as np
import pytest
from loop_lines import ON_CHIP, Watched
from places import ROOT

from tilewise.tuner.devices.ascend_model.executor.hazards import Unordered
from tilewise.tuner.devices.ascend_model.executor.memory import Fault

TABLE = ROOT / "tests/golden/loops.json"
"""`WRITE_LOOPS=1 pytest` on this file writes it anew, if a change is meant."""


def run(function, order, programs):
    """Return the loops that ran trip by trip, and sums of the buffer that the programs leave; or their fault."""
    data = np.arange(4096, dtype=np.float32)
    executor = Watched(function, ON_CHIP, order=order)
    try:
        executor.run({"x_ptr": data}, [7], (programs,))
    except Fault as fault:
        return f"{type(fault).__name__}: {fault}"
    except IndexError:  # beyond on-chip memory, as no compiled program reads or writes
        return "IndexError"
    changed = data != np.arange(4096)
    return [executor.one_by_one, int(changed.sum()), float((data * np.arange(1, 4097) % 1009)[changed].sum())]


@pytest.fixture(scope="module")
def found(program):
    made = {}
    for case in range(drawn_loops.CASES):
        function = program(*drawn_loops.lines(case))
        programs = 3 if case % 2 or case % 8 == 0 else 1  # the whole tile is stored by each
        made[str(case)] = [run(function, order, programs) for order in (None, Unordered)]
    if os.environ.get("WRITE_LOOPS"):
        TABLE.write_text(json.dumps(made, indent=0) + "\n")
    return made


@pytest.mark.parametrize("kind", ["in a tile", "to global memory"])
def test_drawn_loops_leave_what_the_table_says(found, kind):
    before = json.loads(TABLE.read_text())
    assert found.keys() == before.keys()
    for case in range(kind == "to global memory", drawn_loops.CASES, 2):
        assert found[str(case)] == before[str(case)], f"case {case}"


def test_loops_leave_the_same_whether_accesses_are_checked_or_not(found):
    """The order of accesses is checked; without the check, more loops run at once."""
    for case, (checked, unchecked) in found.items():
        if not isinstance(checked, str) and not isinstance(unchecked, str):
            assert checked[1:] == unchecked[1:], f"case {case}"
