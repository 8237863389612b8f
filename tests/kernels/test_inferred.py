"""Functions that inferred specs call."""

from __future__ import annotations

import pytest

from tilewise.kernels.inferred import (
    around,
    between,
    config_for,
    configs_for,
    exactly,
    next_power_of_two,
    packed,
    unpacked,
)
from tilewise.tuner.hardware.targets import known_target

ASCEND, NVIDIA = known_target("Ascend910B4", 40), known_target("NVIDIA H200", 132)


def test_configs_are_those_that_differ_on_the_device():
    configs = [{"BLOCK": 64, "num_warps": 4}, {"BLOCK": 64, "num_warps": 8}]
    assert configs_for(NVIDIA, configs) == configs
    assert configs_for(ASCEND, configs) == [{"BLOCK": 64, "multibuffer": True}, {"BLOCK": 64, "multibuffer": False}]
    assert config_for(ASCEND, {"multibuffer": False}) == {"multibuffer": False}
    assert config_for(NVIDIA, {"multibuffer": False}) == {}


def test_values_around_and_powers_of_two():
    assert around(64) == [16, 32, 64, 128, 256] and around(2, 24) == [1, 2, 4, 8, 16, 24, 32, 64, 128]
    assert [next_power_of_two(n) for n in (1, 2, 3, 781)] == [1, 2, 4, 1024]


def test_draws_keep_to_recorded_values():
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(1)
    tensor = torch.empty(1000, dtype=torch.int64)
    between(3, 5)(tensor, generator)
    assert set(tensor.tolist()) == {3, 4, 5}
    between(7, 7)(tensor, generator)
    assert set(tensor.tolist()) == {7}
    offsets = torch.empty(3, 1, dtype=torch.int32)
    exactly(0, 4, 9)(offsets, generator)
    assert offsets.flatten().tolist() == [0, 4, 9]
    masked = torch.empty(5, dtype=torch.bool)
    exactly(1, 0)(masked, generator)
    assert masked.tolist() == [True, False, True, False, True]
    exactly(0, 4, 9, 11)(offsets, generator)  # of a smaller problem
    assert offsets.flatten().tolist() == [0, 4, 9]


def test_many_integers_are_packed_into_a_word():
    values = [0, *range(7, 21000, 7), -5, 1 << 40]
    assert list(unpacked(packed(values))) == values
    assert len(packed(range(21000))) < 500
