"""Poisoning and guards, verdicts over all draws, and the reduced problem with the same tails."""

import dataclasses
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import HELPERS

from tilewise.kernels import registry
from tilewise.kernels.spec import Axis, Buffer, KernelSpec, Problem, Tiling, ceil_div
from tilewise.tuner.measure.draws import DRAWS, Way
from tilewise.tuner.measure.verify import Arguments, reduced_problem, verify

torch = pytest.importorskip("torch")

KERNELS = HELPERS / "faulty_kernels.py"


def a_spec(buffers, reference=lambda inputs: {}, tiling=None, dims=("M",)):
    return KernelSpec(
        name="k",
        summary="",
        function="nowhere:nothing",
        dims=dims,
        dtypes=("float32",),
        parameters=(),
        buffers=lambda problem: buffers,
        scalars=lambda problem: {},
        grid=lambda config, problem: (1,),
        tiling=tiling or (lambda config, problem: Tiling((), 0, 0)),
        reference=reference,
        flops=lambda problem: 0,
        default=lambda problem, target: {},
    )


PROBLEM = Problem("k", {"M": 4}, "float32")


def doubled(buffers, run, **kwargs):
    """Return the verdict on `run(tensors)`, where `out` must be `2 * x`."""
    spec = a_spec(buffers, lambda inputs: {"out": 2 * inputs["x"]})
    arguments = Arguments(spec, PROBLEM, **kwargs)
    return verify(spec, PROBLEM, {}, arguments, run=lambda: run(arguments.tensors))


def in_and_out(dtype="float32", shape=(4, 5)):
    return {"x": Buffer(shape, dtype), "out": Buffer(shape, dtype, role="out")}


DTYPES = ["float32", "float16", "bfloat16", "float64", "int32", "int16", "int8", "uint8"]
SMALL_FLOATS = ["float8_e4m3fn", "float8_e5m2"]


# --- verify ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_right_output_agrees(dtype):
    verdict = doubled(in_and_out(dtype), lambda t: t["out"].copy_(2 * t["x"]))
    assert verdict.agreed, verdict.reason


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_element_that_was_never_written_disagrees(dtype):
    verdict = doubled(in_and_out(dtype), lambda t: t["out"][:3].copy_(2 * t["x"][:3]))
    assert not verdict.agreed
    assert "[3, " in verdict.reason


@pytest.mark.parametrize("dtype", SMALL_FLOATS)
def test_eight_bit_floats_are_drawn_within_their_range_and_saturate(dtype):
    def run(t):
        largest = torch.finfo(t["out"].dtype).max
        t["out"].copy_((2 * t["x"].double()).clamp(-largest, largest))

    spec = a_spec(in_and_out(dtype, (8, 300)), lambda inputs: {"out": 2 * inputs["x"]})
    arguments = Arguments(spec, PROBLEM)
    verdict = verify(spec, PROBLEM, {}, arguments, run=lambda: run(arguments.tensors), draws=DRAWS)
    assert verdict.agreed, verdict.reason
    arguments.draw(Way.LARGE)
    assert float(arguments.tensors["x"].double().abs().max()) > 100
    assert not verify(spec, PROBLEM, {}, arguments, run=lambda: None).agreed


@pytest.mark.parametrize("rows", [3, 4])
def test_a_truth_value_is_one_only_if_it_was_written(rows):
    buffers = {"x": Buffer((4, 50), "float32"), "mask": Buffer((4, 50), "bool"), "out": Buffer((4, 50), "bool", "out")}
    spec = a_spec(buffers, lambda inputs: {"out": (inputs["x"] > 0) | inputs["mask"]})
    arguments = Arguments(spec, PROBLEM)
    t = arguments.tensors

    def run():
        t["out"][:rows] = (t["x"][:rows] > 0) | t["mask"][:rows]

    assert 0 < int(t["mask"].sum()) < 200
    assert verify(spec, PROBLEM, {}, arguments, run=run, draws=DRAWS).agreed == (rows == 4)


