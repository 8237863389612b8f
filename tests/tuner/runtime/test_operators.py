"""Operators, run by Triton's interpreter in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tilewise.errors import UsageError
from tilewise.kernels import registry
from tilewise.kernels.spec import Buffer
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.runtime import operators, torch_custom_op
from tilewise.tuner.runtime.operators import Operator

PROGRAM = """
import math
import torch
from tilewise import Operator
from tilewise.errors import UsageError

options = {"device": "Ascend910B4", "match": "predicted"}
softmax = Operator("softmax", "missing.json", **options)
for m, n in ((5, 70), (33, 1000), (5, 70)):
    x = torch.randn(m, n)
    out = torch.full_like(x, math.nan)
    softmax(x, out)
    assert (out - x.softmax(1)).abs().max() < 1e-5
    softmax(out_ptr=out, x_ptr=2 * x)
    assert (out - (2 * x).softmax(1)).abs().max() < 1e-5
assert len(softmax.choices) == 2

# accumulated outputs are reset to their initial value on each call
total = Operator("sum_all", "missing.json", **options)
x, out = torch.randn(3000), torch.full((1,), 1000.0)
for _ in range(2):
    total(x, out)
    assert abs(out.item() - x.double().sum().item()) < 1e-3

norm = Operator("layer_norm", "missing.json", **options)
x, w, b = torch.randn(9, 200), torch.randn(200), torch.randn(200)
y, mean, rstd = torch.empty(9, 200), torch.empty(9), torch.empty(9)
norm(x, w, b, y, mean, rstd)
assert (y - torch.nn.functional.layer_norm(x, (200,), w, b)).abs().max() < 1e-5

# flags are those of all calls, and strides those of the spec
product = Operator("gemm", "missing.json", flags={"column_major": True, "bias": True, "activation": "relu"}, **options)
a, b, bias = torch.randn(5, 40).half(), torch.randn(30, 40).half().T, torch.randn(30).half()
out = torch.full((5, 30), math.nan).half()
product(a, b, bias, out)
assert (out - (a @ b + bias).relu()).abs().max() < 0.05
assert product.choices[0].question.problem.flags == {"column_major": True, "bias": True, "activation": "relu"}
try:
    product(a, b.contiguous(), bias, out)
except UsageError as error:
    assert "with the strides (1, 40)" in str(error), error
else:
    raise AssertionError("a wrong layout was taken")
try:
    Operator("softmax", flags={"bias": True}, **options)
except UsageError as error:
    assert str(error) == "kernel softmax has no flag bias; it has none", error
else:
    raise AssertionError("an unknown flag was taken")

# a guess that does not run gives way to the default
from tilewise.tuner.runtime import operators as operator

class OutOfResources(Exception):
    pass

class Tight:
    def __init__(self, function):
        self.fn, self.calls = function, 0

    def run(self, **arguments):
        self.calls += 1
        if self.calls == 1:
            raise OutOfResources("shared memory")
        self.fn.run(**arguments)

    def __getitem__(self, grid):
        raise AssertionError(grid)

row, resolve = Operator("row_reduce", "missing.json", **options), operator.resolve_function
tight = Tight(resolve(row.spec, row.spec.function))
operator.resolve_function = lambda spec, function: tight
x, w, out = torch.randn(20, 100), torch.randn(100), torch.empty(20)
for _ in range(2):
    row(x, w, out)
    assert (out - (2 * x + w).sigmoid().sum(1)).abs().max() < 1e-4
assert [choice.match for choice in row.choices] == ["default"] and tight.calls == 3
assert "OutOfResources: shared memory" in row.choices[0].why
operator.resolve_function = resolve

