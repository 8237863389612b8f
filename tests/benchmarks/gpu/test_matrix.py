"""`bench matrix` on a GPU, and its parts that need none."""

import pytest

from tilewise.db.sql.sql_store import open_store
from tilewise.kernels import registry
from tilewise.tuner.devices.cuda import device as cuda
from tilewise.tuner.space.problem_checks import make_problem
from tilewise.tuner.tuning.loop import Budget

pytest.importorskip("torch")

import torch

from tilewise.benchmarks.gpu.matrix import CASES, bench_matrix, block_scales, torch_product

GEMM = registry.load("gemm")


def test_every_case_is_a_problem_of_its_kernel():
    for kernel, cases in CASES.items():
        assert [make_problem(registry.load(kernel), shape, dtype) for shape, dtype in cases]
    problems = [make_problem(GEMM, shape, dtype) for shape, dtype in CASES["gemm"]]
    assert [problem.dims["M"] for problem in problems] == [16, 64, 256, 8192, 4096, 8192]
    assert problems[-1].flags == {"column_major": True}


def test_pytorchs_product_is_the_kernels():
    problem = make_problem(GEMM, {"M": 3, "N": 5, "K": 7, "column_major": True}, "bfloat16")
    inputs = {"a_ptr": torch.randn(3, 7).bfloat16(), "b_ptr": torch.randn(5, 7).bfloat16().T}
    expected = GEMM.reference_of(problem)({name: tensor.double() for name, tensor in inputs.items()})["out_ptr"]
    assert torch.allclose(torch_product(problem, inputs)().double(), expected, atol=0.05, rtol=0.02)


def test_pytorch_gets_scales_of_blocks_in_its_own_layout():
    rows, blocks = torch.rand(100, 7), torch.rand(3, 7)
    of_rows, of_blocks = block_scales(rows, blocks)
    assert torch.equal(of_rows, rows)
    assert torch.equal(of_blocks, blocks.T)
    assert of_rows.stride() == (1, 100)
    assert of_blocks.stride() == (1, 8)


@pytest.mark.needs_gpu
@pytest.mark.parametrize(
    ("kernel", "flags", "dtype"),
    [
        ("gemm", {}, "bfloat16"),
        ("gemm", {"column_major": True}, "float8_e4m3fn"),
        ("block_fp8_gemm", {}, "float8_e4m3fn"),
    ],
)
def test_a_row_has_both_contenders_on_a_gpu(tmp_path, kernel, flags, dtype):
    spec = registry.load(kernel)
    problem = make_problem(spec, {"M": 256, "N": 512, "K": 1024, **flags}, dtype)
    with open_store(f"sqlite:///{tmp_path}/tiles.db") as store, cuda.CudaDevice(jobs=4) as device:
        body = bench_matrix(device, store, spec, [problem], budget=Budget(12), rounds=2)
    (row,) = body["rows"]
    assert "failed" not in row
    assert row["verified"]
    assert min(row["tuned_us"], row["torch_us"], row["default_us"]) > 0
    assert row["tflop_s"] == pytest.approx(2 * 256 * 512 * 1024 / row["tuned_us"] / 1e6, rel=0.01)
