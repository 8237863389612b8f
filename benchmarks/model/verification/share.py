"""`tilewise bench verifying`: verification's share of tunings on a modelled part.

Each kernel is tuned once at the default budget, with an empty cache and an empty database. The processor time of a job
is that of its compile process and the compilers that it starts; the rest of a tuning's is the search's own. Starting
processes is not counted.
"""

from __future__ import annotations

import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.header import header
from tilewise.benchmarks.common.journal import Journal
from tilewise.benchmarks.model.verification.right import MATRIX_PROBLEMS
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem
from tilewise.tuner.devices.ascend_model import compile_job
from tilewise.tuner.devices.ascend_model.device import ModelDevice
from tilewise.tuner.measure.outcome import Outcome, Verdict
from tilewise.tuner.tuning.tune import tune

__all__ = ["AIM", "DIMS", "bench_share", "call", "share_body"]

AIM = 0.25
"""The share of a tuning's processor time that verification is to stay under."""

DIMS: Mapping[tuple[str, ...], Mapping[str, int]] = {
    ("N",): {"N": 1 << 20},
    ("M", "N"): {"M": 1000, "N": 4096},
    ("N", "C", "HW"): {"N": 32, "C": 128, "HW": 3136},
    ("M", "H", "HALF"): {"M": 1000, "H": 32, "HALF": 64},
    ("M", "E", "TOPK"): {"M": 1000, "E": 256, "TOPK": 8},
    ("M", "N", "K"): {"M": 1000, "N": 4096, "K": 4096},
    ("M", "N", "K", "G"): {"M": 1000, "N": 2048, "K": 4096, "G": 8},
    ("M", "E", "N", "K", "TOPK"): {"M": 512, "E": 8, "N": 2048, "K": 2048, "TOPK": 2},
    ("B", "H", "HKV", "Q", "K", "D"): {"B": 1, "H": 16, "HKV": 8, "Q": 2048, "K": 2048, "D": 128},
    ("B", "H", "HKV", "PAGES", "PAGE", "D"): {"B": 16, "H": 32, "HKV": 8, "PAGES": 64, "PAGE": 16, "D": 128},
}
"""The problems by a kernel's dimension names, of sizes that language models have."""

_SPENT = "spent.jsonl"
_FOLDER = 4
"""Place of the cache folder among the arguments of every job."""


def call(job: str, *arguments: Any) -> Outcome | Verdict:
    """Run a job of a compile process, and note in the cache folder what it took."""
    began = _processor_seconds()
    try:
        return compile_job.call(job, *arguments)
    finally:
        with (Path(arguments[_FOLDER]) / _SPENT).open("a") as file:
            file.write(json.dumps({"job": job, "processor_s": _processor_seconds() - began}) + "\n")


def _processor_seconds() -> float:
    """Return the processor time of this process and of the children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


class _MeteredDevice(ModelDevice):
    """A modelled part whose jobs note their processor time, and which adds up how long it is asked to verify."""

    entry = "tilewise.benchmarks.model.verification.share:call"
    verifying_s = 0.0

    def verify(self, spec: KernelSpec, problem: Problem, config: Config) -> Verdict:
        began = time.monotonic()
        try:
            return super().verify(spec, problem, config)
        finally:
            self.verifying_s += time.monotonic() - began


def bench_share(
    part: str,
    journal: Path,
    *,
    kernels: Sequence[str] = (),
    jobs: int = 1,
    progress: Callable[[str], None] = lambda text: None,
) -> Iterator[dict[str, Any]]:
    """Yield a row per kernel: those of the journal, then the others as they end."""
    kept = Journal(journal)
    known = {row["kernel"]: row for row in kept.rows() if (row["part"], row["jobs"]) == (part, jobs)}
    for name in kernels or (*registry.vector_names(), *MATRIX_PROBLEMS):
        if name not in known:
            progress(name)
            known[name] = _row(part, name, jobs)
            kept.add(known[name])
        yield known[name]


def _row(part: str, name: str, jobs: int) -> dict[str, Any]:
    spec = registry.load(name)
    dims = DIMS[spec.dims]
    with tempfile.TemporaryDirectory(prefix="tilewise-verifying-") as place:
        folder = Path(place)
        with _MeteredDevice(part, jobs=jobs, cache_folder=folder) as device:
            began, own = time.monotonic(), time.process_time()
            result = tune(name, dims, dtype=spec.dtypes[0], device=device, db=f"sqlite:///{folder / 'tuned.db'}")
            wall_s, search_s = time.monotonic() - began, time.process_time() - own
        spent = [json.loads(line) for line in (folder / _SPENT).read_text().splitlines()]
    verifying_s = sum(row["processor_s"] for row in spent if row["job"] == "verify")
    processor_s = search_s + sum(row["processor_s"] for row in spent)
    return {
        "kernel": name,
        "dims": dict(dims),
        "dtype": spec.dtypes[0],
        "part": part,
        "jobs": jobs,
        "trials": len(result.trials),
        "verifications": sum(row["job"] == "verify" for row in spent),
        "verifying_processor_s": round(verifying_s, 2),
        "processor_s": round(processor_s, 2),
        "processor_share": round(verifying_s / processor_s, 4),
        "verifying_wall_s": round(device.verifying_s, 2),
        "wall_s": round(wall_s, 2),
        "wall_share": round(device.verifying_s / wall_s, 4),
    }


def share_body(rows: Sequence[Mapping[str, Any]], command: str, part: str) -> dict[str, Any]:
    """Return all rows and their summary as plain JSON values."""
    largest = max(rows, key=lambda row: float(row["processor_share"]))
    verifying, every = (sum(row[key] for row in rows) for key in ("verifying_processor_s", "processor_s"))
    summary = {
        "kernels": len(rows),
        "trials": sum(row["trials"] for row in rows),
        "verifications": sum(row["verifications"] for row in rows),
        "share_of_all": round(verifying / every, 4),
        "largest_share": largest["processor_share"],
        "largest_share_kernel": largest["kernel"],
        "largest_wall_share": max(row["wall_share"] for row in rows),
        "aim": AIM,
        "at_or_above_the_aim": [row["kernel"] for row in rows if row["processor_share"] >= AIM],
    }
    return header(command, "modelled", f"model:{part}") | {"summary": summary, "rows": [dict(row) for row in rows]}
