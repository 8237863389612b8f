"""Values worth trying for a tile parameter: dense where a few per cent matter, sparse where they do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewise.kernels.spec import Problem, Target, Value, ceil_div

__all__ = ["nice_numbers", "only_ascend", "only_nvidia", "powers_of_two", "row_blocks", "row_sub_blocks"]


def only_nvidia(*values: Value) -> Callable[[Problem, Target], Sequence[Value]]:
    """Return the candidate values of a parameter that exists on NVIDIA only."""
    return lambda problem, target: list(values) if target.family == "nvidia" else []


def only_ascend(*values: Value) -> Callable[[Problem, Target], Sequence[Value]]:
    """Return the candidate values of a parameter that exists on Ascend only."""
    return lambda problem, target: list(values) if target.family == "ascend" else []


def powers_of_two(low: int, high: int) -> list[int]:
    """Return the powers of two from `low`, itself a power of two, to the first that is at least `high`."""
    values = [low]
    while values[-1] < high:
        values.append(values[-1] * 2)
    return values


def nice_numbers(high: int) -> list[int]:
    """Return 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, ... up to `high`: powers of two times 1, 1.25 and 1.5."""
    values = {1, 2, 3} | {quarter << shift for quarter in (4, 5, 6) for shift in range(high.bit_length())}
    return sorted(value for value in values if value <= high)


def row_blocks(size: int, target: Target) -> list[int]:
    """Return the candidate numbers of rows per program, for `size` rows in all.

    NVIDIA needs powers of two. Elsewhere they are the nice numbers, and the blocks whose programs fill the cores
    exactly 1/4, 1/2, 1, 2, ... 8 times. Blocks that would leave more than three quarters of the cores idle are left
    out.
    """
    if target.family == "nvidia":
        return powers_of_two(1, min(size, 128))
    limit = min(size, 4 * ceil_div(size, target.cores))
    fitting = {ceil_div(size, target.cores * waves) for waves in range(1, 9)}
    fitting |= {ceil_div(size * share, target.cores) for share in (2, 4)}
    return sorted({block for block in fitting if block <= limit} | set(nice_numbers(limit)))


def row_sub_blocks(size: int, target: Target) -> list[int]:
    """Return the candidate numbers of rows per sub-tile: powers of two on NVIDIA, else the nice numbers and the row
    blocks themselves (no tail), as long as a tile of 64 float32 columns fits on chip."""
    if target.family == "nvidia":
        return powers_of_two(1, min(size, 128))
    limit = target.on_chip_bytes // (64 * 4)
    return sorted({rows for rows in {*row_blocks(size, target), *nice_numbers(size)} if rows <= limit})
