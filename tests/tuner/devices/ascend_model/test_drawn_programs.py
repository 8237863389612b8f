"""Times and results of programs of a vector core drawn at random, and the faults of those that are wrong."""

import drawn_programs
import pytest


@pytest.mark.in_part(2)
@pytest.mark.parametrize("part", range(4))
def test_drawn_programs_take_compute_and_are_refused_what_the_table_says(part):
    rows = drawn_programs.before()
    for number in range(part, len(rows), 4):
        now, before = drawn_programs.now(number), rows[number]
        assert now["times"] == before["times"], f"the times of program {number}"
        if isinstance(before["result"], str):
            assert now["result"] == before["result"], f"the fault of program {number}"
        else:
            assert now["result"] == pytest.approx(before["result"], rel=1e-4, abs=1e-4), f"program {number}"