@pytest.mark.parametrize("stray", [False, True])
def test_a_strided_buffer_is_a_view_whose_gaps_are_guarded(stray):
    buffers = {
        "x": Buffer((4, 6), "float16", strides=(1, 4)),
        "out": Buffer((4, 6), "float16", role="out", strides=(9, 1)),
    }

    def run(t):
        assert (t["x"].stride(), t["out"].stride()) == ((1, 4), (9, 1))
        t["out"].copy_(2 * t["x"])
        if stray:
            t["out"].as_strided((1,), (1,), t["out"].storage_offset() + 8).fill_(1.0)

    verdict = doubled(buffers, run)
    assert verdict.agreed != stray
    assert verdict.reason == ("out: the kernel wrote outside the tensor" if stray else "")


def test_inputs_whose_values_matter_are_the_specs_in_every_draw():
    def fill(tensors, problem, generator):
        tensors["index"].copy_(torch.randperm(problem.dims["M"], generator=generator))

    def run(t):
        assert sorted(t["index"].tolist()) == [0, 1, 2, 3]
        t["out"].copy_(t["x"][t["index"].long()])

    buffers = in_and_out(shape=(4, 3)) | {"index": Buffer((4,), "int32")}
    spec = dataclasses.replace(a_spec(buffers, lambda inputs: {"out": inputs["x"][inputs["index"]]}), fill=fill)
    arguments = Arguments(spec, PROBLEM)
    verdict = verify(spec, PROBLEM, {}, arguments, run=lambda: run(arguments.tensors), draws=DRAWS)
    assert verdict.agreed, verdict.reason


@pytest.mark.parametrize(("dtype", "off", "allowed"), [("int8", 1, 1.0), ("int8", 2, 1.0), ("float32", 1e-3, 2e-3)])
def test_a_spec_may_allow_an_output_to_be_off_by_more(dtype, off, allowed):
    buffers = in_and_out(dtype)
    run = lambda t: t["out"].copy_(2 * t["x"] + off)  # noqa: E731
    assert not doubled(buffers, run).agreed
    buffers["out"] = dataclasses.replace(buffers["out"], tolerance=allowed)
    assert doubled(buffers, run).agreed == (off <= allowed)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_an_unwritten_element_is_not_taken_for_a_zero(dtype):
    spec = a_spec(in_and_out(dtype), lambda inputs: {"out": 0 * inputs["x"]})
    assert not verify(spec, PROBLEM, {}, Arguments(spec, PROBLEM), run=lambda: None).agreed


def test_the_reason_counts_unwritten_elements_and_names_the_first():
    verdict = doubled(in_and_out(), lambda t: t["out"][:, :4].copy_(2 * t["x"][:, :4]))
    assert "out: 4 of 20 elements wrong, never written" in verdict.reason
    assert verdict.reason.endswith("at [0, 4]")


def test_an_output_right_from_an_earlier_run_does_not_help():
    spec = a_spec(in_and_out(), lambda inputs: {"out": 2 * inputs["x"]})
    arguments = Arguments(spec, PROBLEM)
    t = arguments.tensors
    assert verify(spec, PROBLEM, {}, arguments, run=lambda: t["out"].copy_(2 * t["x"])).agreed
    assert not verify(spec, PROBLEM, {}, arguments, run=lambda: None).agreed


@pytest.mark.parametrize("offset", [-1, 20])
def test_a_write_outside_the_output_disagrees(offset):
    def run(t):
        t["out"].copy_(2 * t["x"])
        t["out"].as_strided((1,), (1,), t["out"].storage_offset() + offset).fill_(7.0)

    verdict = doubled(in_and_out(), run)
    assert not verdict.agreed
    assert verdict.reason == "out: the kernel wrote outside the tensor"


