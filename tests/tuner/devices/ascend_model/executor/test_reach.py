"""Which launches of a large problem are looked at, and by which of its programs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model.executor import cube_ops, reach
from tilewise.tuner.devices.ascend_model.executor.memory import Fault
from tilewise.tuner.devices.ascend_model.executor.verification import compile_config
from tilewise.tuner.devices.ascend_model.ir.hivm import Op
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation


def function(name, *, vector=None, loaded=()):
    loads = [Op("memref.load", (), (), {}, (), (kind,)) for kind in loaded]
    return SimpleNamespace(name=name, vector=vector, walk=lambda: iter(loads))


@pytest.fixture
def found(monkeypatch):
    """A function that returns the fault of launches whose execution ends in these errors, and the programs that ran."""

    def run(*functions, errors):
        ran = []

        class Executor:
            def __init__(self, function, on_chip_bytes, *, order):
                self.name = function.name

            def run(self, buffers, scalars, grid, programs):
                ran.append((self.name, programs.tolist(), [buffers["x"].size, *scalars]))
                if (error := errors.get(self.name)) is not None:
                    raise error

        monkeypatch.setattr(reach, "Executor", Executor)
        monkeypatch.setattr(reach, "Unfilled", lambda name, size: SimpleNamespace(name=name, size=size))
        monkeypatch.setattr(reach.toolchain, "arguments", lambda *given: ({"x": 4096}, [7]))
        launches = [SimpleNamespace(grid=(3, 2)) for _ in functions]
        spec = SimpleNamespace(plan=lambda config, problem: launches)
        return reach.fault_at_size(spec, None, {}, functions, 1 << 16), ran

    return run


def test_the_first_fault_is_told_and_launches_that_cannot_be_looked_at_are_passed_over(found):
    functions = [
        function("mixed", vector=object()),
        function("loads an index", loaded=("f32", "i32")),
        function("unknown"),
        function("odd"),
        function("right", loaded=("f32",)),
        function("wrong"),
        function("never"),
    ]
    errors = {
        "mixed": Fault("it ran"),
        "loads an index": Fault("it ran"),
        "unknown": UnknownOperation("x"),
        "odd": ValueError("views"),
        "wrong": Fault("it leaves x"),
        "never": Fault("after the first"),
    }
    fault, ran = found(*functions, errors=errors)
    assert fault == "it leaves x"
    assert [name for name, *_ in ran] == ["unknown", "odd", "right", "wrong"]
    assert ran[0][1:] == ([0, 1, 2, 3, 4, 5], [4096, 7])


def test_launches_without_a_fault_have_none(found):
    assert found(function("right"), function("odd"), errors={"odd": IndexError("views")})[0] == ""


@pytest.mark.parametrize(("programs", "count"), [(1, 1), (2, 2), (16, 16), (17, 16), (10**6, 16)])
def test_up_to_16_programs_run_evenly_from_the_first_to_the_last(programs, count):
    numbers = reach._spread(programs)
    assert (len(numbers), numbers[0], numbers[-1]) == (count, 0, programs - 1)
    assert np.ptp(np.diff(numbers)) <= 1 if count > 1 else True


def test_products_are_not_computed_since_only_addresses_matter(tmp_path, monkeypatch):
    if reason := reach.toolchain.unavailable_reason():
        pytest.skip(reason)
    target = reach.toolchain.target("Ascend910B4", tmp_path)
    spec, problem = registry.load("gemm"), Problem("gemm", {"M": 300, "N": 256, "K": 512}, "float16")
    config = spec.default(problem, target)
    functions = compile_config(spec, problem, config, target, tmp_path)
    monkeypatch.setattr(cube_ops, "_add", lambda *product, **start: pytest.fail("a product is computed"))
    assert reach.fault_at_size(spec, problem, config, functions, target.on_chip_bytes) == ""
    sizes, scalars = reach.toolchain.arguments(spec, problem, config, spec.plan(config, problem)[0])
    halves = {name: size // (2 if name == "b_ptr" else 1) for name, size in sizes.items()}
    monkeypatch.setattr(reach.toolchain, "arguments", lambda *given: (halves, scalars))
    assert "of b_ptr, which has" in reach.fault_at_size(spec, problem, config, functions, target.on_chip_bytes)
