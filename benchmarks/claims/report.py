"""docs/results/README.md: every claim with its figure, raw files, command, and what was designed on the same data.

`python -m tilewise.benchmarks.claims.report docs` writes it. A test checks that it is up to date, apart from what git
says: a page cannot name the commit that it is part of.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

from tilewise.benchmarks.claims.chip import CHIP
from tilewise.benchmarks.claims.claim import Claim, RawFiles
from tilewise.benchmarks.claims.commands import present_command
from tilewise.benchmarks.claims.constants import MODULES, constants, meaning_of_by_hand
from tilewise.benchmarks.claims.fleet import FLEET
from tilewise.benchmarks.claims.history import Change, History, moment
from tilewise.benchmarks.claims.model import MODEL
from tilewise.benchmarks.claims.programs import PROGRAMS
from tilewise.benchmarks.claims.search import SEARCH
from tilewise.benchmarks.claims.service import SERVICE
from tilewise.benchmarks.claims.unrecorded import UNRECORDED
from tilewise.benchmarks.common.tables import markdown

__all__ = ["CLAIMS", "age", "results_page", "without_history"]

SECTIONS: Mapping[str, Sequence[Claim]] = {
    "Search, winners, and shapes never tuned": SEARCH,
    "Programs without a spec": PROGRAMS,
    "The modelled part": MODEL,
    "On a chip": CHIP,
    "Launch and service": SERVICE,
    "A fleet": FLEET,
}

_LONGEST_RUN = timedelta(hours=6)
"""No run whose file tells only its end took longer."""

_PROGRAMS_TELL_THE_END = moment("2026-11-28")
"""From here on; before, `date` in files of `bench programs` was the time before the first kernel."""

CLAIMS = tuple(claim for claims in SECTIONS.values() for claim in claims)

_HEAD = """# Results

