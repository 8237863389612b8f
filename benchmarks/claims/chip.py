"""Claims about kernels and timing on a chip, and about faults there."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from tilewise.benchmarks.claims.claim import FIRST_SPECS, Claim, Place, Raw
from tilewise.db.records import shape_text

__all__ = ["CHIP"]

_NOMINAL_TB_S = 4.8
"""Memory rate of an H200 by its data sheet."""

_SINGLE_PASS = 256e6
"""Bytes from which docs/kernels.md compares kernels with the rate."""

_TUNING = (
    *("tuner/prior/nvidia.py", "tuner/prior/penalties.py", "tuner/samplers", "tuner/space/search_space.py"),
    *("tuner/tuning", "tuner/measure", "tuner/devices/cuda"),
    *("tuner/devices/measured", "benchmarks/gpu/kernels.py"),
)


_TENSOR_CORES = ("tuner/prior/tensor_cores.py", *_TUNING)


def _rates(raw: Raw) -> list[tuple[float, float]]:
    """Return each shape's share of the stream's rate in the run, and of the part's nominal rate."""
    return [(row["share_of_rate"], row["tb_s"] / _NOMINAL_TB_S) for row in raw["h200-row_reduce"]["rows"]]


def _rate_words(raw: Raw) -> str:
    (small, small_nominal), *large = _rates(raw)
    second = raw["h200-row_reduce"]["rows"][-1]
    assert second["config"] == second["default_config"], "the words below say so"
    ahead = second["tuned_us"] / second["max_autotune_us"] - 1
    first, last = (f"{row['dims']['M']}x{row['dims']['N']}" for row in raw["h200-row_reduce"]["rows"][1:])
    shares, nominal = ([f"{share[i]:.{1 - i}%}" for share in large] for i in (0, 1))
    return (
        f"On 537 MB, `row_reduce` reaches {shares[0]} ({first}) and {shares[1]} ({last}, by the default config; "
        f"max-autotune is {ahead:.2%} faster) of our streaming kernel's rate, {' and '.join(nominal)} of the nominal "
        f"{_NOMINAL_TB_S} TB/s; on 33 MB (1000x8192), {small:.1%} and {small_nominal:.0%}"
    )


def _slower(raw: Raw, *, above: bool) -> Mapping[str, Any]:
    """Return the row that is furthest behind max-autotune, among those above 50 us or below."""
    rows = [row for row in raw["h200-kernels"]["rows"] if (row["tuned_us"] > 50) == above]
    worst: Mapping[str, Any] = max(rows, key=lambda row: row["tuned_us"] / row["max_autotune_us"])
    return worst


def _behind(raw: Raw, *, above: bool) -> float:
    row = _slower(raw, above=above)
    return float(row["tuned_us"] / row["max_autotune_us"] - 1)


def _kernels(raw: Raw) -> str:
    rows = raw["h200-kernels"]["rows"]
    large = [row["share_of_rate"] for row in rows if row["bytes"] >= _SINGLE_PASS and row["kernel"] != "batch_norm"]
    small = min(row["share_of_rate"] for row in rows)
    [twice] = [row for row in rows if row["bytes"] >= _SINGLE_PASS and row["kernel"] == "batch_norm"]
    return (
        f"from 256 MB on {min(large):.1%} to {max(large):.1%} of the rate, batch_norm {twice['share_of_rate']:.1%}; of "
        f"all shapes at least {small:.1%}; at most {_behind(raw, above=True):.2%} slower than max-autotune above 50 us "
        f"and {_behind(raw, above=False):.2%} below, and slower on {_count_behind(raw)} of {len(rows)} problems"
    )


def _count_behind(raw: Raw) -> int:
    return sum(row["tuned_us"] > row["max_autotune_us"] for row in raw["h200-kernels"]["rows"])


def _kernel_cases(raw: Raw) -> str:
    rows = raw["h200-kernels"]["rows"]
    large, long = (sum(row[key] >= least for row in rows) for key, least in (("bytes", _SINGLE_PASS), ("tuned_us", 50)))
    return (
        f"{len(rows)} problems of 18 kernels in float32, limits of 44 to 110 trials; {large} move 256 MB or more, "
        f"{long} take 50 us or more; times by events, which include {_floor(raw)}"
    )


def _floor(raw: Raw) -> str:
    low, high = raw["h200-kernels"]["timer_floor_us"]
    return f"{low:.2f} to {high:.2f} us of an empty run"


def _timing(raw: Raw) -> str:
    rows = raw["h200-timing"]["rows"]
    names = {"cupti, read": "CUPTI, cache read over", "cupti, zeroed": "CUPTI, cache zeroed", "do_bench": "`do_bench`"}
    shown = []
    for name, words in names.items():
        [median] = [row["median_us"] for row in rows if (row["method"], row["size"]) == (name, "15 us")]
        spreads = [row["spread"] for row in rows if row["method"] == name]
        shown.append(f"{words} {median:.2f} us (+{min(spreads):.1%} to +{max(spreads):.1%})")
    return ", ".join(shown)


