"""Programs that ask the packages of CANN, Ascend's toolkit, for the chip and for functions of kernels."""

from __future__ import annotations

import importlib
import importlib.util
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton.backends.ascend")

from tilewise.tuner.hardware.ascend_parts import ON_CHIP_BYTES, PARTS
from tilewise.tuner.stand_in.cann import PART, cann_stand_in

EXTRA = "triton.language.extra.cann"


@pytest.fixture
def lacks():
    if importlib.util.find_spec("tbe") is not None or importlib.util.find_spec(EXTRA) is not None:
        pytest.skip("this host has the packages")


@pytest.fixture
def standing_in(lacks):
    with cann_stand_in():
        yield


def test_ascends_functions_have_their_later_names_too(standing_in):
    language = importlib.import_module("triton.language")
    extension = importlib.import_module(f"{EXTRA}.extension")
    assert importlib.import_module(f"{EXTRA}.libdevice").tanh is language.extra.cann.libdevice.tanh
    assert extension.extract_slice is language.extract_slice is language.extra.cann.extension.extract_slice


def test_a_function_that_this_release_lacks_cannot_be_imported(standing_in):
    with pytest.raises(ImportError, match="no_such_function"):
        exec(f"from {EXTRA}.extension import no_such_function")


def test_the_chip_tells_its_memories_and_cores(standing_in):
    platform = importlib.import_module("tbe.common.platform")
    platform.set_current_compile_soc_info(PART)
    names = {"ub": "UB_SIZE", "cbuf": "L1_SIZE", "cc": "L0C_SIZE", "ca": "L0A_SIZE", "cb": "L0B_SIZE"}
    assert {name: platform.get_soc_spec(known) for name, known in names.items()} == ON_CHIP_BYTES
    assert platform.get_soc_spec("VECTOR_CORE_CNT") == 2 * platform.get_soc_spec("CORE_NUM") == PARTS[PART].cores


def test_a_block_inside_another_changes_nothing(standing_in):
    language = importlib.import_module("triton.language")
    with cann_stand_in():
        pass
    assert language.extra.cann and "tbe.common.platform" in sys.modules


def test_nothing_of_the_packages_stays(lacks):
    with cann_stand_in():
        pass
    assert not hasattr(importlib.import_module("triton.language").extra, "cann")
    assert not {EXTRA, f"{EXTRA}.extension", "tbe", "tbe.common.platform"} & sys.modules.keys()
