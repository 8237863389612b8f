"""Ascend's parts, against the vendor's descriptions of them."""

from __future__ import annotations

import pytest

from tilewise.errors import UnknownDevice
from tilewise.tuner.hardware.ascend_parts import ON_CHIP_BYTES, ON_CHIP_NAMES, PARTS, part

FIGURES = {
    "Ascend910B1": (48, 1.85, 5960, 1490, 1650, 1570, 1600, 192, 64),
    "Ascend910B2": (48, 1.8, 5960, 1490, 1650, 1570, 1600, 192, 64),
    "Ascend910B2C": (48, 1.8, 5960, 1490, 1650, 1570, 1600, 192, 64),
    "Ascend910B3": (40, 1.8, 5960, 1490, 1650, 1570, 1600, 192, 64),
    "Ascend910B4": (40, 1.65, 2100, 784, 784, 620, 800, 96, 32),
    "Ascend910B4-1": (40, 1.65, 2100, 1490, 1490, 1180, 1600, 96, 64),
    "Ascend910_9362": (40, 1.8, 5960, 1490, 1650, 1570, 1600, 192, 64),
    "Ascend910_9372": (40, 1.8, 5960, 1490, 1650, 1570, 1600, 192, 64),
    "Ascend910_9381": (48, 1.8, 5960, 1490, 1650, 1570, 1600, 192, 64),
    "Ascend910_9382": (48, 1.8, 5960, 1490, 1650, 1570, 1600, 192, 64),
    "Ascend910_9391": (48, 1.85, 5960, 1490, 1650, 1570, 1600, 192, 64),
    "Ascend910_9392": (48, 1.85, 5960, 1490, 1650, 1570, 1600, 192, 64),
}
"""Vector cores; GHz; GB/s from L2, of reads, of writes, of both, and nominal; MiB of L2, and GiB of global memory."""


def test_the_parts_have_the_figures_of_their_descriptions():
    found = {
        name: (
            p.cores,
            p.clock_ghz,
            p.l2_gb_s,
            p.read_gb_s,
            p.write_gb_s,
            p.mixed_gb_s,
            p.hbm_gb_s,
            p.l2_mib,
            p.hbm_gib,
        )
        for name, p in PARTS.items()
    }
    assert found == FIGURES
    assert all(p.name == name for name, p in PARTS.items())


def test_a_core_has_the_memories_of_the_vendors_manual():
    sizes = {ON_CHIP_NAMES[name]: size // 1024 for name, size in ON_CHIP_BYTES.items()}
    assert sizes == {"UB": 192, "L1": 512, "L0C": 128, "L0A": 64, "L0B": 64}


@pytest.mark.parametrize(
    ("written", "rate"),
    [(0, 784), (1 / 6, 702), (1 / 3, 620), (0.49, 620), (0.5, 620), (2 / 3, 620), (5 / 6, 702), (1, 784)],
)
def test_a_mix_of_reads_and_writes_lowers_the_rate_from_a_third_to_two_thirds(written, rate):
    assert PARTS["Ascend910B4"].global_gb_s(written) == pytest.approx(rate)


def test_reads_and_writes_alone_have_rates_of_their_own():
    found = [PARTS["Ascend910B1"].global_gb_s(written) for written in (0, 1 / 6, 1 / 2, 5 / 6, 1)]
    assert found == pytest.approx([1490, 1530, 1570, 1610, 1650])


def test_a_part_is_found_by_its_name_and_by_what_drivers_call_it():
    assert part("910B4") is part("Ascend910B4") is PARTS["Ascend910B4"]
    assert part("Ascend910_9363") is PARTS["Ascend910_9362"]
    assert part("910B4").source.startswith("clock that of Ascend910B4-1, as ")
    assert PARTS["Ascend910B3"].source.endswith("; all others estimated from Ascend910B1")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("910C", "910C is not one part: it is sold as two dies in one package"),
        ("Ascend910B", "Ascend910B is not one part: it is a family; use the name that npu-smi gives"),
        ("Ascend910_93", "Ascend910_93 is not one part: it is a family"),
        ("310P", "unknown Ascend part '310P'; modelled: Ascend910B1, Ascend910B2"),
    ],
)
def test_a_name_of_no_part_or_of_several_says_what_to_use(name, words):
    with pytest.raises(UnknownDevice) as refused:
        part(name)
    assert str(refused.value).startswith(words)