def _added(raw: Raw, method: str, without: str) -> str:
    """Return the least and the most that a method of timing adds to another's medians, over all sizes."""
    medians = {(row["method"], row["size"]): row["median_us"] for row in raw["h200-timing"]["rows"]}
    added = [medians[method, size] - medians[without, size] for size in raw["h200-timing"]["sizes"]]
    return f"{min(added):.1f} to {max(added):.1f}"


def _timing_words(raw: Raw) -> str:
    return (
        f"Events add {_added(raw, 'events, zeroed, 50 ms', 'cupti, zeroed')} us to every kernel, `do_bench` "
        f"{_added(raw, 'do_bench', 'cupti, zeroed')}. A graph's replay adds "
        f"{_added(raw, 'graph, read', 'cupti, read')} us where the cache is read over, and "
        f"{_added(raw, 'graph, zeroed', 'cupti, zeroed')} where it is zeroed."
    )


def _zeroed_words(raw: Raw) -> str:
    return (
        f"Zeroing the cache, as `do_bench` does, adds {_added(raw, 'cupti, zeroed', 'cupti, read')} us to a kernel's "
        f"time by CUPTI (in a graph {_added(raw, 'graph, zeroed', 'graph, read')})"
    )


def _method_words(raw: Raw) -> str:
    return (
        f"events around a launch add {_added(raw, 'events, zeroed, 50 ms', 'cupti, zeroed')} us to the kernel's time, "
        f"and a graph's replay {_added(raw, 'graph, read', 'cupti, read')} us"
    )


def _accuracy(raw: Raw) -> str:
    chip, interpreter = (_deviations(raw, name) for name in ("h200-accuracy", "model-accuracy"))
    return (
        "ours / torch's: on an H200 "
        f"{', '.join(f'{kernel} {both}' for kernel, both in chip.items())}; by Triton's interpreter (torch on a CPU) "
        f"{', '.join(interpreter[kernel] for kernel in chip)}"
    )


def _normalisations(raw: Raw, file: str) -> dict[str, list[Mapping[str, Any]]]:
    """Return the rows of each normalisation, one per variant."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in raw[file]["rows"]:
        if "y" in row["error"]:
            rows.setdefault(row["kernel"], []).append(row)
    return rows


def _deviations(raw: Raw, file: str) -> dict[str, str]:
    """Return the largest deviation of each normalisation's variants, and torch's."""
    return {
        kernel: " / ".join(f"{max(row[whose]['y'] for row in rows):.1e}" for whose in ("error", "torch_error"))
        for kernel, rows in _normalisations(raw, file).items()
    }


def _accuracy_cases(raw: Raw) -> str:
    kernels = _normalisations(raw, "h200-accuracy")
    [variants] = {
        len(rows) for file in ("h200-accuracy", "model-accuracy") for rows in _normalisations(raw, file).values()
    }
    return (
        f"{len(kernels)} kernels with {variants} variants each, float32, layer_norm 24x8192 and batch_norm 8x6x3136, "
        "on an H200 and in Triton's interpreter on the host; the "
        "deviations of means, rstds and GELUs are in docs/kernels.md"
    )


def _stored(raw: Raw) -> tuple[int, int]:
    """Return how many faults the tuning stored as expected, and how many only a later verification refused."""
    found = [fault for fault in raw["h200-faults"]["faults"] if fault["as_expected"]]
    later = sum("found" in fault for fault in found)
    return len(found) - later, later


def _fault_words(raw: Raw) -> str:
    body = raw["h200-faults"]
    faulty, sound = body["configs"]["faulty"], body["configs"]["sound"]
    kinds = len({fault["fault"] for fault in body["faults"]})
    stored, later = _stored(raw)
    return (
        f"Of {faulty + sound} configs of a test kernel, {faulty} have faults of {kinds} kinds: compile errors, "
        f"crashes, hangs, excess of memory or disk, wrong results. {stored} are stored with the expected status and "
        f"reason; {later}, wrong only on another input, stored as correct but unverified, are refused when "
        f"verified afterwards. {_change_words(raw)}"
    )


def _change_words(raw: Raw) -> str:
    """Return how much the sound configs' times changed among faults and between clean runs, in both recorded runs."""
    bodies = [raw[name] for name in ("h200-faults-earlier", "h200-faults")]
    [sound] = {body["configs"]["sound"] for body in bodies}
    among, clean = ([f"{_changed(body, run):.1%}" for body in bodies] for run in ("among_faults", "clean_again"))
    return (
        f"The other {sound}'s times changed by at most {among[0]} in the earlier run, {among[1]} in the later; timed "
        f"twice without faults, by {' and '.join(clean)}"
    )


def _fault_page_words(raw: Raw) -> str:
    stored, later = _stored(raw)
    return (
        f"On an H200, {stored} of {raw['h200-faults']['configs']['faulty']} were stored with their own reason; {later},"
        " wrong only on another input than the search's, were refused only when verified afterwards. "
        f"{_change_words(raw)}"
    )


def _changed(body: Mapping[str, Any], run: str) -> float:
    found = body["innocent"][run]
    return float(max(found["highest"] - 1, 1 - found["lowest"]))


def _faults(raw: Raw) -> str:
    stored, later = _stored(raw)
    return (
        f"{stored} of {raw['h200-faults']['configs']['faulty']} stored with the expected status and reason, {later} "
        f"stored unverified and refused when verified afterwards. {_change_words(raw)}"
    )


