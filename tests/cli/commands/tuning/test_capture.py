"""`tilewise capture`: kernels of a program, and what it lacked to launch others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewise.cli.commands.tuning.capture import captured
from tilewise.errors import NotFound
from tilewise.tuner.capture.program import Program

pytest.importorskip("triton")

PROGRAM = """
import torch, triton
import triton.language as tl

@triton.jit
def count(total):
    tl.store(total, tl.no_such_function(1))

@triton.jit
def fill(out):
    tl.store(out, 1.0)

total = torch.zeros(1, dtype=torch.int32, device="cuda")
count[(1,)](total)
if int(total):
    fill[(1,)](torch.zeros(1, device="cuda"))
"""


def test_a_kernel_that_is_not_launched_for_lack_of_results_is_told_with_the_reason(tmp_path: Path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    with pytest.raises(NotFound, match=r"it launches count; without results of count .*no_such_function"):
        captured(Program(str(file), "fill"), (), quiet=True)
