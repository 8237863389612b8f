"""Kernels without a reference, verified against their own default config."""

from __future__ import annotations

import dataclasses

import pytest

from tilewise.errors import BadSpec
from tilewise.kernels.spec import Buffer, KernelSpec, Parameter, Problem, Tiling
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.measure.verify import Arguments, stand_ins, verify

torch = pytest.importorskip("torch")

SPEC = KernelSpec(
    name="doubled",
    summary="",
    function="nowhere:doubled",
    dims=("N",),
    dtypes=("float32", "float16"),
    parameters=(Parameter("BLOCK", lambda problem, target: [16, 32]),),
    buffers=lambda problem: {
        "x": Buffer((problem.dims["N"],), problem.dtype),
        "kept": Buffer((problem.dims["N"],), problem.dtype, role="inout"),
        "out": Buffer((problem.dims["N"],), problem.dtype, role="out"),
    },
    scalars=lambda problem: dict(problem.dims),
    grid=lambda config, problem: (1,),
    tiling=lambda config, problem: Tiling((), 0, 0),
    flops=lambda problem: 0,
    default=lambda problem, target: {"BLOCK": 16},
    inferred=True,
)


def doubled(tensors):
    tensors["out"].copy_(2 * tensors["x"] + tensors["kept"])
    tensors["kept"].add_(1)


def verdict(run, *, dtype="float32", run_default=None, draws=3):
    seen = []

    def default(problem, arguments):
        seen.append(problem.dtype)
        (run_default or doubled)(arguments.bind({"BLOCK": 16}))

    arguments = Arguments(SPEC, Problem("doubled", {"N": 100}, dtype), run_default=default)
    found = verify(SPEC, arguments._problem, {"BLOCK": 32}, arguments, run=lambda: run(arguments.tensors), draws=draws)
    return found, seen


def test_a_config_that_computes_the_same_agrees():
    found, seen = verdict(doubled)
    assert found.agreed and seen == ["float32"] * 3  # once for each draw


def test_a_config_that_computes_something_else_does_not():
    def off_at_the_end(tensors):
        doubled(tensors)
        tensors["out"][-1] += 1

    found, _ = verdict(off_at_the_end)
    assert not found.agreed and "out" in found.reason


def test_16_bits_are_compared_with_float32_where_the_kernel_takes_it():
    assert verdict(doubled, dtype="float16", draws=1)[1] == ["float32"]

    def only_16_bits(tensors):
        if tensors["x"].dtype is torch.float32:
            raise ValueError("it does not compile")
        doubled(tensors)

    found, seen = verdict(doubled, dtype="float16", run_default=only_16_bits, draws=1)
    assert found.agreed and seen == ["float32", "float16"]


def test_small_tiles_stand_in_for_a_default_that_does_not_compile():
    spec = dataclasses.replace(SPEC, parameters=(Parameter("BLOCK", lambda problem, target: [512, 64, 16, 128]),))
    configs = stand_ins(spec, Problem("doubled", {"N": 100}, "float32"), known_target("Ascend910B4", 40))
    assert [config["BLOCK"] for config in configs] == [16, 64, 128, 512]


def test_nothing_can_be_told_from_nan_alone():
    def root(tensors):
        for name in ("out", "kept"):
            tensors[name].copy_((-tensors["x"].abs() - 1).sqrt())

    with pytest.raises(BadSpec, match="computes nothing finite from random inputs"):
        verdict(root, run_default=root)


def test_without_a_default_to_run_the_reference_is_missed():
    arguments = Arguments(SPEC, Problem("doubled", {"N": 100}, "float32"))
    with pytest.raises(BadSpec, match="has no reference to compare with"):
        arguments.expected()
    with pytest.raises(BadSpec, match="has no reference"):
        SPEC.reference_of(Problem("doubled", {"N": 100}, "float32"))


def _overflowing(tensors):
    """Square in the tensors' own dtype: 16 bits hold no square of large inputs."""
    tensors["out"].copy_((tensors["x"] * tensors["x"] * 16) / 4096)
    tensors["kept"].add_(1)


def test_a_config_need_not_be_more_precise_than_the_default_is_in_16_bits():
    found, seen = verdict(_overflowing, dtype="float16", run_default=_overflowing)
    assert found.agreed, found.reason
    assert "float16" in seen  # where it disagrees with float32

    def off_at_the_end(tensors):
        _overflowing(tensors)
        tensors["out"][-1] += 1

    found, _ = verdict(off_at_the_end, dtype="float16", run_default=_overflowing)
    assert not found.agreed


@pytest.mark.parametrize("name", ["half_written", "whole"])
def test_truth_values_that_no_config_writes_agree(name):
    spec = dataclasses.replace(
        SPEC,
        buffers=lambda problem: {
            "x": Buffer((problem.dims["N"],), problem.dtype),
            "out": Buffer((problem.dims["N"],), "bool", role="out"),
        },
    )

    def half(tensors):
        tensors["out"][:50] = tensors["x"][:50] > 0

    def whole(tensors):
        tensors["out"].copy_(tensors["x"] > 0)

    problem = Problem("doubled", {"N": 100}, "float32")
    arguments = Arguments(spec, problem, run_default=lambda problem, own: half(own.bind({"BLOCK": 16})))
    run = half if name == "half_written" else whole
    found = verify(spec, problem, {"BLOCK": 32}, arguments, run=lambda: run(arguments.tensors))
    assert found.agreed == (name == "half_written")


def through_one(x):
    """Return x, rounded as numbers near 1 are: in 16 bits, it is off by up to 0.03."""
    return (1 + x / 64 - 1) * 64


def expressed(run, reference):
    """Verify a run in 16 bits of a program whose user gave an expression as its reference."""

    def outputs(inputs):
        return {"out": reference(inputs["x"]), "kept": inputs["kept"] + 1}

    spec = dataclasses.replace(SPEC, reference=outputs)
    arguments = Arguments(spec, Problem("doubled", {"N": 100}, "float16"))

    def launch():
        tensors = arguments.tensors
        tensors["out"].copy_(run(tensors["x"]))
        tensors["kept"].add_(1)

    return verify(spec, arguments._problem, {"BLOCK": 32}, arguments, run=launch, draws=1)


def test_a_program_may_round_in_between_where_its_users_expression_does():
    assert expressed(through_one, through_one).agreed
    assert not expressed(through_one, lambda x: x).agreed


def test_a_program_may_not_be_much_further_off_than_the_expression():
    assert not expressed(lambda x: through_one(x) + 0.2, through_one).agreed


def test_the_reference_of_a_spec_written_by_hand_is_not_rounded():
    by_hand = dataclasses.replace(SPEC, inferred=False, reference=lambda inputs: {})
    assert Arguments(by_hand, Problem("doubled", {"N": 9}, "float16")).less_precise() == {}


def overflowing(x):
    """Return infinity minus infinity in 16 bits, and too large a number for them in 64."""
    return x * 60_000 * 60_000 - x * 60_000 * 30_000


def test_where_the_result_exceeds_its_dtype_a_program_may_overflow_in_between_as_the_expression_does():
    assert expressed(overflowing, overflowing).agreed
    assert not expressed(overflowing, lambda x: x.double() * 1e9).agreed
