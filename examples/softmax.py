# ruff: noqa: N803
"""A program that launches a Triton kernel, as its users write one: nothing here knows of tilewise.

    tilewise tune examples/softmax.py:softmax_kernel --program
    tilewise run examples/softmax.py

Without an NPU or GPU: `tilewise run --interpret --for-device Ascend910B4 examples/softmax.py`.
"""

import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.autotune(configs=[triton.Config({"ROWS": rows}) for rows in (1, 2, 4, 8, 16)], key=["n_rows", "n_cols"])
@triton.jit
def softmax_kernel(out_ptr, in_ptr, n_rows, n_cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    x = tl.load(in_ptr + rows * n_cols + cols, mask=mask, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=1)[:, None])
    tl.store(out_ptr + rows * n_cols + cols, x / tl.sum(x, axis=1)[:, None], mask=mask)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Return the softmax of each row."""
    out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = triton.next_power_of_2(n_cols)
    softmax_kernel[lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)](out, x, n_rows, n_cols, BLOCK=block)
    return out


if __name__ == "__main__":
    x = torch.randn(500, 1000, device=DEVICE)
    torch.testing.assert_close(softmax(x), torch.softmax(x, -1))
    print("every row is right")
