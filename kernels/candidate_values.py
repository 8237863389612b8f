"""Values worth trying for a tile parameter: dense where a few per cent matter, sparse where they do not."""

from __future__ import annotations

from tilewise.kernels.spec import Target, ceil_div

__all__ = ["nice_numbers", "powers_of_two", "row_blocks", "row_sub_blocks"]


def powers_of_two(low: int, high: int) -> list[int]:
    """The powers of two from `low` to the first that reaches `high`, both included; `low` is a power of two."""
    values = [low]
    while values[-1] < high:
        values.append(values[-1] * 2)
    return values


def nice_numbers(high: int) -> list[int]:
    """1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, ...: powers of two times 1, 1.25 and 1.5, up to `high`."""
    values = {1, 2, 3} | {quarter << shift for quarter in (4, 5, 6) for shift in range(high.bit_length())}
    return sorted(value for value in values if value <= high)


def row_blocks(size: int, target: Target) -> list[int]:
    """Rows a program may take of `size` rows.

    Any part without a power-of-two rule: the nice numbers, and the blocks whose programs fill the cores exactly 1/4,
    1/2, 1, 2, ... 8 times. Blocks that would leave more than three quarters of the cores idle are left out.
    """
    if target.family == "nvidia":
        return powers_of_two(1, min(size, 128))
    most = min(size, 4 * ceil_div(size, target.cores))
    fitting = {ceil_div(size, target.cores * waves) for waves in range(1, 9)}
    fitting |= {ceil_div(size * share, target.cores) for share in (2, 4)}
    return sorted({block for block in fitting if block <= most} | set(nice_numbers(most)))


def row_sub_blocks(size: int, target: Target) -> list[int]:
    """Rows a sub-tile may have: the nice numbers and the row blocks themselves (no tail), as far as a tile of 64
    float32 columns would fit on chip."""
    if target.family == "nvidia":
        return powers_of_two(1, min(size, 128))
    most = target.on_chip_bytes // (64 * 4)
    return sorted({rows for rows in {*row_blocks(size, target), *nice_numbers(size)} if rows <= most})
