"""The tables of docs/kernels.md, generated from the specs and the recorded results by `make docs`.

A test checks that the page is up to date.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewise.benchmarks.common.tables import markdown, placed
from tilewise.db.records import shape_text
from tilewise.kernels import registry

__all__ = ["filled"]

_TIMES = {
    "tuned_us": "tuned",
    "default_us": "default",
    "eager_us": "eager",
    "compile_us": "`torch.compile`",
    "max_autotune_us": "max-autotune",
}


def filled(page: str, results: Path) -> str:
    """Return the page with its tables up to date; `results` is the folder of recorded results."""
    recorded = {path.stem: json.loads(path.read_text()) for path in sorted(results.glob("*.json"))}
    h200 = recorded["h200-kernels"]
    tables = {
        "kernels": _kernels(),
        "h200": _results(h200),
        "accuracy": _accuracy(recorded["model-accuracy"], recorded["h200-accuracy"]),
        "attention": _attention(recorded["h200-attention"]),
        "matrix": _matrix(recorded["h200-matrix"]),
        "language model": _results(recorded["h200-llm-kernels"]),
        "gelu": _gelus(recorded["h200-accuracy"], h200),
    }
    return placed(page, tables)


def _kernels() -> str:
    rows = []
    for name in registry.names():
        spec = registry.load(name)
        parameters = ", ".join(f"`{p.name}`" for p in spec.parameters)
        rows.append([f"`{name}`", spec.summary.replace("|", "\\|"), ", ".join(spec.dims), parameters])
    return markdown(["kernel", "computes", "dimensions", "tuned"], rows)


def _results(body: Mapping[str, Any]) -> str:
    shown = [key for key in _TIMES if any(key in row for row in body["rows"])]
    rows = []
    for row in body["rows"]:
        times = [f"{row[key]:.2f}" if key in row else "" for key in shown]
        share = f"{row['share_of_rate']:.1%}" if "share_of_rate" in row else ""
        variant = row.get("config", {}).get("VARIANT", "")
        rows.append([f"`{row['kernel']}`", shape_text(row["dims"]), *times, share, variant])
    return markdown(["kernel", "shape", *(_TIMES[key] for key in shown), "share of the rate", "variant"], rows)


def _accuracy(*bodies: Mapping[str, Any]) -> str:
    rows = []
    for body in bodies:
        for row in body["rows"]:
            if row["kernel"].startswith("gelu"):
                continue
            errors = [f"{row['error'][name]:.1e} / {row['torch_error'][name]:.1e}" for name in ("y", "mean", "rstd")]
            rows.append([f"`{row['kernel']}`", row["variant"], body["run_by"], *errors])
    return markdown(["kernel", "variant", "run by", "y: ours / torch", "mean", "rstd"], rows)


def _gelus(accuracy: Mapping[str, Any], h200: Mapping[str, Any]) -> str:
    rows = [
        [f"`{row['kernel']}`", f"{row['error']['out']:.1e}", _largest(h200, row["kernel"])]
        for row in accuracy["rows"]
        if row["kernel"].startswith("gelu") and row["variant"] == "blocks"
    ]
    return markdown(["form", "largest deviation from the exact form", "H200, us"], rows)


def _attention(body: Mapping[str, Any]) -> str:
    """Return a row for each shape: PyTorch's best, and the best of each of our variants."""
    shapes = dict.fromkeys((row["kernel"], shape_text(row["dims"]), row.get("causal", False)) for row in body["rows"])
    rows = []
    for kernel, shape, causal in shapes:
        alike = [
            r
            for r in body["rows"]
            if (r["kernel"], shape_text(r["dims"]), r.get("causal", False)) == (kernel, shape, causal)
        ]
        ours = [row for row in alike if not row["contender"].startswith("torch")]
        for variant in ("hopper", "plain") if kernel == "flash_attention" else ("",):
            best = min((row for row in ours if variant in row["contender"]), key=lambda row: row["median_us"])
            rate = f"{best['tflop_s']:.0f} TFLOP/s" if "tflop_s" in best else f"{best['tb_s']:.2f} TB/s"
            where = f"{shape}{', causal' if causal else ''}"
            config = best["contender"].removeprefix(f"VARIANT={variant}, ")
            rows.append(
                [f"`{kernel}`", where, variant, f"{best['median_us']:.0f}", rate, f"{best['of_theirs']:.1%}", config]
            )
    heads = ["kernel", "shape", "variant", "us", "rate", "of PyTorch's", "config"]
    return markdown(heads, rows)


def _matrix(body: Mapping[str, Any]) -> str:
    rows = []
    for row in body["rows"]:
        times = [f"{row[key]:.1f}" for key in ("tuned_us", "torch_us", "default_us")]
        rates = [f"{row['tflop_s']:.0f}", f"{row['torch_us'] / row['tuned_us']:.1%}"]
        config = ", ".join(f"{name}={value}" for name, value in row["config"].items())
        rows.append([shape_text(row["dims"]), row["dtype"], *times, *rates, config])
    heads = ["shape", "dtype", "tuned", "PyTorch", "default", "TFLOP/s", "of PyTorch's", "config"]
    return markdown(heads, rows)


def _largest(body: Mapping[str, Any], kernel: str) -> str:
    """Return the tuned time at the kernel's largest shape."""
    row = max((row for row in body["rows"] if row["kernel"] == kernel), key=lambda row: math.prod(row["dims"].values()))
    return f"{row['tuned_us']:.1f}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(filled(page.read_text(), page.parent / "results"))
