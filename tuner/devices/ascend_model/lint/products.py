"""Products of which the compiler leaves out what a reduction of their sums needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewise.tuner.devices.ascend_model.ir.hivm import MemRef, Op
from tilewise.tuner.devices.ascend_model.ir.mmad import FRACTAL, Mmad
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation
from tilewise.tuner.devices.ascend_model.lint.code import Code
from tilewise.tuner.devices.ascend_model.lint.finding import RULES, Finding

__all__ = ["added_masks"]


def added_masks(code: Code, halves: Sequence[Code]) -> Iterator[Finding]:
    """Yield a finding per product that starts from a row, does not always fill its tile, and is reduced afterwards.

    `halves` are all functions of the launch.
    """
    if not any(op.name == "hivm.hir.vreduce" for half in halves for op in half.walk()):
        return
    for op in code.walk():
        if op.name == "hivm.hir.mmadL1" and _starts_from_row(op) and not _fills_tile(code, op):
            message = (
                "the row that is added to this product became the start of its sums, and only the columns that are "
                "there get it: where they do not fill the tile, a reduction over columns takes in what an earlier trip "
                "left in the others"
            )
            remedy = "select instead of adding: tl.where(columns < N, product, -inf)"
            yield Finding(RULES["added-mask"], message, remedy, code.place(op))


def _starts_from_row(op: Op) -> bool:
    try:
        return Mmad.of(op).bias is not None
    except UnknownOperation:
        return False


def _fills_tile(code: Code, op: Op) -> bool:
    """Return whether a product is known to have as many columns as its tile of sums."""
    product = Mmad.of(op)
    made, cols = code.definition(code.root(product.out)), code.number(product.cols)
    kind = made.result_type if made else None
    return isinstance(kind, MemRef) and cols is not None and cols >= kind.shape[0] * FRACTAL
