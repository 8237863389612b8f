"""Programs that ask torch and Triton for an accelerator on a host without one."""

from __future__ import annotations

import importlib
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from tilewise.tuner.stand_in import torch_devices  # noqa: E402
from tilewise.tuner.stand_in.accelerator import accelerator_stand_in  # noqa: E402
from tilewise.tuner.stand_in.driver import TIMED_MS, StandInDriver, has_driver, is_ascend  # noqa: E402


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


def test_a_function_under_autocast_has_its_gradient(standing_in):
    class Doubled(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="npu")
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="npu")
        def backward(ctx, gradient):
            return gradient * 2

    x = torch.ones(3, device="npu", requires_grad=True)
    Doubled.apply(x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_a_host_program_that_names_no_device_sees_the_processor(standing_in):
    assert torch.ones(2).device.type == "cpu"


def test_integers_that_no_launch_fills_are_zero(standing_in):
    """A kernel that takes another's output as indices reads within its tensors then."""
    torch.full((999,), 77, dtype=torch.int32)  # leaves memory that is likely to be given again
    made = torch.empty(999, dtype=torch.int32, device="npu")
    more = (torch.empty_like(made), made.new_empty(999), torch.empty_strided((9,), (1,), dtype=torch.int64))
    assert not any(tensor.any() for tensor in (made, *more))


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
    known = active.utils.get_device_properties(0)
    assert known["multiprocessor_count"] == (known["num_vectorcore"] if is_ascend() else 132)
    start, end = (active.get_device_interface().Event(enable_timing=True) for _ in range(2))
    start.record()
    assert start.elapsed_time(end) > 0


@pytest.mark.parametrize(
    ("backends", "target"), [(("nvidia", "amd"), ("cuda", 90, 32)), (("ascend",), ("npu", "Ascend910B4", 0))]
)
def test_the_target_is_one_that_the_installed_triton_compiles_for(monkeypatch, backends, target):
    monkeypatch.setattr(importlib.import_module("triton.backends"), "backends", dict.fromkeys(backends))
    found = StandInDriver(lambda: None).get_current_target()
    assert (found.backend, found.arch, found.warp_size) == target


def test_generators_have_a_seed_and_an_offset(standing_in):
    (generator,) = torch.npu.default_generators
    seed, offset = generator.get_state().view(torch.int64)
    generator.set_state(torch.ones(16, dtype=torch.uint8))
    assert (int(seed), int(offset)) == (0, 0) and generator.get_state().tolist() == [1] * 16


def test_compiled_functions_run_as_they_are(standing_in):
    """Torch would compile for the device that is missing."""

    @torch.compile
    def twice(x):
        return x * 2

    assert twice(torch.ones(3, device="npu")).tolist() == [2, 2, 2]


def test_torchs_compiler_is_not_loaded_for_a_program_that_compiles_nothing(monkeypatch):
    """Its import takes seconds of each process that compiles kernels."""
    compiles = torch.compile
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    with accelerator_stand_in():
        assert "torch._dynamo" not in sys.modules
    assert torch.compile is compiles


@pytest.mark.parametrize("kind", ["cuda", "npu"])
def test_one_idle_device_answers_what_programs_ask_of_it(standing_in, kind):
    asked = getattr(torch, kind)
    assert (asked.device_count(), asked.current_device(), asked.get_device_name(0)) == (1, 0, "a stand-in")
    assert asked.get_device_capability() == (9, 0) and asked.mem_get_info() == (64 << 30, 64 << 30)
    assert asked.is_initialized() and asked.is_bf16_supported() and not asked.is_current_stream_capturing()
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        assert getattr(asked, name)() == 0
    for name in ("synchronize", "empty_cache", "manual_seed", "set_device", "reset_peak_memory_stats"):
        assert getattr(asked, name)(1) is None
    found = asked.get_device_properties(0)
    assert (found.major, found.minor, found.total_memory, found.L2_cache_size) == (9, 0, 64 << 30, 50 << 20)
    assert found.max_threads_per_multi_processor == 2048
    assert found.shared_memory_per_multiprocessor == found.shared_memory_per_block_optin > 0
    assert 2 * found.cube_core_num == found.vector_core_num


@pytest.mark.parametrize("kind", ["cuda", "npu"])
def test_streams_and_events_pass_at_once(standing_in, kind):
    asked = getattr(torch, kind)
    stream, event = asked.current_stream(), asked.Event(enable_timing=True)
    assert (stream.cuda_stream, stream.npu_stream, stream.device_index) == (0, 0, 0)
    assert stream.record_event(event) is event and stream.record_event().query() and event.query()
    assert stream.wait_stream(asked.default_stream()) is stream.wait_event(event) is event.synchronize() is None
    with asked.Stream() as entered, asked.stream(stream), asked.device(0):
        assert entered.query()


def test_devices_are_named_by_text_index_and_object(standing_in):
    kind = triton.runtime.driver.active.get_current_target().backend
    assert torch.ones(2, device=0).device == torch.device(kind, 0)
    assert torch.ones(2, device=torch.device("npu", 3)).device == torch.device("npu", 3)
    assert torch.ones(2).pin_memory().tolist() == torch.empty(2, pin_memory=True).fill_(1).tolist() == [1, 1]
    torch.set_default_device("npu")
    assert torch.ones(2).device == torch.device("npu", 0)
    assert torch.ones(2).cuda().get_device() == 0 and not torch.ones(2).is_cpu


def test_gradients_ask_for_devices_too(standing_in):
    told = []

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, gradient):
            told.append((gradient.device.type, torch.empty(2, device="npu").device.type))
            return 2 * gradient

    x = torch.ones(2, device="npu").requires_grad_()
    Doubled.apply(x).sum().backward()
    assert torch.autograd.grad(Doubled.apply(x).sum(), x)[0].tolist() == [2, 2]
    assert told == [("npu", "npu")] * 2


