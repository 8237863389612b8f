"""Claims about searches, winners and shapes that were never tuned."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tilewise.benchmarks.claims.claim import FIRST_SPECS, Claim, Place, Raw
from tilewise.benchmarks.search.search_table import reached

__all__ = ["SEARCH"]

_HEADLINE = "row_reduce-1000x8192-float32-Ascend910B4-modelled"
_LANDSCAPE = f"landscapes/{_HEADLINE}.json.gz"
_SEARCH = ("tuner/samplers", "tuner/space/search_space.py")
_REPLAY = ("tuner/devices/replay.py", "benchmarks/search/search.py")
_ASCEND = (
    *("tuner/samplers", "tuner/space/search_space.py", "tuner/prior/ascend.py", "tuner/prior/penalties.py"),
    *("tuner/hardware/ascend_costs.py", "tuner/hardware/ascend_parts.py", *FIRST_SPECS),
)
_CUBE = (
    *("tuner/samplers", "tuner/space/search_space.py", "tuner/prior/cube_cores.py", "tuner/prior/cube_products.py"),
    *("tuner/hardware/cube_costs.py", "kernels/matrix/gemm.py"),
)
_NVIDIA = (
    *("tuner/samplers", "tuner/space/search_space.py", "tuner/prior/nvidia.py", "tuner/prior/penalties.py"),
    *FIRST_SPECS,
)
_TIMING = ("tuner/measure", "tuner/devices/cuda", "tuner/devices/measured")
_MATRIX_H100 = tuple(f"search-matrix-h100-{look}" for look in ("first", "second", "third", "fourth"))
_MATRIX_RUNS = tuple(f"search-matrix{look}" for look in ("-first", "-second", "-fourth", "-fifth", "-sixth", ""))
_UNAIDED_RUNS = ("search-unaided-unseen", "search-unaided-matrix", "search-unaided")
_UNAIDED, _CALCULATED = "guided-without-prior", "random-calculated"
_SMALL = 34
"""Configs of the spaces that are called small."""
_RECORDED_FOURTH = ("gemm-512x", "grouped_gemm-1000x", "decode_attention-12x", "fused_moe-48x")
_UNTUNED = (
    *("tuner/portfolio", "tuner/lookup", "tuner/space/nearest_config.py", "benchmarks/launch/untuned_shapes.py"),
    *(*_NVIDIA, "tuner/tuning", *_TIMING, "kernels/jit/row_reduce.py", "kernels/jit/softmax.py"),
    *("kernels/jit/reduce.py", "kernels/jit/layer_norm.py"),
)


def _files(*names: str) -> tuple[str, ...]:
    return tuple(f"docs/results/{name}.json" for name in names)


def _inferred_words(raw: Raw) -> str:
    known, unseen = raw["inferred"], raw["inferred-unseen"]
    left = [row["file"].partition("-")[0] for row in known["landscapes"] if "inferred" not in row]
    without = f"; nothing was inferred of {', '.join(left)}" if left else ""
    return (
        f"{unseen['sum']['inferred']:g} evaluations with inferred tilings, {unseen['sum']['by_hand']:g} with those "
        f"written by hand: {_compared(unseen)} (by hand and inferred: {_sums_by_kernel(unseen)}); one landscape makes "
        f"the difference, {_decisive(unseen)}; on the landscapes "
        f"that the inference was mended on, {known['sum']['inferred']:g} and {known['sum']['by_hand']:g} "
        f"({_sums_by_kernel(known)}{without})"
    )


def _compared(body: Mapping[str, Any]) -> str:
    """Return on how many landscapes the inferred tiling needed as many evaluations, fewer, and more."""
    pairs = [(row["inferred"], row["by_hand"]) for row in body["landscapes"] if "inferred" in row]
    equal, first = sum(a == b for a, b in pairs), sum(a == b == 1 for a, b in pairs)
    fewer, more = sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)
    return f"as many on {equal}, {first} of them at the first pick, fewer on {fewer}, more on {more}"


def _decisive(body: Mapping[str, Any]) -> str:
    """Return the landscape without which both sums are equal, and those on which the inferred tiling is worse."""
    rows = {_short(row["file"]): (row["by_hand"], row["inferred"]) for row in body["landscapes"] if "inferred" in row}
    [(name, (by_hand, inferred))] = [
        (name, (a, b)) for name, (a, b) in rows.items() if a - b == body["sum"]["by_hand"] - body["sum"]["inferred"]
    ]
    worse = [f"{name} ({a:g} and {b:g})" for name, (a, b) in rows.items() if b > a]
    return f"{name} ({by_hand:g} and {inferred:g}); the inferred tiling is worse on {', '.join(worse)}"


def _sums_by_kernel(body: Mapping[str, Any]) -> str:
    """Return the sums of each kernel's landscapes, by hand and inferred."""
    sums: dict[str, tuple[float, float]] = {}
    for row in body["landscapes"]:
        if "inferred" in row:
            kernel = row["file"].partition("-")[0]
            by_hand, inferred = sums.get(kernel, (0, 0))
            sums[kernel] = by_hand + row["by_hand"], inferred + row["inferred"]
    return ", ".join(f"{kernel} {by_hand:g} and {inferred:g}" for kernel, (by_hand, inferred) in sums.items())


# The headline problem against its default ------------------------------------------------------------------------


def _times(raw: Raw) -> Iterator[tuple[float, Mapping[str, Any]]]:
    """Yield the time in microseconds and the config of every result of the headline landscape that ran."""
    for result in raw[_HEADLINE]["results"]:
        if result["invalidity"] == "correct":
            yield result["measurements"][0]["value"] * 1e3, result["configuration"]


def _against(raw: Raw) -> tuple[float, float, float, int]:
    """Return the best time, the default's, the best of powers of two, and the number of those."""
    times = list(_times(raw))
    default = {"BLOCK_SIZE_M": 32, "SUB_BLOCK_SIZE_M": 8, "BLOCK_SIZE_N": 512, "multibuffer": True}
    [ours] = [time for time, config in times if config == default]
    powers = [
        time for time, config in times if all(math.log2(value).is_integer() for value in config.values() if value)
    ]
    return min(time for time, _ in times), ours, min(powers), len(powers)


def _gain(raw: Raw) -> str:
    best, ours, power, count = _against(raw)
    return (
        f"{best:.2f} us, {ours / best:.2f}x the speed of our default ({ours:.2f} us), {power / best:.2f}x that of the "
        f"fastest of the {count} configs that run and consist of powers of two ({power:.2f} us)"
    )


# Searches --------------------------------------------------------------------------------------------------------


def _to(raw: Raw, file: str, search: str, margin: str) -> list[float]:
    """Return the median evaluations to a margin for each landscape; infinite where the budget was too small."""
    rows = raw[file]["landscapes"]
    return [row["searches"][search]["evaluations_to"].get(margin, math.inf) for row in rows]


def _span(values: list[float]) -> str:
    finite = [value for value in values if value < math.inf]
    never = len(values) - len(finite)
    return f"{min(finite):g} to {max(finite):g}" + (f", and not within the budget on {never}" if never else "")


def _seeds(raw: Raw, file: str) -> str:
    body = raw[file]
    count = len(body["landscapes"])
    return f"{count} landscape{'s' * (count > 1)}, {body['seeds']} seeds, budget {body['budget']}"


def _headline(raw: Raw) -> str:
    searches = raw["search-row_reduce-1000x8192"]["landscapes"][0]["searches"]
    names = ("guided", "guided-without-prior", "tpe", "random")
    return ", ".join(f"{name} {reached(searches[name], '2%')}" for name in names)


def _hub(raw: Raw) -> str:
    mean = raw["search-benchmark_hub"]["mean"]
    ours = mean[_UNAIDED]["fraction"]
    second = {n: max(found["fraction"][n] for name, found in mean.items() if name != _UNAIDED) for n in ours}
    landscapes = raw["search-benchmark_hub"]["landscapes"]
    worst = {n: min(row["searches"][_UNAIDED]["fraction"][n] for row in landscapes) for n in ("20", "50", "100", "200")}
    parts = [
        f"{ours[n]:.3f} ({low:.3f}) after {n}, the next best of this run {second[n]:.3f}" for n, low in worst.items()
    ]
    return f"{'; '.join(parts)}. {_hub_words(raw)}. {_hub_botorch(raw)}"


def _hub_botorch(raw: Raw) -> str:
    """BoTorch's search on the same landscapes, in a run of its own."""
    body = raw["search-peers-hub-botorch"]
    theirs, ours = (_means(body["landscapes"], "20", "50", only=name) for name in ("botorch", _UNAIDED))
    return (
        f"In another run ({body['seeds']} seeds, budget {body['budget']}) BoTorch reaches {theirs} after 20 / 50, and "
        f"ours {ours}; BoTorch is ahead on {' and '.join(_botorch_ahead(body['landscapes']))}"
    )


def _botorch_ahead(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"{name} after {n} by {away:.3f}"
        for n in rows[0]["searches"][_UNAIDED]["fraction"]
        for name, away in _behind_peers(rows, n, 0).items()
    ]


def _hub_words(raw: Raw) -> str:
    """Where ours is behind the best of the others, on the same landscapes and seeds."""
    rows = raw["search-benchmark_hub"]["landscapes"]
    found = {n: _behind_peers(rows, n, 0) for n in ("8", "16", "20", "50", "100", "200")}
    first, second = found.pop("8"), found.pop("16")
    shown = (f"after {n} on {_named(behind)}" for n, behind in found.items())
    return (
        f"It is behind the best of the others in this file after 8 on {len(first)} of the {len(rows)} (by up to "
        f"{max(first.values()):.3f}), after 16 on {len(second)} (by up to {max(second.values()):.3f}), "
        f"{', '.join(shown)}"
    )


def _unaided_words(raw: Raw) -> str:
    """The search without a prior against calculated random search, on kernels that decided little of it."""
    body = raw["search-unaided-unseen"]
    means = [body["mean"][name]["fraction"] for name in (_UNAIDED, _CALCULATED)]
    parts = [f"{ours:.3f} after {n} ({means[1][n]:.3f})" for n, ours in means[0].items()]
    kept = [row for row in body["landscapes"] if row["file"].startswith(_JUDGED)]
    large = [row for row in kept if row["configs"] > _SMALL]
    counts = ("20", "50", "100")
    return (
        f"{', '.join(parts)}; {_behind(body['landscapes'], _CALCULATED)}. Ten of them are"
        " design landscapes, which were in sight when other constants of the search were chosen. On the other "
        f"{len(kept)} it reaches {_means(kept, *counts, only=_UNAIDED)} after 20 / 50 / 100 "
        f"({_means(kept, *counts, only=_CALCULATED)}), but {len(kept) - len(large)} of those have at most {_SMALL} "
        f"configs, which any search has tried whole after 50; on the other {len(large)} it reaches "
        f"{_means(large, *counts, only=_UNAIDED)} ({_means(large, *counts, only=_CALCULATED)})"
    )


