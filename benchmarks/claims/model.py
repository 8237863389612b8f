"""Claims about the modelled part: its times, and the execution of what was compiled."""

from __future__ import annotations

import statistics
from typing import Any

from tilewise.benchmarks.claims.claim import Claim, Place, Raw

__all__ = ["MODEL"]

_CLOCK = (
    *("tuner/devices/ascend_model/clock/machine.py", "tuner/devices/ascend_model/clock/program_clock.py"),
    *("tuner/devices/ascend_model/clock/loops.py", "tuner/hardware/ascend_costs.py", "tuner/hardware/ascend_parts.py"),
)
_EXECUTOR = (
    *("tuner/devices/ascend_model/executor/executor.py", "tuner/devices/ascend_model/executor/hazards.py"),
    *("tuner/devices/ascend_model/executor/vector_ops.py", "tuner/devices/ascend_model/executor/verification.py"),
)
_PUBLISHED = "docs/results/model-published.json"
_IN_SIGHT = "the structure of the model and the ranges of its figures, after a first comparison with all 25 timings"


def _judged(raw: Raw) -> Any:
    return raw["model-published"]["summary"]["judged"]


def _judged_words(raw: Raw) -> str:
    judged = _judged(raw)
    return (
        f"Their ratios to the best of their case are off by {judged['mean_absolute_ratio_error']:.1%} in the mean and "
        f"{abs(judged['largest_ratio_error']):.1%} at most, and their times by "
        f"{judged['mean_absolute_time_error']:.1%} in the "
        "mean"
    )


def _first_words(raw: Raw) -> str:
    first = raw["model-published-earlier"]["runs"][0]["summary"]
    return (
        f"The first comparison was {first['mean_absolute_ratio_error']:.1%} off in the mean, with "
        f"{first['within_interval']} "
        f"of {first['compared']} inside"
    )


def _judged_figure(raw: Raw) -> str:
    judged = _judged(raw)
    first = raw["model-published-earlier"]["runs"][0]["summary"]
    return (
        f"mean {judged['mean_absolute_ratio_error']:.1%}, largest {abs(judged['largest_ratio_error']):.1%}; in "
        "the first "
        f"comparison {first['mean_absolute_ratio_error']:.1%} and {abs(first['largest_ratio_error']):.1%}, with "
        f"{first['within_interval']} of {first['compared']} inside the interval"
    )


def _judged_note(raw: Raw) -> str:
    judged = _judged(raw)
    return (
        f"{judged['compared']} rows; {judged['own_denominator']} is its own denominator, "
        f"{judged['one_is_better']} are better "
        f"and {judged['one_is_as_good']} as well predicted by saying that all configs of a case are alike"
    )


def _left_out(raw: Raw) -> tuple[float, float]:
    cases = raw["model-published"]["summary"]["left_out"].values()
    mean = statistics.fmean(case["mean_absolute_ratio_error"] for case in cases)
    return mean, max(case["largest_absolute_ratio_error"] for case in cases)


def _left_out_words(raw: Raw) -> str:
    mean, largest = _left_out(raw)
    return f"ratios are off by {mean:.1%} in the mean over the six kernels and {largest:.1%} at most"


def _headline(raw: Raw) -> str:
    rows = [row for row in raw["model-published"]["cases"] if row["id"] == "sum_fused"]
    both = (", ".join(f"{row[f'{which}_ratio']:.2f}" for row in rows) for which in ("modelled", "published"))
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


def _mistakes(raw: Raw) -> str:
    told = raw["model-mutants"]["summary"]["told_apart_by_the_oracle"]
    counted = raw["model-mutants"]["summary"]["counting_equivalents_above_a_tenth"]
    return (
        f"{told['refused']} of {told['refused'] + told['survived']} that are not equivalent; "
        f"{counted['share_refused']:.1%} if equivalents above a tenth count as survivors; "
        f"{raw['model-mutants']['summary']['not_yet_judged_by_the_oracle']} more await the oracle"
    )


def _mistake_cases(raw: Raw) -> str:
    outcomes = raw["model-mutants"]["summary"]["outcomes"]
    return f"{raw['model-mutants']['summary']['mutants']} mutants, seed {raw['model-mutants']['seed']}: " + ", ".join(
        f"{count} {outcome}" for outcome, count in outcomes.items()
    )


def _kernels(raw: Raw) -> str:
    rows = raw["model-kernels"]["rows"]
    gain = statistics.geometric_mean(row["default_us"] / row["tuned_us"] for row in rows)
    shares = [row["share_of_rate"] for row in rows]
    return (
        f"tuned {gain:.2f} times as fast as our defaults (geometric mean); share of the rate {min(shares):.0%} to "
        f"{max(shares):.0%}"
    )


def _overheads(raw: Raw) -> str:
    answers = raw["model-headline"]["answers"]
    return ", ".join(f"{answer['time_us']:.2f} us" for answer in answers)


