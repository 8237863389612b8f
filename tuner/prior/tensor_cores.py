"""The prior of kernels whose work is matrix products on NVIDIA's tensor cores: a config's expected cost, from counts.

A program adds up products in trips of k: it waits for operands, which several stages keep on their way, and multiplies
them. A trip on a multiprocessor takes as long as the slowest of four: the tensor cores, the operands' way from the L2
cache, their way from global memory, and the latency that the stages do not hide. A tile begins with a load that
nothing hides and ends with a store. The axes of the tiling are the rows of a product, its depth and its columns.

Each penalty is the factor by which the time grows when one more of these effects is counted, as on Ascend. Rates are
those of an H200. "Chosen by hand" below means: from the figures of public reports on Hopper, and then with seven
tunings of `gemm` at six shapes on an H200 in sight, which are not kept. "Chosen by landscapes" means: with the 37
recorded landscapes of matrix kernels on an H200 in sight, on which the order of configs hardly depends on the value.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tilewise.kernels.spec import ITEM_BYTES, Config, Dot, KernelSpec, Problem, Target, Tiling, ceil_div
from tilewise.tuner.hardware.targets import memory_share
from tilewise.tuner.prior.effects import on_chip_penalty, time_by_effects

__all__ = ["tensor_core_penalties"]

_THREADS, _REGISTERS = 2048, 65536
"""Limits of a multiprocessor (CUDA C++ Programming Guide, technical specifications)."""

_PRODUCTS = {90: 2048, 80: 1024}
"""16-bit products of a multiprocessor per cycle, by compute capability: 989 TFLOP/s are 132 multiprocessors at 1.83 GHz
times 4096 (the H100's data sheet), 312 are 108 at 1.41 GHz times 2048 (the A100's)."""

_WIDE_ROWS = 64
"""Rows of a Hopper instruction (`wgmma`, PTX ISA); a lower tile is multiplied by the older `mma`."""

_OLDER = 0.62
"""Rate of `mma` on Hopper, relative to `wgmma` ("Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via
Microbenchmarking", 2024, table on dense tensor core throughput)."""

_SHARED_BYTES = 128
"""Bytes per cycle that the tensor cores of a multiprocessor read from its shared memory (the same report)."""

_L2_BYTES = 64
"""Bytes per cycle from the L2 cache to one multiprocessor: a request of two sectors (the H100's white paper)."""

_SLICES_BYTES = 4600.0
"""Bytes per cycle that the slices of the L2 cache read: nine tenths of the 5120 that the white paper of the A100 names;
none was found for Hopper. On landscapes of `gemm`, columns that no other program reads arrive at such a rate, and
those that four share at `_L2_BYTES`: requests of several multiprocessors for a line are answered together."""

_MEMORY_BYTES = 20.0
"""Bytes per cycle of global memory for one multiprocessor of an H200: 4.8 TB/s, of which nine tenths are reached, over
132, at 1.65 GHz. Chosen by hand. Other parts have it by their data sheets."""

_WHOLE_ROW, _SHORT_ROW = 128, 0.4
"""Bytes of a line of the L2 cache, and the power with which shorter rows of a tile slow global memory down. Chosen by
hand."""

_LONG_ROW, _PART_ROW = 256, 0.1
"""The same for a part of a row of which the next part is loaded a trip later: nothing else reads the rest meanwhile.
Chosen by landscapes of `fused_moe`; those of `block_fp8_gemm` ask for the same."""

_L2_SIZE = 50 << 20
"""Second-level cache of an H100 and an H200 (data sheets); half of it is taken to keep operands, chosen by hand."""

_LATENCY = 1000.0
"""Cycles from a request of operands until the first of them are in shared memory, while others wait for theirs: an idle
memory answers in some 650. Chosen by landscapes."""

_STORE_BYTES = 32
"""Bytes per cycle that a multiprocessor stores. Chosen by hand, as are the costs below."""

_LAUNCH = 4000.0
"""Cycles of a second launch, 2.5 us. Chosen by hand."""

_DESCRIPTORS = 4000.0
"""Cycles in which a program makes its descriptors and first uses them. Chosen by hand."""

_ADDRESSES = 0.12
"""Share of a product that threads take for addresses without descriptors. Chosen by hand."""

_TRIP, _BARRIER = 80.0, 10.0
"""Cycles of a trip in which the tensor cores wait for barriers, and for each warp that has to arrive. The first was
chosen by hand, with thirteen recorded landscapes in sight (docs/search.md), as is that addresses delay products and no
copies; the second by landscapes."""

_LANES = 128
"""Numbers that a multiprocessor multiplies or adds up per cycle (CUDA C++ Programming Guide, arithmetic throughput)."""

_RESCALING = 3.0
"""Instructions for each sum of a trip whose products are scaled: two multiplications and an addition in
`kernels/jit/matrix/scaled_sums.py`. Chosen by hand among 1 to 8, with three landscapes of `block_fp8_gemm` in sight."""

_CHAIN, _WARP, _CHAINED_PRODUCT = 330.0, 130.0, 14.0
"""Cycles of a trip whose parts wait for one another (products, maximum, exponentials, products), of each warp that the
maximum has to reach, and of each product of 16 x 8 x 16 elements in a warp. Chosen by hand, with two landscapes of
`decode_attention` in sight."""

_CROWDED, _CROWDING = 96 << 10, 0.03
"""Bytes that the programs of a multiprocessor may ask for ahead, and the growth of a trip for each doubling beyond: on
eight of ten landscapes of `gemm` six stages are 1 to 8% slower than four, at the median of pairs of which one comes
within 15% of the best; on six of eight recorded later they are faster. Chosen by landscapes, fourteen of an H100 among
them."""

_SHARPNESS = 3.0
"""Power of the mean of a trip's durations; infinite would hide all but the longest. Chosen by landscapes."""


class _Effects(NamedTuple):
    """The effects that are counted, in this order."""

    tails: bool = False
    waves: bool = False
    mma_shape: bool = False
    intensity: bool = False
    l2_reuse: bool = False
    in_flight: bool = False
    issue: bool = False
    epilogue: bool = False
    starts: bool = False


def tensor_core_penalties(
    spec: KernelSpec, problem: Problem, config: Config, tiling: Tiling, target: Target
) -> dict[str, float]:
    """Return the penalties by name, each 1 or more."""
    assert tiling.dot is not None, "only tilings with a product come here"
    kernel = _Kernel(spec, problem, config, tiling, tiling.dot, target)
    return {
        **time_by_effects(_Effects, kernel.cycles),
        "registers": kernel.spilling,
        "on_chip": on_chip_penalty(kernel.shared / (target.on_chip_bytes - 1024)),
    }


class _Kernel:
    """A config's launch: its programs, and what a trip of one of them costs."""

    def __init__(
        self, spec: KernelSpec, problem: Problem, config: Config, tiling: Tiling, dot: Dot, target: Target
    ) -> None:
        self._tiling, self._dot, self._cores = tiling, dot, target.cores
        groups = dot.groups if dot.specialised else 1
        warps = int(config.get("num_warps", 4))
        threads = 32 * (warps * groups + (4 if dot.specialised else 0))
        sums = dot.m * dot.n / (32 * warps * groups)
        self.spilling = 1.0 + max(0.0, sums - 128) / 32
        wide = dot.m >= _WIDE_ROWS and target.capability >= 90
        self.shared = dot.stages * tiling.streamed_bytes + dot.shared_bytes
        # a warp that only loads fills a stage as soon as one of its operands has been used
        used = 0.5 if dot.specialised else 1.0 if wide else 0.0
        self._under_way = max(1.0, dot.stages - used)
        self._tiles = tiling.tiles * dot.filled
        self._programs = min(self._tiles, dot.programs) if dot.programs else self._tiles
        registers = min(255.0, 40 + sums + (0 if dot.described else 16))
        self._resident = max(
            1,
            min(
                (target.on_chip_bytes - 1024) // max(1, self.shared),
                _THREADS // threads,
                int(_REGISTERS / (registers * threads)),
                math.ceil(self._programs / target.cores),
            ),
        )
        dtype = spec.matrix_dtype(problem) if spec.matrix_dtype else problem.dtype
        item = ITEM_BYTES[dtype]
        self._memory_bytes = _MEMORY_BYTES * memory_share(target)
        self._products = _PRODUCTS.get(target.capability // 10 * 10, 2048) * (2 if item == 1 else 1)
        # Hopper's `mma` takes no 8-bit floats: Triton converts them to 16 bits (`AccelerateMatmul.cpp`)
        converted = dtype.startswith("float8") and target.capability // 10 == 9
        self._older = _OLDER / (2 if converted else 1)
        self._wide, self._item, self._warps = wide, item, warps
        self._rows = math.ceil(ceil_div(tiling.axes[0].size, dot.m) * dot.filled)
        self._cols = ceil_div(tiling.axes[-1].size, dot.n)
        self._least, self._flops = spec.bytes(problem), spec.flops(problem)
        self._written = sum(b.bytes for b in spec.buffers(problem).values() if b.role != "in")

    def cycles(self, counted: _Effects) -> float:
        """Return the cycles of the busiest multiprocessor."""
        tiling, dot = self._tiling, self._dot
        needed = self._flops / 2 / self._products / self._cores
        if not counted.tails:
            return max(needed, self._least / self._memory_bytes / self._cores)
        trips = math.prod(axis.trips for axis in tiling.axes)
        each = self._tiles / self._cores
        tiles = max(1, math.ceil(each)) if counted.waves else each
        rows = max(dot.m, 16) if self._wide or not counted.mma_shape else dot.m / self._older
        product = rows * dot.n * dot.k / self._products * (self._operand_reads() if counted.mma_shape else 1.0)
        copied = 1 + _ADDRESSES if counted.issue and not dot.described else 1.0
        if counted.issue and dot.rescaled:
            product = self._rescaled(product)
        barriers = (_TRIP + _BARRIER * self._warps) / self._resident
        durations = [copied * product + (barriers if counted.issue else 0.0)]
        passing = self._from_l2(self._tiles / tiles)
        if counted.intensity:
            durations.append(passing)
        durations.append(self._from_memory(counted.l2_reuse) / tiles / trips / self._cores)
        if counted.in_flight:
            durations.append((_LATENCY + passing) / (self._resident * self._under_way))
        if counted.issue and dot.chained:
            chain = _CHAIN + _WARP * self._warps + _CHAINED_PRODUCT * rows * dot.n * dot.k / (16 * 8 * 16) / self._warps
            loaded = _LATENCY + tiling.streamed_bytes / self._memory_bytes
            durations.append(max(chain, (loaded + chain) / dot.stages) / self._resident)
        trip: float = sum(duration**_SHARPNESS for duration in durations) ** (1 / _SHARPNESS)
        if counted.in_flight:
            trip *= self._crowding()
        total = tiles * trips * trip
        waves = math.ceil(tiles / self._resident)  # programs that are resident together start and end together
        if counted.epilogue:
            stores = dot.m * dot.n * (4 if dot.splits > 1 else 2) / _STORE_BYTES
            total += _LATENCY + stores if dot.specialised else waves * _LATENCY + tiles * stores
        if counted.starts:
            total += _DESCRIPTORS * (1 if dot.programs else waves) if dot.described and not dot.handed else 0.0
            total += _LAUNCH + self._parts() if dot.splits > 1 else 0.0
        return total

    def _crowding(self) -> float:
        """Return how much longer a trip takes because more is asked for ahead than hides the latency."""
        ahead = self._resident * self._dot.stages * self._tiling.streamed_bytes
        return 1.0 + _CROWDING * math.log2(max(1.0, ahead / _CROWDED))

    def _rescaled(self, product: float) -> float:
        """Return the cycles of a product whose sums are scaled, while another program, or the other half of the warps,
        multiplies."""
        dot = self._dot
        scaling = _RESCALING * dot.m * dot.n / _LANES
        together = dot.groups if dot.specialised else self._resident
        return max(product, scaling, (product + scaling) / together)

    def _operand_reads(self) -> float:
        """Return how much longer a product takes because of the tensor cores' reads of shared memory.

        Four warps of `wgmma` multiply 64 rows by the columns that they share with no other four. With `mma` each warp
        reads its rows and its columns; what chained products read was not studied.
        """
        dot = self._dot
        if self._wide:
            beside = max(1, self._warps // 4 // max(1, dot.m // _WIDE_ROWS))
            cols = dot.n / beside
            reads = (_WIDE_ROWS + cols) * 32 / _SHARED_BYTES
            multiplies = _WIDE_ROWS * cols * 16 / 2048
        elif dot.chained:
            return 1.0
        else:
            down, across = _mma_warps(dot.m, dot.n, self._warps)
            reads = (dot.m * across + dot.n * down) * self._item / _SHARED_BYTES
            multiplies = dot.m * dot.n / self._older / self._products
        return float((1 + (reads / multiplies) ** _SHARPNESS) ** (1 / _SHARPNESS))

    def _from_l2(self, at_once: float) -> float:
        """Return the cycles that the operands of a trip take from the L2 cache, while so many programs load.

        Each operand is as slow as the way to the multiprocessor or as the slices, which read it once for all programs
        that share it: those of the same rows, and those of the same columns among `group` rows of tiles.
        """
        tiling, dot = self._tiling, self._dot
        of_cols = dot.n * dot.k * self._item
        of_rows = max(0, tiling.streamed_bytes - of_cols)
        high = min(dot.group, self._rows)
        across = min(self._cols, max(1.0, min(self._cores, self._programs) / high))
        way, slices = 1 / _L2_BYTES, at_once / _SLICES_BYTES
        return of_rows * max(way, slices / across) + of_cols * max(way, slices / high)

    def _from_memory(self, reused: bool) -> float:
        """Return the cycles, times multiprocessors, that global memory takes for the operands.

        The tiles that run at a time form `group` rows, or more if they reach the last column. Each wave reads its rows
        and columns anew, unless the L2 cache holds all of them.
        """
        tiling, dot = self._tiling, self._dot
        if not reused:
            return self._least / self._memory_bytes
        rate: float = self._memory_bytes * min(1.0, dot.row_bytes / _WHOLE_ROW) ** _SHORT_ROW
        if dot.along_depth:
            rate *= min(1.0, dot.row_bytes / _LONG_ROW) ** _PART_ROW
        if self._least - self._written <= _L2_SIZE / 2:
            return self._least / rate
        depth = math.prod(axis.size for axis in tiling.axes[1:-1])
        rows, cols = self._rows, self._cols
        at_once = min(self._tiles, self._cores * self._resident) / dot.splits
        high = min(rows, dot.group)
        across = min(cols, math.ceil(at_once / high))
        if across == cols:  # a wave goes on with the next rows
            high = min(rows, max(high, int(at_once) // cols))
        read = (high * dot.m + across * dot.n) * depth * self._item * math.ceil(rows * cols / (high * across))
        return (max(read, self._least - self._written) + self._written) / rate

    def _parts(self) -> float:
        """Return the cycles in which the parts' sums are read again."""
        sums = math.prod(axis.size for axis in (self._tiling.axes[0], self._tiling.axes[-1]))
        return 4 * sums * self._dot.splits / self._memory_bytes / self._cores


def _mma_warps(m: int, n: int, warps: int) -> tuple[int, int]:
    """Return among how many warps Triton divides the rows and the columns of a tile for `mma`, whose instructions have
    16 rows and 8 columns (`warpsPerTileV2` of `AccelerateMatmul.cpp`)."""
    down, across, high, wide = 1, 1, ceil_div(m, 16), ceil_div(n, 8)
    while down * across < warps:
        if high >= wide:
            down, high = down * 2, max(1, high // 2)
        else:
            across, wide = across * 2, wide // 2
    return down, across