def _attention_rows(raw: Raw, kernel: str, variant: str = "", *, causal: bool = False) -> list[float]:
    """Return our best config's share of PyTorch's rate at each shape."""
    best: dict[str, float] = {}
    for row in raw["h200-attention"]["rows"]:
        ours = not row["contender"].startswith("torch") and variant in row["contender"]
        if ours and row["kernel"] == kernel and row.get("causal", False) == causal:
            shape = str(row["dims"])
            best[shape] = max(best.get(shape, 0.0), row["of_theirs"])
    return list(best.values())


def _attention(raw: Raw) -> str:
    full, masked = (_attention_rows(raw, "flash_attention", "hopper", causal=causal) for causal in (False, True))
    plain = [
        share for causal in (False, True) for share in _attention_rows(raw, "flash_attention", "plain", causal=causal)
    ]
    decode = _attention_rows(raw, "decode_attention")
    return (
        f"hopper {min(full):.1%} to {max(full):.1%}, causal {min(masked):.1%} to {max(masked):.1%}; plain "
        f"{min(plain):.1%} to {max(plain):.1%}; one query {min(decode):.1%} to {max(decode):.1%} of a read"
    )


def _products(raw: Raw) -> str:
    shares = [
        f"{shape_text(row['dims'])} {row['dtype']} {row['torch_us'] / row['tuned_us']:.1%}"
        for row in raw["h200-matrix"]["rows"]
    ]
    return ", ".join(shares)


def _tables(raw: Raw) -> str:
    body, earlier = raw["h100-moe-tables"], raw["h200-moe-tables"]
    gains, before = _gains(body), _gains(earlier)
    behind = " and ".join(
        f"{row['winner_there_us'] / row['best_us'] - 1:.1%} ({row['E']} experts)" for row in body["exhaustive"]["rows"]
    )
    return (
        f"{len(gains)} rungs took {body['wall_s']} s on an H100; the winners were {gains[0]:.2f} to {gains[-1]:.2f} "
        f"times as fast as our kernel with vLLM's default config ({statistics.median(gains):.2f} at the median; vLLM's "
        f"own tables for both sizes were not compared). At 64 rows they were {behind} behind the best of exhaustive "
        f"runs of the same space. On an H200, on 2026-11-23 and by earlier code, it took {earlier['wall_s']} s, and "
        f"they were {before[0]:.2f} to {before[-1]:.2f} times as fast"
    )


def _gains(body: Mapping[str, Any]) -> list[float]:
    """Return how many times as fast as the default each winner of a table is, in order."""
    return sorted(row["default_us"] / row["time_us"] for row in body["rows"])


def _scaled_products(raw: Raw) -> str:
    return ", ".join(
        f"{shape_text(row['dims'])} {row['torch_us'] / row['tuned_us']:.1%}" for row in raw["h200-block-fp8"]["rows"]
    )


def _trials(raw: Raw) -> str:
    counts = [row["trials"] for row in raw["h200-block-fp8"]["rows"]]
    return f"{min(counts)} to {max(counts)}"


def _layer(raw: Raw) -> str:
    times = raw["h200-decoder-layer"]["microseconds"]
    ours, theirs = (
        [times[f"{name}{how}"] for how in ("", ", torch.compile", ", CUDA graph", ", torch.compile, CUDA graph")]
        for name in ("tilewise", "eager")
    )
    return (
        f"{ours[0]:.0f} us against {theirs[0]:.0f} of PyTorch's own operations, under `torch.compile` {ours[1]:.0f} "
        f"against {theirs[1]:.0f}, in a CUDA graph {ours[2]:.0f} against {theirs[2]:.0f}, and in a graph of what "
        f"`torch.compile` makes {ours[3]:.0f} against {theirs[3]:.0f}"
    )


def _largest_shares(raw: Raw) -> list[str]:
    """Return each kernel's share of the rate at its largest shape."""
    largest = {row["kernel"]: row for row in sorted(raw["h200-llm-kernels"]["rows"], key=lambda row: row["bytes"])}
    later = max(raw["h200-cross_entropy"]["rows"], key=lambda row: row["bytes"])
    shares = {name: row["share_of_rate"] for name, row in largest.items()} | {later["kernel"]: later["share_of_rate"]}
    return [f"{name} {share:.1%}" for name, share in shares.items()]


def _smaller_shares(raw: Raw) -> str:
    """Return the shares at each kernel's other shapes."""
    first = [row for row in raw["h200-llm-kernels"]["rows"] if row["kernel"] != "cross_entropy"]
    shares: dict[str, list[float]] = {}
    for row in sorted((*first, *raw["h200-cross_entropy"]["rows"]), key=lambda row: float(row["bytes"])):
        shares.setdefault(row["kernel"], []).append(row["share_of_rate"])
    small, middle = ([each[i] for each in shares.values()] for i in (0, 1))
    return (
        f"at the smallest {min(small):.1%} to {max(small):.1%}, at the middle one {min(middle):.1%} to "
        f"{max(middle):.1%}"
    )