x = torch.randn(6, 80)
for tensors, words in (
    ((x,), "called with the tensors x_ptr, out_ptr"),
    ((x, x, x), "called with the tensors x_ptr, out_ptr"),
    ((x, x.t()), "out_ptr is (80, 6); expected (6, 80), contiguous"),
    ((x.t(), torch.empty(80, 6)), "x_ptr is (80, 6); expected (80, 6), contiguous"),
    ((x[0], x), "too few dimensions"),
    ((x.double(), x.double()), "does not take 'float64'"),
):
    try:
        softmax(*tensors)
    except UsageError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
print("done")
"""

COMPILED = """
import math
import torch
from tilewise import Operator, tuned
from tilewise.kernels.jit.row_reduce import row_reduce_kernel

softmax = Operator("softmax", "missing.json", device="Ascend910B4")
kernel = tuned("row_reduce", "missing.json", device="Ascend910B4")(row_reduce_kernel)


def program(x, w):
    m, n = x.shape
    out = torch.empty(m)
    kernel[lambda meta: (math.ceil(m / meta["BLOCK_SIZE_M"]),)](x * 2, w, out, m, n)
    return out + 1


def weights(x):
    out = torch.empty_like(x)
    softmax(x * 2, out_ptr=out)
    return out + 1


compiled, smooth = (torch.compile(each, fullgraph=True, backend="aot_eager") for each in (program, weights))
for m in (20, 24, 33):
    x, w = torch.randn(m, 100), torch.randn(100)
    assert (compiled(x, w) - ((4 * x + w).sigmoid().sum(1) + 1)).abs().max() < 1e-4
    assert (smooth(x) - ((2 * x).softmax(1) + 1)).abs().max() < 1e-4
assert len(kernel.choices) == len(softmax.choices) == 3


def over(grid):
    def run(x, w):
        out = torch.zeros(x.shape[0])
        kernel[grid(*x.shape)](x, w, out, *x.shape)
        return out

    return torch.compile(run, fullgraph=True, backend="aot_eager")


x, w = torch.randn(64, 100), torch.randn(100)
half = over(lambda m, n: (1,))(x, w)  # the caller's grid, whatever the spec's is
rows = kernel.choice(x, w, x, 64, 100).config["BLOCK_SIZE_M"]
assert bool(half[:rows].any()) and not bool(half[rows:].any())
try:
    over(lambda m, n: lambda meta: (m + 1000,))(x, w)
except Exception as error:
    assert "launched over another grid than its spec's (1064, not" in str(error), error
else:
    raise AssertionError("launched over a grid that the program did not ask for")
print("done")
"""


EXPORTED = """
import sys
import torch
from tilewise import Operator, autotune, tuned
from tilewise.errors import UsageError
from tilewise.kernels.jit.row_reduce import row_reduce_kernel

known = {"source": "missing.json", "device": "Ascend910B4"}
makers = [
    lambda: tuned("row_reduce", **known)(row_reduce_kernel),
    lambda: Operator("row_reduce", **known),
    lambda: Operator("softmax", **known),
]
if sys.argv[1] == "load":  # made in another order, beside others
    made = [makers[number]() for number in (2, 1, 0)][::-1]
else:
    made = [make() for make in makers]
kernel, sums, softmax = made


