"""Claims about other people's kernels, tuned without a line written for them."""

from __future__ import annotations

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
        f"mends, {repeated['tuned']} were tuned, {len(_mended(raw))} of them because of the mends"
    )


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
        not_designed="the first outcomes: nothing was mended with these kernels in sight, though earlier with others "
        "of Liger, FLA and FlagGems",
        note="The first file was taken by a scratch script before the command existed, the second from runs joined "
        "while the mends went on; their notes say more. One call was wrong the first time and was corrected: "
        "`fla/gated_delta` passed `beta` as `gk`. Of the 18 refused at first, 9 were not tried again.",
    ),
)
