"""A cube core's pipes take the times of the table, and the order of tiles decides what is fetched."""

from types import SimpleNamespace

import pytest

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.clock.core import CUBE_PIPES, Memory, Rate
from tilewise.tuner.devices.ascend_model.clock.cube_ops import _Loads
from tilewise.tuner.devices.ascend_model.clock.machine import Machine
from tilewise.tuner.devices.ascend_model.clock.program_clock import ProgramClock
from tilewise.tuner.devices.ascend_model.clock.recording import record
from tilewise.tuner.devices.ascend_model.clock.tile_order import fetched
from tilewise.tuner.devices.ascend_model.executor.verification import compile_config
from tilewise.tuner.devices.ascend_model.ir.hivm import MemRef
from tilewise.tuner.hardware.ascend_costs import costs
from tilewise.tuner.hardware.ascend_parts import part

SPEC = registry.load("gemm")
COSTS = costs()
RATE = Rate(core=110.0, share=40.0, latency=100.0)


class Gemm:
    """A compiled config of a product, with the arguments of its launch."""

    def __init__(self, target, cache_folder, dims, dtype, tile, **changes):
        flags = {"column_major": changes.pop("column_major", False)}
        self.problem = Problem(
            "gemm", dict(zip("MNK", dims, strict=True)), dtype, {k: v for k, v in flags.items() if v}
        )
        config = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tile, strict=True))
        config |= {"VARIANT": "masked", "GROUP_M": 1, "SPLIT_K": 1, "PROGRAMS": 0, "multibuffer": True} | changes
        (self.function,) = compile_config(SPEC, self.problem, config, target, cache_folder)
        (launch,) = SPEC.plan(config, self.problem)
        self.sizes, scalars = toolchain.arguments(SPEC, self.problem, config, launch)
        self.scalars, self.grid = scalars, launch.grid
        self.arguments = [*scalars, *[*launch.grid, 1, 1][:3]]
        bases = [i for i, (_, kind) in enumerate(self.function.arguments) if isinstance(kind, MemRef)]
        self.bases = bases[len(bases) - len(self.sizes) :]
        self.memory = Memory(dict.fromkeys(bases, RATE), dict.fromkeys(bases, RATE))

    def run(self):
        return ProgramClock(self.function, COSTS).run(self.arguments, 0, self.memory)

    def machine(self, cores, chosen=COSTS):
        return Machine(part("Ascend910B4"), cores, self.function, list(self.sizes.values()), chosen)


@pytest.fixture(scope="module")
def gemm(target, cache_folder):
    return lambda *arguments, **changes: Gemm(target, cache_folder, *arguments, **changes)


def test_a_product_occupies_the_cube_unit_for_its_fractals(gemm):
    timed = gemm((128, 256, 256), "float16", (128, 256, 64)).run()
    assert tuple(timed.busy) == CUBE_PIPES
    assert timed.busy["M"] == 4 * (6 + 8 * 4 * 16)  # four trips, each one instruction of 8 x 4 x 16 fractals
    loads = 2 * 43 + 128 * 64 * 2 / 256 + 64 * 256 * 2 / 128
    assert timed.busy["MTE1"] == pytest.approx(4 * loads)


@pytest.mark.parametrize(("dtype", "factor"), [("float32", 4.0), ("bfloat16", 1.0), ("int8", 0.5)])
def test_wider_numbers_take_longer_to_multiply(gemm, dtype, factor):
    usual, other = (gemm((64, 64, 128), each, (64, 64, 128)).run().busy["M"] for each in ("float16", dtype))
    assert other == pytest.approx(usual * factor, rel=0.1)


def test_a_depth_beyond_l0_is_multiplied_in_parts(gemm):
    timed = gemm((128, 256, 256), "float16", (128, 256, 256)).run()
    assert timed.busy["M"] == 4 * (6 + 8 * 4 * 16)


def test_only_the_columns_and_depth_that_are_there_are_multiplied_but_all_rows(gemm):
    timed = gemm((17, 40, 50), "float16", (64, 64, 64)).run()
    assert timed.busy["M"] == 6 + 4 * 4 * 3


def test_results_are_stored_at_the_rate_of_their_path(gemm):
    timed = gemm((128, 512, 64), "float16", (128, 256, 64)).run()
    row = 256 * 2 + COSTS["row_bytes"]
    assert timed.busy["FIX"] == pytest.approx(128 * row / RATE.share)
    assert timed.bytes_out == 128 * 256 * 2


