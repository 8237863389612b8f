"""Operations that the compiler emits for ordinary vector kernels are timed; unknown ones are refused by name."""

import dataclasses
import math

import pytest

from tilewise.db.records import Status
from tilewise.errors import BadSpec
from tilewise.kernels import registry
from tilewise.kernels.spec import Parameter, Problem
from tilewise.tuner.devices.ascend_model.clock.program_clock import UnknownOperation
from tilewise.tuner.devices.ascend_model.ir.hivm import MemRef, parse
from tilewise.tuner.devices.ascend_model.model_config import model_config

EMITTED = {
    "RELU": "vmax",
    "EXTREMES": "vmax vmin vsub",
    "SELECT": "vcmp vsel vand vor vnot",
    "ROOTS": "vexp vln vsqrt",
    "ROUNDING": "vcast vexp vdiv",
    "WAVES": "vcast vmul vadd",
    "LIBRARY": "vln vexp vdiv",
    "PORTABLE": "vexp",
    "QUOTIENT": "vdiv vmul vadd vsub",
    "CASTS": "vcast",
    "NARROWING": "vcast",
    "COMPARISON": "vcmp vcast",
    "BITS": "vshl vshr vand vor",
    "REMAINDER": "vdiv vcast memref.load arith.remsi memref.store",
    "POSITIONS": "varange vcast",
    "ATOMIC_SUM": "vreduce memref.load memref.store store",
    "ATOMIC_HIGHEST": "vreduce memref.load store",
    "ATOMIC_BLOCK": "store",
    "NUMBERS": "memref.load math.sqrt arith.cmpf arith.fptosi",
    "WHOLE_NUMBERS": "memref.load arith.remsi arith.shli arith.shrsi arith.xori math.absi",
    "STANDARDISE": "vreduce memref.load math.sqrt",
    "GATHER": "memref.load memref.store scf.for vsel",
    "SCATTER": "memref.load memref.store scf.for",
    "STRIDED": "load vmul",
    "STRIDED_BY_SIZE": "load store",
    "PERSISTENT_WHILE": "scf.while scf.condition vadd",
    "HALVING_WHILE": "scf.while vmul",
    "NESTED_IF": "scf.if vexp",
    "SOFTMAX": "vreduce vsub vexp vdiv",
    "ROW_FOLDS": "vreduce bitcast",
    "COLUMN_FOLDS": "vreduce store",
    "RUNNING_SUMS": "vcumsum vcumprod memref.load memref.store",
    "BROADCASTS": "vmul vadd",
    "TRANSPOSED_LOAD": "load memref.extract_strided_metadata",
    "TRANSPOSE": "vtranspose",
    "MOVES": "vflip vdeinterleave vinterleave",
    "SORT": "vsort",
    "PICK": "vgather",
    "RESHAPE": "vreduce memref.collapse_shape",
    "BLOCK_POINTERS": "scf.for load store",
    "LAYER_NORM": "vreduce memref.expand_shape scf.for",
    "ONLINE_LOG_SUM": "vreduce vln scf.for",
    "HALVES": "vcast vexp",
    "BRAIN_HALVES": "vcast vexp",
    "LONGS": "store",
    "BYTES": "vcast store",
}
"""Spec of `operation_kernels.py` -> operations that its code must hold (in `hivm.hir` if no dialect is named)."""


@pytest.fixture(scope="module")
def case(kernel_file):
    def make(name):
        spec = registry.load(f"{kernel_file}:{name}")
        dims = {"N": 1000} if spec.dims == ("N",) else {"M": 50, "N": 127}
        return spec, Problem(spec.name, dims, spec.dtypes[0])

    return make


