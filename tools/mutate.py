#!/usr/bin/env python3
"""Mutation testing: change the code in one place, and see whether a test notices.

    make mutation                                          # 400 mutants of tools/mutants.py
    tools/mutate.py --mutants 60 --minutes 10 -o some.json # a look at the first of 60

One run of the suite, in a copy under build/mutation, records which test runs which line. A mutant then has to be
noticed by those tests, the nearest first, within a minute of tests (tools/covering.py). They run in a copy too, and end
at the first failure. What takes several times as long as it should is noticed as well. A line that runs on import has
the tests of its module's functions and of the pages, which compare data; a Triton function, which is compiled as text,
has those of its folder. A test that fails without a mutation notices nothing. Left out are tests of images, studies,
installed wheels and the browser, and tests/test_golden.py: it compares hashes of the source, which every change alters.

An interrupted run goes on where it ended, as long as code and tests are the same. With `--keep` tests may have changed:
survivors are tried again, first on the whole test file that mirrors their module. The exit code is 1 if less than 95%
are killed, less than 90% in a package, or more than 10% are listed in tools/equivalent_mutants.toml.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from coverage_contexts import OUTCOMES
from covering import PLUGINS, WORK, Covering, copy_tree, digests, environment, record
from mutants import PACKAGES, ROOT, Mutant, sample

DONE = WORK / "done.jsonl"
MEMORY_BYTES = 16 << 30
LEAST, LEAST_IN_PACKAGE, MOST_EQUIVALENT = 0.95, 0.90, 0.10


_APART = (
    *("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"),
    *(() if os.geteuid() == 0 else ("--user", "--map-current-user")),
    *("sh", "-c", '"$@"; exit $?', "sh"),
)
"""Words before a command that give it process ids of its own; the shell reaps what the tests leave."""

_STOPPED = (-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT)
_TIME_LIMIT, _NO_START = "the time limit", "an error before the tests"


class Runner:
    """Copies of the tree in which mutants are tried, one at a time in each."""

    def __init__(self, jobs: int, covering: Covering) -> None:
        self._covering, self._suite = covering, digests()["tests"]
        self._sound: set[str] = set()
        self._broken: set[str] = set()
        self._copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            self._copies.put(copy_tree(WORK / f"copy{number}"))

    def attempt(self, mutant: Mutant) -> dict[str, Any]:
        """Run a mutant's tests and return a row of the results."""
        tests, covering = self._covering.of(mutant)
        copy, began = self._copies.get(), time.monotonic()
        try:
            killer = self._killer(copy, mutant, tests)
        finally:
            self._copies.put(copy)
        row = {"package": mutant.package, "place": mutant.place, "operator": mutant.operator, "diff": mutant.diff()}
        ran = {"tests": len(tests), "covering": covering, "seconds": round(time.monotonic() - began, 1)}
        return {**row, "outcome": "killed" if killer else "survived", "by": killer, **ran, "suite": self._suite}

    def _killer(self, copy: Path, mutant: Mutant, tests: Sequence[str]) -> str | None:
        """Return what noticed the mutation. A test that fails without it is dropped, for the other mutants too."""
        original, mutated = (ROOT / mutant.file).read_text(), mutant.text()
        while True:
            (copy / mutant.file).write_text(mutated)
            killer = run_tests(copy, tests, self._limit(tests), without=self._broken)
            (copy / mutant.file).write_text(original)
            if killer in (None, _TIME_LIMIT) or killer in self._sound:
                return killer
            if killer == _NO_START:
                if run_tests(copy, ["--collect-only", *tests], self._limit(tests)) is not None:
                    sys.exit(f"the tests of {mutant.place} are not those that were recorded; run without --keep")
                return killer
            if run_tests(copy, [killer], self._limit([killer])) is None:
                self._sound.add(killer)
                return killer
            self._broken.add(killer)

    def _limit(self, tests: Sequence[str]) -> float:
        names, seconds = set(tests), self._covering.seconds
        return 30 + 4 * sum(seconds[test] for test in seconds if {test, test.partition("::")[0]} & names)


def run_tests(copy: Path, tests: Sequence[str], limit: float, *, without: Collection[str] = ()) -> str | None:
    """Run tests up to the first that fails, and return it; how the run ended otherwise; None if all pass.

    They run where they see only their own processes: a mutant may kill whatever it sees. The limit is on each process's
    processor time, which does not depend on other load; a wide one is on time, for deadlocks.
    """
    if not tests:
        return None
    outcomes, words = copy / "build/outcomes.jsonl", copy / "build/tests.txt"
    outcomes.write_text("")
    words.write_text("\n".join([*tests, *(f"--deselect={test}" for test in without)]))
    command = [*_APART, sys.executable, "-m", "pytest", "-x", "--tb=no", *PLUGINS, f"@{words}"]
    code = _run(command, copy, environment(copy) | {OUTCOMES: str(outcomes)}, limit)
    if code in _STOPPED:
        sys.exit("the tests were stopped from outside; start again to go on")
    if code in (0, 5):  # 5: all were dropped
        return None
    failed = [row[0] for row in map(json.loads, outcomes.read_text().splitlines()) if row[1] == "failed"]
    return failed[0] if failed else _NO_START if code is not None and 0 < code < 128 else _TIME_LIMIT


