"""Compiled matrix kernels agree with float64 at odd sizes on a modelled part; with one mistake they are refused."""

import random

import pytest
from places import ROOT

from tilewise.benchmarks.model.matrix_execution import CASES as EXECUTED
from tilewise.benchmarks.model.matrix_execution import bench_matrix
from tilewise.benchmarks.model.mutations import edited
from tilewise.db.records import Status
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model.executor.verification import compile_config, judge, verify_compiled
from tilewise.tuner.measure.verify import Arguments

GROUPED = {"VARIANT": "masked", "BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 2, "PROGRAMS": 0}
EXPERTS = {"VARIANT": "sorted", "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 4}
TOKENS = {"M": 18, "E": 3, "N": 40, "K": 70, "TOPK": 2}
PAGED = {"VARIANT": "paged", "BLOCK_N": 32, "tile_mix_vector_loop": 4}
PAGES = {"B": 2, "H": 8, "HKV": 2, "PAGES": 5, "PAGE": 40, "D": 64}
GROUPS = {"M": 175, "N": 133, "K": 101, "G": 5}


@pytest.fixture(scope="module")
def verdict(target, cache_folder):
    def verify(spec, dims, dtype, config, **flags):
        problem = Problem(spec.name, dims, dtype, flags)
        return verify_compiled(spec, problem, {"multibuffer": True} | config, target, cache_folder)

    return verify


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    ("name", "dims", "dtype", "config", "flags"),
    [
        ("grouped_gemm", GROUPS, "float16", GROUPED, {"skewed": True}),
        ("grouped_gemm", GROUPS, "bfloat16", GROUPED | {"PROGRAMS": 3}, {"column_major": True}),
        ("grouped_gemm", GROUPS | {"G": 37}, "int8", GROUPED, {}),
        ("fused_moe", TOKENS, "float16", EXPERTS | {"PROGRAMS": 0}, {"skewed": True}),
        ("decode_attention", PAGES, "bfloat16", PAGED | {"SPLITS": 3}, {}),
        (
            "decode_attention",
            PAGES | {"H": 34, "PAGE": 7, "D": 40},
            "float16",
            PAGED | {"BLOCK_N": 16, "SPLITS": 1, "tile_mix_vector_loop": 0},
            {},
        ),
        ("fused_moe", TOKENS | {"E": 70, "TOPK": 3}, "bfloat16", EXPERTS | {"PROGRAMS": 20}, {}),
        ("fused_moe", TOKENS, "float16", EXPERTS | {"PROGRAMS": 0}, {"quant": "int8_w8a8"}),
        ("grouped_gemm", GROUPS, "float32", GROUPED | {"BLOCK_K": 32}, {"skewed": True}),
    ],
)
def test_a_compiled_kernel_agrees_with_float64(verdict, name, dims, dtype, config, flags):
    found = verdict(registry.load(name), dims, dtype, config, **flags)
    assert found.agreed, found.reason


@pytest.mark.full
@pytest.mark.parametrize("case", EXECUTED, ids=lambda case: f"{case.kernel} {case.dtype} {case.flags}")
def test_random_configs_agree_at_random_sizes(case, target, cache_folder, tmp_path):
    for row in bench_matrix(target.name, cache_folder, tmp_path / "rows.jsonl", count=20, seed=1, cases=[case]):
        assert "refused" in row or row["verdict"]["agreed"], row


# Mistakes -----------------------------------------------------------------------------------------------------------

WRONG = {
    ("grouped_gemm", "a tail of the depth that is not masked"): (
        "held = (rows < last)[:, None] & (inner < K)[None, :]",
        "held = (rows < last)[:, None] & (inner < K + BLOCK_K)[None, :]",
    ),
    ("grouped_gemm", "sums that are not added up"): ("tl.dot(a, b, total)", "tl.dot(a, b)"),
    ("grouped_gemm", "a matrix that is read as its transpose"): (
        "b = tl.load(matrix + inner[:, None] * N + cols[None, :], mask=held, other=0)",
        "held = (cols < N)[:, None] & (inner < K)[None, :]\n"
        + 16 * " "
        + "b = tl.trans(tl.load(matrix + cols[:, None] * K + inner[None, :], mask=held, other=0))",
    ),
    ("grouped_gemm", "the first group's matrix for all"): ("b_ptr + tl.cast(group, tl.int64) * K * N", "b_ptr"),
    ("grouped_gemm", "rows that are stored beyond a group's end"): (
        "mask = (rows < last)[:, None] &",
        "mask = (rows < last + 1)[:, None] &",
    ),
    ("decode_attention", "keys beyond the end"): ("length - trip", "length + 1 - trip"),
    ("decode_attention", "values that are not added up"): (
        "tl.dot(weights.to(v.dtype), v, acc * shrink[:, None])",
        ("tl.dot(weights.to(v.dtype), v)"),
    ),
    ("decode_attention", "the page table"): ("table_ptr + batch * PAGES + trip", "table_ptr + trip"),
    ("decode_attention", "the weights of parts"): (
        "members < group, other=LOWEST) - highest)",
        ("members < group, other=LOWEST) * 0.0)"),
    ),
    ("decode_attention", "heads that share keys"): (
        "(page.to(tl.int64) * PAGE * HKV + kv_head)",
        ("(page.to(tl.int64) * PAGE * HKV)"),
    ),
    ("fused_moe", "pairs of earlier slices"): ("(each < tl.program_id(0))", "(each < tl.program_id(0) * 0)"),
    ("fused_moe", "earlier pairs of the same expert"): ("* earlier, 1)", "* 0, 1)"),
    ("fused_moe", "the last expert of a token"): (
        "for part in range(TOPK):\n                pair =",
        "for part in range(TOPK - 1):\n                pair =",
    ),
    ("fused_moe", "the weight of a pair"): ("total += weight * found", "total += found"),
    ("fused_moe", "the activation"): ("return gate / (1.0 + tl.exp(-gate)) * factor", "return gate * factor"),
}
"""Mistakes: the right words of a kernel's file, and the wrong ones in their place."""

CASES = {
    "decode_attention": ("attention/decode_paged", PAGES, "float16", PAGED | {"SPLITS": 3}),
    "grouped_gemm": ("matrix/grouped_gemm", GROUPS, "float16", GROUPED),
    "fused_moe": ("matrix/sorted_experts", TOKENS, "float16", EXPERTS | {"PROGRAMS": 0}),
}
"""The file of each kernel's functions, and what is verified."""

SPECS = {
    "decode_attention": "kernels/attention/decode.py",
    "grouped_gemm": "kernels/matrix/grouped_gemm.py",
    "fused_moe": "kernels/matrix/fused_moe.py",
}


@pytest.mark.in_part(1)
@pytest.mark.parametrize("mistake", WRONG, ids=" ".join)
def test_a_twin_with_one_mistake_is_refused(verdict, tmp_path, mistake):
    (name, _), (right, wrong) = mistake, WRONG[mistake]
    file, *case = CASES[name]
    module = f"wrong_{name}_{list(WRONG).index(mistake)}"
    text = (ROOT / f"kernels/jit/{file}.py").read_text()
    assert text.count(right) == 1
    (tmp_path / f"{module}.py").write_text(text.replace(right, wrong))
    spec = (ROOT / SPECS[name]).read_text()
    spec = spec.replace(
        "import annotations\n", f"import annotations\nimport sys\nsys.path.insert(0, {str(tmp_path)!r})\n", 1
    )
    (tmp_path / "wrong.py").write_text(spec.replace(f"tilewise.kernels.jit.{file.replace('/', '.')}:", f"{module}:"))
    found = verdict(registry.load(f"{tmp_path}/wrong.py:SPEC"), *case)
    assert (found.agreed, found.status) == (False, Status.CORRECTNESS), found.reason


FLAGS = tuple(f"hivm.hir.{name}" for name in ("set_flag", "wait_flag", "sync_block_set", "sync_block_wait"))
"""Flags between pipes, and between cores."""


def inside(op):
    return (each for region in op.regions for each in region.walk())


@pytest.mark.in_part(1)
@pytest.mark.parametrize("name", CASES)
def test_a_compiled_twin_without_a_flag_is_refused(name, target, cache_folder):
    _, dims, dtype, config = CASES[name]
    spec, problem, config = registry.load(name), Problem(name, dims, dtype), {"multibuffer": True} | config
    functions = compile_config(spec, problem, config, target, cache_folder)
    arguments = Arguments(spec, problem)

    def agrees(changed):
        return judge(spec, problem, config, changed, arguments, target.on_chip_bytes).agreed

    assert agrees(functions)
    flags = [(at, op) for at, function in enumerate(functions) for op in function.walk() if op.name in FLAGS]
    branches = [op for function in functions for op in function.walk() if op.name == "scf.if"]
    untaken = {id(op) for branch in branches for op in inside(branch)}  # by this problem, perhaps
    flags = [(at, op) for at, op in flags if id(op) not in untaken]
    for at, op in random.Random(4).sample(flags, 6):
        without = [edited(function, op, []) if at == each else function for each, function in enumerate(functions)]
        assert not agrees(without), f"{op.name}, operation {op.number} of launch {at + 1}"