def _everywhere(raw: Raw) -> str:
    """The search without a prior on all landscapes, each landscape and then each kernel one vote."""
    own, hub = (raw[f"search-{name}"]["landscapes"] for name in ("unaided-all", "benchmark_hub"))
    rows = [*((_kernel(row), row) for row in own), *((f"hub {_kernel(row)}", row) for row in hub)]
    kernels: dict[str, list[Mapping[str, Any]]] = {}
    for kernel, row in rows:
        kernels.setdefault(kernel, []).append(row)
    fresh = [kernels[name] for name in _KERNELS_OF_NO_SAY]
    large = [found for each in kernels.values() if (found := [row for row in each if row["configs"] > 200])]
    theirs = [found for name, found in kernels.items() if name.startswith("hub ")]
    return (
        f"after {' / '.join(_AIMED)} evaluations {_votes([[row] for _, row in rows])} with one vote for each of "
        f"{len(rows)} landscapes (calculated random search {_votes([[row] for _, row in rows], _CALCULATED)}), "
        f"{_votes(list(kernels.values()))} with one for each of {len(kernels)} kernels, and {_votes(large)} likewise "
        f"if only spaces of more than 200 configs count ({sum(map(len, large))} landscapes of {len(large)} kernels); "
        f"the aims are 0.80 / 0.93 / 0.98 / 0.997. The nine of benchmark_hub alone: "
        f"{_votes([[row] for row in hub])}, or {_votes(theirs)} with one vote for each of their kernels. On the "
        f"{len(fresh)} kernels that decided nothing of this search, of one landscape each: {_votes(fresh)} (random "
        f"search {_votes(fresh, _CALCULATED)})"
    )


def _everywhere_cases(raw: Raw) -> str:
    own = raw["search-unaided-all"]["landscapes"]
    measured = sum(row["clock"] == "measured" for row in own)
    seeds = "; ".join(_seeds(raw, name) for name in ("search-unaided-all", "search-benchmark_hub"))
    return f"{seeds}; of the project's own {measured} measured on an H200 and {len(own) - measured} modelled"


_AIMED = ("20", "50", "100", "200")
_AIMS = (0.80, 0.93, 0.98, 0.997)


def _short_of_aims(raw: Raw) -> str:
    """Return where benchmark_hub's nine alone miss the aims, which their rounded figures do not show."""
    hub = raw["search-benchmark_hub"]["landscapes"]
    kernels: dict[str, list[Mapping[str, Any]]] = {}
    for row in hub:
        kernels.setdefault(_kernel(row), []).append(row)
    by_kernel, by_landscape = (
        {n: aim - mean for n, aim, mean in zip(_AIMED, _AIMS, _vote_means(groups), strict=True) if mean < aim}
        for groups in (list(kernels.values()), [[row] for row in hub])
    )
    assert list(by_kernel) == ["200"], "the words below say so"
    return (
        f"(the nine by kernels are short by {by_kernel['200']:.4f} after 200; by landscapes the nine miss after "
        f"{' and '.join(by_landscape)})"
    )


_KERNELS_OF_NO_SAY = (
    *("add_rms_norm", "cross_entropy", "per_block_quant", "per_token_quant", "rms_norm", "silu_and_mul"),
    "topk_gating",
)
"""Kernels that were recorded when the search without a prior was finished."""


def _kernel(row: Mapping[str, Any]) -> str:
    return str(row["file"]).partition("-")[0]


def _votes(groups: Sequence[Sequence[Mapping[str, Any]]], search: str = _UNAIDED) -> str:
    """Return the mean over groups of the mean over the landscapes of a group, after each count with an aim."""
    return " / ".join(f"{mean:.3f}" for mean in _vote_means(groups, search))


def _vote_means(groups: Sequence[Sequence[Mapping[str, Any]]], search: str = _UNAIDED) -> list[float]:
    return [
        statistics.fmean(statistics.fmean(row["searches"][search]["fraction"][n] for row in group) for group in groups)
        for n in _AIMED
    ]


_JUDGED = ("flash_attention-", "batch_norm-3x200x900", "max_rows-500x2000")
"""Landscapes of search-unaided-unseen that landscapes/README.md calls judged."""


def _matrix_words(raw: Raw) -> str:
    """The same on matrix landscapes that were recorded when all but the opening was finished."""
    fresh = raw["search-unaided-matrix"]["landscapes"]
    shown = list[str]()
    for n in ("8", "16", "20", "50", "100"):
        names = ("guided-without-prior", "tpe", "random-calculated")
        ours, tpe, random = (sum(row["searches"][name]["fraction"][n] for row in fresh) / len(fresh) for name in names)
        shown.append(f"{ours:.3f} after {n} ({tpe:.3f}, {random:.3f})")
    behind = f"against tpe {_behind(fresh, 'tpe')}; against calculated random search {_behind(fresh, _CALCULATED)}"
    return f"{', '.join(shown)}; {behind}"


def _behind(landscapes: Sequence[Mapping[str, Any]], other: str) -> str:
    """Return where the search is behind another at the mean of the seeds, and by how much."""
    behind = list[str]()
    for row in landscapes:
        ours, theirs = (row["searches"][name]["fraction"] for name in (_UNAIDED, other))
        behind += [
            f"{_short(row['file'])} after {n} by {theirs[n] - ours[n]:.3f}"
            for n in ours
            if theirs[n] - ours[n] >= 0.0005
        ]
    return f"behind on {', '.join(behind)}" if behind else "behind nowhere"


def _unaided(raw: Raw) -> str:
    body = raw["search-unaided"]
    ours, random = (body["mean"][name]["fraction"] for name in (_UNAIDED, _CALCULATED))
    parts = [f"{value:.3f} after {n} ({random[n]:.3f})" for n, value in ours.items()]
    return (
        f"{_unaided_words(raw)}; on three matrix landscapes recorded since (tpe, calculated random search): "
        f"{_matrix_words(raw)}; on nine landscapes of which six decided most of it (calculated random search): "
        f"{', '.join(parts)}; {_behind(body['landscapes'], _CALCULATED)}"
    )


_MATRIX_BEFORE = ("gemm-3000x", "grouped_gemm-", "block_fp8_gemm-256x", "gemm-512x", "fused_moe-48x")
"""Landscapes of search-peers that were recorded before the opening of 2026-11-23 was chosen."""

_OURS_AGAIN = "Ours and calculated random search were run again on 2026-11-26 (`run_again` in the files)."


def _peer_rows(raw: Raw) -> list[Mapping[str, Any]]:
    return [row for row in raw["search-peers"]["landscapes"] if not row["file"].startswith(_MATRIX_BEFORE)]


def _peers_words(raw: Raw) -> str:
    """The means of all searches on landscapes that decided little, and where ours is behind."""
    rows = _peer_rows(raw)
    fresh = [row for row in rows if row["file"].startswith(_JUDGED) or "H200" in row["file"]]
    large = [row for row in fresh if row["configs"] > _SMALL]
    first, second, *later = (_behind_peers(rows, n) for n in ("8", "16", "20", "50", "100"))
    shown = (f"after {n} on {_named(behind)}" for n, behind in zip((20, 50, 100), later, strict=True))
    return (
        f"after 20 / 50 / 100: {_means(rows, '20', '50', '100')}; more than 0.03 behind the best of the others, of "
        f"{len(rows)} landscapes, after 8 on {len(first)} (by up to {max(first.values()):.3f}), after 16 on "
        f"{len(second)} (by up to {max(second.values()):.3f}), {', '.join(shown)}; on "
        f"the {len(fresh)} that are no design landscapes (the opening's word may have been chosen on 7 of them) ours "
        f"reaches {_beside(fresh)}; without the "
        f"{len(fresh) - len(large)} of those that have at most {_SMALL} configs, {_beside(large)}"
    )


def _beside(rows: Sequence[Mapping[str, Any]]) -> str:
    counts = ("20", "50", "100")
    return (
        f"{_means(rows, *counts, only=_UNAIDED)}, the best other mean "
        f"{' / '.join(f'{_best_other(rows, n):.3f}' for n in counts)}"
    )


def _best_other(rows: Sequence[Mapping[str, Any]], n: str) -> float:
    """Return the best mean after n evaluations of the other searches."""
    names = rows[0]["searches"].keys() - {_UNAIDED}
    return max(statistics.fmean(row["searches"][name]["fraction"][n] for row in rows) for name in names)


def _named(behind: Mapping[str, float]) -> str:
    names = ", ".join(f"{name} by {away:.3f}" for name, away in behind.items())
    return f"{len(behind)} ({names})" if behind else "none"


def _again_words(raw: Raw) -> str:
    """Two landscapes on which ours was behind, with more seeds."""
    body = raw["search-peers-batch_norm"]
    shown = []
    for row, counts in zip(body["landscapes"], (("50",), ("8", "20")), strict=True):
        for n in counts:
            ours, theirs = (row["searches"][name]["fraction"][n] for name in (_UNAIDED, "kt:gen_hybrid_vndx"))
            shown.append(f"{row['file'].partition('-float')[0]} after {n} {ours:.3f} to {theirs:.3f}")
    return (
        f"With {body['seeds']} seeds, on two landscapes on which the search of 2026-11-23 was behind "
        f"kt:gen_hybrid_vndx, ours to that: {', '.join(shown)}"
    )


def _later_words(raw: Raw) -> str:
    """Two landscapes on which ours was more than 0.03 behind, with other seeds."""
    body = raw["search-peers-again"]
    behind = {n: _behind_peers(body["landscapes"], n, least=0.0) for n in ("8", "10", "16", "20", "50")}
    shown = (
        f"after {n} on {' and '.join(f'{name} by {away:.3f}' for name, away in each.items())}"
        for n, each in behind.items()
    )
    return (
        "The two landscapes that are more than 0.03 behind after 50 were run again, the others were not: by "
        f"{body['seeds']} other seeds ours is behind the best of six others there {', '.join(shown)}"
    )


def _botorch_words(raw: Raw) -> str:
    own, hub = raw["search-peers-botorch"], raw["search-peers-hub-botorch"]
    return (
        f"BoTorch's Gaussian process reaches {_means(own['landscapes'], '20', '50', '100', only='botorch')} on the "
        f"eighteen ({own['seeds']} seeds, where {_means(own['landscapes'], '20', '50', '100', only=_UNAIDED)} is "
        f"ours; BoTorch is more than 0.03 ahead {_botorch_far(own['landscapes'])}), and "
        f"{_means(hub['landscapes'], '20', '50', only='botorch')} after 20 / 50 on the nine of benchmark_hub "
        f"({hub['seeds']} seeds; ours {_means(hub['landscapes'], '20', '50', only=_UNAIDED)})"
    )


def _botorch_far(rows: Sequence[Mapping[str, Any]]) -> str:
    counts = [n for n in rows[0]["searches"][_UNAIDED]["fraction"] if _behind_peers(rows, n)]
    later = [n for n in ("20", "50", "100") if n not in counts]
    most = max(away for n in later for away in _behind_peers(rows, n, least=0.0).values())
    shown = ", ".join(f"after {n} on {_named(_behind_peers(rows, n))}" for n in counts)
    return f"{shown}, and at most {most:.3f} after {' / '.join(later)}"


def _model_rows(raw: Raw) -> list[Mapping[str, Any]]:
    first, second = (raw[f"search-peers-smac{name}"] for name in ("", "-second"))
    assert all(first[key] == second[key] for key in ("seeds", "budget", "versions")), "two runs of the same searches"
    return [*first["landscapes"], *second["landscapes"]]


def _models_words(raw: Raw) -> str:
    """Searches of other projects that model times, and where ours is behind the best of them."""
    rows = _model_rows(raw)
    fresh = [row for row in rows if row["file"].startswith(_FRESH_OF_MODELS)]
    first, *later = (_behind_peers(rows, n) for n in ("8", "16", "20", "50", "100"))
    behind = (f"after {n} on {_named(found)}" for n, found in zip((16, 20, 50, 100), later, strict=True))
    judged = (f"{name} {_means(fresh, '20', '50', '100', only=name)}" for name in (_UNAIDED, "optuna-gp", "smac"))
    return (
        f"after 20 / 50 / 100: {_means(rows, '20', '50', '100')}. Ours is more than 0.03 behind the best of the "
        f"others after 8 on {len(first)} (by up to {max(first.values()):.3f}), {', '.join(behind)}. On the "
        f"{len(fresh)} landscapes that are listed as judged (the opening's word may have been chosen on them): "
        f"{', '.join(judged)}"
    )