def _run(command: Sequence[str], copy: Path, settings: Mapping[str, str], limit: float) -> int | None:
    """Return the exit code, or None where the command did not end."""

    def confine() -> None:
        os.nice(15 - min(15, os.nice(0)))
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    silent: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    run = subprocess.Popen(command, cwd=copy, env=settings, preexec_fn=confine, start_new_session=True, **silent)
    with suppress(subprocess.TimeoutExpired):
        run.wait(10 * limit)
    code = run.poll()
    with suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    return code


def report(rows: Sequence[dict[str, Any]], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the document of results; a survivor that is listed as equivalent counts as such, with its reason."""
    listed = tomllib.loads((ROOT / "tools/equivalent_mutants.toml").read_text())["mutant"]
    reasons = {(each["file"], *each["diff"]): each["reason"] for each in listed}
    for row in rows:
        reason = reasons.get((row["place"].partition(":")[0], *row["diff"]))
        if row.pop("suite") and reason and row["outcome"] == "survived":
            row |= {"outcome": "equivalent", "reason": reason}
    counts = {package: _counts([row for row in rows if row["package"] == package]) for package in PACKAGES}
    return {
        "command": f"tools/mutate.py --mutants {arguments.mutants} --seed {arguments.seed}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "--short", "HEAD"),
        "changed": _git("status", "--porcelain", "--", *PACKAGES.values(), "src", "tests") != "",
        "versions": {name: version(name) for name in ("cosmic-ray", "coverage", "pytest")},
        "seed": arguments.seed,
        "sample": arguments.mutants,
        "all": _counts(rows),
        "packages": counts,
        "survived": [row for row in rows if row["outcome"] == "survived"],
        "equivalent": [row for row in rows if row["outcome"] == "equivalent"],
        "killed": {row["place"] + " " + " ".join(row["diff"]): row["by"] for row in rows if row["outcome"] == "killed"},
    }


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    counts = Counter(row["outcome"] for row in rows)
    judged = counts["killed"] + counts["survived"]
    outcomes = {outcome: counts[outcome] for outcome in ("killed", "survived", "equivalent")}
    limits = sum(row["by"] == _TIME_LIMIT for row in rows)
    return {
        "mutants": len(rows),
        **outcomes,
        "by_time_limit": limits,
        "share": round(counts["killed"] / (judged or 1), 3),
    }


def holds(body: Mapping[str, Any]) -> bool:
    """Return whether all were tried, enough killed, in each package too, and few enough listed as equivalent."""
    whole, parts = body["all"], body["packages"].values()
    enough = whole["share"] >= LEAST and all(part["share"] >= LEAST_IN_PACKAGE for part in parts)
    return whole["mutants"] == body["sample"] and enough and whole["equivalent"] <= MOST_EQUIVALENT * whole["mutants"]


def rows_of(mutants: Sequence[Mutant], arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the results of mutants that are known already, then those of the others, until the time is over."""
    known = _known()
    wanted = {(mutant.place, mutant.operator, *mutant.diff()): mutant for mutant in mutants}
    yield from (row for row in known if wanted.pop((row["place"], row["operator"], *row["diff"]), None))
    end = time.monotonic() + 60 * arguments.minutes
    runner = Runner(arguments.jobs, Covering(mirrored=arguments.keep))

    def attempt(mutant: Mutant) -> dict[str, Any] | None:
        return runner.attempt(mutant) if time.monotonic() < end else None

    with ThreadPoolExecutor(arguments.jobs) as threads, DONE.open("a") as file:
        attempts = [threads.submit(attempt, mutant) for mutant in wanted.values()]
        for row in filter(None, (each.result() for each in as_completed(attempts))):
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(f"{row['outcome']:8} {row['seconds']:5.0f} s  {row['place']}  {' '.join(row['diff'])}", flush=True)
            yield row


def _known() -> list[dict[str, Any]]:
    """Return the results so far, without mutants that survived another state of the tests."""
    suite = digests()["tests"]
    rows = [json.loads(line) for line in DONE.read_text().splitlines()] if DONE.exists() else []
    kept = [row for row in rows if row["outcome"] == "killed" or row["suite"] == suite]
    DONE.write_text("".join(json.dumps(row) + "\n" for row in kept))
    return kept


def main() -> None:
    """Record lines if they are not known, try the mutants, write the results, print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=400, help="size of the sample")
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no mutant after these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--keep", action="store_true", help="keep the recorded lines though tests have changed")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs/results/mutation.json")
    arguments = parser.parse_args()
    recorded = WORK / "digests.json"
    before, now = json.loads(recorded.read_text()) if recorded.exists() else {}, digests()
    if before.get("code") != now["code"] or (before != now and not arguments.keep):
        record(arguments.jobs)
    mutants = sample(arguments.mutants, arguments.seed)
    arguments.mutants = len(mutants)  # rounding may give one more or less
    body = report(list(rows_of(mutants, arguments)), arguments)
    arguments.output.write_text(json.dumps(body, indent=1) + "\n")
    for name, counts in [("all", body["all"]), *body["packages"].items()]:
        print(f"{name:8} {counts['killed']} of {counts['killed'] + counts['survived']} killed: {counts['share']:.1%}")
    sys.exit(0 if holds(body) else 1)


if __name__ == "__main__":
    main()
