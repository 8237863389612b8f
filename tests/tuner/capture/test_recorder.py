"""Recorded launches of programs that ask for a device which this host lacks."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from places import HELPERS

from tilewise.errors import UsageError
from tilewise.tuner.capture.calls import CapturedKernel, TensorArgument, TritonDtype
from tilewise.tuner.capture.program import Ending, Program, parse_program, run_program
from tilewise.tuner.capture.recorder import _memory, recording
from tilewise.tuner.measure.launch import load_function

pytest.importorskip("triton")

PROGRAMS = HELPERS / "programs"

HEAD = """
import sys
import torch
import triton
import triton.language as tl

@triton.jit
def copy(x, out, n, scale, dtype: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n).to(dtype) * scale, mask=at < n)

"""


def captured(program: Path | str, *arguments: str) -> tuple[dict[str, CapturedKernel], Ending]:
    with recording() as recorder:
        ending = run_program(Program(str(program)), arguments)
    return {kernel.nesting: kernel for kernel in recorder.kernels}, ending


@pytest.fixture
def written(tmp_path: Path):
    def write(body: str, head: str = HEAD) -> Path:
        file = tmp_path / "program.py"
        file.write_text(head + body)
        return file

    return write


def test_an_autotuned_kernel_is_recorded_although_its_module_needs_a_driver():
    kernels, ending = captured(PROGRAMS / "vector_add.py")
    assert ending.code == 0
    kernel = kernels["add_kernel"]
    assert [config["BLOCK_SIZE"] for config in kernel.configs] == [256, 1024, 4096, 8192]
    assert kernel.key == ("n_elements",) and "num_warps" in kernel.options
    first, second = kernel.calls
    assert first.arguments["n_elements"] == 98432 and second.arguments["n_elements"] == 1 << 20
    assert first.grids == ((385,), (97,), (25,), (13,))
    assert first.arguments["x_ptr"] == TensorArgument((98432,), (1,), "float32")


def test_the_example_of_the_readme_is_recorded():
    kernels, ending = captured(HELPERS.parents[1] / "examples" / "softmax.py")
    assert isinstance(ending.error, AssertionError)  # nothing is launched
    call = kernels["softmax_kernel"].calls[0]
    assert call.grids == ((500,), (250,), (125,), (63,), (32,)) and call.arguments["BLOCK"] == 1024


def test_a_program_for_a_gpu_runs_until_it_misses_results_and_counts_equal_launches():
    kernels, ending = captured(PROGRAMS / "softmax.py")
    assert isinstance(ending.error, AssertionError)  # it compares what was never computed
    assert kernels["softmax_kernel"].counts == [3, 1]


def test_constants_dtypes_and_ranges_of_integers_are_recorded(written):
    kernels, ending = captured(
        written("""
offsets = torch.tensor([0, 3, 7], dtype=torch.int64, device="cuda")
mixed = torch.tensor([5, -2, 4], dtype=torch.int32, device="cuda")
copy[(1,)](offsets, mixed, 3, 2.5, tl.float32, BLOCK=4)
many = torch.tensor([5, -2, 4] * 22, dtype=torch.int32, device="cuda")
copy[(1,)](offsets, many, 3, 2.5, tl.float32, BLOCK=4)
seeds = torch.tensor([7, 2**32 - 1, 5]).to(torch.uint32)
copy[(1,)](seeds, seeds.repeat(22), 3, 2.5, tl.float32, BLOCK=4)
""")
    )
    assert ending == Ending()
    given = kernels["copy"].calls[0].arguments
    assert given["x"] == TensorArgument((3,), (1,), "int64", 0, 7, (0, 3, 7))
    assert given["out"] == TensorArgument((3,), (1,), "int32", -2, 5, (5, -2, 4))
    assert kernels["copy"].calls[1].arguments["out"] == TensorArgument((66,), (1,), "int32", -2, 5)
    unsigned = kernels["copy"].calls[2].arguments
    assert unsigned["x"] == TensorArgument((3,), (1,), "uint32", 5, 2**32 - 1, (7, 2**32 - 1, 5))
    assert unsigned["out"] == TensorArgument((66,), (1,), "uint32", 5, 2**32 - 1)
    assert (given["dtype"], given["scale"], given["BLOCK"]) == (TritonDtype("tl.float32"), 2.5, 4)


def test_heuristics_and_pruning_are_those_of_each_config(written):
    kernels, _ = captured(
        written("""
def prune(configs, named, **rest):
    return [config for config in configs if config.kwargs["BLOCK"] <= named["n"]]

@triton.autotune(
    [triton.Config({"BLOCK": size, "waves_per_eu": 2}) for size in (16, 32, 64)], key=["n"], reset_to_zero=["out"],
    prune_configs_by={"early_config_prune": prune},
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def padded(out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), 0.0)

