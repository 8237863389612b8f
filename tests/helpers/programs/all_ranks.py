"""A user's program for several ranks: rank 0 launches a kernel first, then all do, and they add up their sums."""

import os

import torch
import torch.distributed as dist
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"ROWS": rows}) for rows in (1, 4, 16)], key=["n_rows", "n_cols"])
@triton.jit
def double_kernel(out_ptr, in_ptr, n_rows, n_cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    tl.store(out_ptr + rows * n_cols + cols, 2 * tl.load(in_ptr + rows * n_cols + cols, mask=mask), mask=mask)


def double(x):
    out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    double_kernel[lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)](out, x, n_rows, n_cols, BLOCK=128)
    return out


def main():
    x = torch.ones(64, 100, device="cuda")
    if "RANK" not in os.environ:
        double(x)
        return
    dist.init_process_group("gloo")
    if os.environ["RANK"] == "0":
        double(x)
    dist.barrier()
    if os.environ["RANK"] == os.environ.get("DYING_RANK"):
        os._exit(7)
    total = double(x).sum().cpu()
    dist.all_reduce(total)
    launched = [f"{choice.match} {choice.config['ROWS']}" for choice in double_kernel.choices]
    print(f"\nlaunched {launched}, all ranks have {total:g}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
