"""The cores of a mixed kernel run at the same time, wait for one another by flags, and share one path to memory."""

import pytest

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model.clock.core import PIPES, Memory, Rate
from tilewise.tuner.devices.ascend_model.clock.half_clock import HalfClock
from tilewise.tuner.devices.ascend_model.clock.mixed_clock import MixedClock
from tilewise.tuner.devices.ascend_model.clock.program_clock import ProgramClock
from tilewise.tuner.devices.ascend_model.executor.verification import compile_config
from tilewise.tuner.devices.ascend_model.model_config import model_config
from tilewise.tuner.devices.ascend_model.report.analysis import analyse
from tilewise.tuner.devices.ascend_model.report.drawing import drawing
from tilewise.tuner.devices.ascend_model.report.trace import trace_events
from tilewise.tuner.hardware.ascend_costs import costs
from tilewise.tuner.hardware.figure import Figure

GEMM, FLASH = registry.load("gemm"), registry.load("flash_attention")
TILE = {"VARIANT": "masked", "BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 128, "GROUP_M": 1, "SPLIT_K": 1, "PROGRAMS": 0}
SQUARE = {"M": 512, "N": 512, "K": 512}


@pytest.fixture(scope="module")
def timed(target, cache_folder):
    def time(spec, dims, config, changes=None, **flags):
        problem = Problem(spec.name, dims, "float16", flags)
        outcome, machines = model_config(spec, problem, config, target, cache_folder)
        assert machines is not None, outcome.reason
        return machines.time_at(costs(instead=changes or {}))

    return time


def fixed(value):
    return Figure(value, value, value, "", "")


def test_an_epilogue_takes_longer_than_the_product_but_less_than_both_in_turn(timed):
    config = TILE | {"multibuffer": True}
    alone, mixed = timed(GEMM, SQUARE, config), timed(GEMM, SQUARE, config, bias=True)
    assert {"V", "MTE3", "M", "FIX"} <= mixed.pipes_us.keys()
    extra = costs()["mixed_launch_us"]
    assert alone.time_us + extra < mixed.time_us < 2 * alone.time_us + extra


def test_attention_waits_for_flags_between_its_cores(timed):
    dims = {"B": 1, "H": 4, "HKV": 4, "Q": 256, "K": 256, "D": 64}
    config = {"VARIANT": "masked", "BLOCK_M": 64, "BLOCK_N": 64}
    quick, slow = (timed(FLASH, dims, config, {"cross_flag": fixed(cycles)}).time_us for cycles in (50, 1000))
    assert 1.05 * quick < slow < 5 * quick


@pytest.mark.full
def test_causal_attention_takes_the_mean_of_its_blocks_whatever_their_number(timed):
    """A block of queries sees a share of the keys. Blocks repeat with each head, in step with the cores or not."""
    for heads, size in ((20, 1000), (28, 777)):
        dims = {"B": 1, "H": heads, "HKV": heads, "Q": size, "K": size, "D": 64}
        config = {"VARIANT": "masked", "BLOCK_M": 128, "BLOCK_N": 128}
        whole, causal = (timed(FLASH, dims, config, causal=flag).time_us for flag in (False, True))
        blocks = -(-size // 128)
        assert causal / whole == pytest.approx((blocks + 1) / 2 / blocks, rel=0.15)


def test_rows_are_halved_by_columns_where_those_are_fewer(program):
    """Beside a cube core, 32 rows of 256 float32 become rows of 128 in two instructions; a vector kernel's figures were
    fitted with one per row."""
    view = "memref<32x256xf32, #hivm.address_space<ub>>"
    cast = '"hivm.hir.pointer_cast"(%zero) <{operandSegmentSizes = array<i32: 1, 0>}> : (i64) -> '
    reduce = '"hivm.hir.vreduce"(%t, %a) <{arith = #hivm.reduce_op<sum>, reduce_dims = array<i64: 1>}>'
    function = program(f"%t = {cast}{view}", f"{reduce} : ({view}, UB) -> ()")
    rates = Memory({}, {})
    whole, half = (
        clock(function, costs()).run([1, 1, 1, 1], 0, rates).busy["V"] for clock in (ProgramClock, HalfClock)
    )
    assert whole - half == pytest.approx(30 * costs()["vector_next"])


@pytest.mark.full
def test_programs_are_dealt_to_cube_cores(timed, target):
    dims = {"B": 1, "H": target.matrix_cores, "HKV": 1, "Q": 64, "K": 64, "D": 64}
    config = {"VARIANT": "masked", "BLOCK_M": 64, "BLOCK_N": 64}
    one, two = timed(FLASH, dims, config), timed(FLASH, dims | {"H": target.matrix_cores + 1}, config)
    assert (one.waves, two.waves) == (1, 2)


def test_the_cores_of_one_program_share_a_path(target, cache_folder):
    """With half of the rate on each core the program takes longer; the vector cores have rates of their own."""
    problem = Problem("gemm", SQUARE, "float16", {"bias": True})
    (function,) = compile_config(GEMM, problem, TILE | {"multibuffer": True}, target, cache_folder)
    arguments = [512, 512, 512, 32, 1, 1]
    bases = range(len(function.arguments) + 1)

    def cycles(cube, vector):
        rates = [dict.fromkeys(bases, Rate(110.0, share)) for share in (cube, vector)]
        memory = Memory(rates[0], rates[0], vector=Memory(rates[1], rates[1]))
        return MixedClock(function, costs()).run(arguments, 0, memory).cycles

    assert cycles(20.0, 20.0) > cycles(40.0, 20.0) > cycles(40.0, 40.0)


def test_a_program_whose_cores_wait_for_one_another_is_refused(target, cache_folder):
    problem = Problem("gemm", SQUARE, "float16", {"bias": True})
    (function,) = compile_config(GEMM, problem, TILE | {"multibuffer": True}, target, cache_folder)
    waits = [op for op in function.vector.body.walk() if op.name == "hivm.hir.sync_block_set"]
    from tilewise.benchmarks.model.mutations import edited

    rates = dict.fromkeys(range(len(function.arguments) + 1), Rate(110.0, 40.0))
    memory = Memory(rates, rates, vector=Memory(rates, rates))
    with pytest.raises(ValueError, match="deadlock: core 0 waits for flag 0"):
        MixedClock(edited(function, waits[0], []), costs()).run([512, 512, 512, 32, 1, 1], 0, memory)


# Timeline -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["epilogue", "attention"])
def test_recording_a_mixed_program_changes_no_time_and_its_path_crosses_cores(name, target, cache_folder):
    if name == "epilogue":
        spec, dims, flags, config = GEMM, SQUARE, {"bias": True}, TILE | {"multibuffer": True}
    else:
        spec, dims, flags = FLASH, {"B": 1, "H": 4, "HKV": 4, "Q": 256, "K": 256, "D": 64}, {}
        config = {"VARIANT": "masked", "BLOCK_M": 64, "BLOCK_N": 64}
    problem = Problem(spec.name, dims, "float16", flags)
    outcome, _ = model_config(spec, problem, config, target, cache_folder)
    analysis = analyse(spec, problem, config, target, cache_folder)
    assert analysis.time_us == pytest.approx(outcome.timing.time_us, abs=1e-3)
    (launch,) = analysis.launches
    recording = launch.recording
    steps = list(recording.critical_path())
    assert sum(cycles for _, cycles in steps) == pytest.approx(recording.time.cycles, rel=1e-9)
    assert min(cycles for _, cycles in steps) >= -1e-6
    assert {event.core for event, _ in steps} > {0}
    for core, time in enumerate(recording.cores):
        for pipe, busy in time.busy.items():
            events = [e for e in recording.events if e.work and (e.core, PIPES[e.pipe]) == (core, pipe)]
            assert sum(e.end - e.start for e in events) == pytest.approx(busy)
    across = [
        flow for flow in recording.flows if recording.events[flow.source].core != recording.events[flow.target].core
    ]
    assert across
    assert all(recording.events[flow.source].start <= recording.events[flow.target].start for flow in across)


def test_a_trace_and_a_drawing_have_a_lane_for_each_pipe_of_each_core(target, cache_folder):
    problem = Problem("gemm", SQUARE, "float16", {"bias": True})
    analysis = analyse(GEMM, problem, TILE | {"multibuffer": True}, target, cache_folder)
    named = [e for e in trace_events(analysis)["traceEvents"] if e["name"] == "thread_name"]
    names = [event["args"]["name"] for event in named]
    assert len(names) == len({event["tid"] for event in named}) == 5 + 4 + 4
    assert names[0] == "cube core: scalar unit (S)"
    assert "vector core 1: vector pipe (V)" in names
    shown = drawing(analysis)
    assert all(f">{label}<" in shown for label in ("cube core FIX", "vector core 0 V", "vector core 1 MTE3"))