The claims with a figure that README.md makes, and most of those of docs and docstrings; many figures that no file holds
are [listed](#figures-without-a-raw-file). `make docs` writes this page from the raw files and from
[benchmarks/claims](../../benchmarks/claims), so a figure here is the file's. *Designed on it* says what was chosen or
fitted with the same data in sight: a figure says most where that is little. A *modelled* time comes from the modelled
Ascend part, a *measured* one from an accelerator, a *host* one from a processor alone. A *command* is the raw file's;
where it names a module by an earlier path, the present command follows. `FILES (6)` stands for six file names, which
the raw file lists.

*Commits* shows when the raw file's run ended (of several files, the first), and compares when it began with the last
commit to the modules that the claim is about, where comments, docstrings and imports do not count. Files of `bench
programs` until 2026-11-27 tell only the beginning. Other older files tell only the end, or the day: code of the six
hours before, or of that day, leaves the order open. Code counts from its commit on: code that ran before it was
committed is newer than its figure. **Older than the code** means that the figure may no longer hold; run its command to
find out. "By only names and texts" means that the modules have changed since, but neither their structure nor their
numbers. Files of *earlier* runs do not count.

Limits, time-outs and sizes that the code sets are not claims, so they are not listed.
"""

_TAIL = """## Figures without a raw file

Some of those in pages and docstrings that no file holds. They explain a decision; do not rely on them.

{unrecorded}

## Constants chosen by hand

From the docstrings of the modules that are named here; other modules have more, such as `LEAST_PER_PARAMETER` of
[tuner/tuning/loop.py](../../tuner/tuning/loop.py). Nobody knows how much an unablated constant matters.

{constants}
"""

_GIT = re.compile(r"^(- \*Commits\*|Commits): .*\n", re.MULTILINE)
_FILES = re.compile(r"(?:\S+\.json(?:\.gz)?(?: |$)){3,}")


def results_page(root: Path, history: History | None) -> str:
    """Return the page for the checkout at `root`; without a history it says that nothing is known of commits."""
    files = RawFiles(root)
    parts = [_HEAD, _commits_in_all(files, history), _index(files)]
    for title, claims in SECTIONS.items():
        parts += [f"## {title}\n", *(_entry(claim, files, history) for claim in claims)]
    tail = _TAIL.format(unrecorded=_unrecorded(root), constants=_constants(root))
    return "\n".join([*parts, tail])


def without_history(page: str) -> str:
    """Return the page without the lines that git decides."""
    return _GIT.sub("", page)


def _index(files: RawFiles) -> str:
    rows = [[f"[{claim.name}](#{claim.name})", _cell(claim.question), _clocks(claim, files)] for claim in CLAIMS]
    return markdown(["claim", "question", "times"], rows) + "\n"


def _entry(claim: Claim, files: RawFiles, history: History | None) -> str:
    raw = files.of(claim)
    bodies = [files.body(path) for path in claim.files]
    lines = [
        f"### {claim.name}\n",
        f"{claim.question}: **{claim.figure(raw)}**\n",
        f"- *Cases*: {claim.cases(raw)}; {_clocks(claim, files)}",
        f"- *Designed on it*: {claim.designed}",
        f"- *Independent of it*: {claim.independent}",
        *([f"- *Note*: {claim.note}"] if claim.note else []),
        f"- *Said in*: {', '.join(dict.fromkeys(_link(place.path) for place in claim.places))}",
        f"- *Raw*: {', '.join(map(_link, claim.files))}, of {', '.join(dict.fromkeys(map(_day, bodies)))}",
        *([f"- *Earlier*: {', '.join(map(_link, claim.earlier))}"] if claim.earlier else []),
        f"- *Command*: {', '.join(dict.fromkeys(map(_command, _commands(claim, bodies))))}",
        f"- *Commits*: {age(claim, files, history)}",
    ]
    return "\n".join(lines) + "\n"


# What the raw files say of themselves ----------------------------------------------------------------------------


def _clocks(claim: Claim, files: RawFiles) -> str:
    found = dict.fromkeys(each for path in claim.files for each in _clock(files.body(path)).split(" and "))
    return " and ".join(found)


def _clock(body: Mapping[str, Any]) -> str:
    """Return which clock the times are of. Files of the service and of executed programs hold wall times."""
    if "interpreter" in str(body.get("run_by")):
        return "host"
    device = str(body.get("device") or body.get("launch") or "")
    clock = body.get("clock") or body.get("metadata", {}).get("clock")
    if clock and "interpreter" not in device:
        return str(clock)
    if "H200" in device:
        return "measured"
    if "machine" in body:
        return "host"
    return "modelled" if body.get("part") or device.startswith("Ascend") else "host"


def _date(body: Mapping[str, Any]) -> str:
    return str(body.get("date") or max(result["timestamp"] for result in body["results"]))


def _day(body: Mapping[str, Any]) -> str:
    return _date(body)[:10]


def _commands(claim: Claim, bodies: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if claim.command:
        yield claim.command
        return
    for body in bodies:
        rows = [*body.get("rows", []), *body.get("designed", [])]
        found = [row["command"] for row in rows if "command" in row] or body["command"]
        for command in [found] if isinstance(found, str) else found:
            yield _FILES.sub(lambda match: f"FILES ({len(match[0].split())}) ", command).strip()


def _command(command: str) -> str:
    present = present_command(command)
    return f"`{command}`" if present == command else f"`{command}`, now `{present}`"


def _link(path: str) -> str:
    shown = path.removeprefix("docs/results/")
    return f"[{shown}]({shown if shown != path else f'../../{path}'})"


# What git says ---------------------------------------------------------------------------------------------------


def age(claim: Claim, files: RawFiles, history: History | None) -> str:
    """Return when a claim's oldest raw file was made, the last change of its modules, and whether the file is older."""
    if history is None:
        return "not known, because git has no history here"
    oldest = min(claim.files, key=lambda path: moment(_date(files.body(path))))
    first, last = _run(files.body(oldest))
    raw = f"{_told(files.body(oldest))}, {history.commit_of(oldest)}"
    code, logic = (_last([history.code(path, names=names) for path in claim.about]) for names in (True, False))
    if not code.is_after(first):
        return f"{raw}; code {code.text} ({code.path})"
    if not logic.is_after(first):
        return f"{raw}; code {code.text} ({code.path}); older than the code by only names and texts"
    mark = "**older than the code**" if logic.is_after(last) else "perhaps older than the code: it tells no beginning"
    return f"{raw}; code {logic.text} ({logic.path}); {mark}"


def _told(body: Mapping[str, Any]) -> str:
    """Return when a raw file's run ended, as far as it tells."""
    date = _date(body)
    if "T" not in date:
        return f"raw of {date}"
    only_began = "bench programs" in str(body.get("command", "")) and moment(date) < _PROGRAMS_TELL_THE_END
    return f"raw that {'began' if only_began else 'ended'} on {moment(date):%Y-%m-%d %H:%M}"


def _run(body: Mapping[str, Any]) -> tuple[datetime, datetime]:
    """Return the first and the last moment at which a raw file's run may have begun."""
    date = _date(body)
    if "T" not in date:
        return moment(date), moment(date) + timedelta(days=1)
    if "began" in body:
        return moment(body["began"]), moment(body["began"])
    return moment(date) - _LONGEST_RUN, moment(date)


def _commits_in_all(files: RawFiles, history: History | None) -> str:
    if history is None:
        return "Commits: not known, because git has no history here.\n"
    ages = [age(claim, files, history) for claim in CLAIMS]
    older, perhaps = (sum(mark in each for each in ages) for mark in ("**older", "perhaps older"))
    return (
        f"Commits: {older} of {len(CLAIMS)} claims are older than the code that they are about, and {perhaps} more "
        "perhaps.\n"
    )


def _last(changes: Sequence[Change]) -> Change:
    """Return the latest change; one that is not committed yet is later than all others."""
    return max(changes, key=lambda change: (change.when is None, change.when.timestamp() if change.when else 0))


# The rest --------------------------------------------------------------------------------------------------------


def _unrecorded(root: Path) -> str:
    ordered = sorted(UNRECORDED, key=lambda each: each.path)
    rows = [[_link(each.path), _cell(each.words), each.known] for each in ordered]
    return markdown(["where", "figure", "how it is known"], rows)


def _constants(root: Path) -> str:
    rows = []
    for module, found in groupby(((m, c) for m in MODULES for c in constants(root, m)), key=lambda pair: pair[0]):
        for _, constant in found:
            if constant.is_chosen:
                rows.append([_link(module), f"`{constant.names}` = `{constant.value}`", _cell(constant.source)])
    meanings = [
        f"- {_link(module)}: {_cell(meaning)}" for module in MODULES if (meaning := meaning_of_by_hand(root, module))
    ]
    return '"By hand" means:\n\n' + "\n".join(meanings) + "\n\n" + markdown(["module", "constant", "docstring"], rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    docs = Path(sys.argv[1])
    root = docs.resolve().parent
    (docs / "results" / "README.md").write_text(results_page(root, History.of(root)))