def _behind_default(raw: Raw) -> str:
    """Return where a kernel of a language model takes over 0.5% longer tuned than with its default."""
    ratios = {
        f"{row['kernel']} {shape_text(row['dims'])}": row["tuned_us"] / row["default_us"] - 1
        for row in raw["h200-llm-kernels"]["rows"]
    }
    behind = [f"{name} ({ratio:.1%})" for name, ratio in ratios.items() if ratio > 0.005]
    return f"slower than our own default by more than 0.5% at {len(behind)} shapes: {', '.join(behind)}"


def _default_words(raw: Raw) -> str:
    ratios = [row["tuned_us"] / row["default_us"] - 1 for row in raw["h200-llm-kernels"]["rows"]]
    count = sum(ratio > 0.005 for ratio in ratios)
    return f"At {count} shapes the tuned config is 0.6 to {max(ratios):.1%} slower than the default"


def _products_words(raw: Raw) -> str:
    rows = {shape_text(row["dims"]): row for row in raw["h200-matrix"]["rows"]}
    longer = {name: row["tuned_us"] / row["torch_us"] - 1 for name, row in rows.items()}
    eight = rows["M=8192,N=8192,K=8192,column_major=True"]
    return (
        f"The bfloat16 square of 8192 takes {-longer['M=8192,N=8192,K=8192']:.1%} less time than cuBLAS, that of 4096 "
        f"{longer['M=4096,N=4096,K=4096']:.1%} more. With 16, 64 and 256 rows `gemm` takes "
        f"{longer['M=16,N=8192,K=8192']:.1%}, {longer['M=64,N=8192,K=8192']:.1%} and "
        f"{longer['M=256,N=8192,K=8192']:.1%} longer; 8-bit products without `fast_sums` and `use_fast_accum` take "
        f"{longer['M=8192,N=8192,K=8192,column_major=True']:.0%} longer, which is "
        f"{eight['torch_us'] / eight['tuned_us']:.1%} of the rate"
    )


def _products_h100(raw: Raw) -> str:
    rows = [row for name in ("h100-matrix", "h100-block-fp8") for row in raw[name]["rows"]]
    return ", ".join(
        f"{row['kernel']} {shape_text(row['dims'])} {row['dtype']} {row['torch_us'] / row['tuned_us']:.1%}"
        for row in rows
    )


def _products_h100_words(raw: Raw) -> str:
    wide = [row for row in raw["h100-matrix"]["rows"] if row["dtype"] == "bfloat16"]
    shares = ", ".join(f"{row['torch_us'] / row['tuned_us']:.1%}" for row in wide)
    chosen = sum(row["config"]["VARIANT"] == "hopper" for row in wide)
    names = ("h100-matrix-six-stages", "h100-matrix-unmasked", "h100-matrix-earlier")
    six, before, earlier = (_shares(raw, name, "bfloat16") for name in names)
    return (
        f"On an H100 the five bfloat16 rows reach {shares}; {chosen} of the five tuned configs are `hopper`, and those "
        f"of 64 and 256 rows have seven stages. On other such cards they reached {six} earlier that day, with six "
        f"stages at most, and the day before {before}, before rows beyond the matrix were masked, and, with the prior "
        f"of then, {earlier}"
    )


def _products_h100_eight_bits(raw: Raw) -> str:
    """Return what the tunings of 8-bit inputs reach."""
    [narrow] = [row for row in raw["h100-matrix"]["rows"] if row["dtype"] != "bfloat16"]
    names = ("h100-block-fp8", "h100-block-fp8-unmasked", "h100-block-fp8-earlier")
    now, unmasked, before = (_shares(raw, name) for name in names)
    return (
        f"8-bit products, which `hopper` does not take, reach {narrow['torch_us'] / narrow['tuned_us']:.1%}. The four "
        f"shapes of `block_fp8_gemm` below reach {now} on 2026-11-27. The day before, on another card, they reached "
        f"{unmasked}, and minutes earlier, before its `hopper` had tiles of 256 columns and descriptors made by the "
        f"host, {before}"
    )


def _shares(raw: Raw, name: str, dtype: str = "") -> str:
    """Return PyTorch's time as a share of the tuned kernel's, of all rows or those of a dtype."""
    rows = [row for row in raw[name]["rows"] if dtype in ("", row["dtype"])]
    return ", ".join(f"{row['torch_us'] / row['tuned_us']:.1%}" for row in rows)


def _tried(raw: Raw, name: str) -> str:
    made = [row["trials"] for row in raw[name]["rows"]]
    return f"{min(made)} to {max(made)}"


def _took(raw: Raw, name: str) -> str:
    took = [row["tuning_s"] for row in raw[name]["rows"]]
    return f"{min(took)} to {max(took)}"


def _energy(raw: Raw) -> str:
    """Return how much each config takes of the energy of the one found by time, with the range of its measurements."""
    return "; ".join(
        f"{row['kernel']} {shape_text(_sizes(row))}: {', '.join(_of_fastest(row))}" for row in _energies(raw)
    )


def _gating(raw: Raw) -> str:
    before = {shape_text(row["dims"]): row["tuned_us"] for row in raw["h100-topk_gating-earlier"]["rows"]}
    return "; ".join(
        f"{(shape := shape_text(row['dims']))}: {row['tuned_us']:.1f} us, {row['share_of_rate']:.1%} of the rate "
        f"(`selected` {before[shape]:.1f} us)"
        for row in raw["h100-topk_gating"]["rows"]
    )