def test_a_read_outside_the_input_shows_as_nan():
    def run(t):
        shifted = t["x"].as_strided((4, 5), (5, 1), t["x"].storage_offset() + 1)
        t["out"].copy_(t["x"] + shifted)

    assert "computed from outside" in doubled(in_and_out(), run).reason


def test_accumulators_start_from_zero_and_inout_buffers_from_their_first_values():
    buffers = {"x": Buffer((8,), "float32", role="inout"), "sum": Buffer((8,), "float32", role="out", initial=0.0)}
    spec = a_spec(buffers, lambda inputs: {"x": inputs["x"] + 1, "sum": inputs["x"]})
    arguments = Arguments(spec, PROBLEM)

    def run():
        arguments.tensors["sum"].add_(arguments.tensors["x"])
        arguments.tensors["x"].add_(1)

    assert arguments.needs_reset
    assert [verify(spec, PROBLEM, {}, arguments, run=run).agreed for _ in range(3)] == [True] * 3


@pytest.mark.parametrize(
    ("out", "scratch", "needed"),
    [
        (Buffer((8,), "float32", "out"), None, False),
        (Buffer((8,), "float32", "out", initial=0.0), None, True),
        (Buffer((8,), "float32", "inout"), None, True),
        (Buffer((8,), "float32", "out"), Buffer((2,), "int32"), False),
        (Buffer((8,), "float32", "out"), Buffer((2,), "int32", initial=0.0), True),
    ],
)
def test_a_second_run_needs_a_reset_where_something_is_added_to(out, scratch, needed):
    def made(config, problem):
        return {"locks": scratch} if scratch else {}

    arguments = Arguments(dataclasses.replace(a_spec({"out": out}), scratch=made), PROBLEM)
    arguments.bind({})
    assert arguments.needs_reset is needed


def test_scratch_is_made_anew_only_for_a_config_that_needs_another():
    def made(config, problem):
        return {config["name"]: Buffer((config["size"],), "float32", initial=3.0)}

    spec = dataclasses.replace(a_spec(in_and_out()), scratch=made)
    arguments = Arguments(spec, PROBLEM)
    first = arguments.bind({"name": "parts", "size": 4})
    assert list(first) == ["x", "out", "parts"] and first["parts"].shape == (4,)
    assert arguments.bind({"name": "parts", "size": 4})["parts"].data_ptr() == first["parts"].data_ptr()
    reset = arguments.resetter()
    assert arguments.bind({"name": "parts", "size": 5})["parts"].shape == (5,)
    assert list(arguments.bind({"name": "others", "size": 5})) == ["x", "out", "others"]
    first["parts"].zero_()
    reset()
    assert first["parts"].tolist() == [3.0] * 4


@pytest.mark.parametrize(("given", "used"), [(None, "cpu"), ("cpu", "cpu"), ("meta", "meta")])
def test_the_reference_is_computed_on_a_device_of_its_own_if_there_is_one(given, used):
    seen = []
    spec = a_spec(in_and_out(), lambda inputs: seen.append(inputs["x"].device.type) or {"out": 2 * inputs["x"]})
    assert Arguments(spec, PROBLEM, reference_device=given).expected()["out"].device.type == used
    assert seen == [used]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_maximum_is_accumulated_from_minus_infinity(dtype):
    buffers = {"x": Buffer((8,), "float32"), "most": Buffer((1,), dtype, role="out", initial=-math.inf)}
    spec = a_spec(buffers, lambda inputs: {"most": -inputs["x"].square().amin(0, keepdim=True)})
    arguments = Arguments(spec, PROBLEM)
    t = arguments.tensors

    def run():
        t["most"].copy_(torch.maximum(t["most"], -t["x"].square().min().to(t["most"].dtype)))

    assert arguments.needs_reset
    assert [verify(spec, PROBLEM, {}, arguments, run=run).agreed for _ in range(3)] == [True] * 3


