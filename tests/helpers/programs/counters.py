"""Kernels with unsigned arguments: seeds that are read, and a counter that all programs add to."""

import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 512})], key=["n"], reset_to_zero=["count_ptr"])
@triton.jit
def count_kernel(x_ptr, seed_ptr, count_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=-1.0)
    tl.atomic_add(count_ptr, tl.sum((x > 0).to(tl.uint32), axis=0))
    if tl.program_id(0) == 0:
        tl.atomic_add(count_ptr, tl.load(seed_ptr))


n = 3000
seeds, count = torch.tensor([3, 2**32 - 1]).to(torch.uint32), torch.zeros(1, dtype=torch.uint32)
count_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](torch.randn(n), seeds, count, n)
