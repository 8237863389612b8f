"""Programs that ask torch and Triton for an accelerator on a host without one."""

from __future__ import annotations

import importlib
import sys

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from tilewise.tuner.stand_in.accelerator import accelerator_stand_in  # noqa: E402


@pytest.fixture
def standing_in():
    with accelerator_stand_in() as stands_in:
        if not stands_in:
            pytest.skip("this host has an accelerator")
        yield


@pytest.mark.parametrize("kind", ["cuda", "npu"])
def test_tensors_claim_the_device_that_the_program_named(standing_in, kind):
    x = torch.ones(3, device=kind)
    assert (x.device, x.get_device()) == (torch.device(kind, 0), 0) and not x.is_cpu
    y = torch.empty_like(x).to(f"{kind}:0") + torch.zeros(3, device=x.device)
    assert (y.device == x.device and y.tolist() == [1, 1, 1]) or y.shape == x.shape
    assert x.is_cuda
    getattr(torch, kind).synchronize()


def test_modules_move_and_gradients_flow(standing_in):
    layer = torch.nn.Linear(3, 2).cuda()
    layer(torch.ones(4, 3, device="cuda")).sum().backward()
    assert layer.weight.grad.is_cuda and layer.weight.grad.shape == (2, 3)


def test_a_host_program_that_names_no_device_sees_the_processor(standing_in):
    assert torch.ones(2).device.type == "cpu"


def test_only_the_kind_that_triton_compiles_for_is_available(standing_in):
    kind = triton.runtime.driver.active.get_current_target().backend
    assert [name for name in ("cuda", "npu") if getattr(torch, name).is_available()] == [kind]


def test_benchmarks_call_a_function_once(standing_in):
    calls = []
    assert triton.testing.do_bench(lambda: calls.append(1), quantiles=[0.5, 0.2, 0.8]) == [1.0] * 3
    assert triton.testing.do_bench(lambda: calls.append(1)) == 1.0 and len(calls) == 2


def test_the_driver_names_a_target_and_a_device(standing_in):
    active = triton.runtime.driver.active
    assert active.get_current_target().backend in ("npu", "cuda")
    assert torch.ones(1, device=active.get_active_torch_device()).device == active.get_active_torch_device()
    assert active.utils.get_device_properties(0)["multiprocessor_count"] > 0
    start, end = (active.get_device_interface().Event(enable_timing=True) for _ in range(2))
    start.record()
    assert start.elapsed_time(end) > 0


def test_generators_have_a_seed_and_an_offset(standing_in):
    (generator,) = torch.npu.default_generators
    seed, offset = generator.get_state().view(torch.int64)
    generator.set_state(torch.ones(16, dtype=torch.uint8))
    assert (int(seed), int(offset)) == (0, 0) and generator.get_state().tolist() == [1] * 16


def test_ascends_functions_have_their_later_name_too():
    pytest.importorskip("triton.backends.ascend")
    name = "triton.language.extra.cann.libdevice"
    with accelerator_stand_in():
        assert importlib.import_module(name).tanh
    assert name not in sys.modules


def test_compiled_functions_run_as_they_are(standing_in):
    """Torch would compile for the device that is missing."""

    @torch.compile
    def twice(x):
        return x * 2

    assert twice(torch.ones(3, device="npu")).tolist() == [2, 2, 2]
