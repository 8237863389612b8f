"""Findings and the rules that they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tilewise.tuner.devices.ascend_model.ir.source_lines import Place

__all__ = ["RULES", "Finding", "Rule"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of finding. A finding of level `error` keeps the config from running. A `warning` costs time, or may make
    results wrong."""

    id: str
    summary: str
    help: str
    level: Literal["error", "warning"] = "warning"


_LISTED = (
    Rule(
        "on-chip-overflow",
        "The tile does not fit on-chip memory.",
        "The compiler plans every buffer of a program in the core's own memories. If one of them is too small, even "
        "without double buffers, nothing is compiled.",
        level="error",
    ),
    Rule(
        "added-mask",
        "A mask is added to a product that does not fill its tile.",
        "The compiler turns a row that is added to a product into the start of its sums, and multiplies only the "
        "columns that are there. The others keep sums of an earlier trip, without the row, so a mask that is added "
        "does not mask them. Results are right only where the columns fill every tile.",
    ),
    Rule(
        "element-access",
        "Global memory is read or written element by element.",
        "Where the compiler cannot see that addresses form rows, the scalar unit loads or stores one element at a time "
        "instead of one transfer per tile. Addresses form rows if they are a base plus row * stride plus column, with "
        "rows and columns from tl.arange, and masks for what lies outside.",
    ),
    Rule(
        "row-access",
        "Vector cores load a product's rows one by one.",
        "A cube core loads a tile in one transfer if its rows are a base plus row * stride. If each row has an address "
        "of its own, vector cores load row after row and copy the tile to workspace for the cube core.",
    ),
    Rule(
        "scalar-arithmetic",
        "The scalar unit computes a tile element by element.",
        "The vector unit has no 64-bit integers, no integer division and no remainder, among others. The compiler "
        "makes loops of scalar instructions of them.",
    ),
    Rule(
        "inner-stride",
        "Neighbouring elements of a tile's rows are not known to be neighbours in memory.",
        "A transfer moves contiguous rows. If the innermost stride is an argument of the kernel, or is not 1, elements "
        "are moved one by one; and a cube core cannot load such a tile itself: vector cores copy it to workspace.",
    ),
    Rule(
        "far-rows",
        "A tile's rows are further apart than one transfer to L1 can step.",
        "The transfer's stride field ends at 65,535 elements. Rows that are further apart are loaded one by one.",
    ),
    Rule(
        "masked-refill",
        "A masked load fills its whole tile first.",
        "Where a mask cuts a tile, the compiled code first fills all of it with the value for masked elements, and "
        "then loads the rest over it.",
    ),
    Rule(
        "double-buffering-lost",
        "On-chip memory is too small for double buffers.",
        "With two buffers, the next tile is loaded while this one is computed. If they do not fit, the compiler keeps "
        "one, and loads wait for computations.",
    ),
    Rule(
        "idle-cores",
        "Programs do not divide evenly among cores.",
        "Programs run in waves of as many as there are cores. In a wave with fewer, the other cores wait.",
    ),
    Rule(
        "program-starts",
        "Starting programs takes a notable share of the time.",
        "Each program is handed to a core and started there, which takes time even if it has little to do.",
    ),
)

RULES: Mapping[str, Rule] = {rule.id: rule for rule in _LISTED}
"""Rules by id, the gravest first: the order of findings without a cost."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `cost_us` is modelled time that it costs at most, None where the model cannot tell.

    `place` is the source line, `cause` another line that is to blame.
    """

    rule: Rule
    message: str
    remedy: str
    place: Place | None
    cause: Place | None = None
    cost_us: float | None = None

    def to_json(self, time_us: float | None) -> dict[str, Any]:
        """Return the finding as a JSON object; `time_us` is the whole config's modelled time."""
        body: dict[str, Any] = {"rule": self.rule.id, "level": self.rule.level}
        body |= {"message": self.message, "remedy": self.remedy}
        if self.place:
            body |= {"line": str(self.place), "source": self.place.text, "file": self.place.file}
        if self.cause:
            body |= {"cause": str(self.cause), "cause_source": self.cause.text, "cause_file": self.cause.file}
        if self.cost_us is not None and time_us:
            body |= {"modelled_cost_us": round(self.cost_us, 3), "share": round(self.cost_us / time_us, 4)}
        return body
