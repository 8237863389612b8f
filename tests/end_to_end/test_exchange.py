"""`tilewise export` and `tilewise import` with files of every format."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tilewise.db.exchange.foreign.tables.size_tables import LADDER
from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash

GPU = {"BLOCK_SIZE_M": 4, "SUB_BLOCK_SIZE_M": 4, "BLOCK_SIZE_N": 512, "num_warps": 4, "num_stages": 3}


@pytest.fixture
def stored(tilewise):
    """A command line whose database holds verified results of two shapes of a real kernel, measured on a GPU."""
    spec = registry.load("row_reduce")
    with open_store(tilewise.database) as store:
        for m in (1024, 2048):
            scope = Scope(
                Problem("row_reduce", {"M": m, "N": 8192}, "float32"),
                source_hash(spec),
                "NVIDIA H200",
                Clock.MEASURED,
                "t 1",
                132,
            )
            config = GPU | {"EVICT_FIRST": False}
            store.record(scope, [Trial(config, Status.CORRECT, time_us=30.0, samples=9, verified=True, ordinal=1)])
    return tilewise


def test_every_format_is_written(stored):
    done = stored("export", "--format", "runtime", "-o", "winners.json")
    assert done.returncode == 0, done.stderr
    assert json.loads(stored("import", "winners.json", "--json").stdout)["unchanged"] == 2
    for kind, name in (
        ("json", "a.json"),
        ("triton", "a.py"),
        ("flaggems", "a.yaml"),
        ("csv", "a.csv.gz"),
        ("parquet", "a.pq"),
    ):
        done = stored("export", "--format", kind, "-o", name)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"{name}: 2 problems as {kind}, ")
        assert (stored.folder / name).stat().st_size > 100
    done = stored("export", "--format", "fla", "--key", "M,N,dtype", "-o", "configs")
    assert done.returncode == 0, done.stderr
    assert len(json.loads((stored.folder / "configs" / "row_reduce.json").read_text())["autotune_entries"]) == 2
    done = stored("export", "--format", "vllm", "--sizes", "1024,2048", "-o", "tables")
    assert done.returncode == 0, done.stderr
    name = "N=8192,device_name=NVIDIA_H200,dtype=float32.json"
    assert list(json.loads((stored.folder / "tables" / name).read_text())) == ["1024", "2048"]


def test_a_flag_with_its_default_value_is_part_of_flas_key(tilewise):
    spec = registry.load("topk_gating")
    flag = spec.flags[0].values[0]
    problem = Problem("topk_gating", dict.fromkeys(spec.dims, 64), "float32")
    scope = Scope(problem, source_hash(spec), "NVIDIA H200", Clock.MEASURED, "t 1", 132)
    with open_store(tilewise.database) as store:
        store.record(scope, [Trial({"BLOCK_SIZE_M": 4}, Status.CORRECT, time_us=30.0, verified=True)])
    done = tilewise("export", "--format", "fla", "--key", "M,renormalise,dtype", "-o", "configs")
    assert done.returncode == 0, done.stderr
    [entry] = json.loads((tilewise.folder / "configs" / "topk_gating.json").read_text())["autotune_entries"].values()
    assert entry["autotune_key"] == [64, flag, "torch.float32"]


def test_of_one_problem_with_two_toolchains_the_one_that_answers_is_written(stored):
    with open_store(stored.database) as store:
        scope = dataclasses.replace(next(iter(store.scopes())), toolchain="t 2")
        store.record(scope, [Trial(GPU | {"EVICT_FIRST": False}, Status.CORRECT, time_us=20.0, verified=True)])
    for kind in ("t4", "kernel-tuner", "triton"):
        done = stored("export", "--format", kind, "-s", "M=1024,N=8192", "-o", f"{kind}.txt")
        assert done.returncode == 0, done.stderr
    assert json.loads((stored.folder / "t4.txt").read_text())["metadata"]["toolchain"] == "t 2"
    module = (stored.folder / "triton.txt").read_text()
    assert module.count("triton.Config({") == 1
    assert "20.00 us (measured), verified; 132 cores" in module


def test_an_export_that_cannot_be_says_why_in_one_line(stored):
    (stored.folder / "kept.txt").write_text("")
    for words, code, text in (
        (("--format", "vllm", "-o", "tables"), 4, "would lack M=1, 2, 4"),
        (("--format", "vllm", "--rung", "K", "-o", "tables"), 2, "row_reduce has no dimension K"),
        (("--format", "vllm", "--sizes", "1,x", "-o", "tables"), 2, "--sizes is '1,x'"),
        (("--format", "sglang", "--name", "{K}.json", "-o", "tables"), 2, "needs K, which this problem does not have"),
        (
            ("--format", "vllm", "--sizes", "1024", "-o", "kept.txt/tables"),
            2,
            "cannot make a folder for kept.txt/tables",
        ),
        (("--format", "fla", "-o", "configs"), 2, "name its values and the tensors' dtypes in order with --key"),
        (
            ("--format", "flaggems", "--name", "mm", "-o", "a.yaml"),
            2,
            "FlagGems' mm takes BLOCK_M, BLOCK_N, BLOCK_K, not",
        ),
        (
            ("--format", "t4", "-o", "one.json"),
            2,
            "a t4 file holds one problem, but 2 match: row_reduce M=1024,N=8192 float32 on NVIDIA H200; ",
        ),
        (("--kernel", "softmax", "-o", "one.json"), 4, "no stored result matches"),
    ):
        done = stored("export", *words)
        assert (done.returncode, done.stdout) == (code, "")
        [line] = done.stderr.splitlines()
        assert text in line


def test_an_import_tells_what_changed_and_what_it_refused(stored, tmp_path_factory):
    assert stored("export", "-o", "all.json").returncode == 0
    document = json.loads((stored.folder / "all.json").read_text())
    bad = document["entries"][1]
    bad["kernel"] = "no_such_kernel"
    from tilewise.db.records import digest

    file = stored.folder / "edited.json"
    file.write_text(json.dumps(document | {"sha256": digest(document["entries"])}))
    other = stored.in_folder(tmp_path_factory.mktemp("other"))
    done = other("import", str(file))
    assert done.returncode == 1
    assert "1 trials added, 0 trials updated, 0 trials unchanged" in done.stdout
    assert "row_reduce M=1024,N=8192 float32 on NVIDIA H200: none -> BLOCK_SIZE_M=4" in done.stdout
    assert done.stderr.startswith("tilewise: entry 2 is refused: kernel 'no_such_kernel' is unknown here")
    again = other("import", str(stored.folder / "all.json"), "--json")
    body = json.loads(again.stdout)
    assert (again.returncode, body["added"], body["unchanged"], body["refused"]) == (0, 1, 1, [])
    assert [change["dims"]["M"] for change in body["changes"]] == [2048]


def test_a_table_of_vllm_becomes_suggestions_and_no_best(stored):
    name = "N=8192,device_name=NVIDIA_H200,dtype=float32.json"
    (stored.folder / name).write_text(json.dumps({"4096": GPU | {"EVICT_FIRST": True}}))
    done = stored("import", name, "--kernel", "row_reduce", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["suggested"] == 1
    with open_store(stored.database) as store:
        assert len(list(store.scopes())) == 2
        assert store.suggestions("row_reduce")[0].dims == {"N": 8192, "M": 4096}
    other = "M=1024,device_name=NVIDIA_H200,dtype=float32.json"
    (stored.folder / other).write_text(json.dumps({"4096": GPU | {"EVICT_FIRST": True}}))
    done = stored("import", other, "--kernel", "row_reduce", "--rung", "N", "--json")
    assert json.loads(done.stdout)["suggested"] == 1, done.stderr


MOE = """
from tilewise.kernels.spec import Buffer, KernelSpec, Parameter, Tiling