def test_a_buffer_may_say_what_its_random_data_is():
    def draw(tensor, generator):
        tensor.uniform_(7.0, 8.0, generator=generator)

    arguments = Arguments(
        a_spec({"x": Buffer((1000,), "float32", draw=draw), "y": Buffer((1000,), "float32")}), PROBLEM
    )
    assert 7 <= arguments.tensors["x"].min() < arguments.tensors["x"].max() <= 8
    assert arguments.tensors["y"].min() < 0
    again = Arguments(a_spec({"x": Buffer((1000,), "float32", draw=draw)}), PROBLEM)
    assert torch.equal(again.tensors["x"], arguments.tensors["x"])


def test_equal_seeds_give_equal_inputs_and_others_do_not():
    spec = a_spec(in_and_out())
    first, second, other = (Arguments(spec, PROBLEM, seed=seed).tensors["x"] for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_the_reference_sees_float64_of_the_very_inputs():
    seen = {}

    def reference(inputs):
        seen.update(inputs)
        return {"out": inputs["x"]}

    buffers = {**in_and_out("bfloat16"), "index": Buffer((3,), "int32")}
    arguments = Arguments(a_spec(buffers, reference), PROBLEM)
    arguments.expected()
    assert seen["x"].dtype == torch.float64
    assert torch.equal(seen["x"], arguments.tensors["x"].double())
    assert seen["index"].dtype == torch.int64


# --- reduced_problem ------------------------------------------------------------------------------------------------


def matmul_like(config, problem):
    """Tile M in blocks, N in blocks of sub-tiles, K whole in steps, and an axis that is not a dimension."""
    m, n, k = (problem.dims[d] for d in "MNK")
    axes = (
        Axis("M", m, config["m"], config["m"]),
        Axis("N", n, config["n"], config["sub"]),
        Axis("K", k, k, config["k"]),
    )
    return Tiling((*axes, Axis("splits", 4, 1, 1)), 0, 0)


SIZES = st.integers(1, 5000)
TILES = st.integers(1, 300)


@settings(max_examples=150, deadline=None)
@given(m=SIZES, n=SIZES, k=SIZES, tm=TILES, tn=TILES, sub=TILES, tk=TILES)
def test_the_reduced_problem_meets_the_same_cases(m, n, k, tm, tn, sub, tk):
    spec = a_spec({}, tiling=matmul_like, dims=("M", "N", "K"))
    config = {"m": tm, "n": tn, "sub": sub, "k": tk}
    problem = Problem("k", {"M": m, "N": n, "K": k}, "float32")
    small = reduced_problem(spec, problem, config)
    assert (small.kernel, small.dtype, list(small.dims)) == ("k", "float32", ["M", "N", "K"])
    for before, after in zip(matmul_like(config, problem).axes, matmul_like(config, small).axes, strict=True):
        assert 1 <= after.size <= before.size
        assert after.step == before.step
        assert (after.programs > 1) == (before.programs > 1)
        assert (after.trips > 1) == (before.trips > 1)
        assert (after.block > after.size) == (before.block > before.size)
        assert after.size % after.block == before.size % before.block
        assert after.tail == before.tail
        assert tail_program(after) == tail_program(before)
        if before.name == "splits":
            assert after == before
        elif before.programs > 1:
            assert after.size < 3 * after.block  # small: at most two blocks and the tail
        elif before.block == before.size and before.name == "K":
            assert after.size < 3 * after.step


def tail_program(axis):
    """Return rows and trips of the last program if it is not full, and the elements its last trip wastes."""
    rows = axis.size % axis.block
    return rows, ceil_div(rows, axis.step), -rows % axis.step


@settings(max_examples=100, deadline=None)
@given(m=st.integers(1, 200_000), n=SIZES, rows=TILES, sub=TILES, shift=st.integers(0, 12))
def test_reducing_twice_changes_nothing_more(m, n, rows, sub, shift):
    spec = registry.load("row_reduce")
    config = {"BLOCK_SIZE_M": rows, "SUB_BLOCK_SIZE_M": sub, "BLOCK_SIZE_N": 1 << shift}
    small = reduced_problem(spec, Problem("row_reduce", {"M": m, "N": n}, "float32"), config)
    assert reduced_problem(spec, small, config) == small


@pytest.mark.parametrize(
    ("dims", "tiles", "expected"),
    [
        ({"M": 1000, "N": 8192}, (25, 25, 256), {"M": 50, "N": 512}),  # no tails
        ({"M": 1000, "N": 8192}, (24, 10, 3000), {"M": 64, "N": 8192}),  # tails everywhere, two trips and a bit
        ({"M": 131072, "N": 1024}, (25, 4, 1024), {"M": 72, "N": 1024}),  # one trip of columns stays one
        ({"M": 17, "N": 100}, (25, 4, 256), {"M": 17, "N": 100}),  # blocks larger than the axes
        ({"M": 25, "N": 100}, (25, 4, 256), {"M": 25, "N": 100}),  # one full block
        ({"M": 1, "N": 1}, (1, 1, 64), {"M": 1, "N": 1}),
    ],
)
def test_reductions_of_the_headline_kernel(dims, tiles, expected):
    config = dict(zip(("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_N"), tiles, strict=True))
    small = reduced_problem(registry.load("row_reduce"), Problem("row_reduce", dims, "float32"), config)
    assert small.dims == expected


def test_the_reduced_problem_meets_the_same_cases_for_every_config():
    problem = Problem("row_reduce", {"M": 1000, "N": 8192}, "float32")
    one, other = ({"BLOCK_SIZE_M": m, "SUB_BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n} for m, n in ((25, 256), (10, 512)))
    small = reduced_problem(registry.load("row_reduce"), problem, one, other)
    assert small.dims == {"M": 100, "N": 1024}


def test_a_dimension_that_the_tiling_follows_elsewhere_stays():
    """Two axes cut the same dimension, and no smaller size would keep both."""

    def tiling(config, problem):
        return Tiling((Axis("M", problem.dims["M"], 8, 8), Axis("M", problem.dims["M"], 10, 10)), 0, 0)

    problem = Problem("k", {"M": 1003}, "float32")
    assert reduced_problem(a_spec({}, tiling=tiling), problem, {}) == problem


@pytest.mark.parametrize(
    ("groups", "pages", "expected"),
    [
        (16, 64, {"G": 2, "P": 16}),  # a multiple of 16 stays one
        (16, 63, {"G": 2, "P": 63}),
        (3, 24, {"G": 3, "P": 6}),
        (2, 3, {"G": 2, "P": 3}),
    ],
)
def test_an_axis_becomes_shorter_along_its_dimension(groups, pages, expected):
    """Two programs a group, and pages of 8 keys in steps of 12, of which three stay."""

    def tiling(config, problem):
        keys = 8 * problem.dims["P"]
        return Tiling((Axis("programs", 2 * problem.dims["G"], 1, 1, "G"), Axis("keys", keys, keys, 12, "P")), 0, 0)

    problem = Problem("k", {"G": groups, "P": pages}, "float32")
    spec = a_spec({}, tiling=tiling, dims=("G", "P"))
    assert reduced_problem(spec, problem, {}).dims == expected


# --- inputs are only read ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "int8", "uint8"])
def test_a_kernel_that_writes_to_its_input_is_caught_even_where_its_output_then_fits(dtype):
    def run(tensors):
        tensors["x"].fill_(1)
        tensors["out"].fill_(2)

    verdict = doubled(in_and_out(dtype), run)
    assert not verdict.agreed
    assert verdict.reason == "x: the kernel wrote to its input"


def test_a_config_is_not_judged_by_what_another_did_to_the_inputs():
    spec = a_spec(in_and_out(), lambda inputs: {"out": 2 * inputs["x"]})
    arguments = Arguments(spec, PROBLEM)
    drawn = arguments.tensors["x"].clone()
    arguments.tensors["x"].zero_()  # a stray write while another config was timed
    assert verify(spec, PROBLEM, {}, arguments, run=lambda: arguments.tensors["out"].copy_(2 * drawn)).agreed
    assert torch.equal(arguments.tensors["x"], drawn)


def test_a_config_is_not_judged_by_what_another_did_to_the_inputs_while_it_was_verified():
    """The reference, which all configs share, is that of the inputs as drawn."""
    spec = a_spec(in_and_out(), lambda inputs: {"out": 2 * inputs["x"]})
    arguments = Arguments(spec, PROBLEM)

    def right():
        arguments.tensors["out"].copy_(2 * arguments.tensors["x"])

    def stray():
        arguments.tensors["x"].zero_()
        right()

    verdicts = [verify(spec, PROBLEM, {}, arguments, run=run) for run in (stray, right, stray)]
    assert [verdict.agreed for verdict in verdicts] == [False, True, False]


@pytest.mark.parametrize("wrong_on", [None, *range(DRAWS)])
def test_after_verification_the_inputs_are_those_that_every_config_is_timed_on(wrong_on):
    spec = a_spec(in_and_out(), lambda inputs: {"out": 2 * inputs["x"]})
    arguments = Arguments(spec, PROBLEM)
    drawn, runs = arguments.tensors["x"].clone(), itertools.count()

    def run():
        factor = 3 if next(runs) == wrong_on else 2
        arguments.tensors["out"].copy_(factor * arguments.tensors["x"])

    assert verify(spec, PROBLEM, {}, arguments, run=run, draws=DRAWS).agreed == (wrong_on is None)
    assert torch.equal(arguments.tensors["x"], drawn)


def test_a_disagreement_on_other_than_normal_inputs_names_them():
    spec = a_spec(in_and_out(), lambda inputs: {"out": inputs["x"].clamp(min=-1)})
    arguments = Arguments(spec, PROBLEM)

    def run():
        arguments.tensors["out"].copy_(arguments.tensors["x"].clamp(min=-1, max=99))

    verdict = verify(spec, PROBLEM, {}, arguments, run=run, draws=DRAWS)
    assert not verdict.agreed
    assert verdict.reason.endswith(", on large inputs")


def test_a_run_that_raises_leaves_the_usual_inputs():
    spec = a_spec(in_and_out(), lambda inputs: {"out": 2 * inputs["x"]})
    arguments = Arguments(spec, PROBLEM)
    drawn = arguments.tensors["x"].clone()

    def run():
        if not torch.equal(arguments.tensors["x"], drawn):
            raise RuntimeError("the device is lost")
        arguments.tensors["out"].copy_(2 * arguments.tensors["x"])

    with pytest.raises(RuntimeError):
        verify(spec, PROBLEM, {}, arguments, run=run, draws=DRAWS)
    assert torch.equal(arguments.tensors["x"], drawn)


def test_a_reference_is_computed_once_for_the_same_inputs():
    calls = itertools.count()

    def reference(inputs):
        next(calls)
        return {"out": 2 * inputs["x"]}

    spec = a_spec(in_and_out(), reference)
    arguments = Arguments(spec, PROBLEM)
    for _ in range(3):
        for way in Way:
            arguments.draw(way)
            assert torch.equal(arguments.expected()["out"], 2 * arguments.tensors["x"].double())
    assert next(calls) == DRAWS
    arguments.draw(Way.PEAKS, {5: (2,)})
    arguments.expected()
    assert next(calls) == DRAWS + 2


# --- guards and sums --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [Way.NORMAL, Way.LARGE])
def test_a_guard_that_a_kernel_wrote_to_is_whole_again_at_the_next_draw(way):
    """A read outside an input would otherwise give what the earlier kernel left there."""
    spec = a_spec(in_and_out(), lambda inputs: {"out": 2 * inputs["x"]})
    arguments = Arguments(spec, PROBLEM)
    x = arguments.tensors["x"]
    beside = [x.as_strided((1,), (1,), x.storage_offset() + at) for at in (-1, x.numel())]
    for outside in beside:
        outside.fill_(7.0)
    assert arguments.damage() == "x: the kernel wrote to its input"
    arguments.draw(way)
    assert all(outside.isnan().all() for outside in beside)
    assert arguments.damage() is None
    assert x.isfinite().all()


def test_a_guard_is_64_kib_of_whatever_type():
    for dtype, elements in (("float32", 16384), ("bfloat16", 32768), ("int8", 65536)):
        arguments = Arguments(a_spec({"x": Buffer((3, 5), dtype)}), PROBLEM)
        assert arguments.tensors["x"].storage_offset() == elements
        assert arguments.tensors["x"].untyped_storage().nbytes() == 2 * 65536 + arguments.tensors["x"].nbytes


@pytest.mark.parametrize("at", [0, 1, 7, 8, 12])
def test_a_change_of_any_byte_of_an_input_shows(at):
    arguments = Arguments(a_spec({"x": Buffer((13,), "int8")}), PROBLEM)
    assert arguments.changed_input() is None
    arguments.tensors["x"][at] += 1
    assert arguments.changed_input() == "x"
    arguments.restore()
    assert arguments.changed_input() is None


def test_inputs_are_those_read_as_first_drawn_and_outputs_those_written():
    buffers = {
        "x": Buffer((4,), "float32"),
        "both": Buffer((4,), "float32", role="inout"),
        "out": Buffer((4,), "float32", role="out", scale=3.0),
    }
    arguments = Arguments(a_spec(buffers), PROBLEM)
    first = arguments.tensors["both"].clone()
    arguments.tensors["both"].fill_(5.0)
    assert list(arguments.inputs) == ["x", "both"]
    assert torch.equal(arguments.inputs["both"], first)
    assert list(arguments.outputs) == ["both", "out"]
    assert float(arguments.outputs["both"][0]) == 5.0
    assert arguments.scales == {"both": 0.0, "out": 3.0}
    assert arguments.largest_input == 4
    assert arguments.needs_reset
    assert Arguments(a_spec({"out": buffers["out"]}), PROBLEM).largest_input == 0


@pytest.mark.parametrize(
    ("size", "block", "step", "smaller"),
    [
        (7, None, 4, 7),  # less than two steps
        (3, None, 4, 3),
        (15, None, 4, 11),  # one program takes the whole axis: two steps and the tail
        (15, 16, 4, 15),  # the tail of a block that is not filled
        (100, 16, 4, 36),  # several: two blocks and the tail
        (33, 16, 4, 33),
        (96, 16, 4, 32),
        (17, 16, 16, 17),
    ],
)
def test_a_smaller_problem_keeps_two_blocks_or_steps_and_the_tail(size, block, step, smaller):
    def tiling(config, problem):
        return Tiling((Axis("M", problem.dims["M"], block or problem.dims["M"], step),), 0, 0)

    spec = a_spec(in_and_out(), tiling=tiling)
    assert reduced_problem(spec, Problem("k", {"M": size}, "float32"), {}).dims == {"M": smaller}


def test_scratch_space_holds_nothing_of_an_earlier_run():
    spec = dataclasses.replace(
        a_spec(in_and_out()),
        scratch=lambda config, problem: {"part": Buffer((3,), "float32"), "count": Buffer((2,), "int32")},
    )
    arguments = Arguments(spec, PROBLEM)
    tensors = arguments.bind({})
    tensors["part"].fill_(7.0), tensors["count"].fill_(7), tensors["out"].fill_(7.0)
    arguments.poison()
    assert not (tensors["out"] == 7.0).any()
    assert not (tensors["part"] == 7.0).any() and not (tensors["count"] == 7).any()
    assert (tensors["x"] == arguments.tensors["x"]).all()