def test_nothing_of_a_stand_in_stays():
    before = torch.cuda.device_count, torch.set_default_device
    with accelerator_stand_in() as stands_in:
        assert not stands_in or torch.cuda.device_count is not before[0]
    assert (torch.cuda.device_count, torch.set_default_device) == before
    assert "torch_npu" not in sys.modules and torch.ones(2).is_cpu


def test_the_ranks_of_a_program_meet_at_a_barrier(standing_in, tmp_path):
    distributed = pytest.importorskip("torch.distributed")
    store = distributed.FileStore(str(tmp_path / "ranks"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        distributed.barrier()
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("backends", "processors", "cuda_is_available"), [(("nvidia", "amd"), 132, True), (("ascend",), 40, False)]
)
def test_a_stand_in_has_the_figures_of_an_h200_and_of_a_910b4(monkeypatch, backends, processors, cuda_is_available):
    monkeypatch.setattr(importlib.import_module("triton.backends"), "backends", dict.fromkeys(backends))
    driver = StandInDriver(lambda: "the device")
    assert driver.utils.get_device_properties(0) == {
        "multiprocessor_count": processors,
        "max_shared_mem": 232448,
        "max_num_regs": 65536,
        "warpSize": 32,
        "mem_clock_rate": 2619000,
        "mem_bus_width": 6144,
        "sm_clock_rate": 1980000,
        "num_aicore": 20,
        "num_vectorcore": 40,
    }
    assert (driver.is_active(), driver.get_current_device(), driver.get_current_stream()) == (True, 0, 0)
    assert driver.get_active_torch_device() == "the device"
    assert driver.get_empty_cache_for_benchmark().numel() == 0
    found = torch_devices._properties()
    assert (found.multi_processor_count, found.warp_size, found.regs_per_multiprocessor) == (processors, 32, 65536)
    assert (found.cube_core_num, found.vector_core_num, found.shared_memory_per_multiprocessor) == (20, 40, 232448)
    available = {kind: torch_devices._answers(kind)["is_available"]() for kind in ("cuda", "npu")}
    assert available == {"cuda": cuda_is_available, "npu": not cuda_is_available}


def test_a_generator_of_a_stand_in_has_one_seed():
    generator = torch_devices._Generator()
    assert generator.manual_seed(7) is generator
    assert (generator.initial_seed(), generator.seed(), len(generator.get_state())) == (0, 0, 16)
    assert torch_devices._Event().elapsed_time(torch_devices._Event()) == TIMED_MS == 1.0


@pytest.mark.parametrize(
    ("active", "found"), [((False, False), False), ((True, False), True), ((True, True), False), ((), False)]
)
def test_a_host_has_a_driver_if_just_one_is_active(monkeypatch, active, found):
    backends = {
        str(number): SimpleNamespace(driver=SimpleNamespace(is_active=lambda is_so=is_so: is_so))
        for number, is_so in enumerate(active)
    }
    monkeypatch.setattr(importlib.import_module("triton.backends"), "backends", backends)
    assert has_driver() is found
    if found:
        with accelerator_stand_in() as stands_in:
            assert not stands_in


def test_torchs_compiler_is_set_when_it_is_first_asked_for(monkeypatch):
    stances = []
    monkeypatch.setattr(torch, "compile", lambda function, **named: (function, named))
    monkeypatch.setattr(torch.compiler, "set_stance", lambda stance: nullcontext(stances.append(stance)))
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    compiles = torch.compile
    with accelerator_stand_in():
        compile_first = torch.compile
        assert compile_first is not compiles and stances == []
        for compile_it in (compile_first, compile_first, torch.compile):
            assert compile_it(len, fullgraph=True) == (len, {"fullgraph": True})
            assert torch.compile is compiles and stances == ["force_eager"]
    assert torch.compile is compiles
