"""Exported tables, found and read by the code of vLLM and SGLang, and configs that their kernels could not launch."""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import table_readers
from scopes import changed
from table_readers import RECORDED, Sglang, Vllm

from tilewise.db.exchange.foreign.tables.sglang import SGLANG_TABLES
from tilewise.db.exchange.foreign.tables.size_tables import LADDER, encode_tables
from tilewise.db.exchange.foreign.tables.vllm import VLLM_TABLES
from tilewise.db.records import Clock, Problem, Result, Scope, Status, Trial
from tilewise.errors import NotFound, UsageError

H200 = "NVIDIA H200"
MOE = {"E": 8, "N": 14336, "K": 4096, "topk": 2}
GEMM = {"N": 4096, "K": 7168}
TILE = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}
SIZES = (*LADDER, 3, 20, 21, 28, 100, 1025, 10**6)
"""The rungs, and sizes between and beyond them."""


def result(m: int, config: dict[str, Any], dims=MOE, **changes: Any) -> Result:
    problem = Problem("fused_moe", {"M": m, **dims}, "bfloat16")
    scope = Scope(problem, "a1", H200, Clock.MEASURED, "triton 3.6.0, torch 2.11.0, cuda 12.9", 132)
    winner = Trial(config, Status.CORRECT, time_us=9.0, verified=True)
    return Result(changed(scope, **changes), winner, None, {}, 0.0)


def ladder(dims=MOE, rows: int = 16, **changes: Any) -> list[Result]:
    """Return a result for each rung, each with a config of its own."""
    return [
        result(m, TILE | {"BLOCK_SIZE_M": rows * 2 ** (place % 3), "GROUP_SIZE_M": place + 1}, dims, **changes)
        for place, m in enumerate(LADDER)
    ]


def expected(results: list[Result], m: int) -> dict[str, Any]:
    """Return the config of the nearest size, of equally near ones the first."""
    won = min(results, key=lambda one: abs(one.scope.dims["M"] - m)).winner
    assert won is not None
    return dict(won.config)


def written(files: dict[str, bytes], folder: Path) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def sglang() -> Path:
    if (file := table_readers.wheel("sglang")) is None:
        pytest.skip("no wheel of sglang in build/readers: make wheels")
    return file


@pytest.fixture
def vllm() -> Path:
    if (file := table_readers.wheel("vllm")) is None:
        pytest.skip("no wheel of vllm in build/readers: make test-full")
    return file


@pytest.mark.parametrize("package", [pytest.param("vllm", marks=pytest.mark.full), "sglang"])
def test_the_ladder_is_that_of_most_tables_that_the_projects_ship(package, request):
    with zipfile.ZipFile(request.getfixturevalue(package)) as file:
        tables = [json.loads(file.read(n)) for n in file.namelist() if re.search(r"/configs/.*\bE=[^/]*\.json$", n)]
    ladders = Counter(tuple(size for size in table if size != "triton_version") for table in tables)
    [(sizes, count)] = ladders.most_common(1)
    assert tuple(map(int, sizes)) == LADDER
    assert count > 0.7 * len(tables) > 100


QUANTISATIONS = [
    ({}, None, None),
    ({"dtype": "float16"}, None, None),
    ({"dtype": "float32"}, "float32", None),
    ({"dtype": "float8_e4m3fn"}, "fp8_w8a8", None),
    ({"flags": {"quant": "fp8_w8a8"}}, "fp8_w8a8", None),
    ({"flags": {"quant": "fp8_w8a8_128x128"}}, "fp8_w8a8", [128, 128]),
    ({"flags": {"quant": "int8_w8a16"}}, "int8_w8a16", None),
    ({"flags": {"quant": "int4_w4a16"}}, "int4_w4a16", None),
]
"""A problem, and the dtype and blocks for which a reader looks."""


# vLLM


@pytest.mark.full
@pytest.mark.parametrize(("changes", "dtype", "block"), QUANTISATIONS)
@pytest.mark.parametrize("device", [H200, "NVIDIA H200 NVL", "NVIDIA H100 80GB HBM3"])
def test_vllm_finds_each_moe_table_and_takes_the_config_of_the_nearest_rung(
    vllm, tmp_path, changes, dtype, block, device
):
    results = ladder(device=device, **changes)
    reader = Vllm(vllm, written(encode_tables(results, VLLM_TABLES, "M"), tmp_path), device)
    for m in SIZES:
        assert reader.moe(8, 14336, 4096, dtype, m, block) == expected(results, m)
    with pytest.raises(LookupError):
        reader.moe(8, 7168, 4096, dtype, 1, block)


