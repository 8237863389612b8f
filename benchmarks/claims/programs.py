"""Claims about other people's kernels, tuned without a line written for them."""

from __future__ import annotations

from collections.abc import Callable

from tilewise.benchmarks.claims.claim import Claim, Place, Raw

__all__ = ["PROGRAMS"]

_FIRST, _AGAIN = "programs-foreign-first", "programs-foreign"


def _words(raw: Raw) -> str:
    first, again = raw[_FIRST], raw[_AGAIN]
    counts, repeated = first["summary"], again["summary"]
    libraries = len({row["package"] for row in first["rows"]})
    return (
        f"Of {counts['kernels']} kernels of {libraries} libraries, {_captured(first)} were captured and "
        f"{counts['tuned']} tuned when they were first tried. Of {repeated['kernels']} that were tried again after "
        f"mends, {_before(raw)} of them tuned before, {repeated['tuned']} were tuned, {len(_mended(raw))} because of "
        "the mends and one by a corrected call"
    )


def _before(raw: Raw) -> int:
    """Return how many of the kernels of the second file had been tuned in the first."""
    tuned = {(row["call"], row["kernel"]) for row in raw[_FIRST]["rows"] if row["outcome"] == "tuned"}
    return sum((row["call"], row["kernel"]) in tuned for row in raw[_AGAIN]["rows"])


def _captured(body: Raw) -> int:
    return int(body["summary"]["kernels"] - body["summary"].get("not captured", 0))


def _mended(raw: Raw) -> set[tuple[str, str]]:
    """Return the calls and kernels that were tuned the second time only, without a call that was wrong at first."""
    at_first, again = (
        {(row["call"], row["kernel"]) for row in raw[name]["rows"] if row["outcome"] == "tuned" or "wrong_call" in row}
        for name in (_FIRST, _AGAIN)
    )
    return again - at_first


def _versions(raw: Raw) -> str:
    packages = {row["package"]: row["version"] for row in raw[_FIRST]["rows"]}
    limits = f"{raw[_FIRST]['trials']} trials and {raw[_FIRST]['time_limit_s']} s each"
    return f"{', '.join(f'{name} {packages[name]}' for name in sorted(packages))}; one call per kernel, {limits}"


_MORE, _MENDED = "programs-tutorials", "programs-mended"


def _more(raw: Raw) -> str:
    body = raw[_MORE]
    tutorials = sum(row["call"].startswith("tutorials/") for row in body["rows"])
    kernels, tuned = body["summary"]["kernels"], body["summary"]["tuned"]
    return (
        f"Of {kernels} more kernels, {tutorials} of Triton's tutorials and {kernels - tutorials} of libraries, "
        f"{_captured(body)} were captured and {tuned} tuned, {tuned - 1} of the {tuned} without a mend for "
        f"them ({body['trials']} trials each, modelled, {body['date'][:10]}), in one run"
    )


def _mended_since(raw: Raw) -> str:
    counts = raw[_MENDED]["summary"]
    assert counts["tuned"] == counts["kernels"] == 2, "the words below name the two"
    return (
        "After mends for tutorial 3 and for mlstm, refused among the 67, both were tuned in a second run; "
        "`_layer_norm_bwd_dx_fused` was not tried again"
    )


def _more_cases(raw: Raw) -> str:
    body = raw[_MORE]
    packages = {row["package"]: row["version"] for row in body["rows"] if row["version"] != "unknown"}
    limits = f"{body['trials']} trials and {body['time_limit_s']} s each"
    named = ", ".join(f"{name} {packages[name]}" for name in sorted(packages))
    return f"{named}, and mlstm-kernels 2.0.6 in the second run; one call per kernel, {limits}"


_LIBRARIES, _FIRST_STEPS = "programs-more-libraries", "first-steps"


def _libraries(raw: Raw) -> str:
    body = raw[_LIBRARIES]
    kernels = body["summary"]["kernels"]
    tutorials = sum(row["call"].startswith("tutorials/") for row in body["rows"])
    packages = len({row["package"] for row in body["rows"]} - {"triton's tutorials"})
    seen = [row for row in body["rows"] if row["call"].startswith(("tutorials/02", "tutorials/07"))]
    mended = sum(row["outcome"] == "tuned" for row in seen)
    return (
        f"Of {kernels} kernels, {tutorials} of tutorials 2, 7, 8 and 9 and {kernels - tutorials} of {packages} "
        f"libraries never tried before, {body['summary']['tuned']} were tuned in one run: tutorials 2 and 7, mended "
        f"for before, and {body['summary']['tuned'] - mended} of the {kernels - len(seen)} others "
        f"({body['trials']} trials each, modelled, {body['date'][:10]})"
    )


