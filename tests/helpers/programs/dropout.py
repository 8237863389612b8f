"""A user's program: dropout from a seed in the style of Triton's tutorial, and a gather by index."""

import torch
import triton
import triton.language as tl


@triton.jit
def seeded_dropout_kernel(x_ptr, output_ptr, n_elements, p, seed, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    keep = tl.rand(seed, offsets) > p
    tl.store(output_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=mask)


@triton.jit
def embedding_kernel(out_ptr, index_ptr, weight_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    source = tl.load(index_ptr + row)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        tl.store(out_ptr + row * N + cols, tl.load(weight_ptr + source * N + cols, mask=cols < N), mask=cols < N)


if __name__ == "__main__":
    x = torch.randn(100_000, device="npu")
    seeded_dropout_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK_SIZE"]),)](
        x, torch.empty_like(x), x.numel(), 0.5, 123, BLOCK_SIZE=1024
    )
    index = torch.randint(0, 5000, (777,), device="npu")
    weight = torch.randn(5000, 640, device="npu")
    embedding_kernel[(777,)](torch.empty(777, 640, device="npu"), index, weight, 640, BLOCK=256)
