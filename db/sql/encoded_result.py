"""The JSON text of a look-up's result, written straight from its row.

It is the text of `Result.to_json`, byte for byte; a test compares the two. Making the records, their JSON object and
its text takes 70 us, more than the database takes for the row; this takes 6 us. Dims and configs are stored as the very
JSON that a result shows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tilewise.db.records import METRICS, VERIFIED_BY, Status, metrics_among, outcome_of_comparison

__all__ = ["DEFAULT_COLUMNS", "FORMAT", "WINNER_COLUMNS", "encode_row"]

FORMAT = 1
"""The number of the text's form. Raise it with any change to the text: stored texts of other numbers are not used."""

WINNER_COLUMNS = (
    "config",
    "samples",
    "why",
    "time_us",
    "p20_us",
    "p80_us",
    "ordinal",
    "created",
    "low_us",
    "high_us",
    "method",
    "l2",
    "facts",
)
DEFAULT_COLUMNS = ("config", "time_us")

_COMPARED = '"contest"'
"""Occurs in the facts of every winner of a final comparison; other facts, which may be long, are not parsed."""

_MEASURED = f'"{METRICS}"'

_TALLY = '{{"total":{},' + ",".join(f'"{status}":{{}}' for status in Status) + "}}"
_OPTIONAL = (
    "time_us",
    "p20_us",
    "p80_us",
    "evaluations_to_best",
    "tuned_at",
    "low_us",
    "high_us",
    "method",
    "l2",
    "tie",
    "probability",
    METRICS,
)
_text = json.encoder.encode_basestring


def encode_row(row: Sequence[Any]) -> bytes:
    """Encode a row of scope, winner, default, the number of trials of each status, and their seconds."""
    kernel, source_hash, dims, dtype, device, clock, toolchain, cores, *rest = row
    config, samples, why, time_us, p20_us, p80_us, ordinal, created, low_us, high_us, method, l2, facts, *rest = rest
    default, default_us, *counts, seconds = rest
    figures = (time_us, p20_us, p80_us, ordinal, f'"{created.isoformat()}"', low_us, high_us)
    words = (_text(method) if method else None, _text(l2) if l2 else None, *_comparison(facts), _metrics(facts))
    known = "".join(
        [f',"{name}":{value}' for name, value in zip(_OPTIONAL, figures + words, strict=True) if value is not None]
    )
    return (
        f'{{"kernel":{_text(kernel)},"dims":{dims},"dtype":{_text(dtype)},"device":{_text(device)},"clock":"{clock}",'
        f'"toolchain":{_text(toolchain)},"source_hash":{_text(source_hash)},"cores":{cores},"match":"exact",'
        f'"distance":0.0,"verified":true,"verified_by":{_proof(facts)},"config":{config},'
        f'"default":{_default(default, default_us)},'
        f'"trials":{_TALLY.format(sum(counts), *counts)},"seconds":{round(seconds, 3)},"samples":{samples},'
        f'"why":{_text(why)}{known}}}'
    ).encode()


def _comparison(facts: str) -> tuple[str | None, float | None]:
    if _COMPARED not in facts:
        return None, None
    tie, probability = outcome_of_comparison(json.loads(facts))
    return None if tie is None else json.dumps(tie), probability


def _metrics(facts: str) -> str | None:
    known = metrics_among(json.loads(facts)) if _MEASURED in facts else {}
    return json.dumps(known, separators=(",", ":"), ensure_ascii=False) if known else None


def _proof(facts: str) -> str:
    by_itself = f'"{VERIFIED_BY}"' in facts and json.loads(facts).get(VERIFIED_BY) == "self"
    return '"self"' if by_itself else '"reference"'


def _default(config: str | None, time_us: float | None) -> str:
    if config is None:
        return "null"
    return f'{{"config":{config}}}' if time_us is None else f'{{"config":{config},"time_us":{time_us}}}'
