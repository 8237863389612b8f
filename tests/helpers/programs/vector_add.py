"""A user's program: a sum of two vectors, whose grid is a function of the config, as `main()` of a script."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK_SIZE": size}, num_warps=4) for size in (256, 1024, 4096, 8192)],
    key=["n_elements"],
)
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    at = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = at < n_elements
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=mask) + tl.load(y_ptr + at, mask=mask), mask=mask)


def add(x, y):
    out = torch.empty_like(x)
    n = out.numel()
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK_SIZE"]),)](x, y, out, n)
    return out


def main():
    device = triton.runtime.driver.active.get_active_torch_device()
    for size in (98432, 1 << 20):
        add(torch.rand(size, device=device), torch.rand(size, device=device))


if __name__ == "__main__":
    main()
