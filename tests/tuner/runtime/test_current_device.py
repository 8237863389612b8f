"""The device that holds a tensor, and whether its launches are being captured."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from tilewise.errors import UsageError
from tilewise.kernels.spec import Target
from tilewise.tuner.devices.cuda import accelerator as cuda
from tilewise.tuner.devices.npu import accelerator as npu
from tilewise.tuner.runtime.current_device import CurrentDevice, current_device, is_capturing

TARGET = Target("nvidia", "NVIDIA H200", 132, 233472, 16, 2**31 - 1, 90)


def on(kind, index=None):
    return SimpleNamespace(device=SimpleNamespace(type=kind, index=index))


def test_a_gpu_is_known_by_the_properties_of_its_place(monkeypatch):
    monkeypatch.setitem(
        sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(get_device_properties=lambda place: place.index))
    )
    monkeypatch.setattr(cuda, "identity", lambda properties: (TARGET, f"cuda of {properties}"))
    assert current_device(on("cuda", 3)) == CurrentDevice(TARGET, "cuda of 3")


@pytest.mark.parametrize(("index", "toolchain"), [(None, "CANN of 0"), (0, "CANN of 0"), (5, "CANN of 5")])
def test_an_npu_is_known_by_its_number(monkeypatch, index, toolchain):
    monkeypatch.setattr(npu, "identity", lambda number: (TARGET, f"CANN of {number}"))
    assert current_device(on("npu", index)) == CurrentDevice(TARGET, toolchain)


def test_a_processor_is_no_accelerator():
    with pytest.raises(UsageError, match=r"not on an NPU or CUDA GPU; pass tuned\(.., device=..\)"):
        current_device(on("cpu"))


@pytest.mark.parametrize("kind", ["cuda", "npu"])
@pytest.mark.parametrize(
    ("available", "capturing", "found"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_launches_are_captured_where_the_stream_says_so(monkeypatch, kind, available, capturing, found):
    device = SimpleNamespace(is_available=lambda: available, is_current_stream_capturing=lambda: capturing)
    torch = SimpleNamespace(cuda=None) if kind == "npu" else SimpleNamespace()
    setattr(torch, kind, device)
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert is_capturing() is found


def test_nothing_is_captured_without_torch(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert is_capturing() is False
