"""Loops over elements as text of compiled code, and an executor that counts those that it runs trip by trip."""

from __future__ import annotations

from tilewise.tuner.devices.ascend_model.executor.executor import Executor

__all__ = ["ANYWHERE", "BUFFER", "ELEMENT", "END", "ON_CHIP", "Watched", "number", "whole"]

ON_CHIP = 1 << 16
BUFFER = "memref<?xf32, #hivm.address_space<gm>>"
ELEMENT = "memref<1xf32, strided<[1], offset: ?>, #hivm.address_space<gm>>"
ANYWHERE = (
    "operandSegmentSizes = array<i32: 1, 1, 0, 0>, static_offsets = array<i64: -9223372036854775808>, "
    "static_sizes = array<i64: 1>, static_strides = array<i64: 1>"
)
END = ('"scf.yield"() : () -> ()', "}) : (index, index, index) -> ()")


class Watched(Executor):
    """An executor that counts the loops that it runs trip by trip."""

    one_by_one = 0

    def _trips(self, op):
        step = super()._trips(op)

        def counted(group):
            self.one_by_one += 1
            return step(group)

        return counted


def number(name, value, kind="index"):
    return f'%{name} = "arith.constant"() <{{value = {value} : {kind}}}> : () -> {kind}'


def whole(name, op, *operands):
    return f'%{name} = "arith.{op}"({", ".join("%" + o for o in operands)}) : (index, index) -> index'