class Net(torch.nn.Module):
    def forward(self, x, w):
        m, n = x.shape
        first, second, third = torch.empty(m), torch.empty(m), torch.empty_like(x)
        kernel[lambda meta: (-(-m // meta["BLOCK_SIZE_M"]),)](x, w, first, m, n)
        sums(x + 1, w, second)
        softmax(x, third)
        return first, second, third


class Unknown(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        unknown[lambda meta: (1,)](x, x, out, *x.shape)
        return out


x, w = torch.randn(20, 100), torch.randn(100)
if sys.argv[1] == "save":
    torch.export.save(torch.export.export(Net(), (x, w)), "net.pt2")
    import triton

    configs = [triton.Config(dict(BLOCK_SIZE_M=4, SUB_BLOCK_SIZE_M=4, BLOCK_SIZE_N=32))]
    unknown = autotune(configs, ["N"])(row_reduce_kernel)
    try:
        torch.export.export(Unknown(), (x,))
    except UsageError as error:
        assert "row_reduce_kernel cannot be exported, as another process" in str(error), error
    else:
        raise AssertionError("exported what another process could not launch")
else:
    given = torch.export.load("net.pt2").module()(x, w)
    wanted = (2 * x + w).sigmoid().sum(1), (2 * x + 2 + w).sigmoid().sum(1), x.softmax(1)
    assert all((one - other).abs().max() < 1e-4 for one, other in zip(given, wanted, strict=True))
print("done")
"""


def test_an_operation_is_called_by_what_it_launches_in_whatever_order_it_was_made(monkeypatch):
    row_reduce, gemm = (registry.load(name) for name in ("row_reduce", "gemm"))
    wanted = [
        (row_reduce, "m:f", {}, "() -> ()"),
        (row_reduce, "m:g", {}, "() -> ()"),
        (row_reduce, "n:f", {}, "() -> ()"),
        (row_reduce, "m:f", {}, "(Tensor x) -> ()"),
        (gemm, "m:f", {"bias": True}, "() -> ()"),
        (gemm, "m:f", {}, "() -> ()"),
    ]

    def names(order):
        monkeypatch.setattr(torch_custom_op, "_made", Counter())
        return {number: torch_custom_op._name(*wanted[number]) for number in order}

    first = names(range(6))
    assert first == names((3, 5, 1, 4, 0, 2)) and len(set(first.values())) == 6
    assert torch_custom_op._name(*wanted[0]) == f"{first[0]}_2", "one that is made twice"
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "folder/m.py", raising=False)
    assert torch_custom_op._name(row_reduce, "__main__:f", {}, "() -> ()") == f"{first[0]}_3", "a script, imported"


@pytest.mark.full
def test_an_exported_program_launches_the_same_kernels_in_another_process(tmp_path):
    pytest.importorskip("triton")
    (tmp_path / "program.py").write_text(EXPORTED)
    settings = {"TRITON_INTERPRET": "1", "TILEWISE_MISSES": "off", "TILEWISE_DATA": str(tmp_path)}
    for step in ("save", "load"):
        words = [sys.executable, "program.py", step]
        ran = subprocess.run(words, cwd=tmp_path, env={**os.environ, **settings}, capture_output=True, text=True)
        assert ran.returncode == 0 and ran.stdout == "done\n", ran.stderr


@pytest.mark.full
@pytest.mark.parametrize("program", [PROGRAM, COMPILED], ids=["operator", "torch.compile"])
def test_in_a_process_that_interprets(program, tmp_path):
    pytest.importorskip("triton")
    settings = {"TRITON_INTERPRET": "1", "TILEWISE_MISSES": "off"}
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, **settings}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "done\n"


class Launching(Operator):
    """An operator whose launches fail as long as `failing` names their choice; `instead` is what the selector gives."""

    def __init__(self, failing, instead):
        self.failing, self.launched, self._plans = failing, [], {}
        self._selector = SimpleNamespace(instead=lambda choice, error: instead)

    def _planned(self, ordered):
        return ("key",), "guess", "guess"

    def _plan(self, choice):
        return choice

    def _launch(self, plan, given):
        self.launched.append(plan)
        if plan in self.failing:
            raise RuntimeError(f"{plan} does not run")


@pytest.mark.parametrize(
    ("failing", "instead", "launched", "error"),
    [
        ((), "default", ["guess"], None),
        (("guess",), "default", ["guess", "default"], None),
        (("guess",), None, ["guess"], "guess does not run"),
        (("guess", "default"), "default", ["guess", "default"], "default does not run"),
    ],
)
def test_a_first_launch_that_fails_is_tried_with_what_the_selector_gives_instead(failing, instead, launched, error):
    operator = Launching(failing, instead)
    if error is None:
        operator._launch_first([], {})
    else:
        with pytest.raises(RuntimeError, match=error):
            operator._launch_first([], {})
    assert operator.launched == launched
    assert operator._plans == ({("key",): "default"} if len(launched) == 2 else {})


class Tensor:
    """A tensor of torch's, as far as a launch looks at it."""

    def __init__(self, *shape, strides=None, contiguous=True):
        self.shape, self.filled, self._strides, self._contiguous = shape, [], strides, contiguous

    def stride(self):
        return self._strides

    def is_contiguous(self):
        return self._contiguous

    def fill_(self, value):
        self.filled.append(value)

    def new_empty(self, shape, dtype):
        return ("scratch", shape, dtype)


def plan(**buffers):
    runs = []
    made = operators._Plan(
        buffers=buffers,
        initials={"out": 0.0},
        scratch={"part": ((2, 3), "float32")},
        steps=((lambda **given: runs.append(given), ("x", "part")), (lambda **given: runs.append(given), ("out",))),
    )
    return made, runs


def test_a_launch_resets_outputs_makes_scratch_and_gives_each_step_its_tensors():
    operator = Operator.__new__(Operator)
    operator.arguments, operator.spec = ("x", "out"), SimpleNamespace(name="mine")
    made, runs = plan(x=Buffer((4, 5), "float32"), out=Buffer((4,), "float32", "out"))
    given = {"x": Tensor(4, 5), "out": Tensor(4)}
    operator._launch(made, dict(given))
    assert runs == [{"x": given["x"], "part": ("scratch", (2, 3), "float32")}, {"out": given["out"]}]
    assert (given["out"].filled, given["x"].filled) == ([0.0], [])


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (Tensor(5, 4), r"^kernel mine: x is \(5, 4\); expected \(4, 5\), contiguous$"),
        (Tensor(4, 5, contiguous=False), r"^kernel mine: x is \(4, 5\); expected \(4, 5\), contiguous$"),
    ],
)
def test_a_tensor_of_another_shape_or_layout_is_refused_before_anything_runs(x, said):
    operator = Operator.__new__(Operator)
    operator.arguments, operator.spec = ("x", "out"), SimpleNamespace(name="mine")
    made, runs = plan(x=Buffer((4, 5), "float32"))
    with pytest.raises(UsageError, match=said):
        operator._launch(made, {"x": x, "out": Tensor(4)})
    assert runs == []


@pytest.mark.needs_gpu
def test_descriptors_of_the_host_are_those_of_each_call_s_tensors_and_hold_in_a_graph(tmp_path):
    torch = pytest.importorskip("torch")
    spec = registry.load("gemm")
    tile = {"VARIANT": "hopper", "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 1, "SPLIT_K": 1}
    config = {**tile, "PROGRAMS": 0, "PARTS_N": 1, "WARP_SPECIALIZE": False, "num_warps": 4, "num_stages": 4}
    launching = replace(spec, default=lambda problem, target: config)
    product = Operator(launching, str(tmp_path / "missing.json"), match="exact")

    def made(count):
        shape = {"device": "cuda", "dtype": torch.bfloat16}
        return [(torch.randn(100, 128, **shape), torch.randn(128, 200, **shape)) for _ in range(count)]

    out = torch.empty(100, 200, device="cuda", dtype=torch.bfloat16)
    pairs = made(3)
    for a, b in (*pairs, pairs[0]):
        product(a, b, out)
        assert torch.allclose(out, a @ b, atol=0.5)
    assert {choice.config["VARIANT"] for choice in product.choices} == {"hopper"}
    with pytest.raises(UsageError, match="begins between multiples of 16 bytes"):
        product(torch.randn(100 * 128 + 1, device="cuda").bfloat16()[1:].view(100, 128), pairs[0][1], out)

    (a, b), graph = pairs[0], torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        product(a, b, out)
    for other_a, other_b in made(2):
        a.copy_(other_a), b.copy_(other_b)
        product(*pairs[1], torch.empty_like(out))
        graph.replay()
        assert torch.allclose(out, other_a @ other_b, atol=0.5)


# Calls with torch's tensors, of kernels whose launches are recorded


class OutOfResources(Exception):
    """As Triton calls a config that takes more than there is."""


@pytest.fixture
def recorded(monkeypatch, tmp_path):
    """A function that makes an operator, and the runs of its kernel's functions: their arguments, grids and options."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    monkeypatch.setenv("TILEWISE_MISSES", str(tmp_path / "misses.jsonl"))
    runs = []

    class Recorded:
        def __init__(self, function):
            self.fn, self.fails = function.fn, False

        def run(self, **given):
            runs.append(given)
            if operator_options["fails"](given):
                raise OutOfResources("shared memory")

    operator_options = {"fails": lambda given: False}
    resolve = operators.resolve_function
    monkeypatch.setattr(operators, "resolve_function", lambda spec, function: Recorded(resolve(spec, function)))

    def make(name, *, fails=lambda given: False, **options):
        operator_options["fails"] = fails
        return Operator(name, tmp_path / "none.json", device="NVIDIA H200", match="predicted", **options)

    make.torch, make.runs = torch, runs
    return make


def test_a_call_launches_the_chosen_config_with_all_arguments(recorded):
    torch = recorded.torch
    softmax = recorded("softmax")
    x, out = torch.randn(33, 1000), torch.empty(33, 1000)
    softmax(x, out)
    softmax(out_ptr=out, x_ptr=x)
    (choice,) = softmax.choices
    first, again = recorded.runs
    assert first.keys() == again.keys() and first["x_ptr"] is x and first["out_ptr"] is out
    (step,) = softmax.spec.plan(choice.config, choice.question.problem)
    assert (first["grid"], first["warmup"], first["M"], first["N"]) == (step.grid, False, 33, 1000)
    options = {name: choice.config[name] for name in softmax.spec.options() if choice.config.get(name)}
    assert options.items() <= first.items() and "num_warps" in options
    constants = {name: value for name, value in choice.config.items() if name.isupper() and name != "VARIANT"}
    assert constants and constants.items() <= first.items()
    softmax(torch.randn(34, 1000), torch.empty(34, 1000))
    assert len(softmax.choices) == len(softmax._plans) == 2


@pytest.mark.parametrize(("options", "printed"), [({}, 0), ({"explain": False}, 0), ({"explain": True}, 1)])
def test_a_choice_is_printed_only_where_asked_and_once(recorded, capsys, options, printed):
    torch, softmax = recorded.torch, recorded("softmax", **options)
    for _ in range(2):
        softmax(torch.randn(33, 1000), torch.empty(33, 1000))
    assert capsys.readouterr().err.count("tilewise: softmax M=33,N=1000 float32 on NVIDIA H200: ") == printed


def test_scratch_and_initial_values_are_those_of_the_shape(recorded):
    torch = recorded.torch
    total = recorded("sum_all")
    x, out = torch.randn(3_000_000), torch.full((1,), 7.0)
    total(x, out)
    (choice,) = total.choices
    problem = choice.question.problem
    initial = total.spec.buffers(problem)["out_ptr"].initial
    assert out.item() == (7.0 if initial is None else initial)
    steps = total.spec.plan(choice.config, problem)
    assert [run["grid"] for run in recorded.runs] == [step.grid for step in steps]
    scratch = total.spec.scratch(choice.config, problem)
    for name, buffer in scratch.items():
        made = next(run[name] for run in recorded.runs if name in run)
        assert (tuple(made.shape), str(made.dtype)) == (buffer.shape, f"torch.{buffer.dtype}")


@pytest.mark.parametrize(
    ("tensors", "named", "said"),
    [
        (1, {}, "must be called with the tensors x_ptr, out_ptr"),
        (3, {}, "must be called with the tensors x_ptr, out_ptr"),
        (2, {"M": 5}, "must be called with the tensors x_ptr, out_ptr"),
        (1, {"y_ptr": 0}, "must be called with the tensors x_ptr, out_ptr"),
    ],
)
def test_a_call_with_other_tensors_than_the_kernel_s_is_refused(recorded, tensors, named, said):
    x = recorded.torch.randn(6, 80)
    with pytest.raises(UsageError, match=said):
        recorded("softmax")(*[x] * tensors, **named)
    assert recorded.runs == []


def test_tensors_of_no_problem_of_the_kernel_are_refused(recorded):
    torch, softmax = recorded.torch, recorded("softmax")
    x = torch.randn(6, 80)
    for tensors, said in (
        ((x[0], x), "a tensor has too few dimensions"),
        ((x, x.t()), r"out_ptr is \(80, 6\); expected \(6, 80\), contiguous"),
        ((x.t(), torch.empty(80, 6)), r"x_ptr is \(80, 6\); expected \(80, 6\), contiguous"),
        ((x.double(), x.double()), "does not take 'float64'"),
    ):
        with pytest.raises(UsageError, match=said):
            softmax(*tensors)
    with pytest.raises(UsageError, match="kernel softmax has no flag bias; it has none"):
        recorded("softmax", flags={"bias": True})


def test_strides_are_those_that_the_flags_ask_for_but_along_axes_of_one(recorded):
    torch, flags = recorded.torch, {"column_major": True}
    product = recorded("gemm", flags=flags)
    a, b, out = torch.randn(5, 40).half(), torch.randn(30, 40).half().T, torch.empty(5, 30).half()
    product(a, b, out)
    assert product.choices[0].question.problem.flags == flags
    with pytest.raises(UsageError, match=r"b_ptr is \(40, 30\); expected \(40, 30\), with the strides \(1, 40\)"):
        product(a, b.contiguous(), out)
    narrow = torch.randn(40, 1).half()  # one column lies as one row would
    product(a, narrow, torch.empty(5, 1).half())
    assert len(product.choices) == 2


def test_a_guess_that_does_not_run_gives_way_to_the_default_for_good(recorded):
    torch = recorded.torch
    row = recorded("row_reduce", fails=lambda given: len(recorded.runs) == 1)
    x, w, out = torch.randn(200, 1000), torch.randn(1000), torch.empty(200)
    for _ in range(2):
        row(x, w, out)
    assert len(recorded.runs) == 3
    (choice,) = row.choices
    assert choice.match == "default" and "OutOfResources: shared memory" in choice.why
    default = row.spec.default(choice.question.problem, known_target("NVIDIA H200", 132))
    assert recorded.runs[1]["BLOCK_SIZE_M"] == recorded.runs[2]["BLOCK_SIZE_M"] == default["BLOCK_SIZE_M"]


@pytest.mark.parametrize("is_guess", [True, False])
def test_a_better_answer_is_planned_at_once_unless_it_is_a_guess(recorded, is_guess):
    torch = recorded.torch
    row = recorded("row_reduce")
    x, w, out = torch.randn(200, 1000), torch.randn(1000), torch.empty(200)
    row(x, w, out)
    [(key, before)] = row._plans.items()
    (choice,) = row.choices
    better = replace(choice, config=dict(choice.config), match="predicted" if is_guess else "exact")
    assert better.is_guess is is_guess
    row._changed(better)
    assert key not in row._plans if is_guess else row._plans[key] is not before
    row._changed(replace(better, question=replace(better.question, device="another")))
    assert len(row._plans) == (0 if is_guess else 1)


def test_a_compiler_sees_a_call_as_one_operation(recorded, monkeypatch):
    softmax, called = recorded("softmax"), []
    monkeypatch.setattr(softmax, "_operation", lambda *tensors: called.append(tensors))
    x, out = recorded.torch.randn(6, 80), recorded.torch.empty(6, 80)
    monkeypatch.setattr(softmax, "_is_compiling", lambda: True)
    softmax(x, out_ptr=out)
    assert len(called) == 1 and called[0][0] is x and called[0][1] is out
    assert recorded.runs == []