@pytest.mark.full
def test_vllm_finds_a_table_of_block_scaled_products(vllm, tmp_path):
    results = ladder(GEMM, flags={"quant": "fp8_w8a8_128x128"})
    files = encode_tables(results, VLLM_TABLES, "M")
    assert list(files) == ["N=4096,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"]
    written(files, tmp_path / "configs")
    assert all(Vllm(vllm, tmp_path, H200).gemm(4096, 7168, m) == expected(results, m) for m in SIZES)


@pytest.mark.full
def test_the_recorded_names_are_those_that_vllm_gives(vllm):
    assert json.loads(RECORDED.read_text())["names"] == table_readers.names(vllm)


def test_each_moe_table_has_the_name_that_vllm_was_recorded_to_look_for():
    for case in json.loads(RECORDED.read_text())["names"]:
        dtype, block = case["dtype"], case["block_shape"]
        quant = f"{dtype}_{block[0]}x{block[1]}" if block and all(block) else dtype
        changes = {"dtype": "float32"} if dtype == "float32" else {"flags": {"quant": quant}} if quant else {}
        won = result(1, TILE, MOE | {"E": case["E"], "N": case["N"]}, device=case["device"], **changes)
        assert list(encode_tables([won], VLLM_TABLES, "M", (1,))) == [case["name"]]


def test_a_product_of_16_bit_inputs_is_named_as_hugging_face_kernels_names_it():
    assert list(encode_tables(ladder(GEMM), VLLM_TABLES, "M")) == ["N=4096,K=7168,device_name=NVIDIA_H200.json"]


@pytest.mark.parametrize("project", [VLLM_TABLES, SGLANG_TABLES], ids=["vllm", "sglang"])
def test_products_without_blocks_are_read_by_no_known_kernel_and_may_have_any_config(project):
    [data] = encode_tables([result(1, {"TILE_M": 3}, GEMM)], project, "M", (1,)).values()
    assert json.loads(data) == {"1": {"TILE_M": 3}}
    with pytest.raises(UsageError, match=" needs BLOCK_SIZE_M, BLOCK_SIZE_N, "):
        encode_tables([result(1, {"TILE_M": 3}, GEMM, flags={"quant": "fp8_w8a8_128x128"})], project, "M", (1,))


# SGLang


@pytest.mark.in_part(8)
@pytest.mark.parametrize(("changes", "dtype", "block"), QUANTISATIONS)
@pytest.mark.parametrize("device", [H200, "NVIDIA H200 NVL"])
def test_sglang_finds_each_moe_table_and_takes_the_config_of_the_nearest_rung(
    sglang, tmp_path, changes, dtype, block, device
):
    results = ladder(device=device, **changes)
    written(encode_tables(results, SGLANG_TABLES, "M"), tmp_path)
    for triton in ("3.6.0", "3.7.1"):  # that of the table, and another, which falls back to it
        reader = Sglang(sglang, tmp_path, device, triton)
        for m in SIZES if triton == "3.6.0" else (1, 64):
            config, down = reader.moe(8, 14336, 4096, dtype, m, block)
            assert config == down == expected(results, m)
    with pytest.raises(LookupError):
        reader.moe(16, 14336, 4096, dtype, 1, block)


def test_sglang_takes_the_table_of_its_own_triton_first(sglang, tmp_path):
    older = ladder(toolchain="triton 3.5.1, torch 2.9.0")
    newer = ladder(rows=32)
    written(encode_tables(older, SGLANG_TABLES, "M") | encode_tables(newer, SGLANG_TABLES, "M"), tmp_path)
    assert sorted(path.name for path in (tmp_path / "configs").iterdir()) == ["triton_3_5_1", "triton_3_6_0"]
    for triton, results in (("3.5.1", older), ("3.6.0", newer), ("3.8.0", newer)):
        assert Sglang(sglang, tmp_path, H200, triton).moe(8, 14336, 4096, None, 64)[0] == expected(results, 64)


