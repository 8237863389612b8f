"""A kernel whose loops depend on integers in memory is timed on those that its spec draws or its launches make."""

from dataclasses import replace

import pytest

from tilewise.db.records import Status
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model.clock.machine import Machine, cores_for
from tilewise.tuner.devices.ascend_model.executor.verification import compile_config
from tilewise.tuner.devices.ascend_model.index_contents import IndexContents
from tilewise.tuner.devices.ascend_model.ir.values import DependsOnContents
from tilewise.tuner.devices.ascend_model.model_config import model_config
from tilewise.tuner.hardware.ascend_costs import costs
from tilewise.tuner.hardware.ascend_parts import part

GROUPED = registry.load("grouped_gemm")
TILE = {"VARIANT": "masked", "BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 1, "PROGRAMS": 0}


def groups(m, g, n=128, k=128, **flags):
    return Problem("grouped_gemm", {"M": m, "N": n, "K": k, "G": g}, "float16", flags)


@pytest.fixture(scope="module")
def compiled(target, cache_folder):
    def compile_it(problem, **more):
        return compile_config(GROUPED, problem, TILE | more, target, cache_folder)

    return compile_it


def test_a_table_that_a_launch_makes_of_drawn_offsets_is_known_to_the_next_one(compiled):
    problem = groups(175, 5)
    contents = IndexContents(GROUPED, problem, TILE, compiled(problem)).of(1)
    offsets, of_tiles, rows, count = (each.tolist() for each in contents if each is not None)
    assert [each is None for each in contents] == [True, True, False, False, False, False, True]  # a, b, ..., out
    assert offsets == [0, 35, 70, 105, 140, 175]
    assert (of_tiles, count) == ([0, 0, 1, 1, 2, 2, 3, 3, 4, 4], [10])
    assert rows == [0, 32, 35, 67, 70, 102, 105, 137, 140, 172]


def test_a_launch_that_makes_no_integers_does_not_keep_a_later_one_from_being_executed(compiled):
    """A kernel may store its output in turns, here before the table is made and after it."""
    problem = groups(175, 5)
    table, product = GROUPED.plan(TILE, problem)
    makes, multiplies = compiled(problem)
    turns = replace(GROUPED, launches=lambda config, problem: (product, table, product))
    contents = IndexContents(turns, problem, TILE, (multiplies, makes, multiplies))
    for index in (0, 2):
        _, _, offsets, of_tiles, _, count, _ = contents.of(index)
        assert (offsets[-1], of_tiles[-1], count) == (175, 4, [10])


def test_without_contents_such_a_kernel_is_not_timed(compiled, target):
    problem = groups(175, 5)
    *_, function = compiled(problem)
    buffers = [100_000] * 7
    machine = Machine(part(target.name), cores_for(function, target), function, buffers, costs())
    with pytest.raises(DependsOnContents, match="depends on tensor contents"):
        machine.time([128, 128], (20,))


def test_the_time_follows_the_tiles_that_the_drawn_groups_have(target, cache_folder):
    """20 cube cores take one tile of 32 x 64 each, or two if every group has a row more than whole tiles."""

    def time_us(m, g):
        config = {**TILE, "PROGRAMS": 20, "multibuffer": True}
        outcome, _ = model_config(GROUPED, groups(m, g, k=16384), config, target, cache_folder)
        assert outcome.status is Status.CORRECT, outcome.reason
        return outcome.timing.time_us

    one, two, more = time_us(320, 1), time_us(320, 2), time_us(330, 10)
    assert two == pytest.approx(one, rel=0.2)
    assert more > 1.5 * one