_FIRST_TRIES = "programs-first-tries"


def _first_tries(raw: Raw) -> str:
    body = raw[_FIRST_TRIES]
    rows = {row["kernel"]: row["outcome"] for row in body["rows"]}
    refused = {kernel for kernel, found in rows.items() if found != "tuned"}
    assert refused == {"gemm_INT_kernel", "dequant_8bit_kernel", "quantize_nf4_blockwise_kernel"}, "the page names them"
    packages = len({row["package"] for row in body["rows"]})
    return (
        f"Of {len(rows)} kernels of {packages} libraries, {body['summary']['tuned']} were tuned when they were first "
        f"tried ({body['trials']} trials each, modelled, {body['date'][:10]})"
    )


def _first_tries_cases(raw: Raw) -> str:
    found = sorted({f"{row['package']} {row['version']}" for row in raw[_FIRST_TRIES]["rows"]})
    return f"{', '.join(found)}; one call per kernel"


_FRESH = "programs-fresh"


def _fresh(raw: Raw) -> str:
    body = raw[_FRESH]
    summary, packages = body["summary"], len({row["package"] for row in body["rows"]})
    return (
        f"Of {summary['kernels']} kernels of {packages} libraries, {summary['tuned']} were tuned, one of them, "
        f"moe-ops', also in an earlier run, the others tried first here ({body['trials']} trials each, modelled, "
        f"{body['date'][:10]}), in one run on a loaded machine, which "
        f"was ended with {body['not_reached']} left"
    )


def _fresh_cases(raw: Raw) -> str:
    found = sorted({f"{row['package']} {row['version']}" for row in raw[_FRESH]["rows"]})
    return f"{', '.join(found)}; one call per kernel"


_REST, _SEEDED, _RETRIED = "programs-fresh-rest", "programs-seeded", "programs-fresh-mended"
_SCATTERED = "programs-scattered"


def _rest(raw: Raw) -> str:
    body = raw[_REST]
    summary = body["summary"]
    return (
        f"Of the {summary['kernels']} left, {_captured(body)} were captured and {summary['tuned']} tuned in one run "
        f"({body['trials']} trials each, modelled, {body['date'][:10]})"
    )


def _scattered(raw: Raw) -> str:
    body = raw[_SCATTERED]
    seconds = {row["kernel"]: row["seconds"] for row in body["rows"] if row["outcome"] == "tuned"}
    return (
        f"`conv2d_forward_kernel` was tuned in {seconds['conv2d_forward_kernel']} s and `nonzero_kernel` in "
        f"{seconds['nonzero_kernel']} s ({body['trials']} trials each, modelled, {body['date'][:10]})"
    )


def _seeded(raw: Raw) -> str:
    body = raw[_SEEDED]
    summary, packages = body["summary"], len({row["package"] for row in body["rows"]})
    return (
        f"Of {summary['kernels']} kernels of {packages} packages that a seeded draw chose before any was tried, "
        f"{_captured(body)} were captured and {summary['tuned']} tuned when they were first tried ({body['trials']} "
        f"trials each, modelled, {body['date'][:10]})"
    )


def _retried(raw: Raw) -> str:
    body = raw[_RETRIED]
    summary = body["summary"]
    return (
        f"Of {summary['kernels']} kernels that were tried again after mends, {summary['tuned']} were tuned "
        f"({body['trials']} trials each, modelled, {body['date'][:10]})"
    )


def _cases_of(name: str) -> Callable[[Raw], str]:
    def cases(raw: Raw) -> str:
        found = sorted({f"{row['package']} {row['version']}" for row in raw[name]["rows"]})
        limits = f"{raw[name]['trials']} trials and {_limit(raw[name])} each"
        return f"{', '.join(found)}; one call per kernel, {limits}"

    return cases


def _limit(body: Raw) -> str:
    if "processor_limit_s" in body:
        return f"{body['processor_limit_s']} s of processor time"
    return f"{body['time_limit_s']} s"


_DRAWN, _DRAWN_NEXT, _DRAWN_MENDED = "programs-drawn", "programs-drawn-next", "programs-drawn-mended"

_ABSENT = ("chunk_gla_bwd_kernel_inter", "_element_mul_kernel")
"""Kernels of the draw that no call launches here, for each of which the next one was taken."""