padded[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]), 2)](torch.zeros(48, device="npu"), 48)
""")
    )
    call = kernels["padded"].calls[0]
    assert [config["BLOCK"] for config in call.configs] == [16, 32]
    assert "waves_per_eu" not in call.configs[0]  # only AMD's compiler takes it
    assert call.grids == ((3, 2), (2, 2)) and [c["EVEN"] for c in call.computed] == [True, False]
    assert kernels["padded"].reset_to_zero == ("out",)


def test_the_whole_memory_of_an_overlapping_view_counts(written):
    kernels, _ = captured(
        written("""
table = torch.rand(30, 70, device="cuda")
copy[(1,)](table[2:].as_strided((28, 5), (70, 0)), table[:, :5], 100, 1.0, tl.float32, BLOCK=128)
""")
    )
    view, window = kernels["copy"].calls[0].tensors.values()
    assert (view.span, view.is_dense) == (28 * 70, False)  # the program indexes the axis of stride 0 itself
    assert window.span == 29 * 70 + 5


def test_constants_that_heuristics_give_any_launch_are_the_programs_own(written):
    kernels, _ = captured(
        written("""
given = torch.ones(100), torch.ones(100), 100, 1.0, tl.float32
for size in (lambda args: 64, lambda args: args.get("n", 7)):
    triton.heuristics({"BLOCK": size})(copy)[lambda meta: (100 // meta["BLOCK"],)](*given)
""")
    )
    first, second = kernels["copy"].calls
    assert first.arguments["BLOCK"] == 64 and first.computed == ({},)
    assert "BLOCK" not in second.arguments and second.computed == ({"BLOCK": 100},)
    assert first.grids == second.grids == ((1,),)


@pytest.mark.parametrize(
    ("hook", "zeroed", "obstacles"),
    [
        ("lambda given: given['out'].zero_()", ("out",), 0),
        ("lambda given: None", (), 0),
        ("lambda given: given['out'].fill_(2)", (), 1),
        ("lambda given: given.update(n=5)", (), 1),
        ("lambda given: given['descriptor'].shape", (), 1),
    ],
)
@pytest.mark.parametrize("place", ["config", "autotuner"])
def test_hooks_that_set_tensors_to_zero_are_known_by_what_they_do(hook, zeroed, obstacles, place, written):
    own = f"pre_hook={hook}" if place == "config" else ""
    whole = f"pre_hook=lambda given, reset_only: ({hook})(given)" if place == "autotuner" else ""
    kernels, _ = captured(
        written(f"""
x, out = torch.ones(100), torch.ones(100)
tuned = triton.autotune([triton.Config({{"BLOCK": 64}}, {own})], key=["n"], {whole})(copy)
tuned[(1,)](x, out, 100, 1.0, tl.float32)
""")
    )
    assert kernels["copy"].reset_to_zero == zeroed and len(kernels["copy"].obstacles) == obstacles


def test_options_that_heuristics_choose_are_part_of_the_config(written):
    kernels, _ = captured(
        written("""
class Wrapped:  # in the way of libraries that launch views
    def __init__(self, tensor):
        self.shape, self.dtype = tensor.shape, tensor.dtype
        self.stride, self.data_ptr, self.element_size = tensor.stride, tensor.data_ptr, tensor.element_size

options = {"num_ctas": lambda args: 1, "maxnreg": lambda args: None}  # as Config.all_kwargs() gives them
chosen = triton.heuristics({"num_warps": lambda args: 8 if args["n"] > 50 else 4, **options})(copy)
chosen[(1,)](Wrapped(torch.ones(100)), torch.ones(100), 100, 1.0, tl.float32, BLOCK=128)
""")
    )
    (call,) = kernels["copy"].calls
    assert call.configs == ({"num_warps": 8},) and call.computed == ({},)
    assert call.arguments["x"] == TensorArgument((100,), (1,), "float32")


def test_a_kernel_compiled_and_launched_by_hand_is_recorded(written):
    kernels, ending = captured(
        written("""
x = torch.rand(100, device="cuda")
compiled = copy.warmup(x, x, 100, 1.0, tl.float32, BLOCK=128, grid=(1,))
assert 1 <= 200000 // compiled.metadata.shared and 1 <= 65536 // (compiled.n_regs * 32 * 8)
compiled[(2, 1, 1)](x, x, 100, 1.0)
""")
    )
    assert ending == Ending() and kernels["copy"].calls[0].grids == ((2, 1, 1),)
    assert kernels["copy"].calls[0].arguments["BLOCK"] == 128


@pytest.mark.parametrize(
    "launch",
    [
        (
            "compiled = copy.run(x, x, 100, 1.0, tl.float32, BLOCK=128, grid=(2, 1, 1), warmup=True)\n"
            "compiled[(2, 1, 1)](x, x, 100, 1.0)"
        ),
        "copy.run(x, x, 100, 1.0, tl.float32, BLOCK=128, grid=(2, 1, 1))",
        "copy.run(x, x, 100, 1.0, tl.float32, BLOCK=128, grid=(2, 1, 1), warmup=False)",
    ],
    ids=["compiled", "launched", "not only compiled"],
)
def test_what_run_compiles_is_recorded_when_it_is_launched(written, launch):
    kernels, ending = captured(written(f'x = torch.rand(100, device="cuda")\n{launch}\n'))
    assert ending == Ending()
    (call,) = kernels["copy"].calls
    assert (call.grids, call.arguments["BLOCK"]) == (((2, 1, 1),), 128)


@pytest.mark.parametrize(
    ("launch", "reason"),
    [
        ("copy[(1,)](torch.empty(0), torch.empty(0), 0, 1.0, tl.float32, BLOCK=4)", "x is empty"),
        ("copy[(1,)]([1, 2], torch.empty(3), 0, 1.0, tl.float32, BLOCK=4)", "x is a list"),
        ("copy[lambda meta: meta['N']](torch.ones(3), torch.ones(3), 3, 1.0, tl.float32, BLOCK=4)", "KeyError"),
        (
            (
                "sized = triton.heuristics({'BLOCK': lambda args: [args['n']]})(copy)\n"
                "sized[(1,)](torch.ones(3), torch.ones(3), 3, 1.0, tl.float32)"
            ),
            "BLOCK=[3] is computed by triton.heuristics; a spec takes numbers, words and truths",
        ),
    ],
)
def test_a_launch_that_cannot_be_read_is_left_out_with_a_reason(written, launch, reason):
    kernels, ending = captured(written(launch))
    assert ending == Ending()
    assert not kernels["copy"].calls and reason in kernels["copy"].left_out[0]


IN_MEMORY = """
import linecache

text = '''
@triton.jit
def made(out):
    tl.store(out, 1.0)
'''
linecache.cache["<made>"] = len(text), None, text.splitlines(True), "<made>"
names = {"__name__": "nowhere", "triton": triton, "tl": tl}
exec(compile(text, "<made>", "exec"), names)
"""


@pytest.mark.parametrize(
    ("forget", "recorded"), [("", ["made"]), ("linecache.cache.clear()", [])], ids=["kept", "forgotten"]
)
def test_a_kernel_whose_text_is_in_no_file_is_refused_and_left_out_once_its_text_is_gone(written, forget, recorded):
    kernels, ending = captured(written(f'{IN_MEMORY}{forget}\nnames["made"][(1,)](torch.ones(1))'))
    assert ending == Ending() and [*kernels] == recorded
    assert all(re.search("/<made> cannot be read: .*No such file", kernels[name].obstacles[0]) for name in recorded)


def test_a_launcher_without_a_function_of_triton_is_not_recorded(written):
    kernels, ending = captured(
        written("""
class Own(triton.runtime.KernelInterface):
    fn = staticmethod(lambda x: x)

Own()[(1,)](torch.ones(1))
copy[(1,)](torch.ones(3), torch.ones(3), 3, 1.0, tl.float32, BLOCK=4)
""")
    )
    assert ending == Ending() and [*kernels] == ["copy"]


@pytest.mark.parametrize(
    ("left", "result", "reason"),
    [(1.0, 7, ""), (0.99, 0, "launches before it took 30 s")],
    ids=["enough", "too little"],
)
def test_launches_are_interpreted_while_seconds_are_left(written, left, result, reason):
    file = written(f"""
@triton.jit
def count(out):
    tl.store(out, 7)

out = torch.zeros(1, dtype=torch.int32)
count[(1,)](out)
assert int(out) == {result}
""")
    with recording() as recorder:
        recorder._seconds_left = left
        assert run_program(Program(str(file)), ()) == Ending()
    (kernel,) = recorder.kernels
    assert kernel.not_interpreted == reason
    assert (recorder._seconds_left < left) == (not reason)


def test_a_method_that_a_triton_lacks_is_taken_away_again(monkeypatch):
    import triton

    kernel, own = triton.runtime.JITFunction, vars(triton.runtime.JITFunction).get("warmup")
    with recording():
        assert vars(kernel)["warmup"] is not own
    assert vars(kernel).get("warmup") is own
    monkeypatch.delattr(kernel, "warmup", raising=False)
    with recording():
        assert "warmup" in vars(kernel)
    assert "warmup" not in vars(kernel)


def test_kernels_that_no_other_process_can_find_say_so(written):
    kernels, _ = captured(
        written("""
def make(scaled):
    @triton.jit
    def inner(out):
        tl.store(out, scaled(1.0))
    return inner

make(lambda x: x)[(1,)](torch.ones(1))
""")
    )
    assert "inner uses scaled, given to a function around it" in kernels["make.inner"].obstacles[0]


def test_a_kernel_gets_the_functions_that_one_around_it_was_given(written):
    kernels, _ = captured(
        written("""
def make(scaled):
    @triton.jit
    def inner(out):
        tl.store(out, scaled(1.0))
    return inner

for function in (tl.abs, tl.abs, tl.exp):
    make(function)[(1,)](torch.ones(1))
""")
    )
    kernel = kernels["make.inner"]
    assert kernel.imported == {"scaled": "triton.language.math:abs"} and kernel.counts == [2]
    assert kernel.left_out == ["launches of it with another scaled are left out"] and not kernel.obstacles
    function = load_function(kernel.file, kernel.nesting, tuple(kernel.imported.items()))
    assert function.fn.__globals__["scaled"].__name__ == "abs"


def test_a_kernel_that_takes_any_keywords_is_told(written):
    kernels, _ = captured(
        written("""
@triton.jit
def old(out, **meta):
    tl.store(out, 1.0)

old[(1,)](torch.ones(1), BLOCK=4)
""")
    )
    assert "it takes **meta, as kernels of Triton 1 do" in kernels["old"].obstacles[0]


def test_kernels_inside_functions_are_told_apart_by_these(written):
    kernels, ending = captured(
        written("""
def one():
    @triton.jit
    def inner(out):
        tl.store(out, 1.0)
    return inner

def two():
    @triton.jit
    def inner(out, value):
        tl.store(out, value)
    return inner

one()[(1,)](torch.ones(1))
two()[(1,)](torch.ones(1), 2.0)
"""),
    )
    assert ending == Ending() and kernels.keys() == {"one.inner", "two.inner"}
    assert not kernels["one.inner"].obstacles and kernels["two.inner"].name == "inner"


def test_names_that_a_program_sets_in_generated_code_are_recorded_with_their_places(written, tmp_path):
    generated = tmp_path / "generated.py"
    generated.write_text("""
import triton
import triton.language as tl

@triton.jit
def generated(out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), scaled(exp(tl.arange(0, BLOCK) * 0.5)))
""")
    kernels, _ = captured(
        written(f"""
import importlib.util

@triton.jit
def scaled(x):
    return x * 2

spec = importlib.util.spec_from_file_location("generated", {str(generated)!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
vars(module).update(exp=tl.exp, **({{"scaled": scaled}} if sys.argv[1:] else {{}}))
module.generated[(1,)](torch.ones(16), 16)
"""),
        "scaled",
    )
    assert kernels["generated"].imported["exp"].endswith(":exp")
    assert kernels["generated"].obstacles == [
        "it uses scaled, which generated.py does not define; import or define it there"
    ]
    function = load_function(generated, "generated", (("exp", kernels["generated"].imported["exp"]),))
    assert callable(function.fn.__globals__["exp"])


def test_everything_is_put_back(written):
    import torch
    import triton

    before = torch.cuda.is_available, torch.set_default_device, triton.testing.do_bench, triton.runtime.JITFunction.run
    captured(written("torch.set_default_device('cuda')\nassert torch.ones(1).is_cuda"))
    after = torch.cuda.is_available, torch.set_default_device, triton.testing.do_bench, triton.runtime.JITFunction.run
    assert before == after and str(torch.ones(1).device) == "cpu" and "torch_npu" not in sys.modules
    with pytest.raises(RuntimeError, match="active drivers"):
        triton.runtime.driver.active.get_current_device()


def test_the_interpreter_is_refused(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(UsageError, match="unset it"), recording():
        pass


def test_programs_are_files_or_modules():
    assert parse_program("timeit:kernel") == Program("timeit", "kernel")
    for text in ("absent.py", "folder/absent", ":kernel"):
        with pytest.raises(UsageError):
            parse_program(text)


def test_a_program_gets_its_arguments_and_its_exit_code_is_told(written):
    file = written("import sys\nsys.exit(' '.join(sys.argv[1:]) if len(sys.argv) > 1 else 7)", head="")
    assert run_program(Program(str(file)), ("--size", "3")) == Ending(1, "--size 3")
    assert run_program(Program(str(file)), ()) == Ending(7)
    assert run_program(Program("this"), ()) == Ending()


def test_memory_ends_with_a_tensors_storage_and_is_unknown_of_anothers():
    torch = pytest.importorskip("torch")
    whole = torch.zeros(4, 6)
    assert (_memory(whole), _memory(whole[1:, 2:]), _memory(whole[3, 5:])) == (24, 16, 1)
    assert _memory(object()) == 0