_FRESH_OF_MODELS = ("fused_moe-256x60", "batch_norm-3x200x900", "block_fp8_gemm-1024x")
"""Landscapes of search-peers-smac and its second file that decided at most the word of the opening."""


def _models_again_words(raw: Raw) -> str:
    """The landscape on which ours was behind, with more and other seeds."""
    body = raw["search-peers-smac-batch_norm"]
    [row] = body["landscapes"]
    shown = [
        f"{name} {found['fraction']['50']:.3f} ± {found['fraction_ci95']['50']:.3f}"
        for name in (_UNAIDED, "optuna-gp")
        for found in [row["searches"][name]]
    ]
    return (
        f"Only {_short(row['file'])} was run again, with {body['seeds']} other seeds and without SMAC and CMA-ES; "
        f"after 50, with 95% intervals: {', '.join(shown)}"
    )


def _models_cases(raw: Raw) -> str:
    files = [_short(row["file"]) for row in _model_rows(raw)]
    body = raw["search-peers-smac"]
    return (
        f"{len(files)} landscapes, {body['seeds']} seeds, budget {body['budget']}: {', '.join(files)}. The three "
        "modelled ones are those of landscapes/clock-7, recorded anew by version 7 of the clock; 'judged' and 'design' "
        "are the uses of the problems of the same names in landscapes/"
    )


_WORSE = 0.01
"""A fraction of the optimum is worse than another if it is behind by more than this, beyond the 95% interval."""


def _opening_words(raw: Raw) -> str:
    """The opening against calculated random search at each count."""
    body = raw["search-opening"]
    rows, counts = body["landscapes"], [int(n) for n in body["mean"][_UNAIDED]["fraction"]]
    worse = [f"{_short(row['file'])} {found}" for row in rows if (found := _worse_words(row["searches"]))]
    ours, random = (body["mean"][name]["fraction"] for name in (_UNAIDED, _CALCULATED))
    shown = (f"{ours[n]:.3f} after {n} ({random[n]:.3f})" for n in ("4", "8", "12", "16"))
    where = f"{len(worse)} ({'; '.join(worse)})" if worse else "none"
    beyond = [text for row in rows if (text := _beyond_words(row))]
    return (
        f"{len(rows)} landscapes, {body['seeds']} seeds, after each count from {min(counts)} to {max(counts)}: worse "
        f"than calculated random search by more than {_WORSE} beyond the 95% interval on {where}, beyond the interval "
        f"at all on {'; '.join(beyond) or 'none'}; {_within_words(rows)}; at the mean {', '.join(shown)}"
    )


