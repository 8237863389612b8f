"""The examples of docs/formats.md match what the exports write. Run as a script, this file updates them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from places import DOCS

from tilewise.db.exchange.foreign.caches.triton_module import encode_module
from tilewise.db.exchange.foreign.landscapes.t4 import export_t4
from tilewise.db.exchange.foreign.tables.csv_parquet import encode_csv
from tilewise.db.exchange.foreign.tables.flaggems import encode_flaggems
from tilewise.db.exchange.foreign.tables.size_tables import encode_tables
from tilewise.db.exchange.foreign.tables.vllm import VLLM_TABLES
from tilewise.db.exchange.native.export_file import encode, export_native
from tilewise.db.exchange.selection import best_results
from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.db.sql.sql_store import open_store

PAGE = DOCS / "formats.md"
EXAMPLE = re.compile(r"(<!-- example: (\w+) -->\n```\w*\n)(.*?)(```)", re.DOTALL)


def examples() -> Mapping[str, str]:
    scopes = [
        Scope(
            Problem("row_reduce", {"M": m, "N": 8192}, "float32"),
            "5d1c",
            "NVIDIA H200",
            Clock.MEASURED,
            "triton 3.6.0",
            132,
        )
        for m in (1024, 2048)
    ]
    with open_store("sqlite://") as store:
        for scope, rows, time_us in zip(scopes, (4, 8), (21.0, 30.5), strict=True):
            config = {"BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": 512, "num_warps": 4}
            made = datetime(2026, 11, 21, 12, tzinfo=UTC)
            won = Trial(config, Status.CORRECT, time_us=time_us, samples=100, verified=True, ordinal=1, created=made)
            store.record(scope, [won])
        results = best_results(store, store.scopes())
        native = export_native(store, scopes[:1], created=datetime(2026, 11, 21, 12, tzinfo=UTC))
        [table] = encode_tables(results, VLLM_TABLES, "M", (1024, 2048)).values()
        return {
            "json": encode(native).decode(),
            "triton": encode_module(results).decode(),
            "vllm": table.decode(),
            "flaggems": encode_flaggems(results).decode(),
            "t4": json.dumps(export_t4(store, scopes[0]), indent=1) + "\n",
            "csv": b"".join(encode_csv(store, scopes)).decode().replace("\r\n", "\n"),
        }


@pytest.mark.parametrize("name", ["json", "triton", "vllm", "flaggems", "t4", "csv"])
def test_the_page_shows_what_is_written(name):
    shown = {match[2]: match[3] for match in EXAMPLE.finditer(PAGE.read_text())}
    assert shown[name] == examples()[name]


if __name__ == "__main__":
    written = examples()
    PAGE.write_text(EXAMPLE.sub(lambda match: match[1] + written[match[2]] + match[4], PAGE.read_text()))