MODEL = (
    Claim(
        name="headline-ratios",
        question="Headline problem: ratios of the four published configs to the best",
        figure=_headline,
        cases=lambda raw: "4 configs of one problem",
        files=(_PUBLISHED,),
        places=(Place("docs/results/model-published.md"), Place("docs/model.md")),
        about=_CLOCK,
        designed=f"one of the four fixed two figures; {_IN_SIGHT}",
        not_designed="the other three fixed no figure",
    ),
    Claim(
        name="published-timings",
        question="Published timings that fixed no figure: error of the ratios to each case's best",
        figure=_judged_figure,
        cases=_judged_note,
        files=(_PUBLISHED, "docs/results/model-published-earlier.json"),
        places=(
            Place("docs/results/model-published.md"),
            Place("docs/model.md", _judged_words),
            Place("docs/model.md", _first_words),
        ),
        about=_CLOCK,
        designed=f"{_IN_SIGHT}; two of the rows were moved to the fitted ones afterwards",
        not_designed="no figure was fitted to these rows, but none is a blind test",
    ),
    Claim(
        name="published-kernel-left-out",
        question="Whole kernels left out: error of the ratios with the kernel's own figures at the middle of "
        "their ranges",
        figure=lambda raw: "mean {:.1%}, largest {:.1%}".format(*_left_out(raw)),
        cases=lambda raw: (
            f"{len(raw['model-published']['summary']['left_out'])} kernels, "
            f"{sum(case['compared'] for case in raw['model-published']['summary']['left_out'].values())} timings"
        ),
        files=(_PUBLISHED,),
        places=(Place("docs/results/model-published.md"), Place("docs/model.md", _left_out_words)),
        about=(*_CLOCK, "benchmarks/model/model.py"),
        designed=_IN_SIGHT,
        not_designed="the figures that a kernel's own timings determined; nothing is fitted again",
    ),
    Claim(
        name="double-buffering",
        question="Headline problem: modelled times of the four configs with double buffering",
        figure=_overheads,
        cases=lambda raw: f"{len(raw['model-headline']['answers'])} configs, each also without double buffering",
        files=("docs/results/model-headline.json",),
        places=(Place("docs/model.md"),),
        about=_CLOCK,
        designed="as the ratios of the headline problem",
        not_designed="the times without double buffering, which nobody published",
    ),
    Claim(
        name="model-speed",
        question="Time that the model takes for a compiled config",
        figure=_speed,
        cases=lambda raw: f"{len(raw['model-speed']['rows'])} configs",
        files=("docs/results/model-speed.json",),
        places=(Place("docs/model.md", lambda raw: f"Timing a compiled config takes {_speed(raw)} default"),),
        about=_CLOCK,
        designed="nothing",
        not_designed="all",
    ),
    Claim(
        name="modelled-kernels",
        question="All kernels on the modelled part, beside our defaults and the memory rate",
        figure=_kernels,
        cases=lambda raw: f"{len(raw['model-kernels']['rows'])} problems of 18 kernels",
        files=("docs/results/model-kernels.json",),
        places=(Place("docs/kernels.md"),),
        about=(*_CLOCK, "tuner/samplers/guided.py", "tuner/prior/ascend.py"),
        designed="kernels and model were written by the same people; the defaults are ours",
        not_designed="the shapes decided no figure of the model, except that of the headline problem",
    ),
    Claim(
        name="variants",
        question="Statements of the seed documents about variants: modelled ratio beside the documents'",
        figure=_variants,
        cases=lambda raw: (
            f"{len(raw['model-variants']['rows'])} comparisons, {raw['model-variants']['trials']} trials a side"
        ),
        files=("docs/results/model-variants.json",),
        places=(Place("docs/kernels.md"),),
        about=(*_CLOCK, "tuner/samplers/guided.py"),
        designed="nothing",
        not_designed="the documents' ratios, whose shapes are not given",
    ),
    Claim(
        name="execution",
        question="Execution of compiled programs of random configs",
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
        not_designed="the draw of this run",
    ),
    Claim(
        name="mutations",
        question="Changes of compiled programs that are reported",
        figure=_mutated,
        cases=lambda raw: (
            f"{raw['model-mutations']['summary']['changes']} changes, seed {raw['model-mutations']['seed']}"
        ),
        files=("docs/results/model-mutations.json",),
        places=(Place("docs/results/model-mutations.md"),),
        about=(*_EXECUTOR, "benchmarks/model/mutations.py"),
        designed="the kinds of change, by the authors of the checks",
        not_designed="the draw of this run",
    ),
    Claim(
        name="mutants",
        question="Single mistakes in the kernels' source that verification refuses",
        figure=_mistakes,
        cases=_mistake_cases,
        files=("docs/results/model-mutants.json",),
        places=(Place("docs/execution.md", lambda raw: _mistakes(raw)),),
        about=(*_EXECUTOR, "tuner/measure/draws.py", "tuner/measure/comparison.py", "tuner/measure/verify.py"),
        designed="the kinds of mistake and of inputs, by the authors of the checks",
        not_designed="the draw of this run, and the oracle's problems and inputs",
    ),
)
