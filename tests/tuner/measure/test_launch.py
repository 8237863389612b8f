"""Binding a spec to its function: lazy import, complete arguments, clear errors."""

import dataclasses
import importlib.util
from types import SimpleNamespace

import pytest
from places import HELPERS

if importlib.util.find_spec("triton") is None or importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch and triton", allow_module_level=True)

import torch
import triton

from tilewise.errors import BadSpec
from tilewise.kernels import registry
from tilewise.kernels.spec import Buffer, Parameter, Problem
from tilewise.tuner.measure import launch as launch_module
from tilewise.tuner.measure.launch import compiled, launch, launcher, load_function, options_of, resolve_functions

KERNELS = HELPERS / "faulty_kernels.py"
CONFIG = {"ROWS": 8, "SUB": 4, "COLS": 64}
PROBLEM = Problem("k", {"M": 19, "N": 150}, "float32")


@pytest.fixture
def spec():
    return registry.load(f"{KERNELS}:RIGHT")


class Recorder:
    """A jitted function that records the grid and arguments of its launches."""

    __name__ = "right_kernel"

    def __init__(self, function):
        self.fn, self.launches = function, []

    def run(self, *args, **kwargs):
        raise NotImplementedError

    def __getitem__(self, grid):
        return lambda **arguments: self.launches.append((grid, arguments))

    def warmup(self, *args, grid, **options):
        self.launches.append((grid, args))


def test_a_named_function_is_imported_when_asked_for():
    (function,) = resolve_functions(registry.load("row_reduce"))
    assert isinstance(function, triton.JITFunction)
    assert function.__name__ == "row_reduce_kernel"


def test_a_function_object_is_taken_as_it_is(spec):
    assert resolve_functions(spec) == (spec.function,)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("tilewise.no_such_module:kernel", "does not import: No module named"),
        ("tilewise.kernels.jit.row_reduce:no_such_kernel", "no_such_kernel"),
        (len, "not a triton.jit function"),
    ],
)
def test_what_is_no_triton_function_is_refused(spec, function, message):
    with pytest.raises(BadSpec, match=message):
        resolve_functions(dataclasses.replace(spec, function=function))


def test_an_autotuned_function_is_refused(spec):
    class Autotuner:
        fn = run = None

    with pytest.raises(BadSpec, match="remove that"):
        resolve_functions(dataclasses.replace(spec, function=Autotuner()))


def test_a_program_s_function_is_loaded_without_the_autotuner_around_it(tmp_path):
    file = tmp_path / "program.py"
    file.write_text("""
import triton
import triton.language as tl

AHEAD = True
if AHEAD:

    @triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=["n"])
    @triton.heuristics({"EVEN": lambda arguments: arguments["n"] % 64 == 0})
    @triton.jit
    def copy_kernel(x_ptr, y_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
""")
    assert type(load_function(file, "copy_kernel")).__name__ == "JITFunction"


def test_everything_is_bound_and_options_are_passed_on(spec):
    recorder = Recorder(spec.function.fn)
    option = Parameter("multibuffer", lambda problem, target: [True], role="option")
    spec = dataclasses.replace(spec, function=recorder, parameters=(*spec.parameters, option))
    x, out = torch.zeros(19, 150), torch.zeros(19)
    launch(spec, PROBLEM, {**CONFIG, "multibuffer": True}, {"x_ptr": x, "out_ptr": out})
    ((grid, arguments),) = recorder.launches
    assert grid == (3,)
    assert arguments.pop("x_ptr") is x
    assert arguments.pop("out_ptr") is out
    assert arguments == {"M": 19, "N": 150, **CONFIG, "multibuffer": True}


def test_what_the_problem_fixes_is_passed_without_being_part_of_a_config(spec):
    recorder = Recorder(spec.function.fn)
    fixed = dataclasses.replace(spec, function=recorder, constants=lambda _: {"M": 17}, scalars=lambda _: {"N": 3})
    launch(fixed, PROBLEM, CONFIG, {"x_ptr": None, "out_ptr": None})
    assert recorder.launches[0][1] == {"x_ptr": None, "out_ptr": None, "M": 17, "N": 3, **CONFIG}


def test_an_option_of_0_is_left_to_the_compiler(spec):
    options = tuple(Parameter(name, lambda problem, target: [0], role="option") for name in ("maxnreg", "multibuffer"))
    tuned = dataclasses.replace(spec, parameters=(*spec.parameters, *options))
    assert options_of(tuned, {**CONFIG, "maxnreg": 0, "multibuffer": False}) == {"multibuffer": False}
    assert options_of(tuned, {**CONFIG, "maxnreg": 168}) == {"maxnreg": 168}


def test_a_launcher_launches_as_often_as_it_is_called(spec):
    recorder = Recorder(spec.function.fn)
    run = launcher(dataclasses.replace(spec, function=recorder), PROBLEM, CONFIG, {"x_ptr": 0, "out_ptr": 0})
    run()
    run()
    assert len(recorder.launches) == 2


def test_an_argument_that_the_function_lacks_is_named(spec):
    wrong = dataclasses.replace(spec, scalars=lambda problem: {**problem.dims, "stride": 1})
    with pytest.raises(BadSpec, match="passes stride, which its function does not take"):
        launcher(wrong, PROBLEM, CONFIG, {"x_ptr": 0, "out_ptr": 0})


def test_an_argument_that_nobody_gives_is_named(spec):
    wrong = dataclasses.replace(spec, buffers=lambda problem: {"x_ptr": Buffer((1,), "float32")})
    with pytest.raises(BadSpec, match="does not pass out_ptr, which its function requires"):
        launcher(wrong, PROBLEM, CONFIG, {"x_ptr": 0})


def test_an_argument_left_to_its_default_does_not_shift_those_behind_it_when_compiling_ahead(spec):
    def right_kernel(x_ptr, out_ptr, M, N, ROWS, UNROLL=1, SUB=2, COLS=3): ...  # noqa: N803 - as Triton names them

    recorder = Recorder(right_kernel)
    list(compiled(dataclasses.replace(spec, function=recorder), PROBLEM, CONFIG))
    assert recorder.launches == [((3,), (torch.float32, torch.float32, 19, 150, 8, 1, 4, 64))]


@pytest.mark.parametrize("own", [False, True])
def test_descriptors_get_memory_unless_the_program_has_its_own_allocator(monkeypatch, own):
    """Triton 3.2 has no such module; this is that of 3.6, as far as it is used."""

    class NullAllocator:
        pass

    made = []
    allocation = SimpleNamespace(
        NullAllocator=NullAllocator,
        _allocator=SimpleNamespace(get=lambda: object() if own else NullAllocator()),
        set_allocator=made.append,
    )
    monkeypatch.setattr(triton.runtime, "_allocation", allocation, raising=False)
    ran = []
    launch_module.with_allocator(lambda **given: ran.append((given, len(made))))(x=1)
    assert ran == [({"x": 1}, 0 if own else 1)]
    assert made == ([] if own else [launch_module._scratch_memory])


def test_memory_of_descriptors_is_bytes_on_the_current_gpu(monkeypatch):
    monkeypatch.setattr(torch, "empty", lambda size, **options: (size, options))
    assert launch_module._scratch_memory(640, 128, None) == (640, {"dtype": torch.int8, "device": "cuda"})
