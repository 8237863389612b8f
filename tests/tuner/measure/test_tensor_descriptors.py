"""Descriptors of tensors made by the host, with stand-ins for Triton's classes, which its release for Ascend lacks."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

if importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch and triton", allow_module_level=True)

import torch

from tilewise.errors import BadSpec, UsageError
from tilewise.kernels.spec import Axis, Buffer, KernelSpec, Launch, Problem, Tiling
from tilewise.tuner.measure.launch import compiled, launcher
from tilewise.tuner.measure.tensor_descriptors import describers, with_descriptors

PROBLEM = Problem("copied", {"M": 40, "N": 64}, "bfloat16")
BUFFERS = {
    "x_ptr": Buffer((40, 64), "bfloat16"),
    "w_ptr": Buffer((40, 64), "bfloat16", strides=(1, 40)),
    "out_ptr": Buffer((40, 64), "bfloat16", role="out"),
}


@dataclass
class Descriptor:
    """Triton's class, as far as it is used."""

    base: Any
    shape: list[int]
    strides: list[int]
    block_shape: list[int]
    layout: Any = None

    def __post_init__(self):
        assert self.strides[-1] == 1, "Last dimension must be contiguous"


class Function:
    """A jitted function that keeps the arguments of its launches."""

    def __init__(self):
        self.calls, self.fn = [], lambda x_ptr, w_ptr, out_ptr: None

    def run(self, **arguments):
        self.calls.append(arguments)

    def __getitem__(self, grid):
        return self.run

    def warmup(self, *arguments, grid):
        self.calls.append(dict(zip(("x_ptr", "w_ptr", "out_ptr"), arguments, strict=False)))


@pytest.fixture
def function(monkeypatch):
    module = ModuleType("triton.tools.tensor_descriptor")
    module.TensorDescriptor = Descriptor
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return Function()


def spec(function, **blocks):
    step = Launch(function, (1,), blocks=blocks)
    return KernelSpec(
        name="copied",
        summary="",
        function=(function,),
        dims=("M", "N"),
        dtypes=("bfloat16",),
        parameters=(),
        buffers=lambda problem: BUFFERS,
        scalars=lambda problem: {},
        launches=lambda config, problem: [step],
        tiling=lambda config, problem: Tiling((Axis("M", 40, 8, 8),), 0, 0),
        flops=lambda problem: 0,
        default=lambda problem, target: {},
    )


def tensors():
    return {name: torch.zeros(40, 64, dtype=torch.bfloat16) for name in BUFFERS}


def facts(descriptor):
    return tuple(descriptor.shape), tuple(descriptor.strides), tuple(descriptor.block_shape)


def test_a_launch_hands_over_descriptors_of_its_tensors_in_the_order_of_the_memory(function):
    given = tensors()
    launcher(spec(function, x_ptr=(8, 16), w_ptr=(8, 32)), PROBLEM, {}, given)()
    (call,) = function.calls
    assert facts(call["x_ptr"]) == ((40, 64), (64, 1), (8, 16))
    assert facts(call["w_ptr"]) == ((64, 40), (40, 1), (32, 8)), "a transposed buffer, and its block, are turned"
    assert call["x_ptr"].base is given["x_ptr"]
    assert call["out_ptr"] is given["out_ptr"]


def test_compiling_ahead_describes_stand_ins_of_the_same_dtype(function):
    list(compiled(spec(function, x_ptr=(8, 16)), PROBLEM, {}))
    (call,) = function.calls
    assert facts(call["x_ptr"]) == ((40, 64), (64, 1), (8, 16))
    assert (call["x_ptr"].base.dtype, call["w_ptr"]) == (torch.bfloat16, torch.bfloat16)


def test_each_launch_describes_the_tensor_that_it_is_given(function):
    described = spec(function, x_ptr=(8, 16))
    (step,) = described.plan({}, PROBLEM)
    run = with_descriptors(function.run, describers(described, PROBLEM, {}, step, function))
    for given in (first := tensors()), tensors(), first:
        run(**given)
        assert function.calls[-1]["x_ptr"].base is given["x_ptr"]
        assert given["x_ptr"] is not function.calls[-1]["x_ptr"], "the caller's arguments stay as they are"
    assert len({id(call["x_ptr"]) for call in function.calls}) == 3, "no descriptor is used again"


def test_a_tensor_between_multiples_of_16_bytes_is_refused(function):
    given = tensors() | {"x_ptr": torch.zeros(40 * 64 + 1, dtype=torch.bfloat16)[1:].view(40, 64)}
    with pytest.raises(UsageError, match="x_ptr of kernel copied begins between multiples of 16 bytes"):
        launcher(spec(function, x_ptr=(8, 16)), PROBLEM, {}, given)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ({"y_ptr": (8, 16)}, "describes y_ptr, which are none of its buffers"),
        ({"x_ptr": (8,)}, "expected one size for each of its axes"),
        ({"x_ptr": [8, 16]}, "expected a tuple of sizes from 1"),
        ({"x_ptr": (8, 0)}, "expected a tuple of sizes from 1"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(function, blocks, message):
    with pytest.raises(BadSpec, match=message):
        launcher(spec(function, **blocks), PROBLEM, {}, tensors())


def test_what_no_descriptor_can_say_is_refused_beforehand(function, monkeypatch):
    apart = {**BUFFERS, "x_ptr": replace(BUFFERS["x_ptr"], strides=(128, 2))}
    monkeypatch.setattr(sys.modules[__name__], "BUFFERS", apart)
    with pytest.raises(BadSpec, match="x_ptr of kernel copied cannot be described: Last dimension must be contiguous"):
        launcher(spec(function, x_ptr=(8, 16)), PROBLEM, {}, tensors())


def test_a_function_in_gluon_gets_the_layout_of_its_block(function, monkeypatch):
    layouts = SimpleNamespace(get_default_for=lambda block, dtype: (block, dtype))
    language = ModuleType("triton.experimental.gluon.language")
    language.NVMMASharedLayout, language.bfloat16 = layouts, "bf16"
    hopper = ModuleType("triton.experimental.gluon.nvidia.hopper")
    hopper.TensorDescriptor = Descriptor
    packages = [ModuleType(name) for name in ("triton.experimental", "triton.experimental.gluon")]
    packages.append(ModuleType("triton.experimental.gluon.nvidia"))
    packages[1].language, packages[2].hopper = language, hopper
    for module in (*packages, language, hopper):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(sys.modules["triton"], "experimental", packages[0], raising=False)
    packages[0].gluon = packages[1]
    function.is_gluon = lambda: True
    launcher(spec(function, w_ptr=(8, 32)), PROBLEM, {}, tensors())()
    assert function.calls[0]["w_ptr"].layout == ([32, 8], "bf16")


def test_a_release_of_triton_without_descriptors_is_named():
    if importlib.util.find_spec("triton.tools.tensor_descriptor"):
        pytest.skip("this release has them")
    with pytest.raises(RuntimeError, match=r"need upstream Triton 3\.4 or newer"):
        launcher(spec(Function(), x_ptr=(8, 16)), PROBLEM, {}, tensors())
