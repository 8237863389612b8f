"""The prior of attention on Ascend's cube and vector cores: a config's expected cost, from counts.

In each trip a cube core multiplies queries by a block of keys, its two vector cores turn the scores into weights, and
the cube core multiplies those by the values. All three meet in workspace: scores and weighted values go there in
float32, weights in the dtype of the values. The compiler lets several trips overlap, as many as there are slots of
workspace, but only in a loop without masks; in others the cores take turns.

Each penalty is the factor by which the time grows when one more of these effects is counted. All prices are the
modelled part's, but for what is said to be chosen by hand.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tilewise.kernels.spec import ITEM_BYTES, Config, Dot, KernelSpec, Problem, Target, Tiling
from tilewise.tuner.hardware.ascend_costs import REPEAT_CYCLES
from tilewise.tuner.hardware.ascend_parts import PARTS
from tilewise.tuner.prior.cube_products import COST, SIBLING, CubeProducts, in_vector_repeats
from tilewise.tuner.prior.effects import time_by_effects

__all__ = ["attention_penalties"]

_SCORE_CYCLES = 2 * REPEAT_CYCLES["fold"].value + REPEAT_CYCLES["vexp"].value + 9 * REPEAT_CYCLES["vadd"].value
"""Cycles of a repeat of scores: a maximum, a sum, an exponential and up to nine simple operations, as compiled."""

_VALUE_CYCLES = 2 * REPEAT_CYCLES["vadd"].value
"""Cycles of a repeat of weighted values: they are scaled and added."""

_OVERLAP = 0.35
"""Overlap of pipes by the doubling of slots: with one slot their times add up, and with more they are combined by the
mean of a power that grows by this much. Chosen by hand, by three times each of flash_attention at two shapes."""

_MEETINGS = 4
"""Times in a trip at which a core waits for a flag of another one, and then for the first byte that it stored."""


class _Effects(NamedTuple):
    """The effects that are counted, in this order."""

    tails: bool
    waves: bool
    operand_loads: bool
    """Operands from L1 that no product hides, and fractals that are not whole."""
    l1_traffic: bool
    """Keys, values and weights brought to L1 more slowly than they are multiplied."""
    sums: bool
    """Scores and weighted values stored in workspace and read from it."""
    softmax: bool
    """Work of the vector cores."""
    workspace: bool
    """All cores' transfers together, and workspace that the L2 cache does not hold."""
    turns: bool
    """Pipes that wait for one another."""
    starts: bool


def attention_penalties(
    spec: KernelSpec, problem: Problem, config: Config, tiling: Tiling, target: Target
) -> dict[str, float]:
    """Return the penalties by name, each 1 or more."""
    assert tiling.dot is not None and tiling.dot.head, "only tilings of attention come here"
    kernel = _Kernel(spec, problem, config, tiling, tiling.dot, target)
    return time_by_effects(_Effects, kernel.cycles)


class _Kernel:
    """A config's launch: its programs, and what a trip of one of them costs, in cycles of a core."""

    def __init__(
        self, spec: KernelSpec, problem: Problem, config: Config, tiling: Tiling, dot: Dot, target: Target
    ) -> None:
        part = PARTS.get(target.name, PARTS[SIBLING])
        self._rows, self._keys, self._head, self._item = dot.m, tiling.axes[-1].step, dot.head, problem.item_bytes
        self._programs, self._trips, self._slots = tiling.programs, tiling.axes[-1].trips, dot.stages
        self._cores, self._splits = target.matrix_cores, dot.splits
        self._least, self._flops = spec.bytes(problem), spec.flops(problem)
        self._products = CubeProducts(ITEM_BYTES[problem.dtype])
        self._launch = (COST["launch_us"] + COST["mixed_launch_us"]) * part.clock_ghz * 1e3
        self._latency = COST["l2_latency_ns"] * part.clock_ghz
        self._near = part.l2_gb_s / part.clock_ghz / self._cores
        self._far = part.read_gb_s / part.clock_ghz / self._cores
        slot = self._rows * (4 * (self._keys + self._head) + self._item * self._keys)
        self._slot, self._fits = slot, self._least + slot * self._slots * self._programs <= part.l2_mib << 20

    def cycles(self, counted: _Effects) -> float:
        """Return the cycles of the busiest core."""
        needed = self._products.in_even_shares(self._flops / 2) / self._cores
        if not counted.tails:
            return self._launch + max(needed, self._least / self._far / self._cores)
        each = self._programs / self._cores
        programs = math.ceil(each) if counted.waves else each
        pipes = self._pipes(counted)
        trip = max(pipes)
        if counted.workspace:
            trip = max(trip, self._moved())
        if counted.turns:
            met = _MEETINGS * (COST["cross_flag"] + self._latency) / self._slots
            trip = max(trip, _combined(pipes, 1 + _OVERLAP * math.log2(self._slots))) + met
        total = self._launch + programs * self._trips * trip
        if counted.starts:
            total += math.ceil(each) * (COST["program_start"] + sum(pipes))  # nothing hides the first trip's chain
            total += self._merged() if self._splits > 1 else 0.0
        return total

    def _pipes(self, counted: _Effects) -> list[float]:
        """Return the cycles of a trip on M, MTE2, FIX, and a vector core's MTE2, V and MTE3."""
        scores, values = (self._product(cols, deep, counted) for cols, deep in self._two())
        rows, keys, head, item = self._rows, self._keys, self._head, self._item
        inward = 2 * keys * (head * item + COST["nd2nz_row_bytes"]) + rows * (keys * item + COST["nd2nz_row_bytes"])
        sums = rows * (4 * (keys + head) + 2 * COST["row_bytes"])
        vector = in_vector_repeats(rows, keys) * _SCORE_CYCLES + in_vector_repeats(rows, head) * _VALUE_CYCLES
        return [
            scores + values,
            (inward / COST["cube_read_bytes"] + 3 * COST["nd2nz_start"]) * counted.l1_traffic,
            (sums / COST["fix_bytes"] + 2 * COST["fix_start"]) * counted.sums,
            (sums / 2 / COST["l2_read_bytes"] + 2 * COST["mte2_start"]) * counted.sums,
            vector * counted.softmax,
            (rows / 2 * keys * item / COST["l2_write_bytes"] + COST["mte3_start"]) * counted.sums,
        ]

    def _two(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the columns and the depth of both products of a trip."""
        return (self._keys, self._head), (self._head, self._keys)

    def _product(self, cols: int, deep: int, counted: _Effects) -> float:
        dot = Dot(self._rows, cols, deep)
        if not counted.operand_loads:
            return self._products.in_even_shares(self._rows * cols * deep)
        multiplied = self._products.cycles(dot)
        return multiplied + self._products.operand_loads(dot, multiplied)

    def _moved(self) -> float:
        """Return the cycles of a trip in which the part's memory moves one core's share of what all cores move."""
        passed = 2 * self._slot + 2 * self._keys * self._head * self._item
        trips = max(1.0, self._programs / self._cores) * self._trips
        far = self._least / self._cores / trips
        if not self._fits:
            far += self._slot * min(1.0, self._slots / self._trips)
        return passed / self._near + far / self._far

    def _merged(self) -> float:
        """Return the cycles of the launch that merges the parts of split keys."""
        parts = 4 * self._rows * self._head * self._programs / self._cores
        return self._launch + COST["program_start"] + 2 * parts / self._near


def _combined(pipes: list[float], power: float) -> float:
    return float(sum(cycles**power for cycles in pipes) ** (1 / power))
