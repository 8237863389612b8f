"""`tilewise calibrate` without a chip: one line that says so."""

from dataclasses import replace

import pytest


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--device", "model:Ascend910B4"), 2, "calibrate needs an Ascend chip, and model:Ascend910B4 is not one"),
        (("--forget", "Ascend910B4"), 4, "Ascend910B4 was not calibrated here"),
        (("--forget", "Ascend1"), 2, "unknown Ascend part 'Ascend1'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(words, code, message, tilewise):
    here = replace(tilewise, environment={**tilewise.environment, "TILEWISE_DATA": str(tilewise.folder)})
    run = here("calibrate", *words)
    assert (run.returncode, run.stdout) == (code, "")
    assert message in run.stderr
    assert run.stderr.count("\n") == 1
