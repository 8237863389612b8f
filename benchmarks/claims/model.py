"""Claims about the modelled part: its times, and the execution of what was compiled."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping
from typing import Any

from tilewise.benchmarks.claims.claim import Claim, Place, Raw

__all__ = ["MODEL"]

_CLOCK = (
    *("tuner/devices/ascend_model/clock/machine.py", "tuner/devices/ascend_model/clock/program_clock.py"),
    *("tuner/devices/ascend_model/clock/banks.py", "tuner/devices/ascend_model/clock/rows.py"),
    *("tuner/devices/ascend_model/clock/shared_memory.py", "tuner/devices/ascend_model/clock/core.py"),
    *("tuner/devices/ascend_model/clock/loops.py", "tuner/hardware/ascend_costs.py", "tuner/hardware/ascend_parts.py"),
)
_EXECUTOR = (
    *("tuner/devices/ascend_model/executor/executor.py", "tuner/devices/ascend_model/executor/hazards.py"),
    *("tuner/devices/ascend_model/executor/vector_ops.py", "tuner/devices/ascend_model/executor/verification.py"),
)
_PUBLISHED = "docs/results/model-published.json"
_IN_SIGHT = "the structure of the model and the ranges of its figures, with all timings known"
_LEFT_OUT = (
    "a kernel's own timings determined none of the *fitted* figures that time it; the Ascend910B4's rates of memory "
    "and L2 were taken from published timings, some of them judged here (sum_rows_tall), and are not left out"
)


def _inside(raw: Raw) -> str:
    rows = [row for row in raw["model-published"]["rows"] if "beside" not in row]
    low, high = (rows[0][end] / rows[0]["left_out_us"] for end in ("low_us", "high_us"))
    inside = [row for row in rows if row["low_us"] <= row["published_us"] <= row["high_us"]]
    held, timings = (sum("micro" not in row for row in some) for some in (inside, rows))
    return (
        f"{held} of the {timings} timings lie between {low:.2f} and {high:.2f} times the modelled time "
        f"({len(inside)} of {len(rows)} with the micro-benchmarks)"
    )


def _times(raw: Raw) -> str:
    found = raw["model-published"]["summary"]
    return f"mean {found['mean_ln_error']:.3f}, worst kernel {found['worst_kernel_ln_error']:.3f}; {_inside(raw)}"


def _times_words(raw: Raw) -> str:
    found = raw["model-published"]["summary"]
    return f"The mean error of a time, |ln(modelled / published)|, is {found['mean_ln_error']:.3f}."


def _times_cases(raw: Raw) -> str:
    found = raw["model-published"]["summary"]
    return (
        f"{found['kernels']} kernels, {found['timings']} timings; the earlier file holds three earlier versions of the "
        "model, judged on fewer timings"
    )


def _ratio_error(raw: Raw) -> str:
    found = raw["model-published"]["summary"]
    return f"off by {found['mean_ratio_error']:.1%} in the mean and {found['largest_ratio_error']:.1%} at most"


def _ratios(raw: Raw) -> str:
    found = raw["model-published"]["summary"]
    return (
        f"ratios {_ratio_error(raw)}; picks {found['mean_pick_regret']:.1%} behind in the mean and "
        f"{found['worst_pick_regret']:.1%} at worst"
    )


def _ratios_words(raw: Raw) -> str:
    return f"Ratios to the best of a case are {_ratio_error(raw)}"


def _ratios_cases(raw: Raw) -> str:
    found = raw["model-published"]["summary"]
    return f"{len(found['pick_regret'])} cases of several configs, {found['ratios']} ratios"


def _headline(raw: Raw) -> str:
    rows = [row for row in raw["model-published"]["rows"] if row["id"] == "sum_fused"]
    both = (", ".join(f"{row[f'{which}_ratio']:.2f}" for row in rows) for which in ("left_out", "published"))
    return "modelled {}; published {}".format(*both)


def _speed(raw: Raw) -> str:
    rows = raw["model-speed"]["rows"]
    headline, slowest = [row["ms"] for row in rows[:4]], max(row["ms"] for row in rows)
    return (
        f"{min(headline):.1f} to {max(headline):.1f} ms for the four headline configs, and {slowest:.0f} ms "
        "for the slowest"
    )


def _variants(raw: Raw) -> str:
    rows = [row for row in raw["model-variants"]["rows"] if "published_ratio" in row]
    return ", ".join(f"{row['kernel']} {row['ratio']:.2f} (document {row['published_ratio']:.2f})" for row in rows)


def _executed(raw: Raw) -> str:
    found = raw["model-execution"]["summary"]
    return (
        f"{found['agree_with_float64']} of {found['configs']} agree with float64, "
        f"{found['agree_with_tritons_interpreter']} with Triton's interpreter"
    )


def _mutated(raw: Raw) -> str:
    found = raw["model-mutations"]["summary"]
    return (
        f"{found['of_these_reported']} of {found['change_result_or_order']} that change the result or the order; "
        f"{found['reported_although_nothing_changed']} others reported too"
    )


def _source_mutants(raw: Raw) -> str:
    found = raw["h200-mutants"]["summary"]
    told, above = found["told_apart_by_the_oracle"], found["counting_equivalents_above_a_tenth"]
    apart = told["refused"] + told["survived"]
    there = told["refused"] + told["of_these_refused_where_the_oracle_looked"]
    return (
        f"{told['refused']} of {apart} ({told['share_refused']:.1%}) on the three problems that each was tried on, "
        f"{there} of {apart} ({there / apart:.1%}) where the oracle told them apart; "
        f"{above['share_refused']:.1%} if those beyond a tenth that nothing told apart count as missed; the aim is 97%"
    )


def _source_mutants_cases(raw: Raw) -> str:
    found = raw["h200-mutants"]["summary"]
    outcomes = found["outcomes"]
    return (
        f"{found['mutants']} mistakes (of 400 drawn, one hung and is absent), of which "
        f"{outcomes['not compiled']} do not compile, {outcomes['same code']} give the same code, and "
        f"{outcomes['equivalent']} nothing told apart in {found['oracle_draws']} draws of {found['oracle_problems']} "
        "other problems"
    )


def _kernels(raw: Raw) -> str:
    rows = raw["model-kernels"]["rows"]
    gains = [row["default_us"] / row["tuned_us"] for row in rows]
    shares = [row["share_of_rate"] for row in rows]
    return (
        f"tuned {min(gains):.2f} to {max(gains):.2f} times as fast as our defaults, {statistics.median(gains):.2f} in "
        f"the median; share of the rate {min(shares):.0%} to {max(shares):.0%}"
    )


def _clock_words(raw: Raw) -> str:
    then, now = raw["model-kernels"], raw["model-headline"]
    versions = (re.findall(r"model (\d+)", body["toolchain"])[0] for body in (then, now))
    [before] = [
        row["tuned_us"]
        for row in then["rows"]
        if row["kernel"] == "row_reduce" and row["dims"] == now["answers"][0]["dims"]
    ]
    after = min(answer["time_us"] for answer in now["answers"])
    return (
        "These are times of the earlier clock (model {}); the present one, model {}, gives others: "
        "{:.2f} us instead of {:.2f} for `row_reduce` at 1000 x 8192."
    ).format(*versions, after, before)


def _variant_words(raw: Raw) -> str:
    body = raw["model-variants"]
    ratios = [row["ratio"] for row in body["rows"] if row["kernel"] == "log_softmax"]
    [version] = re.findall(r"model (\d+)", body["toolchain"])
    return (
        f"for `log_softmax` {min(ratios):.1f} to {max(ratios):.1f} times as fast as `online` with one row at a time "
        f"({len(ratios)} shapes, model {version})"
    )


def _single_buffered(answer: Mapping[str, Any]) -> float:
    [time_us] = [each["other_us"] for each in answer["options"] if each["option"] == "multibuffer"]
    return float(time_us)


def _overheads(raw: Raw) -> str:
    return ", ".join(
        f"{answer['time_us']:.2f} ({_single_buffered(answer):.2f}) us" for answer in raw["model-headline"]["answers"]
    )


_CUBE = (
    *("tuner/devices/ascend_model/clock/cube_ops.py", "tuner/devices/ascend_model/clock/tile_order.py"),
    *("tuner/devices/ascend_model/ir/mmad.py", "tuner/hardware/cube_costs.py"),
)


def _products(raw: Raw) -> str:
    large, small = (raw["model-cube"]["summary"][kind] for kind in ("large", "small"))
    return (
        f"The {large['timings']} products over 100 us are off by {large['mean_ln_error']:.3f} in the mean of "
        f"|ln(modelled / published)|, the {small['timings']} shorter ones by {small['mean_ln_error']:.3f}."
    )


def _products_cases(raw: Raw) -> str:
    rows = raw["model-cube"]["rows"]
    return f"{len(rows)} timings of {len({row['source'] for row in rows})} sources; two more kinds of rows are far off"


MODEL = (
    Claim(
        name="published-products",
        question="Published matrix products on cube cores: error of the times, |ln(modelled / published)|",
        figure=_products,
        cases=_products_cases,
        files=("docs/results/model-cube.json",),
        places=(Place("docs/model.md", _products),),
        about=_CUBE,
        designed="the structure of the model, with all timings known; `far_row`, left out where it was fitted",
        not_designed="all other figures; two of them come from another example of one source, copies to L1",
    ),
    Claim(
        name="headline-ratios",
        question="The headline problem, a fused sum at 1000x8192: ratios of the four published configs to the best",
        figure=_headline,
        cases=lambda raw: "4 configs of one problem",
        files=(_PUBLISHED,),
        places=(Place("docs/results/model-published.md"), Place("docs/model.md")),
        about=_CLOCK,
        designed=_IN_SIGHT,
        not_designed=_LEFT_OUT,
        note="The second config's ratio is off most; docs/model.md says what is known of it.",
    ),
    Claim(
        name="published-timings",
        question="Published timings, each kernel left out of the fit: error of the times, |ln(modelled / published)|",
        figure=_times,
        cases=_times_cases,
        files=(_PUBLISHED, "docs/results/model-published-earlier.json"),
        places=(
            Place("docs/results/model-published.md"),
            Place("docs/model.md", _times_words),
            Place("docs/model.md", _inside),
        ),
        about=(*_CLOCK, "benchmarks/model/judge/fit.py"),
        designed=f"{_IN_SIGHT}; the interval, from these residuals",
        not_designed=_LEFT_OUT,
    ),
    Claim(
        name="published-ratios",
        question="Published timings, each kernel left out of the fit: ratios within a case, and what its pick costs",
        figure=_ratios,
        cases=_ratios_cases,
        files=(_PUBLISHED,),
        places=(Place("docs/results/model-published.md"), Place("docs/model.md", _ratios_words)),
        about=(*_CLOCK, "benchmarks/model/judge/fit.py"),
        designed=_IN_SIGHT,
        not_designed=_LEFT_OUT,
        note="The aims for picks are missed (model-published.md). One kernel decides both figures of picks, and "
        "another the largest error of a ratio.",
    ),
    Claim(
        name="double-buffering",
        question="row_reduce 1000x8192 on the modelled part: times of the four published configs with double buffering "
        "(without)",
        figure=_overheads,
        cases=lambda raw: f"{len(raw['model-headline']['answers'])} configs of one problem",
        files=("docs/results/model-headline.json",),
        places=(Place("docs/model.md"),),
        about=_CLOCK,
        designed=_IN_SIGHT,
        not_designed="nothing: nobody published a time of row_reduce, which does less work than the published kernel",
    ),
    Claim(
        name="model-speed",
        question="Time that the model takes for a compiled config, compiling not counted",
        figure=_speed,
        cases=lambda raw: f"{len(raw['model-speed']['rows'])} configs",
        files=("docs/results/model-speed.json",),
        places=(Place("docs/model.md", lambda raw: f"Timing a compiled config takes {_speed(raw)} default"),),
        about=_CLOCK,
        designed="not recorded: the clock's short cuts may have been chosen by such times",
        not_designed="not recorded",
    ),
    Claim(
        name="modelled-kernels",
        question="The 18 kernels of that day on the modelled part, by the earlier clock, beside our defaults and the "
        "memory rate",
        figure=_kernels,
        cases=lambda raw: f"{len(raw['model-kernels']['rows'])} problems of 18 kernels",
        files=("docs/results/model-kernels.json", "docs/results/model-headline.json"),
        places=(Place("docs/kernels.md", _clock_words),),
        about=(*_CLOCK, "tuner/samplers/guided.py", "tuner/prior/ascend.py"),
        designed="kernels and model were written by the same people; the defaults are ours",
        not_designed="the shapes other than the headline problem's, as far as is recorded",
    ),
    Claim(
        name="variants",
        question="Statements of the seed documents about variants: modelled ratio, by the earlier clock, beside the "
        "documents'",
        figure=_variants,
        cases=lambda raw: (
            f"{sum('published_ratio' in row for row in raw['model-variants']['rows'])} of the file's "
            f"{len(raw['model-variants']['rows'])} comparisons, those of which the documents give a ratio, "
            f"{raw['model-variants']['trials']} trials a side"
        ),
        files=("docs/results/model-variants.json",),
        places=(Place("docs/kernels.md", _variant_words),),
        about=(*_CLOCK, "tuner/samplers/guided.py"),
        designed="the variants, which were written with the documents in sight; the shapes are ours, since the "
        "documents give none",
        not_designed="the documents' ratios",
    ),
    Claim(
        name="execution",
        question="Execution of compiled programs of random configs, one small problem a kernel",
        figure=_executed,
        cases=lambda raw: (
            f"{raw['model-execution']['summary']['configs']} configs of "
            f"{raw['model-execution']['summary']['kernels']} kernels, seed {raw['model-execution']['seed']}"
        ),
        files=("docs/results/model-execution.json",),
        places=(
            Place("docs/results/model-execution.md"),
            Place(
                "docs/execution.md",
                lambda raw: (
                    f"its verification takes {raw['model-execution']['headline']['again_s']:.1f} s, or "
                    f"{raw['model-execution']['headline']['first_s']:.1f} s the first time"
                ),
            ),
        ),
        about=_EXECUTOR,
        designed="the executor, until such configs agreed",
        not_designed="nothing: the draw has seed 0, as in an earlier run",
    ),
    Claim(
        name="mutations",
        question="Changes of compiled programs that verification reports, of those that change the result or the order "
        "of accesses",
        figure=_mutated,
        cases=lambda raw: (
            f"{raw['model-mutations']['summary']['changes']} changes, seed {raw['model-mutations']['seed']}"
        ),
        files=("docs/results/model-mutations.json",),
        places=(Place("docs/results/model-mutations.md"),),
        about=(*_EXECUTOR, "benchmarks/model/mutations.py"),
        designed="the kinds of change, by the authors of the checks",
        not_designed="nothing: the draw has seed 0, as in the earlier runs, after which one of its changes was "
        "recounted as not reported",
    ),
    Claim(
        name="source-mutants",
        question="Single mistakes in the source of our kernels, on an H200: refused of those that an oracle found",
        figure=_source_mutants,
        cases=_source_mutants_cases,
        files=("docs/results/h200-mutants.json",),
        places=(Place("docs/execution.md", _source_mutants),),
        about=("benchmarks/model/mutants/trial.py", "tuner/measure/verify.py", "tuner/measure/draws.py"),
        designed="the draws of verification, on five wrong kernels and an earlier sample of a hundred mistakes, which "
        "is part of this one (the same seed; model-mutants.json at commit a7528aa)",
        not_designed="the other mistakes of this sample; the oracle's problems and draws",
    ),
)