def _drawn(raw: Raw) -> str:
    first, rest = (raw[name]["rows"] for name in (_DRAWN, _DRAWN_NEXT))
    tuned, more = (sum(row["outcome"] == "tuned" for row in rows) for rows in (first, rest))
    assert len(rest) == len(_ABSENT), "each took another's place"
    return (
        f"Of {len(first) + len(rest)} kernels of FlagGems, FLA and Liger that a second seeded draw chose before any "
        f"was tried, {tuned + more} were tuned when they were first tried ({raw[_DRAWN]['trials']} trials each, "
        f"modelled, {raw[_DRAWN]['date'][:10]}): {tuned} of the first {len(first)}, and {more} of the {len(rest)} that "
        "took the place of two that no call launches here, one of them for want of transformers"
    )


_DEVELOPED, _DEVELOPED_NEXT, _JUDGED = "programs-developed", "programs-developed-next", "programs-drawn-second"


_NOT_TRIED = 4
"""Kernels of the third draw that nothing launches here: for three FLA has others on NPUs, one needs a later Triton."""


def _developed(raw: Raw) -> str:
    rows = [row for name in (_DEVELOPED, _DEVELOPED_NEXT) for row in raw[name]["rows"]]
    tuned = sum(row["outcome"] == "tuned" for row in rows)
    libraries = {row["package"]: [0, 0] for row in rows}
    for row in rows:
        libraries[row["package"]][row["outcome"] == "tuned"] += 1
    shares = [f"{yes} of {yes + no}" for no, yes in (libraries[n] for n in ("flag-gems", "fla-core", "liger-kernel"))]
    return (
        f"Of {len(rows) + _NOT_TRIED} kernels of a third draw, made to find what tilewise lacks, {len(rows)} were "
        f"tried and {tuned} tuned while the tuner was mended ({raw[_DEVELOPED]['trials']} trials each, modelled, "
        f"{raw[_DEVELOPED]['date'][:10]}): {shares[0]} of FlagGems, {shares[1]} of FLA and {shares[2]} of Liger"
    )


def _judged(raw: Raw) -> str:
    body = raw[_JUDGED]
    return (
        f"Of {body['summary']['kernels']} kernels of a fourth draw, made when the tuner was frozen and tried once "
        f"each, {body['summary']['tuned']} were tuned ({body['trials']} trials each, modelled, {body['date'][:10]})"
    )


def _steps(raw: Raw) -> str:
    body = raw[_FIRST_STEPS]
    seconds, processors = body["seconds"], body["machine"].split()[-2]
    return (
        f"installing took {seconds['install']:.0f} s, tuning {seconds['tune']:.0f} s and launching "
        f"{seconds['launch']:.0f} s, {body['three_commands_s']:.1f} s in all, on {processors} processors (load "
        f"{body['load_before']:.1f} when it began)"
    )


def _all_steps(raw: Raw) -> str:
    return f"{_steps(raw)}; in the run before, beside other work (load 6.2), 280.1 s, which misses the aim"


def _steps_apart(raw: Raw) -> str:
    body = raw[_FIRST_STEPS]
    download, environment = (body["seconds"][name] for name in ("download", "environment"))
    return f"one run on {body['machine']}; download and environment, {download:.0f} s and {environment:.0f} s, apart"


def _libraries_cases(raw: Raw) -> str:
    body = raw[_LIBRARIES]
    found = sorted({f"{row['package']} {row['version']}" for row in body["rows"] if row["version"] != "unknown"})
    return f"{', '.join(found)}; one call per kernel, {body['trials']} trials and {body['time_limit_s']} s each"


def _helion(raw: Raw) -> str:
    body = raw["helion"]
    first, second = (run["counters"] for run in body["processes"])
    [record] = body["records"]
    assert all(run["right"] for run in body["processes"]) and "cache_hit" not in first
    assert second == {"cache_hit": 1} and record["kernel"] == "add", "the words below say so"
    return (
        f"one process searched {_HELION_CONFIGS} configs and wrote {len(body['records'])} record, and another one, "
        "with an empty cache of its own, took it from the server and searched nothing"
    )


_HELION_CONFIGS = 2
"""Those of the benchmark's program."""


