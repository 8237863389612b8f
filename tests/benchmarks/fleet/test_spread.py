"""Tests of the study of many chips: whether it shows what anchors are for."""

from pathlib import Path
from statistics import fmean

from tilewise.benchmarks.fleet.spread import bench_regret

LANDSCAPES = Path(__file__).resolve().parents[3] / "landscapes"


def test_without_anchors_a_fast_chips_config_is_picked_and_with_them_a_fast_config() -> None:
    file = LANDSCAPES / "gemm-512x6144x4096-bfloat16-H200.json.gz"
    (row,) = bench_regret([file], seeds=range(6), say=lambda words: None)["regret"]
    assert fmean(row["with_anchors"]) <= 0.01
    assert fmean(row["without"]) > 0.02


def test_a_landscape_of_fewer_configs_than_are_drawn_is_left_out() -> None:
    file = LANDSCAPES / "block_fp8_gemm-16x4096x7168-float8_e4m3fn-H200.json.gz"
    assert bench_regret([file], seeds=range(1), say=lambda words: None)["regret"] == []