def test_sglang_takes_a_table_of_its_own_for_the_second_projection(sglang, tmp_path):
    first, second = ladder(), ladder(flags={"down": True})
    second = [result(one.scope.dims["M"], {**one.winner.config, "num_warps": 8, "USE_TMA": True}) for one in second]
    second = [Result(changed(one.scope, flags={"down": True}), one.winner, None, {}, 0.0) for one in second]
    files = encode_tables([*first, *second], SGLANG_TABLES, "M")
    assert sorted(name.rpartition("/")[2] for name in files) == [
        "E=8,N=14336,device_name=NVIDIA_H200.json",
        "E=8,N=14336,device_name=NVIDIA_H200_down.json",
    ]
    reader = Sglang(sglang, written(files, tmp_path), H200, "3.6.0")
    for m in SIZES:
        assert reader.moe(8, 14336, 4096, None, m) == (expected(first, m), expected(second, m))


def test_sglang_finds_a_table_of_scales_by_channel(sglang, tmp_path):
    results = ladder(flags={"quant": "fp8_w8a8", "per_channel_quant": True})
    files = encode_tables(results, SGLANG_TABLES, "M")
    reader = Sglang(sglang, written(files, tmp_path), H200, "3.6.0")
    assert reader.moe(8, 14336, 4096, "fp8_w8a8", 64, per_channel=True)[0] == expected(results, 64)
    with pytest.raises(LookupError):
        reader.moe(8, 14336, 4096, "fp8_w8a8", 64)


def test_sglang_finds_a_table_of_block_scaled_products(sglang, tmp_path):
    results = ladder(GEMM, flags={"quant": "fp8_w8a8_128x128"})
    written(encode_tables(results, SGLANG_TABLES, "M"), tmp_path / "configs")
    assert all(Sglang(sglang, tmp_path, H200, "3.6.0").gemm(4096, 7168, m) == expected(results, m) for m in SIZES)


def test_a_table_for_sglang_needs_the_version_of_triton():
    results = ladder(toolchain="triton-ascend 3.2.0")
    with pytest.raises(UsageError, match=r"keeps tables by version of Triton; .* write it in --name, as in configs/"):
        encode_tables(results, SGLANG_TABLES, "M")
    name = "configs/triton_3_2_0/E={E},N={N},device_name={device}.json"
    assert list(encode_tables(results, SGLANG_TABLES, "M", template=name)) == [
        "configs/triton_3_2_0/E=8,N=14336,device_name=NVIDIA_H200.json"
    ]


# Names


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{kernel}-{device}{dtype:,dtype=}.json", "fused_moe-NVIDIA_H200,dtype=fp8_w8a8.json"),
        ("K={K},M{down:_down}{quant:,q=}{none:,x=}.json", "K=4096,M_down,q=fp8_w8a8_64x128.json"),
        ("{triton}/{dims},{block_shape}", "3_6_0/E=8,N=14336,K=4096,topk=2,[64,128]"),
        ("{down:down=}", "down=True"),
    ],
)
def test_a_name_is_made_from_a_template(template, name):
    won = result(1, TILE, flags={"quant": "fp8_w8a8_64x128", "down": True})
    assert list(encode_tables([won], VLLM_TABLES, "M", (1,), template)) == [name]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{H}.json", r"needs H, which this problem does not have; it has E, N, K, topk, kernel, device, dims, triton"),
        ("{dtype}.json", "needs dtype, which"),  # 16 bits have none
        ("{M}.json", "needs M, which"),  # it would be another file for each rung
        ("../{E}.json", "is not a file's name"),
        ("/tmp/{E}.json", "is not a file's name"),
        ("{E", "is not a file's name"),
        ("{down:}", "is not a file's name"),
    ],
)
def test_a_template_that_makes_no_name_is_refused(template, message):
    with pytest.raises(UsageError, match=message):
        encode_tables([result(1, TILE)], VLLM_TABLES, "M", (1,), template)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dims": {"M": 2, **MOE, "K": 2048}}, "would mix K 4096 and 2048, which .* choose one with -s"),
        ({"dims": {"M": 2, **MOE}, "dtype": "float16"}, "would mix dtype bfloat16 and float16.* with --dtype"),
        ({"dims": {"M": 2, **MOE}, "device": "NVIDIA H200 NVL"}, "would mix device NVIDIA H200 and .* with --device"),
        ({"dims": {"M": 2, **MOE}, "flags": {"activation": "gelu"}}, "would mix activation nothing and gelu"),
    ],
)
def test_problems_that_a_name_does_not_tell_apart_are_not_mixed(changes, message):
    with pytest.raises(UsageError, match=message):
        encode_tables([result(1, TILE), result(2, TILE, **changes)], VLLM_TABLES, "M", (1, 2))