PROGRAMS = (
    Claim(
        name="foreign-programs",
        question="Kernels of other people's libraries, called unmodified: how many are tuned, to whatever config",
        figure=_words,
        cases=_versions,
        files=tuple(f"docs/results/{name}.json" for name in (_FIRST, _AGAIN)),
        places=(Place("docs/programs.md", _words),),
        about=(
            "tuner/capture",
            "tuner/inference",
            "tuner/stand_in",
            "kernels/function_slice.py",
            "benchmarks/programs",
        ),
        designed="the capture and the inference as they were the second time: loops that the first program leaves out, "
        "decorators that are called, options of heuristics, values of few integers, truth values that are never "
        "written, and names that libdevice lacks",
        independent="the first outcomes: nothing was mended with these kernels in sight, though earlier with others "
        "of Liger, FLA and FlagGems",
        note="The 22 were chosen after the first outcomes: refusals that were mended, and kernels of FlagGems, FLA "
        "and Liger; so 17 of 22 is no rate. The first file was taken by a scratch script before the command existed, "
        "the second from runs joined while the mends went on; their notes say more. One call was wrong the first time "
        "and was corrected: `fla/gated_delta` passed `beta` as `gk`. Of the 18 refused at first, 9 are not in the "
        "second file; one of these, mlstm's, was tuned later (programs-mended.json).",
    ),
    Claim(
        name="foreign-programs-more",
        question="Triton's tutorials, typed after its sources, and kernels of libraries that were tried before, of "
        "which one (FlagGems' gather) had been mended for: how many are tuned",
        figure=lambda raw: f"{_more(raw)}, which was ended with seven left. {_mended_since(raw)}",
        cases=_more_cases,
        files=tuple(f"docs/results/{name}.json" for name in (_MORE, _MENDED)),
        places=(Place("docs/programs.md", _more), Place("docs/programs.md", _mended_since)),
        about=("tuner/capture", "tuner/inference", "tuner/stand_in", "benchmarks/programs"),
        designed="options of AMD's compiler, left out for tutorial 3; memory of a compiled kernel, for tutorial 2; "
        "is_cuda of NPU tensors, for tutorial 7; the memory of overlapping views, for FlagGems' gather; "
        "for the second run, promises to the compiler and the order of the scalar unit's stores",
        independent="the other tutorials, and the other kernels of FlagGems, FLA and Liger",
        note="The tutorials are typed after Triton's sources of releases 3.2 and 3.3, without their prose, most "
        "benchmarks at their ends, backward attention but for its first kernel (_attn_bwd_preprocess, one of the "
        "nine), and the parts that need tensor descriptors. "
        "The run was ended when its time was up. Of the seven left, four were tried later (the next claim); "
        "group_norm and the two of simple_gla never were.",
    ),
    Claim(
        name="foreign-programs-libraries",
        question="Tutorials that the run before did not reach, and kernels of four libraries never tried before: how "
        "many are tuned",
        figure=_libraries,
        cases=_libraries_cases,
        files=(f"docs/results/{_LIBRARIES}.json",),
        places=(Place("docs/programs.md", _libraries),),
        about=("tuner/capture", "tuner/inference", "tuner/stand_in", "benchmarks/programs"),
        designed="what tutorials 2 and 7 needed was mended with them in sight, before this run",
        independent="tutorials 8 and 9, and all of the libraries: their calls were checked to reach their launches, "
        "and no more",
        note="The libraries were chosen by what this Python and this Triton import: gemlite, SGLang, Unsloth and "
        "GPTQModel were looked at first and did not import. Other work slowed the machine, and two kernels were ended "
        "by the limit of time.",
    ),
    Claim(
        name="foreign-programs-first-tries",
        question="Kernels of bitsandbytes, never tried before, of gemlite, which had been looked at and did not "
        "import, and two more of FLA: how many are tuned",
        figure=_first_tries,
        cases=_first_tries_cases,
        files=(f"docs/results/{_FIRST_TRIES}.json",),
        places=(Place("docs/programs.md", _first_tries),),
        about=("tuner/capture", "tuner/inference", "tuner/stand_in", "benchmarks/programs"),
        designed="nothing with these kernels in sight",
        independent="all seven; of one kernel of bitsandbytes, gemlite's and FLA's it was seen before whether the "
        "calls reach their launches, which gemlite's does not",
        note="No refused kernel is known to be tuned since. For gemlite only the message was mended after the run "
        "(commit 642214a3): by the file its call launches no kernel, while an error had ended it before. "
        "`dequant_8bit_kernel` reads before its table, and `quantize_nf4_blockwise_kernel` computes nothing finite. "
        "The causes in docs/programs.md were found by hand; no file holds them.",
    ),
    Claim(
        name="foreign-programs-fresh",
        question="Six kernels of four libraries, all but one of the kernels never tried before; FlagGems had been "
        "tried with other kernels, moe-ops with the same one: how many are tuned",
        figure=_fresh,
        cases=_fresh_cases,
        files=(f"docs/results/{_FRESH}.json",),
        places=(Place("docs/programs.md", _fresh),),
        about=("tuner/capture", "tuner/inference", "tuner/stand_in", "benchmarks/programs"),
        designed="nothing with these kernels in sight",
        independent="all but moe-ops', which an earlier run, ended while its code changed, had tuned; that their "
        "calls reach their launches was checked",
        note="The run was ended for want of time. Liger's loss and rotary and FlagGems' topk stand last in it, as an "
        "earlier run had tuned three of these kernels, and not topk_stage2_kernel in 180 s.",
    ),
    Claim(
        name="foreign-programs-fresh-rest",
        question="The kernels that the run before did not reach: how many are tuned",
        figure=_rest,
        cases=_cases_of(_REST),
        files=(f"docs/results/{_REST}.json",),
        places=(Place("docs/programs.md", _rest),),
        about=("tuner/capture", "tuner/inference", "tuner/stand_in", "benchmarks/programs"),
        designed="the refusal of topk_stage2_kernel, which had not been done in 180 s",
        independent="all others; an earlier run, which is in no file, had tuned Liger's loss and rotary and FlagGems' "
        "topk_stage1_kernel",
        note="On two processors under a load of up to 11, so that the seconds say little; none was ended by the limit. "
        "The run is of commit 600529d.",
    ),
    Claim(
        name="foreign-programs-seeded",
        question="Kernels of 14 packages never used before, one each, and of FlagGems, FLA and Liger, that a seeded "
        "draw chose before any was tried: how many are tuned",
        figure=_seeded,
        cases=_cases_of(_SEEDED),
        files=(f"docs/results/{_SEEDED}.json",),
        places=(Place("docs/programs.md", _seeded),),
        about=("tuner/capture", "tuner/inference", "tuner/stand_in", "benchmarks/programs"),
        designed="nothing with these kernels in sight; the run is of the commit that set them aside, 600529d",
        independent="all",
        note="The calls were written from the libraries' sources and run for the first time here. Two packages lack "
        "what they import: gptq-triton transformers, flash-mlm a Triton with tensor descriptors.",
    ),
    Claim(
        name="foreign-programs-drawn",
        question="Kernels of FlagGems, FLA and Liger that no list had named, by a second seeded draw made before any "
        "was tried: how many are tuned",
        figure=_drawn,
        cases=_cases_of(_DRAWN),
        files=tuple(f"docs/results/{name}.json" for name in (_DRAWN, _DRAWN_NEXT, _DRAWN_MENDED)),
        places=(Place("docs/programs.md", _drawn),),
        about=("tuner/capture", "tuner/inference", "tuner/stand_in", "benchmarks/programs"),
        designed="nothing with these kernels in sight",
        independent="all; that their calls launch them was checked, and what they lacked for that was mended in the "
        "calls",
        note="Two runs of the same tuner, that of commit 6389a57, on two processors under a load of about 10. The "
        "tutorials had 4 of the 795 kernels, and none was drawn. For NPUs FLA has another kernel than one of those "
        "drawn, and Liger has one of them for NPUs alone, which it finds by transformers, which is not installed. "
        "FLA's of gdn2 is launched on an NPU: the stand-in did not reach into gradients, and then a load in vain "
        "counted as a race. Both were mended after the run; the third file is of that kernel alone, with these mends.",
    ),
    Claim(
        name="foreign-programs-developed",
        question="Kernels of FlagGems, FLA and Liger of a third seeded draw, with which tilewise was mended: how many "
        "are tuned",
        figure=_developed,
        cases=_cases_of(_DEVELOPED),
        files=tuple(f"docs/results/{name}.json" for name in (_DEVELOPED, _DEVELOPED_NEXT)),
        places=(Place("docs/programs.md", _developed),),
        about=("tuner/capture", "tuner/inference", "tuner/stand_in", "benchmarks/programs"),
        designed="the stand-in for CANN's packages, the count of processors on Ascend, loops and dtypes that are "
        "interpreted, with kernels of this draw in sight",
        independent="the compilers, which refuse five of the seven that were not tuned; one was ended by the limit of "
        "30 s on a compiler's step, and of one the model could not judge the compiled code",
        note="Two runs on two processors under a load of 3 to 8, while the interpreter was mended. 36 kernels were "
        "drawn: for three FLA has others on NPUs, and one needs a later Triton. transformers was installed beside, by "
        "which Liger finds NPUs. The first call of unique_consecutive had been in a list, its kernel not. Six of the "
        "first run were tuned before most of the mends (commit eced5694).",
    ),
    Claim(
        name="foreign-programs-drawn-second",
        question="Kernels of FlagGems, FLA and Liger that no list had named, by a fourth seeded draw made when the "
        "tuner was frozen, four of each: how many are tuned",
        figure=_judged,
        cases=_cases_of(_JUDGED),
        files=(f"docs/results/{_JUDGED}.json",),
        places=(Place("docs/programs.md", _judged),),
        about=("tuner/capture", "tuner/inference", "tuner/stand_in", "benchmarks/programs"),
        designed="nothing with these kernels in sight; the tuner is that of commit 862883f",
        independent="all; that their calls launch them was checked",
        note="One run on two processors beside other work. The rule of the draw is benchmarks/programs/draw.py. No "
        "kernel had to be replaced. transformers was installed beside, by which Liger and FLA find NPUs.",
    ),
    Claim(
        name="foreign-programs-fresh-mended",
        question="Kernels that were refused or not done at their first try, and one of the same program that had been "
        "tuned: how many are tuned after mends",
        figure=_retried,
        cases=_cases_of(_RETRIED),
        files=(f"docs/results/{_RETRIED}.json",),
        places=(Place("docs/programs.md", _retried),),
        about=(
            "tuner/capture",
            "tuner/inference",
            "tuner/stand_in",
            "kernels/definitions.py",
            "kernels/function_slice.py",
            "kernels/inferred.py",
            "benchmarks/programs",
        ),
        designed="values that rise or all differ, truths, kernels inside functions and below an `if`, integers that no "
        "launch fills, and 16-bit unsigned integers, with these kernels in sight",
        independent="nothing",
        note="One run of commit 5ff0928, on two processors beside other work, under a load of about 6. The kernel of "
        "lanczos-triton that makes its weights had been tuned before: of the 8 that had not, 5 were tuned. Six more "
        "kernels of programs-fresh-rest.json, which no mend was made for, were not tried again, nor, in this run, the "
        "11 others of programs-seeded.json that were not tuned, 7 of them captured.",
    ),
    Claim(
        name="foreign-programs-scattered",
        question="Kernels that store element by element: seconds to tune them, since that is executed all at once",
        figure=_scattered,
        cases=_cases_of(_SCATTERED),
        files=(f"docs/results/{_SCATTERED}.json",),
        places=(Place("docs/programs.md", _scattered),),
        about=("tuner/devices/ascend_model/executor", "tuner/devices/ascend_model/ir", "benchmarks/programs"),
        designed="the execution of such loops, with both kernels in sight",
        independent="nothing",
        note="The seconds passed on two processors beside other work, under a load of about 7, and the limit was of "
        "such seconds; since, the command counts processor time. The third kernel has 8-bit floats, which "
        "the part has not, and is refused with a line that says so.",
    ),
    Claim(
        name="first-steps",
        question="From a fresh environment to the tuned and launched kernel of examples/softmax.py in three commands; "
        "the aim is two minutes, without the download",
        figure=_all_steps,
        cases=_steps_apart,
        files=(f"docs/results/{_FIRST_STEPS}.json",),
        places=(Place("docs/programs.md", _steps),),
        about=("tools/first_steps.py", "tuner/capture", "tuner/inference", "tuner/runtime", "cli"),
        designed="the program is ours, and tests of the capture read it; of the seconds, nothing",
        independent="the seconds",
        note="The launch is interpreted. The run before is first-steps.json at commit ebe505b.",
    ),
    Claim(
        name="helion",
        question="Helion's real package with its remote cache on a server: does a second process search",
        figure=_helion,
        cases=lambda raw: f"helion {raw['helion']['versions']['helion']}, one kernel and one shape",
        files=("docs/results/helion.json",),
        places=(Place("docs/formats.md", _helion),),
        about=("src/tilewise/helion.py", "api/routes/helion.py", "db/helion_records.py"),
        designed="the backend, for this release of Helion",
        independent="nothing",
        note="The 2 is the program's number of configs; the file has Helion's counters: a miss and a put, then a hit. "
        "Pallas' interpreter ran it; no GPU has. Helion was installed beside the project's own environment, with "
        "upstream triton. Times are those of an "
        "interpreter and say nothing about a device.",
    ),
)
