"""Specs inferred from programs, with the compiler that is installed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from places import HELPERS

from tilewise.errors import BadSpec
from tilewise.kernels import registry
from tilewise.kernels.source import function_hash, source_hash
from tilewise.kernels.spec import Problem
from tilewise.settings import read_settings
from tilewise.tuner.capture.calls import Call, CapturedKernel, TensorArgument
from tilewise.tuner.capture.program import Program, run_program
from tilewise.tuner.capture.recorder import recording
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.executor.verification import verify_compiled
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.inference import infer as infer_module
from tilewise.tuner.inference.expressions import Fit
from tilewise.tuner.inference.form import find_form
from tilewise.tuner.inference.infer import _Endless, _endless, infer, loaded
from tilewise.tuner.inference.kept_specs import keep_spec, kept_spec
from tilewise.tuner.inference.spec_text import spec_text
from tilewise.tuner.measure.launch import load_function
from tilewise.tuner.prior.penalties import penalties as prior_of
from tilewise.tuner.space.search_space import enumerate_space

pytest.importorskip("triton.backends.ascend")

ASCEND, NVIDIA = known_target("Ascend910B4", 40), known_target("NVIDIA H200", 132)
PROGRAMS = HELPERS / "programs"


def captured(name):
    with recording() as recorder:
        run_program(Program(str(PROGRAMS / name)), ())
    return {kernel.name: kernel for kernel in recorder.kernels}


def inferred(kernel, tmp_path, **options):
    found = infer(kernel, cache_folder=read_settings().cache_folder, **options)
    return found, registry.load(f"{keep_spec(found.text, kernel.name, tmp_path)}:SPEC")


def test_a_spec_has_the_programs_configs_grid_roles_and_division(tmp_path):
    kernel = captured("vector_add.py")["add_kernel"]
    found, spec = inferred(kernel, tmp_path)
    problem = found.problems[1]
    assert dict(problem.dims) == {"n_elements": 1 << 20} and found.notes == ()
    assert {name: buffer.role for name, buffer in spec.buffers(problem).items()} == {
        "x_ptr": "in",
        "y_ptr": "in",
        "out_ptr": "out",
    }
    sizes = {config["BLOCK_SIZE"] for config in enumerate_space(spec, problem, ASCEND).configs}
    assert sizes == {256, 1024, 4096, 8192}
    tiling = spec.tiling({"BLOCK_SIZE": 4096}, problem)
    assert (tiling.programs, tiling.streamed_bytes) == (256, 2 * 4 * 4096) and spec.flops(problem) == 1 << 20
    assert spec.default(problem, NVIDIA) == {"BLOCK_SIZE": 256, "num_warps": 4, "num_stages": 2}
    assert not spec.has_reference
    function = load_function(PROGRAMS / "vector_add.py", "add_kernel")
    assert source_hash(spec) == function_hash(function)  # a launch finds its results without the spec's text
    assert kept_spec(kernel.file, kernel.name, tmp_path) is not None
    assert kept_spec(kernel.file, "other", tmp_path) is None


def test_a_widened_space_surrounds_the_programs(tmp_path):
    found, spec = inferred(captured("vector_add.py")["add_kernel"], tmp_path, widen=True)
    space = enumerate_space(spec, found.problems[0], ASCEND)
    assert {config["BLOCK_SIZE"] for config in space.configs} == {2**k for k in range(6, 16)}


def test_a_reference_is_an_expression_or_a_function_of_the_inputs(tmp_path):
    torch = pytest.importorskip("torch")
    kernel = captured("vector_add.py")["add_kernel"]
    for text in ("torch.add", "x_ptr + y_ptr"):
        found, spec = inferred(kernel, tmp_path, reference=text)
        outputs = spec.reference_of(found.problems[0])({"x_ptr": torch.ones(3), "y_ptr": torch.ones(3)})
        assert {name: tensor.tolist() for name, tensor in outputs.items()} == {"out_ptr": [2, 2, 2]}


def test_rows_that_a_fixed_number_of_programs_take_in_turns(tmp_path):
    found, spec = inferred(captured("softmax.py")["softmax_kernel"], tmp_path)
    problem = found.problems[0]
    tiling = spec.tiling({}, problem)
    assert (tiling.programs, tiling.trips, tiling.reductions) == (400, 5, 2)
    assert spec.flops(problem) == 5 * 1823 * 781  # as written by hand for the project's own softmax
    assert "values around its own are tried too" in found.notes[0]


def test_loops_over_a_row_are_trips(tmp_path):
    found, spec = inferred(captured("layer_norm.py")["layer_norm_kernel"], tmp_path)
    problem = found.problems[0]
    assert problem.dtype == "float16" and set(problem.dims.values()) == {1151, 8192}
    config = {**spec.default(problem, ASCEND), "BLOCK_SIZE": 1024}
    assert (spec.tiling(config, problem).programs, spec.tiling(config, problem).trips) == (1151, 8)
    assert spec.buffers(problem)["mean_ptr"].dtype == "float32" and spec.buffers(problem)["rstd_ptr"].role == "out"


def test_a_matrix_product_has_its_dot_and_its_conditions(tmp_path):
    found, spec = inferred(captured("matmul.py")["matmul_kernel"], tmp_path)
    first, second = found.problems
    config = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 4, "num_stages": 3}
    dot = spec.tiling(config, first).dot
    assert (dot.m, dot.n, dot.k, dot.stages, dot.group, dot.alone) == (128, 64, 32, 3, 8, True)
    axes = [(axis.size, axis.block, axis.step) for axis in spec.tiling(config, second).axes]
    assert axes == [(1000, 128, 128), (500, 500, 32), (640, 64, 64)]
    assert spec.tiling(config, first).resident_bytes == 4 * 128 * 64
    assert prior_of(spec, second, {**config, "multibuffer": True}, ASCEND)["l1_traffic"] >= 1
    assert [spec.plan(config, problem)[0].constants["EVEN_K"] for problem in (first, second)] == [True, False]
    assert spec.matrix_dtype(first) == "float16" and spec.plan(config, first)[0].grid == (48,)


def test_indices_are_drawn_from_those_recorded(tmp_path):
    found, spec = inferred(captured("dropout.py")["embedding_kernel"], tmp_path)
    torch = pytest.importorskip("torch")
    drawn = torch.empty(777, dtype=torch.int64)
    spec.buffers(found.problems[0])["index_ptr"].draw(drawn, torch.Generator().manual_seed(1))
    assert int(drawn.min()) >= 0 and 4000 < int(drawn.max()) < 5000


def test_a_kernel_that_does_not_compile_says_why(tmp_path):
    kernel = captured("vector_add.py")["add_kernel"]
    program = tmp_path / "broken.py"
    text = (PROGRAMS / "vector_add.py").read_text()
    program.write_text(text.replace("tl.load(y_ptr + at, mask=mask)", "tl.load(y_ptr + at, mask=absent)"))
    kernel.file = program
    with pytest.raises(BadSpec, match=r"it does not compile here: broken\.py:\d+: NameError: absent is not defined$"):
        infer(kernel, cache_folder=read_settings().cache_folder)


def with_changes(tmp_path, *changes):
    """Return the sum of two vectors as a program launches it whose text has these changes."""
    program, text = tmp_path / "changed.py", (PROGRAMS / "vector_add.py").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    program.write_text(text)
    return captured(program)["add_kernel"]


UNDIVIDED = (
    "How a config divides the work could not be told, so it is searched without a prior; "
    "a `tiling` written by hand gives it one."
)


def test_a_kernel_whose_programs_leave_out_half_is_searched_without_a_prior(tmp_path):
    kernel = with_changes(tmp_path, ('triton.cdiv(n, meta["BLOCK_SIZE"])', 'triton.cdiv(n, 2 * meta["BLOCK_SIZE"])'))
    found, spec = inferred(kernel, tmp_path)
    config = {"BLOCK_SIZE": 256, "multibuffer": True}
    assert found.notes == (UNDIVIDED,) and prior_of(spec, found.problems[0], config, ASCEND) == {}
    assert spec.plan(config, found.problems[0])[0].grid == (193,)


def test_a_division_that_a_tuning_would_refuse_is_left_out(tmp_path, monkeypatch):
    """It agrees with the launches that were compiled, and not with the grid of some other config."""
    genuine, twice = infer_module.find_division, Fit("2 * n_elements", frozenset({"n_elements"}))

    def too_wide(*given):
        division = genuine(*given)
        return replace(division, axes=(replace(division.axes[0], size=twice),))

    monkeypatch.setattr(infer_module, "_PLANNED", 0)
    kernel = captured("vector_add.py")["add_kernel"]
    assert inferred(kernel, tmp_path)[0].notes == ()
    monkeypatch.setattr(infer_module, "find_division", too_wide)
    found, spec = inferred(kernel, tmp_path)
    assert found.notes == (UNDIVIDED,) and spec.tiling({"BLOCK_SIZE": 256}, found.problems[0]).axes == ()


def test_a_kernel_that_stores_nothing_is_refused(tmp_path):
    loads = "tl.load(x_ptr + at, mask=mask)"
    kernel = with_changes(
        tmp_path,
        (
            f"tl.store(out_ptr + at, {loads} + tl.load(y_ptr + at, mask=mask), mask=mask)",
            f"tl.device_print('', {loads})",
        ),
    )
    with pytest.raises(BadSpec, match=r"inferred for add_kernel: it stores nothing that can be followed$"):
        infer(kernel, cache_folder=tmp_path)


def test_code_of_other_arguments_than_the_launch_tells_nothing(tmp_path, monkeypatch):
    genuine = toolchain.triton_ir
    monkeypatch.setattr(toolchain, "triton_ir", lambda *given: genuine(*given).replace("(%", "(%more: i32, %", 1))
    kernel = captured("vector_add.py")["add_kernel"]
    with pytest.raises(BadSpec, match=r"here: BadSpec: the compiled add_kernel takes other arguments than the launch$"):
        infer(kernel, cache_folder=tmp_path)


def test_8_bit_floats_in_a_kernel_are_refused_with_line_and_part(tmp_path):
    kernel = captured("vector_add.py")["add_kernel"]
    program = tmp_path / "small.py"
    text = (PROGRAMS / "vector_add.py").read_text()
    loaded_y = "tl.load(y_ptr + at, mask=mask)"
    program.write_text(text.replace(loaded_y, f"{loaded_y}.to(tl.float8e5).to(tl.float32)"))
    kernel.file = program
    with pytest.raises(
        BadSpec, match=r"it does not compile here: small\.py:\d+: Ascend\w+ has no 8-bit floats \(fp8\)$"
    ):
        infer(kernel, cache_folder=read_settings().cache_folder)


def test_a_generated_kernel_with_truth_values_and_a_grid_from_heuristics_is_verified(tmp_path):
    with recording() as recorder:
        run_program(Program(str(PROGRAMS / "generated.py")), (str(tmp_path),))
    (kernel,) = recorder.kernels
    form = find_form(kernel)
    roles = dict.fromkeys(("y_ptr", "chosen_ptr"), 'role="out"')
    spec = loaded(spec_text(form, kernel.file, roles, None, widen=False))
    assert [spec.plan(spec.default(p, ASCEND), p)[0].grid for p in form.problems] == [(4,), (5,)]
    problem = form.problems[0]
    assert spec.buffers(problem)["chosen_ptr"].dtype == "bool"
    verdict = verify_compiled(spec, problem, spec.default(problem, ASCEND), ASCEND, read_settings().cache_folder)
    assert verdict.agreed, verdict.reason


def test_a_kernel_that_the_front_end_does_not_end_for_is_refused_before_any_trial(tmp_path, monkeypatch):
    """Each trial would wait two minutes for it."""
    kernel = captured("vector_add.py")["add_kernel"]
    endless = tmp_path / "endless"
    endless.write_text("#!/bin/sh\nexec sleep 60\n")
    endless.chmod(0o755)
    monkeypatch.setattr("triton.backends.ascend.compiler._get_triton_adapter_opt_path", lambda: str(endless))
    monkeypatch.setattr("tilewise.tuner.inference.infer._LOWER_SECONDS", 0.1)
    monkeypatch.setattr(toolchain, "_LOWERED", {})
    with pytest.raises(BadSpec, match=r"Ascend compiler's endless did not finish within 0\.1 s for BLOCK_"):
        infer(kernel, cache_folder=tmp_path)


def vectors(*blocks):
    """Return the form of a kernel launched with these blocks, and its division into tiles of that size."""
    calls = [
        Call({"x": TensorArgument((n,), (1,), "float32"), "n": n}, configs, tuple((-(-n // b["B"]),) for b in configs),
             tuple({} for _ in configs))
        for n in (100_000, 77_777)
        for configs in [tuple({"B": block} for block in blocks)]
    ]  # fmt: skip
    kernel = CapturedKernel("kernel", PROGRAMS / "vector_add.py", ("x", "n", "B"), frozenset({"B"}))
    for call in calls:
        kernel.add(call)
    return find_form(kernel), SimpleNamespace(tile=Fit("B", frozenset("B")))


def planned(monkeypatch, on_chip, *blocks):
    """Return what is planned of the blocks, and the blocks that were compiled, in order."""
    seen = []

    def compile_block(spec, problem, config, folder):
        seen.append(config["B"])
        return on_chip(config["B"])

    monkeypatch.setattr(infer_module, "_on_chip_bytes", compile_block)
    form, division = vectors(*blocks)
    found = infer_module._planned(form, None, division, None)
    return [(integers["B"], size) for integers, size in found], seen


@pytest.mark.parametrize(
    ("bytes_each", "tried"),
    [(16, [16384, 8192, 32768, 4096]), (24, [16384, 8192, 4096, 2048]), (4, [16384, 65536, 32768, 8192])],
)
def test_tiles_are_planned_nearer_and_nearer_to_filling_the_memory(monkeypatch, bytes_each, tried):
    """On-chip memory holds 196,608 bytes: 12,288 elements of 16 bytes."""
    blocks = [256 << shift for shift in range(9)]
    found, seen = planned(monkeypatch, lambda block: bytes_each * block, *blocks)
    assert seen == tried and found == [(block, bytes_each * block) for block in tried]


def test_a_tile_that_does_not_compile_or_has_no_plan_tells_nothing(monkeypatch):
    def on_chip(block):
        if block == 8192:
            raise ValueError("it does not compile")
        return None if block == 16384 else 20 * block

    found, seen = planned(monkeypatch, on_chip, 4096, 8192, 16384)
    assert sorted(seen) == [4096, 8192, 16384] and found == [(4096, 81_920)]


def test_a_compiler_that_does_not_end_is_not_asked_again_and_a_front_end_once_more_for_the_smallest_tile(monkeypatch):
    def compiler(block):
        raise TimeoutError

    def front_end(block):
        if block > 256:
            raise _Endless("it did not end")
        return 4096

    def neither(block):
        raise _Endless("it did not end")

    assert planned(monkeypatch, compiler, 1024, 8192) == ([], [8192])
    found, seen = planned(monkeypatch, front_end, 256, 1024, 4096, 8192)
    assert (found, seen[:2]) == ([(256, 4096)], [8192, 256])
    for blocks, last in (((256, 1024, 4096, 8192), 256), ((8192,), 8192)):
        with pytest.raises(BadSpec, match=f"the Ascend compiler's it did not end for B={last}; divide the kernel"):
            planned(monkeypatch, neither, *blocks)


def test_no_plan_is_asked_for_after_a_minute_of_them_nor_of_another_compiler(monkeypatch):
    now = [0.0]

    def slowly(block):
        now[0] += 30.5
        return 16 * block

    blocks = [256 << shift for shift in range(9)]
    monkeypatch.setattr(infer_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert planned(monkeypatch, slowly, *blocks)[1] == [16384, 8192]
    monkeypatch.setattr(infer_module, "is_ascend", lambda: False)
    form, division = vectors(*blocks)
    assert infer_module._planned(form, None, division, None) == []


def test_items_are_spread_from_the_first_to_the_last():
    assert infer_module._spread([*range(8)], 8) == [*range(8)]
    assert infer_module._spread([*range(9)], 8) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert infer_module._spread([*range(100)], 2) == [0, 99]


def test_configs_that_differ_in_what_this_triton_lacks_are_one():
    configs = [{"B": 8, "num_warps": 4}, {"B": 8, "num_warps": 8}, {"B": 16, "num_stages": 2}, {"B": 8}]
    assert infer_module._distinct(configs) == [{"B": 8}, {"B": 16}]


def test_of_a_kernel_with_one_config_others_are_compiled_to_tell_its_parameters_apart():
    form, _ = vectors(1024)
    assert [(problem.dims["n"], config["B"]) for problem, config in infer_module._chosen(form)] == [
        (n, block) for n in (100_000, 77_777) for block in (1024, 2048, 4096)
    ]
    form, _ = vectors(1024, 4096)
    assert [config["B"] for _, config in infer_module._chosen(form)] == [1024, 4096] * 2


def test_the_refusal_of_an_endless_front_end_names_the_values_of_a_config_that_has_some():
    reason = _Endless("opt did not finish within 30 s")
    assert "finish within 30 s; divide" in _endless(SimpleNamespace(name="k"), {}, reason)
    assert "finish within 30 s for BLOCK=8; divide" in _endless(SimpleNamespace(name="k"), {"BLOCK": 8}, reason)


@pytest.fixture
def on_chip(monkeypatch, tmp_path):
    """The memory that is planned for a config if the front end and the compiler do as they are told, and how they were
    called."""
    spec = registry.load("vector_add")
    problem = Problem("vector_add", {"N": 1000}, "float32")
    config, asked = spec.default(problem, ASCEND), []

    def ask(front_end, **made):
        def lower(spec, problem, config, launch, part, *, seconds):
            asked.append((launch.grid, part, seconds))
            if isinstance(front_end, Exception):
                raise front_end
            return front_end

        def compile_linalg(linalg, part, options, *, cache_folder):
            asked.append((linalg, part, options, cache_folder))
            return toolchain.Compiled(**made)

        monkeypatch.setattr(toolchain, "lower", lower)
        monkeypatch.setattr(toolchain, "compile_linalg", compile_linalg)
        return infer_module._on_chip_bytes(spec, problem, config, tmp_path)

    ask.asked, ask.folder = asked, tmp_path
    ask.grid = spec.plan(config, problem)[0].grid
    return ask


@pytest.mark.parametrize(
    ("made", "planned"),
    [
        ({"required_bits": 8 * 4096}, 4096),
        ({"required_bits": 8 * 4096 + 7}, 4096),
        ({"required_bits": 7}, None),
        ({"refusal": "it does not compile"}, None),
        ({"code": "no module"}, None),
    ],
)
def test_what_a_config_takes_on_chip_is_what_the_compiler_says_without_double_buffers(on_chip, made, planned):
    assert on_chip("the linalg", **made) == planned
    assert on_chip.asked == [
        (on_chip.grid, "Ascend910B4", 30),
        ("the linalg", "Ascend910B4", {"multibuffer": False}, on_chip.folder),
    ]


@pytest.mark.parametrize("error", [UnknownOperation("no such operation"), ValueError("no such type")])
def test_a_kernel_that_the_front_end_refuses_has_no_plan(on_chip, error):
    assert on_chip(error) is None
    assert len(on_chip.asked) == 1


def test_a_front_end_that_does_not_end_is_told_from_a_compiler(on_chip):
    with pytest.raises(_Endless, match="the front end did not finish"):
        on_chip(TimeoutError("the front end did not finish"))
    with pytest.raises(TimeoutError, match="the compiler did not finish"):
        on_chip("the linalg", refusal="the compiler did not finish", timed_out=True)
