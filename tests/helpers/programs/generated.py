"""A user's program that generates its kernel as some libraries do: it sets names in the file after reading it, and
heuristics choose the size of a block, four of which a program takes."""

import importlib.util
import sys
from pathlib import Path

import torch
import triton
import triton.language as tl

TEXT = """
import triton
import triton.language as tl


@triton.heuristics({"BLOCK": lambda args: 256 if args["n"] <= 4096 else 512})
@triton.jit
def chosen_kernel(x_ptr, keep_ptr, y_ptr, chosen_ptr, n, BLOCK: tl.constexpr):
    for part in range(4):
        at = (tl.program_id(0) * 4 + part) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n)
        keep = tl.load(keep_ptr + at, mask=at < n, other=0)
        tl.store(y_ptr + at, tl.where(keep, exponential(x), 0.0), mask=at < n)
        tl.store(chosen_ptr + at, keep & (x > 0), mask=at < n)
"""

if __name__ == "__main__":
    file = Path(sys.argv[1]) / "chosen.py"
    file.write_text(TEXT)
    spec = importlib.util.spec_from_file_location("chosen", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.exponential = tl.exp
    for n in (4000, 10_000):
        x = torch.randn(n, device="npu")
        module.chosen_kernel[lambda meta, n=n: (triton.cdiv(n, meta["BLOCK"] * 4),)](
            x, x > 0.5, torch.empty_like(x), torch.empty(n, dtype=torch.bool, device="npu"), n
        )