def _gating_words(raw: Raw) -> str:
    now, before = (raw[name]["rows"] for name in ("h100-topk_gating", "h100-topk_gating-earlier"))
    times = ", ".join(f"{row['tuned_us']:.1f}" for row in now)
    earlier = ", ".join(f"{row['tuned_us']:.1f}" for row in before)
    shares = ", ".join(f"{row['share_of_rate']:.1%}" for row in now)
    date = raw["h100-topk_gating"]["date"][:10]
    floor, floor_then = (raw[name]["timer_floor_us"] for name in ("h100-topk_gating", "h100-topk_gating-earlier"))
    one, one_then = now[0], before[0]
    assert one["default_config"] == one_then["default_config"], "the words below say so"
    assert one["default_config"]["VARIANT"] == "selected", "the words below say so"
    return (
        f"on an H100, on {date}, the three shapes take {times} us with it, which is {shares} of that card's rate, "
        f"and {earlier} us without, in a run of the day before whose timer floor was {floor_then:.1f} us instead of "
        f"{floor:.1f}: one `selected` config at the first shape took {one_then['default_us']:.1f} us then and "
        f"{one['default_us']:.1f} today, so there the variants are not compared"
    )


def _sizes(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row["dims"].items() if name != "objective"}


def _of_fastest(row: Mapping[str, Any]) -> list[str]:
    fastest, *others = row["in_turns"]
    unit = fastest["energy_uj"]
    return [
        f"{other['config']} {other['energy_uj'] / unit:.3f} ({other['lowest_uj'] / unit:.3f} to "
        f"{other['highest_uj'] / unit:.3f})"
        for other in (fastest, *others)
    ]


def _energy_words(raw: Raw) -> str:
    rows, times = (
        {row["kernel"]: {each["config"]: each[unit] for each in row["in_turns"]} for row in _energies(raw)}
        for unit in ("energy_uj", "time_us")
    )
    saved = {kernel: 1 - each["least energy"] / each["least time"] for kernel, each in rows.items()}
    more = {kernel: each["default"] / each["least time"] - 1 for kernel, each in rows.items()}
    slower = times["row_reduce"]["default"] / times["row_reduce"]["least time"] - 1
    return (
        f"the config found by energy took {saved['row_reduce']:.1%} less of it than the one found by time on "
        f"`row_reduce` and {saved['gemm']:.1%} on `gemm`, both less than repeated measurements differ. The default "
        f"took {more['row_reduce']:.1%} more on `row_reduce` and {-more['gemm']:.1%} less on `gemm`; on `row_reduce` "
        f"it is also {slower:.1%} slower"
    )


def _energies(raw: Raw) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = raw["h200-energy"]["rows"]
    return rows