def test_a_fact_that_only_the_first_problem_has_is_not_mixed_in_either():
    first = result(1, TILE, flags={"activation": "gelu"})
    with pytest.raises(UsageError, match="would mix activation gelu and nothing, which"):
        encode_tables([first, result(2, TILE)], VLLM_TABLES, "M", (1, 2))


def test_an_unknown_quantisation_needs_a_name():
    odd = result(1, TILE, flags={"quant": "fp4_w4a4"})
    with pytest.raises(UsageError, match="vLLM looks for no table of fp4_w4a4, but of 16-bit inputs and fp8_w8a8, "):
        encode_tables([odd], VLLM_TABLES, "M", (1,))
    assert list(encode_tables([odd], VLLM_TABLES, "M", (1,), "{dtype}.json")) == ["fp4_w4a4.json"]


# Configs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"VARIANT": "persistent"},
            r"configs of fused_moe choose between functions \(VARIANT\), which a table of vLLM",
        ),
        ({"TILE_M": 3}, "vLLM's kernel takes no TILE_M, but BLOCK_SIZE_M, "),
        ({"SPLIT_K": 4}, "vLLM always launches SPLIT_K=1"),
        ({"USE_TMA": True}, "takes no USE_TMA"),
    ],
)
def test_a_config_that_vllm_would_not_launch_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        encode_tables([result(1, TILE | changes)], VLLM_TABLES, "M", (1,))


def test_a_config_without_a_parameter_of_the_readers_kernel_is_refused():
    config = {name: value for name, value in TILE.items() if name != "GROUP_SIZE_M"}
    with pytest.raises(UsageError, match=r"device_name=NVIDIA_H200.json, M=1: vLLM needs GROUP_SIZE_M; it takes"):
        encode_tables([result(1, config)], VLLM_TABLES, "M", (1,))


@pytest.mark.parametrize("step", [1, 2, 64, 128])
def test_a_tile_that_divides_the_blocks_of_a_scale_is_written(step):
    within = result(1, TILE | {"BLOCK_SIZE_K": step}, flags={"quant": "fp8_w8a8_128x128"})
    [data] = encode_tables([within], VLLM_TABLES, "M", (1,)).values()
    assert json.loads(data)["1"]["BLOCK_SIZE_K"] == step


def test_a_tile_that_crosses_the_blocks_of_a_scale_is_refused():
    crossing = result(1, TILE | {"BLOCK_SIZE_K": 256}, flags={"quant": "fp8_w8a8_128x128"})
    with pytest.raises(UsageError, match=r"BLOCK_SIZE_K is 256, which crosses the blocks of 128x128"):
        encode_tables([crossing], VLLM_TABLES, "M", (1,))


def test_both_projections_share_their_rows():
    down = result(1, TILE | {"BLOCK_SIZE_M": 64}, flags={"down": True})
    with pytest.raises(UsageError, match=r"_down.json: BLOCK_SIZE_M is 64 at 1, but 16 for the first projection"):
        encode_tables([result(1, TILE), down], SGLANG_TABLES, "M", (1,))


def test_what_a_reader_sets_itself_and_unset_options_are_left_out():
    [data] = encode_tables([result(1, TILE | {"SPLIT_K": 1, "maxnreg": 0})], VLLM_TABLES, "M", (1,)).values()
    assert json.loads(data) == {"1": TILE}


def test_a_table_of_moe_with_a_gap_is_not_written():
    with pytest.raises(NotFound, match=r"E=8,N=14336,device_name=NVIDIA_H200.json would lack M=4096"):
        encode_tables(ladder()[:-1], VLLM_TABLES, "M")
