"""Timelines: drawn with the toolchain that a result was tuned with, and no other."""

import pytest

from tilewise.errors import Unavailable
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.device import ModelDevice
from tilewise.tuner.explain.timeline import draw

CONFIG = {"BLOCK_SIZE_M": 25, "SUB_BLOCK_SIZE_M": 25, "BLOCK_SIZE_N": 256, "multibuffer": True}


@pytest.mark.skipif(bool(toolchain.unavailable_reason()), reason="the Ascend compiler is not installed")
def test_a_timeline_is_drawn_only_where_the_toolchain_is_the_results_own():
    with ModelDevice("Ascend910B4", jobs=1) as device:
        here = device.toolchain
    shown = ("row_reduce", {"M": 1000, "N": 8192}, "float32", "Ascend910B4")
    assert draw(*shown, here, CONFIG).startswith("<svg")
    with pytest.raises(Unavailable, match=r"^it was tuned with older 1, but this machine has .*; tune it again$"):
        draw(*shown, "older 1", CONFIG)
