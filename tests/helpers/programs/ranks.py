"""A rank of a job: launches a kernel with results that differ from rank to rank, and writes what it launched.

Run as `torchrun .. ranks.py FOLDER voted|pinned`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
if sys.argv[2] == "pinned":
    os.environ["TILEWISE_CHOICES"] = str(folder / "choices.jsonl")
os.environ["TILEWISE_MISSES"] = "off"

import torch.distributed  # noqa: E402, F401 - as a program that has ranks does before its first launch

from tilewise.db.exchange.native.runtime_file import encode_winners  # noqa: E402
from tilewise.db.records import Clock, Problem, Result, Scope, Status, Trial  # noqa: E402
from tilewise.kernels import registry  # noqa: E402
from tilewise.kernels.source import source_hash  # noqa: E402
from tilewise.tuner.runtime.config_selector import ConfigSelector  # noqa: E402

spec = registry.load("row_reduce")
problem = Problem("row_reduce", {"M": 1000, "N": 8192}, "float32")
own = {"BLOCK_SIZE_M": 25, "SUB_BLOCK_SIZE_M": rank + 1, "BLOCK_SIZE_N": 256, "multibuffer": True}
scope = Scope(problem, source_hash(spec), "Ascend910B4", Clock.MODELLED, "model-1", 40)
winner = Trial(own, Status.CORRECT, time_us=31.5, verified=True, created=datetime(2026, 11, 20, tzinfo=UTC))
source = folder / f"configs-{rank}.json"
source.write_bytes(encode_winners([Result(scope, winner, None, {}, 1.0).to_json()]))


class Tensor:
    dtype = "torch.float32"

    def get_device(self) -> int:
        return 0


selector = ConfigSelector(spec, str(source), device="Ascend910B4")
began = time.monotonic()
launched = selector.choose(problem.dims, "float32", Tensor()).config
told = {"rank": rank, "own": own, "launched": dict(launched), "seconds": time.monotonic() - began}
(folder / f"rank-{rank}.json").write_text(json.dumps(told))