def launched(x_ptr, M, BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K, GROUP_SIZE_M):
    pass


SPEC = KernelSpec(
    name="fused_moe",
    summary="both projections of a mixture of experts",
    function=launched,
    dims=("M", "E", "N", "K", "topk"),
    dtypes=("bfloat16",),
    parameters=tuple(
        Parameter(name, lambda problem, target: [16, 32, 64, 128], "option" if name.islower() else "constexpr")
        for name in ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
    ),
    buffers=lambda problem: {"x_ptr": Buffer((problem.dims["M"], problem.dims["K"]), problem.dtype)},
    scalars=lambda problem: {"M": problem.dims["M"]},
    tiling=lambda config, problem: Tiling((), 0, 0),
    reference=lambda inputs: {},
    flops=lambda problem: 1,
    default=lambda problem, target: {},
    grid=lambda config, problem: (1,),
)
"""


def test_tables_of_a_users_kernel_are_exported_by_size_and_come_back(tilewise):
    (tilewise.folder / "moe.py").write_text(MOE)
    tile = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 16, "num_warps": 4}
    with open_store(tilewise.database) as store:
        for k in (2048, 4096):
            for place, m in enumerate(LADDER):
                dims = {"M": m, "E": 8, "N": 14336, "K": k, "topk": 2}
                scope = Scope(
                    Problem("fused_moe", dims, "bfloat16"), "a1", "NVIDIA H200", Clock.MEASURED, "triton 3.6.0", 132
                )
                config = tile | {"num_stages": 2 + place % 3}
                store.record(scope, [Trial(config, Status.CORRECT, time_us=30.0, samples=9, verified=True, ordinal=1)])
    done = tilewise("export", "--format", "vllm", "-o", "tables")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "would mix K 2048 and 4096, which its name does not tell apart; choose one with -s" in done.stderr
    for kind, place in (("vllm", ""), ("sglang", "configs/triton_3_6_0/")):
        done = tilewise("export", "--format", kind, "-s", "K=4096", "-o", kind)
        assert done.stdout.startswith(f"{kind}: 18 problems as {kind}, "), done.stderr
        table = f"{kind}/{place}E=8,N=14336,device_name=NVIDIA_H200.json"
        assert list(json.loads((tilewise.folder / table).read_text())) == [*map(str, LADDER)]
        words = ("import", table, "--kernel", "moe.py:SPEC", "-s", "K=4096,topk=8", "--dtype", "bfloat16", "--json")
        assert json.loads(tilewise(*words).stdout)["suggested"] == (18 if kind == "vllm" else 0)
    with open_store(tilewise.database) as store:
        first, *_ = store.suggestions("fused_moe")
    assert first.dims == {"E": 8, "N": 14336, "K": 4096, "topk": 8, "M": 1}
    done = tilewise("export", "--format", "vllm", "--name", "{kernel}/{dims},{device}.json", "-o", "named")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tilewise.folder / "named" / "fused_moe").iterdir()) == [
        f"E=8,N=14336,K={k},topk=2,NVIDIA_H200.json" for k in (2048, 4096)
    ]


def test_several_files_are_imported_together_or_not_at_all(stored):
    config = {"kwargs": {"TILE": 16}, "num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None}
    names = [f"key{size}.autotune.json" for size in (64, 128)]
    for name, size, times in zip(names, (64, 128), ([0.0125, 0.012, 0.013], "fast"), strict=True):
        body = {"key": [size, True, "torch.float16"], "configs_timings": [[config, times]]}
        (stored.folder / name).write_text(json.dumps(body))
    (stored.folder / "broken.json").write_text("{}")
    how = ("--kernel", "tile_it", "--device", "NVIDIA H200", "--key", "M,TRANS")
    refused = stored("import", *names, "broken.json", *how)
    assert refused.returncode == 2 and refused.stderr.startswith("tilewise: broken.json: the format of this file")
    done = stored("import", *names, *how)
    assert (done.returncode, done.stdout.splitlines()[0].partition(",")[0]) == (1, "2 files: 1 trials added")
    assert done.stderr.startswith("tilewise: key128.autotune.json: config 1 is refused: ")
    assert json.loads(stored("import", *names, *how, "--json").stdout)["files"] == names
    assert "tile_it M=64,TRANS=True float16" in stored("trials", "tile_it", "--dtype", "float16").stdout


def test_a_triton_cache_is_kept_as_unverified_times(stored):
    config = {"kwargs": {"TILE": 16}, "num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None}
    body = {"key": [64, "torch.float16"], "configs_timings": [[config, [0.0125, 0.012, 0.013]]]}
    (stored.folder / "gemm.autotune.json").write_text(json.dumps(body))
    words = ("import", "gemm.autotune.json", "--kernel", "gemm", "--device", "NVIDIA H200")
    assert "name them in order with --key" in stored(*words).stderr
    done = stored(*words, "--key", "M")
    assert done.returncode == 0, done.stderr
    done = stored("export", "--format", "triton", "--kernel", "gemm", "-o", "gemm.py")
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    assert "add --unverified" in done.stderr
    assert stored("export", "--format", "triton", "--kernel", "gemm", "--unverified", "-o", "gemm.py").returncode == 0
    assert "12.50 us (measured), NOT verified; 132 cores" in (stored.folder / "gemm.py").read_text()
