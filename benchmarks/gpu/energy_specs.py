"""The project's own kernels with their configs ranked by the energy of a launch."""

import dataclasses

from tilewise.db.records import ENERGY
from tilewise.kernels import registry

__all__ = ["GEMM", "ROW_REDUCE"]

ROW_REDUCE = dataclasses.replace(registry.load("row_reduce"), objective=ENERGY)
GEMM = dataclasses.replace(registry.load("gemm"), objective=ENERGY)