def _within_words(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return on how many landscapes the search is behind random search by no more than the interval, and how far."""
    found = [row["searches"][_UNAIDED] for row in rows]
    random = [row["searches"][_CALCULATED]["fraction"] for row in rows]
    behind = [
        [away for n, value in ours["fraction"].items() if 0 < (away := other[n] - value) <= ours["fraction_ci95"][n]]
        for ours, other in zip(found, random, strict=True)
    ]
    most = math.ceil(max(map(max, filter(None, behind))) * 1e3) / 1e3
    widest = max(max(ours["fraction_ci95"].values()) for ours in found)
    return (
        f"behind within the interval on {sum(map(bool, behind))} landscapes, by at most {most:.3f} (the widest "
        f"interval is ± {widest:.3f})"
    )


def _beyond_words(row: Mapping[str, Any]) -> str:
    """Return after which counts the search is behind random search by more than the interval, or an empty text."""
    ours, random = row["searches"][_UNAIDED], row["searches"][_CALCULATED]["fraction"]
    behind = {n: random[n] - value for n, value in ours["fraction"].items()}
    counts = [n for n, away in behind.items() if away > ours["fraction_ci95"][n]]
    most = max((behind[n] for n in counts), default=0.0)
    return f"{_short(row['file'])} after {' and '.join(counts)} (by up to {most:.3f})" if counts else ""


def _worse_words(searches: Mapping[str, Any]) -> str:
    """Return after which counts the search is worse than random search, or an empty text."""
    ours, random = searches[_UNAIDED], searches[_CALCULATED]["fraction"]
    behind = {int(n): random[n] - value for n, value in ours["fraction"].items()}
    worse = {n: away for n, away in behind.items() if away > _WORSE + ours["fraction_ci95"][str(n)]}
    return (
        f"after {len(worse)} of these counts, from {min(worse)} to {max(worse)}, by up to {max(worse.values()):.3f}"
        if worse
        else ""
    )


def _means(rows: Sequence[Mapping[str, Any]], *counts: str, only: str = "") -> str:
    """Return the mean fractions of each search after so many evaluations, the best first; of one, without its name."""
    means = {
        name: [sum(row["searches"][name]["fraction"][n] for row in rows) / len(rows) for n in counts]
        for name in rows[0]["searches"]
    }
    shown = {name: " / ".join(f"{value:.3f}" for value in each) for name, each in means.items()}
    ordered = sorted(means, key=lambda name: -means[name][1])
    return shown[only] if only else ", ".join(f"{name} {shown[name]}" for name in ordered)


def _behind_peers(rows: Sequence[Mapping[str, Any]], n: str, least: float = 0.03) -> dict[str, float]:
    """Return how far ours is behind the best of the others, where by more than `least` at the mean of the seeds."""
    behind = {}
    for row in rows:
        found = {name: summary["fraction"][n] for name, summary in row["searches"].items()}
        ours = found.pop(_UNAIDED)
        behind[_stem(row["file"])] = max(found.values()) - ours
    return {name: away for name, away in behind.items() if round(away, 6) > least}


def _hub_cases(raw: Raw) -> str:
    names = (row["file"].removesuffix(".json.gz") for row in raw["search-benchmark_hub"]["landscapes"])
    return f"{_seeds(raw, 'search-benchmark_hub')}: {', '.join(names)}"


_HOW = {"guided": "With the prior", "guided-without-prior": "without it"}


def _anew(raw: Raw) -> str:
    now, before = (raw[f"search-clock-7{name}"] for name in ("", "-earlier"))
    return "; ".join(f"{search}: {_fractions(now, search)}, before {_fractions(before, search)}" for search in _HOW)


def _fractions(body: Mapping[str, Any], search: str) -> str:
    return " / ".join(f"{body['mean'][search]['fraction'][count]:.3f}" for count in ("8", "10", "16", "20", "50"))


_WITHIN = "The two with the prior are beyond the 95% intervals of the seeds, the six without it within"


def _anew_cases(raw: Raw) -> str:
    """Return the seeds, and where each search is behind the earlier one by over 0.003."""
    worse = (f"{how}, worse by over 0.003: {', '.join(_worse(raw, name))}" for name, how in _HOW.items())
    return f"{_seeds(raw, 'search-clock-7')}. {'; '.join(worse)}. {_WITHIN}"


def _worse(raw: Raw, search: str) -> list[str]:
    both = (raw[name]["landscapes"] for name in ("search-clock-7", "search-clock-7-earlier"))
    return [
        f"{_stem(row['file'])} after {count} ({was:.3f} before, {now:.3f} now)"
        for row, earlier in zip(*both, strict=True)
        for count, now in row["searches"][search]["fraction"].items()
        if (was := earlier["searches"][search]["fraction"][count]) - now > 0.003
    ]


def _before_words(raw: Raw) -> str:
    """The search with a prior against the one before the opening of 2026-11-23, by the same seeds."""
    body = raw["search-before-and-now"]
    few, wide = body["clock-7"], body["all"]
    matrix = [row for row in wide["landscapes"] if row["file"].startswith(_MATRIX)]
    before, now = (_near_at_once(matrix, search) for search in ("before", "now"))
    within = _within_interval(wide["landscapes"], 0.01)
    return (
        f"By {few['seeds']} seeds, the search of 2026-11-26 less the one before is at the mean of the "
        f"{len(few['landscapes'])} "
        f"{_differences(few)} (95% intervals over the landscapes). Single landscapes are behind, two of them still "
        f"after 20, each by its largest and beyond the interval of the seeds: {_largest_behind(few['landscapes'])}. On "
        f"{len(wide['landscapes'])} landscapes, these and those of an H200, by {wide['seeds']} seeds, the mean is "
        f"{_differences(wide)}, behind by more than 0.01 and beyond the interval of the seeds at any of these counts: "
        f"{_largest_behind(wide['landscapes'], 0.01)}; by more than 0.01 within it on {_SPELT[len(within)]} more, by "
        f"up to {max(within):.3f}. So the aim is missed on single landscapes; no mean is worse beyond its interval. "
        f"{now} of the {len(matrix)} of matrix kernels come within 3% of the best in 8 evaluations at the median and "
        f"25 at most, before {before}"
    )


_MATRIX = ("gemm-", "grouped_gemm-", "fused_moe-", "block_fp8_gemm-", "flash_attention-", "decode_attention-")


def _differences(part: Mapping[str, Any]) -> str:
    """Return the mean differences with their intervals over the landscapes, by count."""
    shown = (f"{each:+.3f} ± {part['mean_difference_ci95'][n]:.3f}" for n, each in part["mean_difference"].items())
    return f"{' / '.join(shown)} after {' / '.join(part['mean_difference'])}"


def _largest_behind(rows: Sequence[Mapping[str, Any]], least: float = 0.0) -> str:
    """Return the landscapes that are behind by more than `least` and beyond the interval of their seeds, each where it
    is so most."""
    shown = list[str]()
    for row in rows:
        n, away = min(row["difference"].items(), key=lambda each: each[1])
        width = row["difference_ci95"][n]
        if away + width < 0 and -away > least:
            shown.append(f"{_short(row['file'])} after {n} by {-away:.4f} ± {width:.4f}")
    return ", ".join(shown) or "none"


_SPELT = ("none", "one", "two", "three", "four", "five", "six")


def _within_interval(rows: Sequence[Mapping[str, Any]], least: float) -> list[float]:
    """Return by how much landscapes are behind that are so by more than `least`, but never beyond the interval."""
    found = list[float]()
    for row in rows:
        behind = [(-away, row["difference_ci95"][n]) for n, away in row["difference"].items() if -away > least]
        if behind and all(away <= width for away, width in behind):
            found.append(max(away for away, _ in behind))
    return found


def _near_at_once(rows: Sequence[Mapping[str, Any]], search: str) -> int:
    """Count the landscapes that are within the aims of 8 evaluations at the median and 25 at most."""
    counts = [[math.inf if n is None else n for n in row[search]["evaluations_to_3%"]] for row in rows]
    return sum(statistics.median(each) <= 8 and max(each) <= 25 for each in counts)


def _short(file: str) -> str:
    """Return a landscape's name without dtype and device, where the name has a dtype."""
    return re.split(r"-float|-bfloat|\.json", file)[0]


def _stem(file: str) -> str:
    return file.partition("-float")[0].removesuffix(".json.gz")


def _modelled(raw: Raw) -> str:
    rows = [row["searches"] for row in raw["search-modelled"]["landscapes"]]
    long = sum("2%" not in row[_UNAIDED]["evaluations_to_p95"] for row in rows)
    spans = {name: _span(_to(raw, "search-modelled", name, "2%")) for name in ("guided", "guided-without-prior")}
    near = _span(_to(raw, "search-modelled", "guided-with-neighbours", "2%"))
    return (
        f"{spans['guided']}; with neighbours {near}; without the prior {spans['guided-without-prior']} (its 95th "
        f"percentile is beyond the budget on {long}); in an earlier round {_earlier_round(raw)}"
    )


def _cube(raw: Raw) -> str:
    landscapes = raw["search-cube"]["landscapes"]
    names = ("guided", "guided-without-prior", "random")
    shown = [
        f"{row['file'].split('-')[1]} {', '.join(reached(row['searches'][name], '5%') for name in names)} and "
        f"{row['searches'][_CALCULATED]['evaluations_to']['5%']:g}"
        for row in landscapes
    ]
    return "; ".join(shown)


def _h200(raw: Raw) -> str:
    names = ("guided", "guided-without-prior", "guided-with-neighbours", "tpe")
    return "; ".join(f"{name} {_span(_to(raw, 'search-h200', name, '3%'))}" for name in names)


def _one_seed(raw: Raw, file: str = "search-h200", margin: str = "3%") -> str:
    searches = [row["searches"]["guided"] for row in raw[file]["landscapes"]]
    same = sum(found["evaluations_to"][margin] == found["evaluations_to_p95"][margin] for found in searches)
    return (
        f"guided's median equals its 95th percentile on {same} of {len(searches)} landscapes: its "
        f"{raw[file]['seeds']} seeds look like one there"
    )


def _earlier_round(raw: Raw) -> str:
    """Return how an earlier prior did on the landscape that it missed when it was judged."""
    body = raw["search-modelled-second-round"]
    [searches] = [row["searches"] for row in body["landscapes"] if row["file"].startswith("max_rows-300x4096")]
    alone, helped = (searches[name] for name in ("guided", "guided-with-neighbours"))
    assert "2%" not in helped["evaluations_to_p95"], "the words below say so"
    return (
        f"`max_rows-300x4096` took {alone['evaluations_to']['2%']:g} evaluations at the median (95th percentile: "
        f"{alone['evaluations_to_p95']['2%']:g}), and {helped['evaluations_to']['2%']:g} with neighbours (95th "
        f"percentile: not within {body['budget']})"
    )


def _ahead(raw: Raw, file: str, margin: str, other: str, than: str = _UNAIDED) -> str:
    """Return where another search's median is below that of one of ours."""
    pairs = zip(_to(raw, file, other, margin), _to(raw, file, than, margin), strict=True)
    names = [row["file"].split("-float32")[0] for row in raw[file]["landscapes"]]
    shown = [
        f"{name} ({theirs:g} against {'over the budget' if ours == math.inf else f'{ours:g}'})"
        for name, (theirs, ours) in zip(names, pairs, strict=True)
        if theirs < ours
    ]
    return f"{other} needs fewer than {than} on {', '.join(shown) or 'none'}"


def _h200_ahead(raw: Raw) -> str:
    others = (("tpe", _UNAIDED), ("random", _UNAIDED), ("guided", "guided-with-neighbours"))
    return "; ".join(_ahead(raw, "search-h200", "3%", other, than) for other, than in others)


def _ended(raw: Raw, file: str, budget: str) -> str:
    every = raw[file]["budgets"][budget]["all"]
    return (
        f"{every['near']} of {every['tunings']} within 1% at {budget} trials, the worst {every['left_worst']:.1%} "
        "behind, "
        f"after {every['trials']:.0f} trials on average"
    )


def _fewest(raw: Raw, file: str, *budgets: str) -> str:
    """Return for each budget the fewest tunings near the best on one landscape, and the landscape."""
    found = []
    for budget in budgets:
        rows = raw[file]["budgets"][budget]["landscapes"]
        row = min(rows, key=lambda row: (row["near"] / row["tunings"], row["ended_alone_near"]))
        name = row["file"].split("-float32")[0]
        found.append(f"{row['near']} of {row['tunings']} at {budget} trials ({name})")
    return "the fewest on one landscape: " + ", ".join(found)


def _on_the_same(raw: Raw) -> str:
    """Return what tunings with the prior end with on the landscapes of those without."""
    without, budgets = (raw[f"search-endings-modelled{name}"]["budgets"] for name in ("-without-prior", ""))
    names = {row["file"] for row in without["60"]["landscapes"]}
    same = [[row for row in budgets[n]["landscapes"] if row["file"] in names] for n in ("60", "120")]
    near, tunings = ([sum(row[key] for row in rows) for rows in same] for key in ("near", "tunings"))
    return (
        f"with the prior, on the {len(names)} that were searched without it too: {near[0]} of {tunings[0]} and "
        f"{near[1]} of {tunings[1]}"
    )


def _without_prior_words(raw: Raw) -> str:
    file = "search-endings-modelled-without-prior"
    few, more = (raw[file]["budgets"][budget]["all"] for budget in ("60", "120"))
    return (
        f"{few['near']} of {few['tunings']} tunings were within 1% at 60 trials (worst {few['left_worst']:.1%}), and "
        f"{more['near']} of {more['tunings']} after {more['trials']:.0f} of 120 trials on average (worst "
        f"{more['left_worst']:.1%}), as were {more['ended_alone_near']} of the {more['ended_alone']} that then ended "
        f"by themselves; {_fewest(raw, file, '60', '120')}"
    )


def _judged(raw: Raw) -> str:
    rows = raw["judged"]["landscapes"]
    kinds = {name: [row for row in rows if part in row["file"]] for name, part in _KINDS.items()}
    return "; ".join(f"{name} ({len(each)}): {_judged_kind(each)}" for name, each in kinds.items())


_KINDS = {"measured": "-H200", "modelled": "-modelled"}


def _judged_kind(rows: Sequence[Mapping[str, Any]]) -> str:
    near, tunings = (sum(row["ended"][key] for row in rows) for key in ("near", "tunings"))
    worst = max(row["ended"]["left_worst"] for row in rows)
    counts = sorted(row["evaluations_to"].get("2%", math.inf) for row in rows)
    shown = ", ".join(f"{count:g}" for count in counts)
    return f"{shown} evaluations; {near} of {tunings} tunings within 1%, the worst {worst:.1%} behind"


def _judged_cases(raw: Raw) -> str:
    rows = raw["judged"]["landscapes"]
    same = sum(row["evaluations_to"]["2%"] == row["evaluations_to_p95"].get("2%") for row in rows)
    whole = sum(row["ended"]["tunings"] for row in rows if row["ended"]["trials"] == row["configs"])
    long = [_short(row["file"]) for row in rows if row["evaluations_to_p95"].get("2%") is None]
    return (
        f"{len(rows)} of the 29 landscapes that landscapes/README.md listed as judged then (not the ten of an H200 "
        "recorded that morning, three of them of matrix kernels, whose first searches are in search-first-looks.json), "
        f"{raw['judged']['seeds']} seeds, budget {raw['judged']['trials']}; the median equals "
        f"the 95th percentile on {same}: the seeds look like one there; {whole} of the measured tunings tried their "
        "whole space, so that they cannot miss; the 95th percentile is beyond the budget on "
        f"{', '.join(long) or 'none'}"
    )


def _overhead(raw: Raw) -> str:
    rows = raw["search-overhead"]["rows"]
    return "; ".join(
        f"{row['configs']:,} configs {'with a made-up prior of one penalty' if row['prior'] else 'without a prior'} "
        f"{row['mean_ms']} ms "
        f"({row['last_40_ms']}, {row['slowest_ms']})"
        for row in rows
    )


def _overhead_cases(raw: Raw) -> str:
    rows = raw["search-overhead"]["rows"]
    [trials] = {row["trials"] for row in rows}
    spaces = [{row["configs"] for row in rows if row["prior"] == prior} for prior in (False, True)]
    assert spaces[0] == spaces[1], "each space is searched with and without a prior"
    return (
        f"{len(spaces[0])} spaces, each with and without a prior, one search of {trials} evaluations each, of which "
        f"{raw['search-overhead']['failing']:.0%} fail; one thread of a shared x86_64 machine"
    )


# Winners ---------------------------------------------------------------------------------------------------------


def _spreads(raw: Raw) -> str:
    names = {60: "-60", 120: "-120", 200: ""}
    return "; ".join(
        f"{raw[f'h200-repeatability{name}']['true_us_largest_by_smallest']:.2%} with at most {trials} trials each"
        for trials, name in names.items()
    )


def _default_spreads(raw: Raw) -> str:
    now, earlier = raw["h200-repeatability-default"], raw["h200-repeatability-default-earlier"]
    return (
        f"{_by_kernel(now['rows'])}; in the earlier run, which led to two rules, {_by_kernel(earlier['rows'])}; two of "
        f"these again, with the rules: {_by_kernel(now['designed'])}"
    )


def _matrix(raw: Raw) -> str:
    seen, fresh, now = _first_looks(raw), _landscapes(raw, "search-matrix-sixth"), _landscapes(raw, "search-matrix")
    before = _landscapes(raw, "search-matrix-uncorrected")
    corrected, mended = _corrected_looks(raw)
    latest, unchanged = (_landscapes(raw, f"search-matrix-{when}") for when in ("latest", "before"))
    return (
        f"at first sight until 2026-11-23 {_within_aims(seen)} of {len(seen)} landscapes within 8 at the median and 25 "
        f"at the 95th percentile ({_within_aims(_small(seen))} of them spaces of at most {_SMALL} configs), "
        f"{_within_aims(fresh)} of the {len(fresh)} recorded last, and one of three that are in no file; "
        f"{_within_aims(now)} of {len(now)} by the search of 2026-11-26, which all of them have decided "
        f"({_within_aims(before)} before its prior was corrected). The corrected prior at first sight, on an H100: "
        f"{_within_aims(corrected)} of {len(corrected)} ({_within_aims(_small(corrected))} of at most {_SMALL} "
        f"configs), and after a change for what these showed {_within_aims(mended)} of {len(mended)} others "
        f"of three lists ({_within_aims(_small(mended))} of at most {_SMALL} configs). After one more change, "
        f"which all have decided, {_within_aims(latest)} of all {len(latest)}, and {_within_aims(unchanged)} before it"
    )


def _matrix_readme(raw: Raw) -> str:
    seen = _first_looks(raw)
    corrected, mended = _corrected_looks(raw)
    return (
        f"At first sight matrix kernels' searches come within 3% of the best in 8 evaluations (25 at the 95th "
        f"percentile) on {_within_aims(seen)} of {len(seen)} spaces; prior corrected once, "
        f"{_within_aims(corrected)} of {len(corrected)} of an H100; twice, {_within_aims(mended)} of {len(mended)} "
        "others"
    )


def _matrix_cases(raw: Raw) -> str:
    corrected, mended = _corrected_looks(raw)
    looks = {**_first_looks(raw), **corrected, **mended}
    shown = ", ".join(f"{name} {_to_3(row)}" for name, row in looks.items())
    return f"{'; '.join(_seeds(raw, name) for name in (*_MATRIX_RUNS, *_MATRIX_H100))}. At first sight: {shown}"


def _small(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {name: row for name, row in rows.items() if row["configs"] <= _SMALL}


def _corrected_looks(raw: Raw) -> tuple[dict[str, Mapping[str, Any]], dict[str, Mapping[str, Any]]]:
    """Return the rows of the first looks of the corrected prior, on an H100, by the landscapes' names: those of the
    first list, and those of the lists after the prior was changed again."""
    first, *later = (_landscapes(raw, name) for name in _MATRIX_H100)
    return first, {name: row for rows in later for name, row in rows.items()}


def _first_looks(raw: Raw) -> dict[str, Mapping[str, Any]]:
    """Return each landscape's row of the run that first saw it, by its name."""
    first, second, all_of_fourth, fifth, fresh = (_landscapes(raw, name) for name in _MATRIX_RUNS[:-1])
    fourth = {name: row for name, row in all_of_fourth.items() if name.startswith(_RECORDED_FOURTH)}
    return {**first, **second, **fourth, **fifth, **fresh}


def _landscapes(raw: Raw, file: str) -> dict[str, Mapping[str, Any]]:
    return {row["file"].removesuffix(".json.gz").removesuffix("-H200"): row for row in raw[file]["landscapes"]}


def _within_aims(rows: Mapping[str, Mapping[str, Any]]) -> int:
    found = [row["searches"]["guided"] for row in rows.values()]
    return sum(
        each["evaluations_to"].get("3%", math.inf) <= 8 and each["evaluations_to_p95"].get("3%", math.inf) <= 25
        for each in found
    )


def _to_3(row: Mapping[str, Any]) -> str:
    guided = row["searches"]["guided"]
    counts = [guided[name].get("3%") for name in ("evaluations_to", "evaluations_to_p95")]
    return " / ".join("over 60" if count is None else f"{count:g}" for count in counts)


_MATRIX_KERNELS = ("block_fp8_gemm", "fused_moe", "gemm")


def _latest_looks(raw: Raw) -> str:
    found = _landscapes(raw, "search-first-looks")
    matrix = {name: row for name, row in found.items() if name.startswith(_MATRIX_KERNELS)}
    columns = ("20", "50", "100")
    unaided, random = (_shares(raw["search-first-looks"], search, columns) for search in (_UNAIDED, _CALCULATED))
    return (
        f"with the prior {_within_aims(found)} of {len(found)} within 8 at the median and 25 at the 95th percentile, "
        f"{_within_aims(matrix)} of {len(matrix)} of matrix kernels among them; without it, after "
        f"{' / '.join(columns)} evaluations, the fraction {unaided} of the optimum (calculated random search "
        f"{random}), on the worst landscape {_worst_shares(found, columns)}. {_latest_first(raw)}"
    )


def _latest_first(raw: Raw) -> str:
    """Return what the first evaluations without a prior reach, and where random search is ahead."""
    body = raw["search-first-looks"]
    ours, random = (_shares(body, search, ("8",)) for search in (_UNAIDED, _CALCULATED))
    behind = list[str]()
    for row in body["landscapes"]:
        own, other = row["searches"][_UNAIDED], row["searches"][_CALCULATED]["fraction"]["8"]
        if (away := other - own["fraction"]["8"]) > 0:
            assert away < own["fraction_ci95"]["8"], "the words below say so"
            behind.append(f"{_short(row['file'])} by {away:.3f}")
    return (
        f"After 8 evaluations without the prior it reaches {ours} (calculated random search {random}), behind on "
        f"{len(behind)} of the {len(body['landscapes'])} ({', '.join(behind)}), each within the interval of the seeds"
    )


def _latest_cases(raw: Raw) -> str:
    shown = ", ".join(f"{name} {_to_3(row)}" for name, row in _landscapes(raw, "search-first-looks").items())
    return f"{_seeds(raw, 'search-first-looks')}: {shown}"


def _latest_peers(raw: Raw) -> str:
    rows = raw["search-first-looks-peers"]["landscapes"]
    counts = ("20", "50", "100", "200")
    after = ", ".join(f"after {n} on {_named(_behind_peers(rows, n))}" for n in ("8", "16", *counts))
    return (
        f"after {' / '.join(counts)} evaluations without a prior {_means(rows, *counts, only=_UNAIDED)}, calculated "
        f"random search {_means(rows, *counts, only=_CALCULATED)}, the best other mean "
        f"{' / '.join(f'{_best_other(rows, n):.3f}' for n in counts)}; more than 0.03 behind the best of the others "
        f"{after}"
    )


def _shares(body: Mapping[str, Any], search: str, columns: Sequence[str]) -> str:
    return " / ".join(f"{body['mean'][search]['fraction'][column]:.3f}" for column in columns)


def _worst_shares(rows: Mapping[str, Mapping[str, Any]], columns: Sequence[str]) -> str:
    found = [row["searches"][_UNAIDED]["fraction"] for row in rows.values()]
    return " / ".join(f"{min(each[column] for each in found):.3f}" for column in columns)


def _gemm_spread(raw: Raw) -> str:
    body = raw["h200-repeatability-gemm"]
    assert len({str(each["config"]) for each in body["tunings"]}) == 1, "one config has one true time"
    own = [each["time_us"] for each in body["tunings"]]
    return (
        f"{body['true_us_largest_by_smallest']:.1%}: all ended with one config, each as a tie with {_others(body)} "
        f"others; their own "
        f"times of it are {min(own):.2f} to {max(own):.2f} us"
    )


def _others(body: Mapping[str, Any]) -> str:
    """Return with how many others the winners were tied; a winner is in its own list."""
    counts = [len(each["tied_with"]) - 1 for each in body["tunings"]]
    return f"{min(counts)} to {max(counts)}"


def _by_kernel(rows: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{row['kernel']} {row['true_us_largest_by_smallest']:.2%}" for row in rows)


def _default_cases(raw: Raw) -> str:
    now, earlier = raw["h200-repeatability-default"], raw["h200-repeatability-default-earlier"]
    counts = [[len(row["tunings"]) for row in rows] for rows in (now["rows"], earlier["rows"], now["designed"])]
    shown = [f"{len(each)} problems, {min(each)} to {max(each)} tunings each" for each in counts]
    return "{}; earlier {}; again {}".format(*shown)


def _winning_configs(raw: Raw) -> int:
    tunings = raw["h200-repeatability"]["tunings"]
    assert all(tuning["tie"] for tuning in tunings), "the words say so"
    return len({str(tuning["config"]) for tuning in tunings})


def _spread_words(raw: Raw) -> str:
    times = [tuning["true_us"] for tuning in raw["h200-repeatability"]["tunings"]]
    largest = raw["h200-repeatability"]["true_us_largest_by_smallest"]
    return f"{min(times):.2f} to {max(times):.2f} us, all within {largest:.2%}"


# Shapes never tuned ----------------------------------------------------------------------------------------------


def _untuned(raw: Raw, name: str = "shapes-h200") -> str:
    kernels = raw[name]["kernels"]
    shown = [
        f"{kernel['kernel']} {kernel['held_out']['chosen']['mean']:.3f} (worst "
        f"{kernel['held_out']['chosen']['worst']:.2f}, "
        f"{kernel['held_out']['shapes']} shapes; the default {kernel['held_out']['default']['mean']:.3f})"
        for kernel in kernels
    ]
    return ", ".join(shown)


def _untuned_cases(raw: Raw, name: str = "shapes-h200", limit: str = "a limit of one minute a kernel") -> str:
    kernels = raw[name]["kernels"]
    judged = [kernel["held_out"]["shapes"] for kernel in kernels]
    drawn = int(re.findall(r"--held-out (\d+)", raw[name]["command"])[0])
    tuned, trials = kernels[0]["tuned"], kernels[0]["trials_a_shape"]
    each = f"{', '.join(map(str, judged[:-1]))} and {judged[-1]} of {drawn}"
    return (
        f"{sum(judged)} of {drawn * len(kernels)} drawn shapes of {len(kernels)} kernels ({each}; {limit}, which the "
        f"recorded command omits, left out the rest), each tuned with {trials} trials; {tuned} of "
        f"{kernels[0]['shapes']} shapes a kernel were tuned and cross-evaluated before"
    )


def _long_rows_words(raw: Raw) -> str:
    """Return where max_rows is slow: the shapes at more than 1.5 times the best."""
    [rows] = [kernel["rows"] for kernel in raw["shapes-h200-others"]["kernels"] if kernel["kernel"] == "max_rows"]
    slow = [row for row in rows if row["chosen_us"] > 1.5 * row["best_us"]]
    others = [row for row in rows if row not in slow]
    times = [row["chosen_us"] / row["best_us"] for row in slow]
    rest, default = (
        statistics.fmean(row[f"{who}_us"] / row["best_us"] for row in others) for who in ("chosen", "default")
    )
    height, width = ([row["dims"][name] for row in slow] for name in ("M", "N"))
    alike = sum(min(height) <= r["dims"]["M"] <= max(height) and r["dims"]["N"] >= min(width) for r in rows)
    return (
        f"The {len(slow)} slowest of the {len(rows)} shapes of `max_rows`, all among the {alike} with {min(height)} to "
        f"{max(height)} rows of {min(width):,} elements or more, took {min(times):.2f} to "
        f"{max(times):.2f} times the best; the others took {rest:.3f} on average, and {default:.3f} with the default. "
        f"On {_slower(rows)} of the {len(rows)} the launched config is slower than the default, "
        f"{_slower(rows, 1.02)} of them by more than 2%"
    )


def _slower(rows: Sequence[Mapping[str, Any]], factor: float = 1.0) -> int:
    """Return on how many shapes the launched config takes more than `factor` times as long as the default."""
    return sum(row["chosen_us"] > factor * row["default_us"] for row in rows)


def _portfolios(raw: Raw) -> list[Mapping[str, Any]]:
    others = [kernel["portfolio"] | {"kernel": kernel["kernel"]} for kernel in raw["shapes-h200-others"]["kernels"]]
    return [*raw["portfolio-h200"]["portfolios"], *others]


def _left_out(raw: Raw) -> str:
    shown = []
    for body in _portfolios(raw):
        ours, tree = body["held_out"], body["rule_held_out"]
        known = f", unknown on {tree['unknown']}" if tree["unknown"] else ""
        shown.append(
            f"{body['kernel']} {ours['mean']:.3f} (worst {ours['worst']:.2f}); by the tree {tree['mean']:.3f} (worst "
            f"{tree['worst']:.2f}{known})"
        )
    return ", ".join(shown)


def _left_out_cases(raw: Raw) -> str:
    counts = [body["held_out"]["shapes"] for body in _portfolios(raw)]
    return (
        f"{len(counts)} kernels with {', '.join(map(str, counts))} shapes; the first three in float32 with 16 trials a "
        "shape, the others, of which the file has no costs, in float16 with 32"
    )


def _left_out_words(raw: Raw) -> str:
    """Return where the tree's picks cost less than the forecast's, with none unknown on either side."""
    [body] = [body for body in _portfolios(raw) if body["kernel"] == "layer_norm_backward"]
    ours, tree = (body[which]["mean"] for which in ("held_out", "rule_held_out"))
    assert tree < ours, "the words below say so"
    return f"On `layer_norm_backward` the tree's picks cost less than the forecast's ({tree:.3f} against {ours:.3f})"


def _earlier(raw: Raw) -> str:
    """Return the mean and worst times of the launched configs in each earlier run."""
    shown = []
    for kernels in zip(*(run["kernels"] for run in raw["shapes-h200-earlier"]["runs"]), strict=True):
        costs = [kernel["held_out"]["chosen"] for kernel in kernels]
        runs = ", ".join(f"{cost['mean']:.3f} (worst {cost['worst']:.2f})" for cost in costs)
        shown.append(f"`{kernels[0]['kernel']}` {runs}")
    return "; ".join(shown)


def _earlier_words(raw: Raw) -> str:
    trials = [run["kernels"][0]["trials_a_shape"] for run in raw["shapes-h200-earlier"]["runs"]]
    return (
        f"The launched configs of the three runs ({trials[0]}, {trials[1]} and {trials[2]} trials) took {_earlier(raw)}"
    )


def _earlier_cases(raw: Raw) -> str:
    runs = [[kernel["held_out"]["shapes"] for kernel in run["kernels"]] for run in raw["shapes-h200-earlier"]["runs"]]
    trials = [run["kernels"][0]["trials_a_shape"] for run in raw["shapes-h200-earlier"]["runs"]]
    shown = (f"{sum(judged)} shapes with {count} trials each" for judged, count in zip(runs, trials, strict=True))
    return f"earlier runs: {', '.join(shown)}"


SEARCH = (
    Claim(
        name="default-gain",
        question="row_reduce 1000x8192 on the modelled part, by version 6 of the clock: the winner against our default "
        "and "
        "against the fastest config of powers of two",
        figure=_gain,
        cases=lambda raw: f"{sum(1 for _ in _times(raw))} configs that run, of {len(raw[_HEADLINE]['results'])}",
        files=(_LANDSCAPE,),
        places=(Place("docs/results/search-row_reduce-1000x8192.md"),),
        about=(
            "kernels/jit/row_reduce.py",
            "kernels/vector/row_reduce.py",
            "tuner/hardware/ascend_costs.py",
            "tuner/hardware/ascend_parts.py",
            "tuner/devices/ascend_model",
        ),
        designed="the clock, with four published times of a like program at this shape in sight, the winner's config "
        "the best of them; the default is ours: 32 rows a block, which leaves 8 of the part's 40 cores idle on 1000 "
        "rows",
        independent="nothing: the space is ours too; the powers of two are those in it",
        note="The present clock gives others (the example in README.md).",
        command="tilewise tune row_reduce -s M=1000,N=8192 --device model:Ascend910B4 --search exhaustive; "
        "tilewise export --format t4",
    ),
    Claim(
        name="headline-evaluations",
        question="row_reduce 1000x8192, modelled by the earlier clock: evaluations to within 2% of the best config, "
        "median / 95th percentile (-: not in 200)",
        figure=_headline,
        cases=lambda raw: (
            f"{_seeds(raw, 'search-row_reduce-1000x8192')}; guided's first pick does not depend on the seed"
        ),
        files=_files("search-row_reduce-1000x8192"),
        places=(Place("docs/results/search-row_reduce-1000x8192.md"), Place("docs/search.md")),
        about=(*_ASCEND, *_REPLAY),
        designed="the prior of that run imported the cost table that made this landscape (version 6, changed since), "
        "and was designed with the landscape in sight: "
        "its first pick is one deterministic number and no search; guided-without-prior is the ablation",
        independent="nothing: this is a design landscape for the search too",
        note="guided-without-prior is by the opening before that of 2026-11-23. Earlier versions of it took 64.5 / - "
        "(commit 8c08255) and, on a record by version 4 of the clock, 59.5 / 106 (commit b00a209); that of 2026-11-26 "
        "takes 97 / 147 (3 seeds, search-unaided-all.json).",
    ),
    Claim(
        name="inferred-tilings",
        question="Modelled by version 6 of the clock, with a prior that has the costs of version 7: sum over "
        "landscapes of the median evaluations to within 2% of the best config, with tilings that were inferred and "
        "with those by hand; the aim is 1.3 times",
        figure=_inferred_words,
        cases=lambda raw: (
            f"the project's kernels, {len(raw['inferred-unseen']['landscapes'])} modelled landscapes and "
            f"{len(raw['inferred']['landscapes'])} others, {raw['inferred']['seeds']} seeds, "
            f"{raw['inferred']['budget']} evaluations at most; of a search that needs more, one more is counted"
        ),
        files=_files("inferred", "inferred-unseen"),
        places=(Place("docs/programs.md", _inferred_words),),
        about=(*_ASCEND, *_REPLAY, "tuner/inference", "tuner/capture", "benchmarks/search/inferred_tilings.py"),
        designed="the inference, mended after runs on the landscapes of the second figures (before, 27 inferred and 19 "
        "by hand, which missed the aim: commit 6288646); the tilings by hand, with "
        "landscapes of both kinds in sight; the search and its prior, on 11 of the 13 landscapes of the first figures",
        independent="the inference on the landscapes of the first figures, of the same kernels at other sizes; "
        "kernels of others have no tiling by hand to compare with",
        note="batch_norm, of which nothing is inferred, is in the second run only; 13 of the 35 modelled landscapes of "
        "vector kernels, four of batch_norm among them, are in neither.",
    ),
    Claim(
        name="unaided-searches",
        question="Without a prior: fraction of the optimum, mean of the landscapes (calculated random search), and "
        "where the search is behind; first on five kernels that decided little",
        figure=_unaided,
        cases=lambda raw: "; ".join(_seeds(raw, name) for name in _UNAIDED_RUNS),
        files=_files(*_UNAIDED_RUNS),
        places=(Place("docs/search.md", _unaided_words), Place("docs/search.md", _matrix_words)),
        about=(*_SEARCH, *_REPLAY, "benchmarks/search/score.py"),
        designed="the search but for its opening, on six of the nine, with ten of the sixteen in sight; the opening's "
        "word, among three, on 33 of 64 landscapes, and no list tells the 33; among the 64 are the nine, the three "
        "matrix landscapes, `flash_attention` of more than 8 configs, and later records of three of the others",
        independent="the opening, on the other `batch_norm` and `max_rows`, `relu_bias_scale` and `layer_norm_apply`, "
        "modelled by an earlier clock; the division into eighths, on any",
        note="The nine files are those of benchmark_hub, as below, by the same searches.",
    ),
    Claim(
        name="unaided-everywhere",
        question="Without a prior, on all landscapes of 2026-11-26, 11:26 (those of an H100 are later): fraction of "
        "the optimum, each landscape one vote, or each kernel; the aims are 0.80 / 0.93 / 0.98 / 0.997 after 20 / 50 / "
        "100 / 200",
        figure=lambda raw: f"{_everywhere(raw)} {_short_of_aims(raw)}",
        cases=_everywhere_cases,
        files=_files("search-unaided-all", "search-benchmark_hub"),
        places=(Place("docs/search.md", _everywhere),),
        about=(*_SEARCH, *_REPLAY, "benchmarks/search/score.py"),
        designed="the surrogate, the experts' weights and other constants, on six of benchmark_hub's nine and, partly, "
        "on the project's design landscapes; the opening's word, among three, on 33 of 64 landscapes",
        independent=f"all of the search, on the kernels of the last figures ({', '.join(_KERNELS_OF_NO_SAY)}), which "
        "were recorded when it was finished",
        note="Problems that were recorded by two clocks count once, by the later. A space that has been tried whole "
        "counts as 1. A kernel that was both measured and modelled is one kernel; benchmark_hub's gemm is another. Of "
        "fourteen names in landscapes/ and landscapes/clock-7 the latter's files were searched. Our figures on the "
        "nine are of 2026-11-26 (`run_again`).",
    ),
    Claim(
        name="peer-searches",
        question="Without a prior, on 18 landscapes of which ten were in sight when constants were chosen: fraction of "
        "the optimum, mean of the landscapes, beside searches of other projects",
        figure=lambda raw: f"{_peers_words(raw)}. {_later_words(raw)}. {_again_words(raw)}. {_botorch_words(raw)}",
        cases=lambda raw: (
            f"{_seeds(raw, 'search-peers')}, of which {len(_peer_rows(raw))} landscapes count here: the others, matrix "
            "kernels, were recorded before 2026-11-23 and decided the opening of then"
        ),
        files=_files(
            *("search-peers", "search-peers-again", "search-peers-batch_norm", "search-peers-botorch"),
            "search-peers-hub-botorch",
        ),
        places=tuple(
            Place("docs/search.md", words) for words in (_peers_words, _later_words, _again_words, _botorch_words)
        ),
        about=(*_SEARCH, *_REPLAY, "benchmarks/search"),
        designed="other constants of the search, with ten of the vector kernels' landscapes in sight (those that "
        "landscapes/README.md calls design) and other shapes of the matrix kernels; the opening's word, among three, "
        "on 33 of 64 landscapes, and no list tells the 33; among the 64 are six of these, and later records of three",
        independent="the opening, on the other nine; the other searches, which ran at their default settings",
        note=f"{_OURS_AGAIN} The best of the others is chosen on each landscape after the fact, which favours them.",
    ),
    Claim(
        name="peers-with-models",
        question="Without a prior, beside SMAC, and Optuna's Gaussian process and CMA-ES: fraction of the optimum, "
        "mean of the landscapes, and where it is more than 0.03 behind the best of the others; the aim is nowhere "
        "after 50 and 100",
        figure=lambda raw: f"{_models_words(raw)}. {_models_again_words(raw)}",
        cases=_models_cases,
        files=_files("search-peers-smac", "search-peers-smac-second", "search-peers-smac-batch_norm"),
        places=(Place("docs/search.md", _models_words), Place("docs/search.md", _models_again_words)),
        about=(*_SEARCH, *_REPLAY, "benchmarks/search"),
        designed="the opening's word, among three, on 33 of 64 landscapes: these six are among the 64, and no list "
        "tells which of them are among the 33; the surrogate and its constants, with convolution_milo-W6600; other "
        "constants, with max_rows-777x3000, sum_rows-300x1024 and other shapes of the judged kernels. "
        "sum_rows-300x1024 was added "
        "when the other five had been seen: on those, after 50, ours of then 0.972, optuna-gp 0.952, smac 0.926 "
        "(commit 6bae919)",
        independent="the other searches, which ran at their default settings. They know no constraints: a suggestion "
        "is moved to the nearest valid config that was not tried",
        note=f"{_OURS_AGAIN} The best of the others, calculated random search among them, is chosen on each landscape "
        "after the fact, which favours them. A search of 100 evaluations takes SMAC 26 to 46 s and the Gaussian "
        "process 7 to 12 s.",
    ),
    Claim(
        name="opening",
        question="Without a prior: the search's first evaluations against calculated random search; the aim is "
        "nowhere worse by more than 0.01 beyond the 95% interval",
        figure=_opening_words,
        cases=lambda raw: (
            f"{_seeds(raw, 'search-opening')}, seeds from {raw['search-opening']['first_seed']}: landscapes/clock-7, "
            "nine of benchmark_hub, and the 41 of the H200 of more than 8 configs that were recorded by 2026-11-24"
        ),
        files=_files("search-opening"),
        places=(Place("docs/search.md", _opening_words),),
        about=(*_SEARCH, *_REPLAY, "benchmarks/search/score.py"),
        designed="which of the first eight configs are random and which the surrogate chooses, among three patterns: "
        "two on 33 of these landscapes, all on seven of them, by other seeds and by runs that are not kept; the rest "
        "of the search as in unaided-searches",
        independent="the division into eighths, which is argued; nothing was chosen by these seeds",
        note="Calculated random search is exact, so the interval is that of ours. The opening before, four configs "
        "each the farthest of five random ones, was worse than random search on two of the 64 (max_rows-777x3000 by "
        "up to 0.051, gemm-16x8192x8192 by up to 0.027), with means of 0.760, 0.849, 0.901 and 0.930 (seeds from "
        "2000, search-opening.json at commit 552618b). The same with an older record of the first fourteen, by these "
        "seeds and without a file: worse on none.",
    ),
    Claim(
        name="searches-of-others",
        question="Kernels of other projects, without a prior: fraction of the optimum, mean of the landscapes (worst "
        "landscape)",
        figure=_hub,
        cases=_hub_cases,
        files=_files("search-benchmark_hub", "search-peers-hub-botorch"),
        places=(Place("docs/search.md", _hub_words), Place("docs/search.md", _hub_botorch)),
        about=(*_SEARCH, *_REPLAY, "benchmarks/search"),
        designed="the surrogate, the experts' weights and the constants of guided.py, on six of these spaces; the "
        "opening's word, among three, on 33 of 64 landscapes; all nine are among the 64, and no list tells which of "
        "them are among the 33",
        independent="the other searches, which ran at their default settings",
        note="The figures of ours are of 2026-11-26 (`run_again` in the file), those of the others of 2026-11-23. With "
        "the opening between these days ours reached 0.865 / 0.942 / 0.976 / 0.997 by the same seeds; ± 0.015 / 0.011 "
        "/ 0.008 / 0.003 is the interval of today's. The files are those of "
        "benchmark_hub (github.com/AutoTuningAssociation) but for their names; neither its revision nor their paths "
        "there were recorded. BoTorch was not run beyond 50.",
    ),
    Claim(
        name="modelled-products",
        question="gemm of four shapes in float16 on the modelled part: evaluations to within 5% of the best config, "
        "median / 95th percentile (-: not in 60), of guided, guided without the prior and random search, and those "
        "after which random search, calculated, has an even chance; the aim is 12 at the median",
        figure=_cube,
        cases=lambda raw: _seeds(raw, "search-cube"),
        files=_files("search-cube"),
        places=(Place("docs/search.md"),),
        about=(*_CUBE, *_REPLAY),
        designed="the prior of products, mended with an earlier record of 4096 cubed in sight; its costs are those of "
        "the part that made the landscapes but for far rows; the prior was changed with the model after earlier "
        "records of all four shapes had been searched",
        independent="the other three shapes, as far as is recorded: changes of the prior were made for published "
        "products; guided-without-prior and random, which know nothing of the part",
        note="Guided's first pick does not depend on the seed.",
    ),
    Claim(
        name="modelled-landscapes",
        question="Modelled Ascend kernels, by the earlier clock: evaluations to within 2% of the best, median, by "
        "landscape; and the landscape that an earlier prior missed when it was judged",
        figure=_modelled,
        cases=lambda raw: (
            f"{_seeds(raw, 'search-modelled')}; six landscapes were only judged; "
            f"{_one_seed(raw, 'search-modelled', '2%')}; {_ahead(raw, 'search-modelled', '2%', 'tpe')}; the earlier "
            "round had "
            f"{len(raw['search-modelled-second-round']['landscapes'])} landscapes"
        ),
        files=_files("search-modelled"),
        earlier=_files("search-modelled-second-round"),
        places=(Place("docs/search.md", _earlier_round),),
        about=(*_ASCEND, *_REPLAY),
        designed="the prior, whose costs are those of the part that made the landscapes, the search's opening and its "
        "constants, on all but six (landscapes/README.md); the prior was corrected for what the earlier round showed",
        independent="nothing but the six judged landscapes, of kernels that have design landscapes of other shapes",
        note="guided-without-prior is by the opening before that of 2026-11-23. Where the median is 1, the first pick "
        "is the prior's and no search took place. The searches with neighbours were run again after the opening had "
        "been changed for one of these landscapes (`run_again` in the file). The prior of the first round, of which no "
        "file is kept, reached the aims on four of nine (docs/search.md). The tests of this aim with a later prior, "
        "whose model is newer than the landscapes, failed on 2026-11-22 (test-full.json); "
        "their bounds were then doubled, to 20 and 50 evaluations (commit 77d9a8d), so that no test holds the aim.",
    ),
    Claim(
        name="modelled-landscapes-anew",
        question="Fourteen of the modelled landscapes, recorded anew on 2026-11-23 by version 7 of the clock: "
        "fraction of the optimum after 8 / 10 / 16 / 20 / 50 evaluations, mean of the landscapes, by the search of "
        "2026-11-26 and by that of before the opening of 2026-11-23",
        figure=_anew,
        cases=_anew_cases,
        files=_files("search-clock-7"),
        earlier=_files("search-clock-7-earlier"),
        places=(Place("docs/search.md"),),
        about=(*_ASCEND, *_REPLAY, "tuner/devices/ascend_model"),
        designed="the prior, whose costs are those of the part that made the landscapes; the search, on records of "
        "most of these problems by an earlier clock",
        independent="these records, but for the word of the opening without a prior, among three, on 33 of 64 "
        "landscapes, which these fourteen belong to, and how near one another the guesses of the opening with a prior "
        "may lie, among three values, on 66 landscapes, these among them; the earlier search knew the same prior "
        "(the opening with neighbours, which was chosen on twelve of them too, has no part here)",
        note="The fourteen are of the nineteen with at most 876 configs, as many as there was time for. The earlier "
        "search is tuner/samplers/guided.py of commit a8d3311 with all else of 2026-11-23. Guided was run again when "
        "the guesses of its opening were let nearer together (`run_again` in the file); before, it reached 0.988 / "
        "0.988 / 0.994 / 0.999 / 1.000 (commit 7010626). Without the prior the search of 2026-11-23 reached 0.801 / "
        "0.861 / 0.924 / 0.958 / 0.997 (commit 355a2b3).",
    ),
    Claim(
        name="search-before-and-now",
        question="With the prior: fraction of the optimum by the search of 2026-11-26 less that by the one before the "
        "opening "
        "of 2026-11-23, on the same landscapes and seeds; the aim is that nothing gets worse",
        figure=_before_words,
        cases=lambda raw: "; ".join(
            f"{len(part['landscapes'])} landscapes, {part['seeds']} seeds, budget {list(part['mean_difference'])[-1]}"
            for part in (raw["search-before-and-now"][name] for name in ("clock-7", "all"))
        ),
        files=_files("search-before-and-now"),
        places=(Place("docs/search.md", _before_words),),
        about=(*_ASCEND, *_NVIDIA, *_REPLAY, "tuner/prior/tensor_cores.py"),
        designed="how near one another the opening's guesses may lie (`_TWINS`), among 0.2, 0.25 and 0.3, on all of "
        "these; the word of the opening, among some thirty, and the priors, on most",
        independent="nothing",
        note="The earlier search is tuner/samplers/guided.py of commit a8d3311 with all else of that day. With "
        "`_TWINS` "
        "at 0.3, where it was until then, the clock-7 landscapes were worse by up to 0.053 (sum_rows-1500x1500 after "
        "16), and 0.037 (sum_rows-4096x512 after 10), by the same 100 seeds. Both searches ran with faster "
        "algebra, equal but for rounding. The file has no fractions of single seeds, so the intervals of single "
        "landscapes cannot be computed again.",
    ),
    Claim(
        name="judged-landscapes",
        question="Landscapes of `tilewise bench judge`, of matrix kernels measured on an H200, and of gemm and vector "
        "kernels modelled by earlier clocks: median evaluations to within 2% of the best, by landscape, and whole "
        "tunings",
        figure=_judged,
        cases=_judged_cases,
        files=_files("judged"),
        places=(Place("landscapes/README.md", _judged),),
        about=(*_ASCEND, *_REPLAY, "tuner/tuning", "benchmarks/search/judge.py", "benchmarks/search/endings.py"),
        designed="the rule for the end, on all that existed then; the prior of matrix products, corrected with all ten "
        "measured ones in sight; how near one another the opening's guesses may lie, on the ten and on later records "
        "of three of the modelled. The modelled priors have the costs of a later clock than the one that made the "
        "landscapes, and these kernels have design landscapes of other shapes",
        independent="the search's other constants, as far as landscapes/README.md records (six of the measured have "
        "at most 66 configs and were tried whole)",
        note="All twelve misses are of one landscape, sum_rows-400x5000: each tuning ended by itself after 20 trials, "
        "1.2% behind. The same 19 problems that morning (commit e673b049), the three modelled products in records by "
        "an earlier clock (recorded anew at 12:40, commit ca8ff6e0), before the prior of matrix products was corrected "
        "and the opening's guesses were let nearer together, and with version 7's costs in the modelled priors in "
        "place of version 9's: "
        "measured 1, 1, 1, 1, 1, 1, 8, 11, 26 and 61.5 evaluations, 120 of 120; modelled 1, 1, 1, 1, 1, 1, 1, 3 and "
        "14, 108 of 108, the worst 0.8% behind. The sixteen of 2026-11-23, five of which are design landscapes by now, "
        "had 119 of 120 and 72 of 72 tunings within 1%, the worst 4.0% behind (commit 895066d).",
    ),
    Claim(
        name="h200-landscapes",
        question="Measured H200 kernels: evaluations to within 3% of the best, median, by landscape",
        figure=_h200,
        cases=lambda raw: f"{_seeds(raw, 'search-h200')}; {_one_seed(raw)}; {_h200_ahead(raw)}",
        files=_files("search-h200"),
        places=(Place("docs/search.md", _one_seed),),
        about=(*_NVIDIA, *_REPLAY),
        designed="the NVIDIA prior on all eight landscapes, how near one another the guesses of the opening may lie "
        "on all eight, the search's other constants on five, its opening with neighbours on six: no landscape was "
        "only judged",
        independent="nothing",
        note="Before the prior was changed with these in sight, guided took 1 to 53 (commit eb4db3f). By the searches "
        "of 2026-11-21 guided with neighbours took 2 / 13 on row_reduce-1000x8192 (commit 9ef10e4), by those of the "
        "morning of 2026-11-26 13 / 65 (commit 481202e); the last four letters of its opening were then chosen on "
        "these and other landscapes. Guided, and guided with neighbours, were run again at 11:34 (`run_again` in the "
        "file), after the guesses of the opening were let nearer together; no count moved (commit a2762837). The "
        "others are of 09:16.",
    ),
    Claim(
        name="matrix-landscapes",
        question="Matrix kernels on an H200 and an H100: evaluations to within 3% of the best, median / 95th "
        "percentile, by the search as it was when it first saw each landscape",
        figure=_matrix,
        cases=_matrix_cases,
        files=_files(
            *_MATRIX_RUNS, "search-matrix-uncorrected", *_MATRIX_H100, "search-matrix-latest", "search-matrix-before"
        ),
        places=(Place("docs/search.md"), Place("README.md", _matrix_readme)),
        about=("tuner/prior/tensor_cores.py", *_SEARCH),
        designed="the prior, on all of them, after the first look at each; the "
        "opening of 2026-11-23, on those of the H200 but the thirteen marked judged in landscapes/README.md; the "
        "values that flash_attention offers, with runs of other shapes in sight; how near one another "
        "the guesses of the opening may lie, on all of the H200",
        independent="each landscape's first look; each of the four lists of the H100 was made before any of it was "
        "recorded (14 of 18, then 6 of 10, 10 of 13 and 8 of 8: the others for want of time, and one refused)",
        note="Three first looks are not in the files: two shapes of decode_attention took 13 / 13 and 2 / 2, and "
        "gemm-100x3000x5000, with a kernel that was mended since, 30 / over 60. The file of the second look is dated "
        "a minute after that of the fourth; which code made it is not recorded. The 12 seeds look like one on most "
        "of an H100's, so their 95th percentile says nothing of spread. Random search alone meets the "
        "aims on 5 of the 31 first looks, 3 of the 14 and 3 of the 24 of an H100, and 7 of the 37. Five of an H100 "
        "were recorded again with kernels that mask rows beyond the matrix, as those of the fourth list do; the first "
        "looks at these five were at the earlier files. Of gemm-200x7168x2048 6218 of 6342 configs are recorded.",
    ),
    Claim(
        name="first-looks",
        question="Ten landscapes of an H200 that had decided nothing of the prior or the search, seven of them of "
        "kernels that were never recorded: evaluations to within 3% of the best, median / 95th percentile, by the "
        "search when it first saw them",
        figure=_latest_looks,
        cases=_latest_cases,
        files=_files("search-first-looks"),
        places=(Place("docs/search.md", _latest_first), Place("landscapes/README.md")),
        about=("tuner/prior/tensor_cores.py", *_NVIDIA, *_SEARCH),
        designed="the prior and the search, on other kernels and, for the matrix kernels, on other shapes; the values "
        "and defaults that these kernels offer, with tunings of other shapes in sight, and of two of these: rms_norm "
        "4096x4096 on 2026-11-22 and silu_and_mul 2048x14336 on 2026-11-23",
        independent="these landscapes; since that run, three of them (block_fp8_gemm, fused_moe, gemm) are among "
        "those on which the opening with neighbours was chosen, and were in sight when the prior of products was "
        "corrected; all are among those on which it was chosen how near one another the guesses of the opening may lie",
        note="guided's median equals its 95th percentile where its 12 seeds look like one. On 8 of the 10 fewer than "
        "20 configs are within 3% of the best; on the other two, fused_moe and silu_and_mul, random search has an even "
        "chance "
        "of one after 4 and 9.",
    ),
    Claim(
        name="first-looks-peers",
        question="The ten landscapes of first-looks, without a prior, beside searches of other projects: fraction of "
        "the optimum, mean of the landscapes, and where it is more than 0.03 behind the best of the others",
        figure=_latest_peers,
        cases=lambda raw: (
            f"{_seeds(raw, 'search-first-looks-peers')}; the others are forest, tpe, calculated random search and six "
            "strategies of Kernel Tuner"
        ),
        files=_files("search-first-looks-peers"),
        places=(Place("docs/search.md", _latest_peers),),
        about=(*_SEARCH, *_REPLAY, "benchmarks/search"),
        designed="the search that first saw these landscapes: nothing; its constants, on other kernels and shapes. "
        "The values and defaults that the kernels offer, which all searches share: as in first-looks",
        independent="these landscapes; the other searches, which ran at their default settings",
        note="The best of the others is chosen on each landscape after the fact, which favours them. SMAC, BoTorch and "
        "Optuna's Gaussian process were not run on these.",
    ),
    Claim(
        name="endings-h200",
        question="Whole tunings replayed on measured H200 landscapes: winners within 1% of the best",
        figure=lambda raw: "; an hour before, with the prior before: ".join(
            "; ".join(_ended(raw, file, n) for n in ("60", "120", "240"))
            for file in ("search-endings-h200", "search-endings-h200-earlier")
        ),
        cases=lambda raw: (
            f"{len(raw['search-endings-h200']['budgets']['60']['landscapes'])} landscapes, "
            f"{raw['search-endings-h200']['seeds']} seeds; {_fewest(raw, 'search-endings-h200', '60', '120', '240')}; "
            f"in the earlier run {_fewest(raw, 'search-endings-h200-earlier', '60', '120', '240')}"
        ),
        files=_files("search-endings-h200"),
        earlier=_files("search-endings-h200-earlier"),
        places=(Place("docs/search.md"),),
        about=(*_NVIDIA, *_REPLAY, "tuner/tuning", "tuner/measure", "benchmarks/search/endings.py"),
        designed="the rule for the end and the prior, on all these landscapes, the prior between the two runs; the "
        "search's own constants, on five of them",
        independent="nothing",
        note="Since this run, searches of noisy devices end later (docs/timing.md). guided's seeds look like one on "
        "these landscapes (claim h200-landscapes). At 240 trials row_reduce-16384x1024 too had 38 of 40.",
    ),
    Claim(
        name="endings-modelled",
        question="Whole tunings replayed on modelled landscapes, by the earlier clock: winners within 1% of the best, "
        "with and without the prior",
        figure=lambda raw: (
            "; ".join(_ended(raw, "search-endings-modelled", n) for n in ("60", "120"))
            + "; without the prior "
            + "; ".join(_ended(raw, "search-endings-modelled-without-prior", n) for n in ("60", "120"))
        ),
        cases=lambda raw: (
            "; without it ".join(
                f"{len(raw[name]['budgets']['60']['landscapes'])} landscapes, {raw[name]['seeds']} seeds, "
                + _fewest(raw, name, "60", "120")
                for name in ("search-endings-modelled", "search-endings-modelled-without-prior")
            )
            + f"; {_on_the_same(raw)}"
        ),
        files=_files("search-endings-modelled", "search-endings-modelled-without-prior"),
        places=(Place("docs/search.md", _without_prior_words),),
        about=(*_ASCEND, *_REPLAY, "tuner/tuning", "benchmarks/search/endings.py"),
        designed="the rule for the end, on all landscapes that existed then, judged ones too; the prior and the "
        "search's constants, on all but the judged ones; the second expert of searches without a prior (commit "
        "196f85c), after the earlier run on these 18",
        independent="nothing that is shown apart",
        note="With the prior, guided's seeds look like one (claim modelled-landscapes), so these are hardly more cases "
        "than landscapes. The test of whole tunings with a later prior, whose model is newer than the landscapes, "
        "failed on 2026-11-22 (test-full.json); its bound on the worst winner was then raised from 2% to 3% (commit "
        "77d9a8d). Without the prior, an earlier version had 155 and 191 of 216, the worst 47.5% behind (commit "
        "664a27a); with the prior of then, 216 of 216 at both budgets, after 37 and 42 trials (same commit).",
    ),
    Claim(
        name="search-overhead",
        question="CPU time of the search itself per evaluation, mean of 200 (mean of the last 40, slowest)",
        figure=_overhead,
        cases=_overhead_cases,
        files=_files("search-overhead"),
        places=(Place("docs/search.md"),),
        about=(*_SEARCH, "benchmarks/search/overhead.py"),
        designed="the limits on the pool and on the surrogate's trials were set for this time",
        independent="nothing; the spaces have times by formula, of no kernel",
        note="A kernel's prior has up to twelve penalties and was not timed in such spaces; in the smaller ones of "
        "search-cube.json, by 60 evaluations, it took 3 to 5 ms of wall time.",
    ),
    Claim(
        name="repeatability",
        question="Ten tunings of row_reduce 1000x8192 on an H200 from nothing: spread of the winners' true times",
        figure=_spreads,
        cases=lambda raw: (
            f"{len(raw['h200-repeatability']['tunings'])} tunings at each budget, one problem, which ended after 41 to "
            "61, 41 to 121 and 89 to 201 trials; at 200 trials "
            f"{_winning_configs(raw)} configs won, each time in a tie with others"
        ),
        files=_files("h200-repeatability"),
        earlier=_files("h200-repeatability-60", "h200-repeatability-120"),
        places=(Place("docs/timing.md", _spread_words),),
        about=(*_NVIDIA, "tuner/tuning", *_TIMING, "kernels/jit/row_reduce.py", "benchmarks/gpu/repeatability.py"),
        designed="the prior and the rule for the end, with this problem in sight; 200 trials were the fourth run",
        independent="nothing; other problems are the next claim",
        note="The runs of 60 and 120 trials are of earlier versions of the search, whose default was 60. Another run "
        "of at most 120, between the two, was ended after seven tunings, with 0.66% (commit 79c2372). Since all of "
        "these runs, searches of noisy devices end later.",
    ),
    Claim(
        name="repeatability-default",
        question="Tunings from nothing on an H200 with the default budget: spread of the winners' true times",
        figure=_default_spreads,
        cases=_default_cases,
        files=_files("h200-repeatability-default"),
        earlier=_files("h200-repeatability-default-earlier"),
        places=(Place("docs/timing.md"), Place("tuner/tuning/loop.py")),
        about=(
            *(*_NVIDIA, "tuner/prior/tensor_cores.py", "tuner/tuning", *_TIMING, "benchmarks/gpu/repeatability.py"),
            *("benchmarks/gpu/matrix_product.py", "kernels/jit/elementwise.py", "kernels/jit/reduce.py"),
            *("kernels/jit/layer_norm.py", "kernels/jit/batch_norm.py"),
        ),
        designed="two rules, on the earlier run: the least number of trials (batch_norm) and the settling of the "
        "device before the final comparison (the matrix product); layer_norm_backward, gelu_tanh and the matrix "
        "product were in it too, at other shapes and dtypes",
        independent="the first five problems, by the file's own word; but kernels of most families "
        "were made faster on an H200 at other shapes (claim kernels-h200)",
        note="The aim is 1%. The time that was allowed made few tunings a problem. 0.00% means that all ended with one "
        "config.",
    ),
    Claim(
        name="repeatability-gemm",
        question="Ten tunings of a matrix product 2048x2048x2048 in bfloat16 on an H200, from nothing: spread of the "
        "winners' true times",
        figure=_gemm_spread,
        cases=lambda raw: f"{len(raw['h200-repeatability-gemm']['tunings'])} tunings of 201 trials, one problem",
        files=_files("h200-repeatability-gemm"),
        places=(Place("docs/timing.md"),),
        about=(
            *("tuner/prior/tensor_cores.py", "tuner/samplers", "tuner/space/search_space.py", "tuner/tuning", *_TIMING),
            *("kernels/jit/gemm.py", "kernels/matrix/gemm.py", "benchmarks/gpu/repeatability.py"),
        ),
        designed="the prior of tensor cores, with tunings of other shapes of this kernel in sight",
        independent="this shape, by the author's word: the other shapes' tunings are not kept",
        note="The claim before has products of other shapes by another kernel (benchmarks/gpu/matrix_product.py).",
    ),
    Claim(
        name="untuned-shapes",
        question="Shapes never tuned on an H200: mean time of the launched config over the best of three (it, the "
        "default, and a tuning afterwards), in the last run and, by earlier versions, in three before",
        figure=lambda raw: f"{_untuned(raw)}; earlier runs: {_earlier(raw)}",
        cases=lambda raw: f"{_untuned_cases(raw)}; {_earlier_cases(raw)}",
        files=_files("shapes-h200"),
        earlier=_files("shapes-h200-earlier"),
        places=(Place("docs/runtime.md", _earlier_words),),
        about=_UNTUNED,
        designed="the prior was chosen with these kernels, and the forecast's constants on still earlier runs of them; "
        "what each run showed was put to use in the next (docs/runtime.md says how they differ)",
        independent="the shapes, which were drawn anew for each run; the next claim, of other kernels, is worse",
        note="12 or 16 trials are few: a longer tuning may find a faster config, which would make the ratios larger. "
        "The last run is the best of the four. Without its slowest shape (6.27), row_reduce's default is at 1.795. At "
        "one shape of sum_rows the launched config is slower than the default, by 2.6%.",
    ),
    Claim(
        name="untuned-shapes-others",
        question="Shapes never tuned on an H200, of two kernels outside the prior's landscapes: mean time of the "
        "launched config over the best of three (it, the default, and a tuning afterwards)",
        figure=lambda raw: f"{_untuned(raw, 'shapes-h200-others')}. {_long_rows_words(raw)}",
        cases=lambda raw: _untuned_cases(raw, "shapes-h200-others", "a limit of time"),
        files=_files("shapes-h200-others"),
        places=(Place("docs/runtime.md", _long_rows_words),),
        about=_UNTUNED,
        designed="the two kernels, at other shapes and in float32 (claim kernels-h200)",
        independent="the shapes; the NVIDIA prior and the forecast's constants, as far as their modules record",
        note="Half as many shapes were tuned as for the claim above, with twice the trials.",
    ),
    Claim(
        name="portfolio-left-out",
        question="Portfolios on an H200: mean time over the best known at each tuned shape, left out, of the "
        "forecast's pick and of the tree's",
        figure=_left_out,
        cases=_left_out_cases,
        files=_files("portfolio-h200", "shapes-h200-others"),
        places=(Place("docs/runtime.md", _left_out_words),),
        about=_UNTUNED,
        designed="the prior with the first three kernels, and the forecast's constants on earlier runs of them",
        independent="each shape is left out of the forecast that is judged on it; the two other kernels",
        note="The best known is the best of the configs that were timed there, not of the whole space. The forecast "
        "picks only among configs timed at the shape, some of which it had proposed when it knew the shape; the tree "
        "does not, and its mean leaves out the unknown shapes. In the three runs before (shapes-h200-earlier.json) the "
        "forecast's pick, or what came before it, took 1.036 to 1.139 at the mean of the first three kernels, at "
        "worst 1.74.",
    ),
)