def test_rows_further_apart_than_an_instruction_can_say_are_loaded_one_by_one(gemm):
    near, far = (gemm((64, 64, depth), "float16", (64, 64, 64)).run() for depth in (65520, 65536))
    assert far.busy["MTE2"] > 2 * near.busy["MTE2"]
    assert far.busy["MTE2"] > 65536 // 64 * 64 * COSTS["far_row_ns"]  # at 1 GHz


def test_rows_that_begin_within_a_block_cost_a_line_more(gemm):
    even, odd = (gemm((64, 64, depth), "float16", (64, 64, 64)).run().busy["MTE2"] for depth in (1024, 1023))
    assert odd > 1.3 * even


def test_recording_a_program_changes_no_time_and_its_path_adds_up(gemm):
    case = gemm((128, 256, 512), "float16", (128, 256, 64))
    found = record(case.function, COSTS, case.arguments, 0, case.memory)
    assert found.time.cycles == pytest.approx(case.run().cycles)
    assert sum(cycles for _, cycles in found.critical_path()) == pytest.approx(found.time.cycles)


def test_skipping_the_steady_part_of_a_long_depth_changes_no_time(gemm):
    case = gemm((64, 64, 8192), "float16", (64, 64, 64))
    unskipped = type("Whole", (ProgramClock,), {"skipping": False})(case.function, COSTS)
    assert case.run().cycles == pytest.approx(unskipped.run(case.arguments, 0, case.memory).cycles)


# The order of tiles -----------------------------------------------------------------------------------------------


def shares(case, cores, cache_bytes):
    found = fetched(
        case.function,
        COSTS,
        case.arguments,
        programs=case.grid[0],
        cores=cores,
        memory=case.memory,
        cache_bytes=cache_bytes,
    )
    return [found.shares[base] for base in case.bases[:2]]


def test_cores_that_share_a_panel_fetch_it_once(gemm):
    case = gemm((256, 512, 128), "float16", (64, 64, 64))  # 4 x 8 tiles
    assert shares(case, cores=32, cache_bytes=1) == pytest.approx([1 / 8, 1 / 4], rel=1e-3)


def test_a_cache_that_holds_all_fetches_each_panel_once(gemm):
    case = gemm((256, 512, 128), "float16", (64, 64, 64))
    assert shares(case, cores=4, cache_bytes=1 << 40) == pytest.approx([1 / 8, 1 / 4])


def test_groups_of_rows_of_tiles_fetch_less_than_single_rows(gemm):
    cases = (gemm((1024, 1024, 128), "float16", (64, 64, 64), GROUP_M=group) for group in (1, 4))
    single, grouped = (sum(shares(case, cores=16, cache_bytes=1 << 16)) for case in cases)
    assert grouped < 0.8 * single


def test_a_product_beyond_the_cache_is_faster_in_groups(gemm):
    single, grouped = (
        gemm((8192, 8192, 8192), "float16", (128, 128, 256), GROUP_M=group, PROGRAMS=20) for group in (1, 8)
    )
    slow, fast = (case.machine(20).time(case.scalars, case.grid).time_us for case in (single, grouped))
    assert fast < 0.97 * slow


@pytest.mark.parametrize(
    ("side", "swapped", "item_bytes", "instructions"),
    [
        (0, False, 2, 1),
        (1, False, 2, 1),
        (0, False, 1, 4),  # 64 rows, 16 at a time
        (1, False, 1, 1),
        (0, True, 1, 2 * 3),  # blocks of 32 x 32 of 64 x 96
        (1, True, 1, 2 * 3),
        (0, True, 2, 1),
    ],
)
def test_a_load_from_l1_is_one_instruction_but_for_8_bit_operands(side, swapped, item_bytes, instructions):
    table, product = costs(), SimpleNamespace(transposed=(swapped, not swapped))
    cycles, made = _Loads(product, table).of(side, SimpleNamespace(stored=96), 64, item_bytes)
    moved = 64 * 96 * item_bytes / table["l0a_bytes" if side == 0 else "l0b_bytes"]
    assert made == instructions
    assert cycles == pytest.approx(table["mte1_start"] + (instructions - 1) * table["mte1_next"] + moved)


def test_a_load_of_rows_takes_whole_fractals_of_16():
    table = costs()
    loads = _Loads(SimpleNamespace(transposed=(False, True)), table)
    assert loads.of(0, SimpleNamespace(stored=32), 17, 2) == loads.of(0, SimpleNamespace(stored=32), 32, 2)
    assert loads.of_bias(256) == pytest.approx(table["mte1_start"] + 256 / table["l0b_bytes"])