CHIP = (
    Claim(
        name="row_reduce-rate",
        question="row_reduce on an H200: share of a streaming kernel's rate in the same run, and of the nominal rate",
        figure=lambda raw: ", ".join(
            f"{row['dims']['M']}x{row['dims']['N']} {share:.1%} and {nominal:.1%}"
            for row, (share, nominal) in zip(raw["h200-row_reduce"]["rows"], _rates(raw), strict=True)
        ),
        cases=lambda raw: f"{len(raw['h200-row_reduce']['rows'])} shapes; the small one moves 33 MB, the others 537 MB",
        files=("docs/results/h200-row_reduce.json",),
        places=(Place("README.md", _rate_words), Place("docs/results/h200-row_reduce.md")),
        about=("kernels/jit/row_reduce.py", "kernels/vector/row_reduce.py", *_TUNING),
        designed="the kernel and the prior, with these shapes in sight",
        independent="nothing",
        note="The streaming kernel, which sets the denominator, is ours too; other kernels exceed its rate. At "
        "131072x1024 the tuned config is the default, and max-autotune is faster. An earlier run (commit 690bf41) had "
        "50.3%, 98.4% and 99.1%, and was 7.3% slower than max-autotune at the small shape.",
    ),
    Claim(
        name="kernels-h200",
        question="The 18 kernels of 2026-11-20 on an H200: share of the memory rate, and time beside `torch.compile` "
        "with max-autotune",
        figure=_kernels,
        cases=_kernel_cases,
        files=("docs/results/h200-kernels.json",),
        places=(
            Place("docs/kernels.md", lambda raw: f"every figure includes {_floor(raw)}"),
            Place(
                "docs/kernels.md",
                lambda raw: (
                    f"Above 50 us no kernel is more than {_behind(raw, above=True):.2%} slower than max-autotune. "
                    "Below, "
                    f"none is more than {_behind(raw, above=False):.2%} slower"
                ),
            ),
        ),
        about=(
            *("kernels/jit/row_reduce.py", "kernels/jit/elementwise.py", "kernels/jit/softmax.py"),
            *("kernels/jit/layer_norm.py", "kernels/jit/batch_norm.py", "kernels/jit/reduce.py", *FIRST_SPECS),
            *_TUNING,
        ),
        designed="the prior of then, and kernels of most families, which were made faster after a first run on these "
        "very shapes: the worst was then 10.3% behind max-autotune below 50 us and 3.0% above, and 24 were slower "
        "(first run: h200-kernels.json at commit 5545a22); the rows of relu_bias_scale, layer_norm_apply and "
        "batch_norm are still of that first run, those of vector_add and the three GELUs of a third, before which 11 "
        "were slower (commit fa04d57), all others of a second; three kernels have more trials, batch_norm fewer",
        independent="nothing",
        note="The rate is that of the best of a plain read, copy and stream in the same run, 4.17 to 4.23 TB/s of the "
        "part's 4.8: shares above 102% are of runs at 4.17. Four shapes are slower than our own default, by up to "
        "0.17%. Events and the write-backs of the overwritten cache add more than an empty run shows, so differences "
        "in percent between kernels of some microseconds are understated.",
    ),
    Claim(
        name="attention-h200",
        question="Attention on an H200, the best of our configs: share of the rate of the faster of PyTorch's cuDNN "
        "and flash backends, and of one sum over as many bytes as the keys and values",
        figure=_attention,
        cases=lambda raw: (
            f"{len(_attention_rows(raw, 'flash_attention', 'hopper'))} lengths with a mask and without, "
            f"{len(_attention_rows(raw, 'decode_attention'))} shapes of one query; bfloat16, heads of 128, one run"
        ),
        files=("docs/results/h200-attention.json",),
        places=(Place("docs/kernels.md"),),
        about=("kernels/jit/attention", "kernels/attention", "benchmarks/gpu/attention.py"),
        designed="the kernels and the configs that were timed, with these shapes in sight",
        independent="PyTorch, whose backends ran as installed and were not tuned",
        note="The best of a few configs, not a tuning; the others, some far slower, are in the file. The split counts "
        "that are timed were chosen after an earlier run, which had hopper 95.2% to 105.8%, causal 89.0% to 94.6%, "
        "plain 67.0% to 71.0% and one query 96.2% to 98.9% (commit 88df040).",
    ),
    Claim(
        name="matrix-h100",
        question="Matrix products on an H100, with `hopper` among the variants of `gemm` (2 of 6 winners) and of "
        "`block_fp8_gemm` (3 of 4): PyTorch's time as a share of the tuned kernel's",
        figure=_products_h100,
        cases=lambda raw: (
            f"{len(raw['h100-matrix']['rows'])} shapes of gemm, one tuning each, limited to 60 trials or 20 s but "
            f"ending after {_took(raw, 'h100-matrix')} s "
            f"({_tried(raw, 'h100-matrix')} were made), and {len(raw['h100-block-fp8']['rows'])} of block_fp8_gemm of "
            "one each on another card, limited to 200 trials or 18 s but ending after "
            f"{_took(raw, 'h100-block-fp8')} s ({_tried(raw, 'h100-block-fp8')}); {raw['h100-matrix']['rounds']} runs "
            "in turns, a process for each kernel"
        ),
        files=("docs/results/h100-matrix.json", "docs/results/h100-block-fp8.json"),
        earlier=(
            "docs/results/h100-matrix-six-stages.json",
            "docs/results/h100-matrix-unmasked.json",
            "docs/results/h100-matrix-earlier.json",
            "docs/results/h100-block-fp8-unmasked.json",
            "docs/results/h100-block-fp8-earlier.json",
        ),
        places=(
            Place("docs/kernels.md", _products_h100_words),
            Place("docs/kernels.md", _products_h100_eight_bits),
        ),
        about=(
            "kernels/jit/matrix",
            "kernels/jit/gemm.py",
            "kernels/matrix/gemm.py",
            "benchmarks/gpu/matrix.py",
            *_TENSOR_CORES,
        ),
        designed="the variants and their spaces, with all shapes of gemm in sight and the last three of "
        "block_fp8_gemm, whose first is the prior's",
        independent="PyTorch, which ran as installed",
        note="The aim of 100% with few rows is missed at 256 in the three earlier runs, and in the earliest at 64 too: "
        "seven stages, which 128 x 128 tiles of pointers have room for, were added for it, with the shape of 256 rows "
        "in sight. The p20 to p80 ranges of both overlap in all bfloat16 rows of gemm and in the last two of "
        "block_fp8_gemm. The aim of the latter is 95%. gemm's 8-bit product, which hopper does not take, is beside "
        "PyTorch's without use_fast_accum.",
    ),
    Claim(
        name="matrix-h200",
        question="Matrix products on an H200: PyTorch's time (cuBLAS) as a share of the tuned kernel's",
        figure=_products,
        cases=lambda raw: (
            f"{len(raw['h200-matrix']['rows'])} shapes, one tuning each of 60 trials or 20 s (61 were made), "
            f"{raw['h200-matrix']['rounds']} runs in turns, one process"
        ),
        files=("docs/results/h200-matrix.json",),
        places=(Place("docs/kernels.md", _products_words),),
        about=(
            "kernels/jit/gemm.py",
            "kernels/matrix/gemm.py",
            "tuner/prior/tensor_cores.py",
            "benchmarks/gpu/matrix.py",
            *_TUNING,
        ),
        designed="the kernel, its space and the prior, with tunings of these very shapes in sight",
        independent="PyTorch, which ran as installed",
        note="The p20 to p80 ranges of both overlap but at M=256 and in 8 bits, at 101.7% too. The default timed there "
        "is the one of before these tunings. 8-bit products are without `fast_sums`, and "
        "PyTorch's without `use_fast_accum`: sums of 128 terms have about 14 bits, and are added up in float32.",
    ),
    Claim(
        name="moe-tables",
        question="Tables of fused_moe for 8 and for 128 experts on an H100, bfloat16, in one call; earlier on an H200",
        figure=_tables,
        cases=lambda raw: (
            f"{len(raw['h100-moe-tables']['rows'])} rungs, one run, limit 330 s; exhaustive: 64 rows, both numbers of "
            "experts, one run each, minutes later on the same card"
        ),
        files=("docs/results/h100-moe-tables.json",),
        earlier=("docs/results/h200-moe-tables.json",),
        places=(Place("docs/kernels.md", _tables),),
        about=(
            "kernels/jit/matrix/fused_moe.py",
            "kernels/matrix/fused_moe.py",
            "tuner/prior/tensor_cores.py",
            "tuner/tuning/shared_time.py",
        ),
        designed="the sharing of time and the tolerance of the output, on runs of the same tables on an H200; the "
        "prior, with landscapes of an H200 of the two rungs that were searched exhaustively in sight, and prior and "
        "masked rows with eight of fused_moe on an H100, one of them the rung of 24 rows and 8 experts in float16",
        independent="the runs of bfloat16 on the H100, of which none was made before",
        note="A winner's time beside the exhaustive run's best is that run's own. vLLM's default is the config that "
        "its release 0.33 takes where it has no table; on six rungs the winner is that config.",
    ),
    Claim(
        name="block-fp8-h200",
        question="block_fp8_gemm on an H200: time of `torch._scaled_mm` with the same scales as a share of the tuned "
        "kernel's",
        figure=_scaled_products,
        cases=lambda raw: (
            f"{len(raw['h200-block-fp8']['rows'])} shapes, one tuning each, limited to 200 trials or 18 s but ending "
            f"after {_took(raw, 'h200-block-fp8')} s ({_trials(raw)} trials), "
            f"{raw['h200-block-fp8']['rounds']} runs in turns, one process"
        ),
        files=("docs/results/h200-block-fp8.json",),
        places=(Place("docs/kernels.md", _scaled_products),),
        about=("kernels/jit/matrix", "kernels/matrix/block_fp8_gemm.py", "benchmarks/gpu/matrix.py", *_TENSOR_CORES),
        designed="the kernel and its space, with the second and the last shape in sight; the first is a design "
        "landscape of prior and search, recorded whole three hours before",
        independent="PyTorch, which ran as installed, and the third shape",
        note="The kernel had no tiles of 256 columns then. The aim is 95%, which is missed at the last. At the second "
        "and the third the two ranges overlap (p20 to p80: 104 to 108 us, PyTorch 103 to 107; 192 to 212 us, PyTorch "
        "184 to 209). At all but the first, the tuned is the default, whose own times in the same turns differ from "
        "its by up to 0.1%. The first's was the search's first pick. The faster figures that DeepGEMM publishes are "
        "of other parts and were not run here.",
    ),
    Claim(
        name="decoder-layer-h200",
        question="A decoder layer of the size of Llama 3 8B, 2048 tokens, bfloat16, on an H200: our kernels, tuned 8 s "
        "each, beside PyTorch's",
        figure=_layer,
        cases=lambda raw: (
            f"one layer, {raw['h200-decoder-layer']['rounds']} runs of each in turns, medians, one process"
        ),
        files=("docs/results/h200-decoder-layer.json",),
        places=(Place("docs/kernels.md", _layer),),
        about=("examples/decoder_layer.py", "kernels/jit", "tuner/runtime/operators.py"),
        designed="the kernels, at other shapes",
        independent="the layer and its shapes; PyTorch ran as installed",
        note="Without a graph the time has launching in it. The file has medians only: whether 1413 and 1407 differ "
        "cannot be told. Command, date, clock and versions were written into the "
        "file by hand.",
    ),
    Claim(
        name="llm-kernels-h200",
        question="Vector kernels of a language model on an H200, bfloat16: share of the rate at the largest shape, and "
        "at smaller ones",
        figure=lambda raw: f"{', '.join(_largest_shares(raw))}; {_smaller_shares(raw)}",
        cases=lambda raw: (
            f"{len(raw['h200-llm-kernels']['rows'])} shapes, three of each kernel; "
            f"12 trials each, one run (cross_entropy: 24, another run); {_behind_default(raw)}"
        ),
        files=("docs/results/h200-llm-kernels.json", "docs/results/h200-cross_entropy.json"),
        places=(Place("docs/kernels.md", _default_words),),
        about=(
            *("kernels/jit/rms_norm.py", "kernels/jit/rotary.py", "kernels/jit/quantize.py", "kernels/jit/softmax.py"),
            *("kernels/jit/elementwise.py", "kernels/jit/topk_gating.py", "kernels/vector"),
            *_TUNING,
        ),
        designed="cross_entropy, made faster after this run (71.2%); its figure is of a later one, of 24 trials",
        independent="the other kernels, whose first run this is",
        note="Timed by events, as in claim kernels-h200; the file's *timed by cupti* is the tunings' timer. The rate "
        "is the best of a read, a copy and a stream in the run, here the copy, 4.18 TB/s of the part's 4.8; "
        "silu_and_mul exceeds it. No file shows what topk_gating waits "
        "for; its variant `sorted` is newer than this run (docs/kernels.md).",
    ),
    Claim(
        name="topk-gating-h100",
        question="topk_gating with a row per thread on an H100, bfloat16: share of the rate, and the time of the other "
        "variant",
        figure=_gating,
        cases=lambda raw: (
            f"{len(raw['h100-topk_gating']['rows'])} shapes, one tuning of 60 trials each in each of two runs"
        ),
        files=("docs/results/h100-topk_gating.json",),
        earlier=("docs/results/h100-topk_gating-earlier.json",),
        places=(Place("docs/kernels.md", _gating_words),),
        about=("kernels/jit/topk_sorted.py", "kernels/vector/topk_gating.py", *_TUNING),
        designed="the variant, its default config, the number of rows beyond which it aims at throughput, and the "
        "prior's count of instructions, with the last two shapes in sight; at these two the winner is the default",
        independent="nothing",
        note="The aim of 90% is met at the last shape, the only one beyond the L2 cache. In the earlier run the "
        "variant could not be compiled ahead, so that only `selected` was tuned. Its timer floor was 2.8 us, here "
        "1.3: one `selected` config at the first shape took 7.2 us then and 6.1 here, so there the variants are not "
        "compared. On an H200, whose memory is faster, the share is probably smaller; it was not measured. The times "
        "of `selected` are of the earlier run, of the day before.",
    ),
    Claim(
        name="timing-methods",
        question="A streaming kernel of 15 us by three of 13 methods: median of ten processes (and how far the "
        "largest of their medians is above the smallest, over five sizes of kernel)",
        figure=_timing,
        cases=lambda raw: f"{len(raw['h200-timing']['rows'])} pairs of method and size, ten processes each, one run",
        files=("docs/results/h200-timing.json",),
        places=(
            Place("docs/timing.md", _timing_words),
            Place("docs/timing.md", _zeroed_words),
            Place("tuner/devices/cuda/cupti_timer.py", _method_words),
        ),
        about=("tuner/devices/cuda", "tuner/measure/adaptive_timing.py", "benchmarks/gpu/timing.py"),
        designed="the method was chosen by this table",
        independent="nothing",
        note="The other methods and sizes are in docs/timing.md and in the file.",
    ),
    Claim(
        name="accuracy",
        question="Normalisations of data with mean 10000: largest deviations of y from float64, ours and torch's own",
        figure=_accuracy,
        cases=_accuracy_cases,
        files=("docs/results/h200-accuracy.json", "docs/results/model-accuracy.json"),
        places=(Place("docs/kernels.md"),),
        about=(
            *("kernels/jit/layer_norm.py", "kernels/jit/batch_norm.py", "kernels/jit/elementwise.py"),
            *("benchmarks/model/accuracy.py", "benchmarks/model/interpreter.py"),
        ),
        designed="the data, with a mean of 10000, was chosen to be hard for torch's way of summing; our kernels were "
        "made for such data, and are tested on it",
        independent="torch, which ran as installed",
        note="One draw of the data. The larger of the two variants' deviations counts.",
    ),
    Claim(
        name="energy-h200",
        question="Energy of the configs found by energy, found by time and by default on an H200, as a share of that "
        "found by time, with the least and the most of the measurements",
        figure=_energy,
        cases=lambda raw: (
            f"{len(_energies(raw))} problems, one tuning each by time and by energy of 61 trials, ten measurements in "
            "turns, one process"
        ),
        files=("docs/results/h200-energy.json",),
        places=(Place("docs/spec.md", _energy_words),),
        about=("benchmarks/gpu/energy.py", "tuner/devices/cuda", "tuner/measure", "tuner/samplers"),
        designed="nothing",
        independent="all; an earlier run, which three minutes ended, had only made the command launch the kernels",
        note="Energy of the whole board, its idle power included, with caches as the launch before left them.",
    ),
    Claim(
        name="faults",
        question="Configs of a test kernel that do not compile, crash, hang, exceed limits on memory or disk, or "
        "return wrong results",
        figure=_faults,
        cases=lambda raw: (
            f"{raw['h200-faults']['configs']['faulty']} faults among "
            f"{raw['h200-faults']['configs']['faulty'] + raw['h200-faults']['configs']['sound']} configs; two runs"
        ),
        files=("docs/results/h200-faults.json",),
        earlier=("docs/results/h200-faults-earlier.json",),
        places=(
            Place("README.md", _fault_words),
            Place("docs/architecture.md", _fault_page_words),
        ),
        about=(
            *("tuner/devices/measured", "tuner/devices/cuda", "tuner/workers", "tuner/measure", "tuner/tuning"),
            *("benchmarks/gpu/faults.py", "benchmarks/gpu/fault_kernels.py"),
        ),
        designed="the kinds of fault, by the authors of the isolation",
        independent="nothing",
        note="The earlier run had the same outcomes; its toolchain does not name CUPTI, so it was probably timed by "
        "events.",
    ),
)
