"""Plots of searches: the best so far over the evaluations."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewise.errors import Unavailable

__all__ = ["plot_search"]


def plot_search(body: Mapping[str, Any], stem: Path) -> list[Path]:
    """Write `STEM.png` and `STEM.svg`: the mean fraction of the optimum after each evaluation, one line per search.

    Raises `Unavailable` if matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise Unavailable("no plot: matplotlib is not installed: pip install tilewise[bench]")
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "tilewise"  # equal plots become equal files
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    best_first = sorted(body["mean"].items(), key=lambda item: -item[1]["curve"][-1])
    for name, mean in best_first:
        ours = name.startswith("guided")
        axes.plot(range(1, len(mean["curve"]) + 1), mean["curve"], label=name, linewidth=2.2 if ours else 1.1)
    count = len(body["landscapes"])
    axes.set(
        xlabel="evaluations",
        ylabel="fraction of the optimum (1 = as fast)",
        title=f"{count} recorded landscape{'s' * (count != 1)}, mean of {body['seeds']} seeds",
        xlim=(1, body["budget"]),
        ylim=(max(0.0, min(m["curve"][min(4, body["budget"] - 1)] for m in body["mean"].values())), 1.005),
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="lower right")
    files = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    for file in files:
        figure.savefig(file, dpi=120, metadata={"Date": None} if file.suffix == ".svg" else None)
    pyplot.close(figure)
    return files