@pytest.mark.in_part(9)
@pytest.mark.parametrize("name", EMITTED)
def test_every_operation_the_compiler_emits_for_these_kernels_is_timed(name, case, target, cache_folder):
    spec, problem = case(name)
    outcome, machines = model_config(spec, problem, spec.default(problem, target), target, cache_folder)

    assert (outcome.status, outcome.reason) == (Status.CORRECT, "")
    ((code, *_),) = machines._steps
    emitted = {op.name for op in code.body.walk()}
    assert {op if "." in op else f"hivm.hir.{op}" for op in EMITTED[name].split()} <= emitted
    low, value, high = (machines.time(end) for end in ("low", "value", "high"))
    assert 0.5 < low.time_us < value.time_us < high.time_us < 1e5
    assert outcome.timing.time_us == pytest.approx(value.time_us, abs=1e-4)
    assert all(math.isfinite(time) for time in value.pipes_us.values())
    assert value.bytes_in > 0 and value.bytes_out > 0


@pytest.mark.parametrize("name", ["ATOMIC_SUM", "ATOMIC_HIGHEST", "ATOMIC_BLOCK", "COLUMN_FOLDS"])
def test_atomic_stores_are_counted(name, case, function, run):
    spec, problem = case(name)
    code, arguments = function(spec, problem, spec.default(problem, None))
    assert sum(run(code, arguments=arguments).atomics.values()) > 0


def test_plain_stores_are_not_atomic(case, function, run):
    spec, problem = case("RELU")
    code, arguments = function(spec, problem, spec.default(problem, None))
    timed = run(code, arguments=arguments)
    assert (timed.atomics, timed.bytes_in, timed.bytes_out) == ({}, 1024, 1024)


@pytest.mark.parametrize(("program", "elements"), [(0, 256 + 232), (1, 256), (2, 256)])
def test_a_while_loop_runs_as_often_as_the_program_says(program, elements, case, function, run):
    """With 1000 elements in blocks of 256, program 0 of 3 takes the first block and the last, which is short."""
    spec, problem = case("PERSISTENT_WHILE")
    code, arguments = function(spec, problem, spec.default(problem, None))
    assert run(code, arguments=arguments, program=program).bytes_in == 4 * elements


def test_the_branch_that_a_program_takes_is_the_one_timed(case, function, run):
    spec, problem = case("NESTED_IF")
    code, arguments = function(spec, problem, spec.default(problem, None))
    even, odd = (run(code, arguments=arguments, program=program).busy["V"] for program in (0, 1))
    assert even > odd  # exp against an addition


def test_matrix_products_of_a_spec_that_does_not_say_so_are_refused(case, target, cache_folder):
    spec, problem = case("MATRIX_PRODUCT")
    outcome, machines = model_config(spec, problem, spec.default(problem, target), target, cache_folder)
    assert outcome.status is Status.UNMODELLED
    assert outcome.reason.startswith("the kernel multiplies matrices; give its spec a `matrix_dtype`")
    assert machines is None


@pytest.mark.parametrize(("name", "operation"), [("BRANCH_ON_DATA", "scf.if"), ("LOOP_ON_DATA", "scf.while")])
def test_a_course_that_depends_on_data_is_refused_not_guessed(name, operation, case, target, cache_folder):
    spec, problem = case(name)
    outcome, machines = model_config(spec, problem, spec.default(problem, target), target, cache_folder)
    assert outcome.status is Status.UNMODELLED
    assert outcome.reason == f"the model cannot follow {operation} where it depends on tensor contents"
    assert (outcome.timing, machines) == (None, None)


def test_an_unknown_operation_is_an_error_that_names_it(case, compiled, run):
    spec, problem = case("RELU")
    code = compiled(spec, problem, spec.default(problem, None)).code.replace("hivm.hir.vmax", "hivm.hir.vmystery")
    with pytest.raises(UnknownOperation, match=r"does not know the operation hivm\.hir\.vmystery"):
        run(parse(code))


