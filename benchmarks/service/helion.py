"""Helion's real package with its remote cache on a server: one process searches, another takes what it found.

Both have a cache folder of their own, so only the server is between them. Helion runs on the CPU, by
Pallas' interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.header import header
from tilewise.benchmarks.service.serve import serving
from tilewise.client import Client
from tilewise.db.sql.sql_store import open_store
from tilewise.db.tokens import Right, Tokens

__all__ = ["bench_helion"]

_PROGRAM = """
import functools, json, os
import helion, torch
import helion.language as hl
from helion._utils import counters
from tilewise.helion import autotuner

CONFIGS = [helion.Config(block_sizes=[8, 128]), helion.Config(block_sizes=[16, 128])]

@helion.kernel(static_shapes=True, autotuner_fn=functools.partial(autotuner, configs=CONFIGS))
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.shape):
        out[tile] = x[tile] + y[tile]
    return out

x, y = torch.randn(16, 128), torch.randn(16, 128)
right = torch.equal(add(x, y), x + y)
print(json.dumps({"right": right, "counters": dict(counters["autotune"])}), flush=True)
os._exit(0)  # at a normal exit, threads of the packages below may abort the process
"""

_LIMIT_SECONDS = 300.0


def bench_helion() -> dict[str, Any]:
    """Run the program twice, and return what Helion counted in each process, and what the server has."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/tiles.db"
        with open_store(url) as store:
            token = Tokens(store.database).create("helion", Right.SUBMIT)
        program = Path(folder, "program.py")
        program.write_text(_PROGRAM)
        with serving(url) as (address, *_):
            runs = [_run(program, address, token, Path(folder, name)) for name in ("first", "second")]
            with Client(address) as client:
                records = list(client.helion_records())
    body = header("tilewise bench helion", "measured", "Pallas interpreter, CPU")
    body["versions"] |= {name: version(name) for name in ("helion", "jax")}
    return {**body, "processes": runs, "records": records}


def _run(program: Path, address: str, token: str, cache: Path) -> dict[str, Any]:
    environment = {
        "HELION_BACKEND": "pallas",
        "HELION_PALLAS_INTERPRET": "1",
        "HELION_AUTOTUNER": "FiniteSearch",
        "HELION_AUTOTUNE_CACHE": "RemoteAutotuneCache",
        "HELION_REMOTE_CACHE_BACKEND": "tilewise.helion.RemoteCache",
        "HELION_CACHE_DIR": str(cache),
        "TILEWISE_HELION_SERVER": address,
        "TILEWISE_TOKEN": token,
    }
    command = [sys.executable, str(program)]
    ended = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        timeout=_LIMIT_SECONDS,
        check=True,
    )
    told: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return told
