"""Targets of devices on other machines, by the words of their names, against the vendors' tables."""

from __future__ import annotations

import pytest

from tilewise.kernels.spec import Target
from tilewise.tuner.hardware.targets import known_target, memory_gb_s, sheet_gb_s

NVIDIA = {
    "NVIDIA H100 80GB HBM3": (228, 90),
    "NVIDIA H200": (228, 90),
    "NVIDIA H800": (228, 90),
    "NVIDIA H20": (228, 90),
    "NVIDIA GH200 480GB": (228, 90),
    "NVIDIA B100": (228, 100),
    "NVIDIA B200": (228, 100),
    "NVIDIA GB200": (228, 100),
    "NVIDIA B300": (228, 103),
    "NVIDIA A100-SXM4-80GB": (164, 80),
    "NVIDIA A800": (164, 80),
    "NVIDIA A30": (164, 80),
    "NVIDIA L4": (100, 89),
    "NVIDIA L20": (100, 89),
    "NVIDIA L40S": (100, 89),
    "NVIDIA L40": (100, 89),
    "NVIDIA A10": (100, 86),
    "NVIDIA A40": (100, 86),
    "NVIDIA GeForce RTX 4090": (100, 0),
    "Tesla V100": None,
    "NVIDIA V100-PCIE-16GB": (96, 70),
    "NVIDIA T4": (64, 0),
    "AMD Instinct MI300X": (64, 0),
}
"""Shared memory of a multiprocessor in KiB, and ten times the compute capability, 0 where it is not listed."""


@pytest.mark.parametrize("name", NVIDIA)
def test_a_gpu_has_the_shared_memory_and_capability_of_its_name(name):
    if NVIDIA[name] is None:
        assert known_target(name, 7).family == "ascend"  # whatever is no GPU by its name
        return
    kib, capability = NVIDIA[name]
    assert known_target(name, 7) == Target("nvidia", name, 7, kib << 10, 16, 2**31 - 1, capability)


def test_an_ascend_part_has_192_kib_of_unified_buffer_in_blocks_of_32_bytes():
    assert known_target("Ascend910B4", 40) == Target("ascend", "Ascend910B4", 40, 196_608, 32, 65_535)


MEMORY = {
    "NVIDIA H200": (4800, 50),
    "NVIDIA GH200 480GB": (4800, 50),
    "NVIDIA H100 80GB HBM3": (3350, 50),
    "NVIDIA H800": (3350, 50),
    "NVIDIA A100-SXM4-80GB": (2039, 40),
    "NVIDIA A800": (2039, 40),
    "NVIDIA T4": (8000, 126),
    "Ascend910B1": (1600, 192),
    "Ascend910B4": (800, 96),
}
"""GB/s and MiB of cache by the data sheets; for GPUs that are not listed, more than any has."""


@pytest.mark.parametrize("name", MEMORY)
def test_memory_is_at_most_as_fast_as_its_sheet_says_and_four_times_as_fast_in_twice_the_cache(name):
    rate, cache = MEMORY[name]
    assert memory_gb_s(name, 2 * cache * 2**20 + 1) == rate
    assert memory_gb_s(name, 2 * cache * 2**20) == 4 * rate
    listed = name.startswith("NVIDIA") and name != "NVIDIA T4"
    assert sheet_gb_s(name) == (rate if listed else None)