@pytest.mark.parametrize(
    ("known", "unknown"),
    [
        ("arith.maxsi", "arith.mystery"),
        ("memref.reinterpret_cast", "memref.mystery"),
        ("hivm.hir.get_block_idx", "hivm.hir.get_sub_block_idx"),
        ("PIPE_MTE2", "PIPE_M"),
    ],
)
def test_unknown_operations_of_every_dialect_are_errors(known, unknown, case, compiled, run):
    spec, problem = case("RELU")
    code = compiled(spec, problem, spec.default(problem, None)).code
    assert known in code
    with pytest.raises(UnknownOperation, match=unknown):
        run(parse(code.replace(known, unknown)))


def test_an_unknown_operation_is_an_outcome_without_a_time(case, target, cache_folder, monkeypatch):
    spec, problem = case("RELU")
    config = spec.default(problem, target)
    genuine = parse
    monkeypatch.setattr(
        "tilewise.tuner.devices.ascend_model.model_config.parse", lambda text: genuine(text.replace("vmax", "vmystery"))
    )
    outcome, machines = model_config(spec, problem, config, target, cache_folder)
    assert outcome.status is Status.UNMODELLED
    assert "hivm.hir.vmystery" in outcome.reason
    assert (outcome.timing, machines) == (None, None)


def test_code_that_does_not_parse_is_an_outcome(case, target, cache_folder, monkeypatch):
    spec, problem = case("RELU")
    genuine = parse
    monkeypatch.setattr(
        "tilewise.tuner.devices.ascend_model.model_config.parse", lambda text: genuine(text[: len(text) // 2])
    )
    outcome, _ = model_config(spec, problem, spec.default(problem, target), target, cache_folder)
    assert outcome.status is Status.UNMODELLED
    assert "does not parse" in outcome.reason


def test_arguments_become_constants_where_triton_makes_them_so(case, function, run):
    """The integer 1 becomes a constant; 1.0, True and all else do not. A constexpr parameter's default is used."""
    spec, problem = case("SCALED")
    spec = dataclasses.replace(
        spec, scalars=lambda problem: {"N": problem.dims["N"], "scale": 1.0, "flag": True, "one": 1}
    )
    code, arguments = function(spec, problem, spec.default(problem, None))
    kinds = [kind for _, kind in code.arguments if not isinstance(kind, MemRef)]
    assert kinds == ["i64", "i32", "f32", "i8", "i32", "i32", "i32"]
    assert arguments == [1000, 1.0, True, 4, 1, 1]
    assert run(code, arguments=arguments).bytes_out == 1024


def test_a_missing_argument_is_the_specs_fault_and_named(case, target, cache_folder):
    spec, problem = case("ONE_ARGUMENT_MORE")
    with pytest.raises(BadSpec, match="does not pass MISSING"):
        model_config(spec, problem, spec.default(problem, target), target, cache_folder)


def test_an_argument_too_many_is_the_specs_fault_and_named(case, target, cache_folder):
    spec, problem = case("RELU")
    wrong = dataclasses.replace(spec, scalars=lambda problem: {**problem.dims, "stride": 1})
    with pytest.raises(BadSpec, match="passes stride, which its function does not take"):
        model_config(wrong, problem, spec.default(problem, target), target, cache_folder)


def test_an_option_that_is_not_modelled_is_named(case, target, cache_folder):
    spec, problem = case("RELU")
    option = Parameter("unit_flag", lambda problem, target: [True, False], role="option")
    more = dataclasses.replace(spec, parameters=(*spec.parameters, option))
    config = {**spec.default(problem, target), "unit_flag": True}
    outcome, _ = model_config(more, problem, config, target, cache_folder)
    assert outcome.status is Status.UNMODELLED
    assert outcome.reason.startswith("option not modelled: unit_flag; expected one of enable_hivm_auto_cv_balance, ")


def test_a_wrong_number_of_arguments_is_refused(case, function, run):
    spec, problem = case("RELU")
    code, arguments = function(spec, problem, spec.default(problem, None))
    with pytest.raises(ValueError, match="relu takes 4 scalars, 3 were given"):
        run(code, arguments=arguments[:-1])
