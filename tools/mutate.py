#!/usr/bin/env python3
"""Mutation testing: change the code in one place, and see whether a test notices.

    make mutation                                          # 400 mutants of tools/mutants.py
    tools/mutate.py --mutants 60 --minutes 10 -o some.json # a look at the first of 60

One run of the suite, in a copy under build/mutation, records which test runs which line. A mutant then has to be
noticed by those tests, the nearest first, within 90 seconds of tests (tools/covering.py). They run in a copy too, in a
fork of a warm process (tools/warm_pytest.py), and end at the first failure. A test that takes several times as long as
it should fails. A line that runs on import has the tests of its module's functions, of the pages, which compare data,
and of tests/test_imports.py; a Triton function, which is compiled as text, has those that name its kernels; a line that
no test was seen to run, those of the nearest folder. A test that fails without a mutation notices nothing.

Left out are tests of images, studies, installed wheels and the browser, and tests/test_golden.py: it compares hashes of
the source, which every change alters.

An interrupted run goes on where it ended, as long as code and tests are the same. With `--keep` tests may have changed:
survivors that are not listed are tried again, on the files that have. The exit code is 1 if less than 95% are killed,
less than 90% in a package, or more than 10% are listed in tools/equivalent_mutants.toml.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from covering import PLUGINS, WORK, Covering, copy_tree, digests, environment, record
from mutants import PACKAGES, ROOT, Mutant, sample
from warm_pytest import End, WarmPytest

DONE = WORK / "done.jsonl"
LEAST, LEAST_IN_PACKAGE, MOST_EQUIVALENT = 0.95, 0.90, 0.10

Key = tuple[str, ...]
"""Place, operator and diff of a mutant."""


class Runner:
    """Copies of the tree in which mutants are tried, one at a time in each."""

    def __init__(self, jobs: int, covering: Covering) -> None:
        self._covering, self._suite = covering, digests()["tests"]
        self._limits = {"": 60.0} | {test: 30 + 8 * seconds for test, seconds in covering.seconds.items()}
        self._sound: set[str | None] = set()
        self._broken: set[str] = set()
        self._stamps = itertools.count(1)
        self._copies: SimpleQueue[WarmPytest] = SimpleQueue()
        for number in range(jobs):
            copy = copy_tree(WORK / f"copy{number}")
            self._copies.put(WarmPytest(copy, environment(copy)))

    def attempt(self, mutant: Mutant, *, again: bool) -> dict[str, Any]:
        """Run a mutant's tests and return a row of the results. `again`: it has survived the recorded tests."""
        tests, covering = self._covering.of(mutant, again=again)
        pytest, began = self._copies.get(), time.monotonic()
        try:
            killer, end = self._killer(pytest, mutant, tests) if tests else (None, End.PASSED)
        finally:
            self._copies.put(pytest)
        row = {"package": mutant.package, "place": mutant.place, "operator": mutant.operator, "diff": mutant.diff()}
        outcome = {"outcome": "survived" if end is End.PASSED else "killed", "by": killer, "end": end}
        ran = {"tests": len(tests), "covering": covering, "seconds": round(time.monotonic() - began, 1)}
        return {**row, **outcome, **ran, "again": again, "suite": self._suite}

    def _killer(self, pytest: WarmPytest, mutant: Mutant, tests: Sequence[str]) -> tuple[str | None, End]:
        """Return the test that noticed the mutation, and how the run ended.

        A test that fails without the mutation too is dropped, for the other mutants as well.
        """
        file, mutated = pytest.copy / mutant.file, mutant.text()
        while True:
            file.write_text(mutated)
            os.utime(file, (stamp := next(self._stamps), stamp))  # Python tells a compiled module's text by its time
            end, killer = self._run(pytest, tests)
            shutil.copy2(ROOT / mutant.file, file)
            if end is End.PASSED or killer in self._sound:
                return killer, end
            without, _ = self._run(pytest, [killer] if killer else ["--collect-only", *tests])
            if without is End.PASSED:
                self._sound |= {killer} - {None}
                return killer or "the start of the tests", end
            if killer is None:
                raise RuntimeError(f"the tests of {mutant.place} are not those that were recorded; run without --keep")
            self._broken.add(killer)

    def _run(self, pytest: WarmPytest, tests: Sequence[str]) -> tuple[End, str | None]:
        dropped = [f"--deselect={test}" for test in self._broken if [test] != tests]
        return pytest.run(["-x", "--tb=no", "--assert=plain", *PLUGINS, *tests, *dropped], self._limits)


def report(rows: Sequence[dict[str, Any]], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the document of results; a survivor that is listed as equivalent counts as such, with its reason."""
    reasons = _equivalent()
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


def _equivalent() -> dict[Key, str]:
    """Return the reasons of listed mutants, by file and diff."""
    listed = tomllib.loads((ROOT / "tools/equivalent_mutants.toml").read_text())["mutant"]
    return {(each["file"], *each["diff"]): each["reason"] for each in listed}


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    counts = Counter(row["outcome"] for row in rows)
    judged = counts["killed"] + counts["survived"]
    outcomes = {outcome: counts[outcome] for outcome in ("killed", "survived", "equivalent")}
    no_end = sum(row["end"] == End.NO_END for row in rows)
    later = sum(row["outcome"] == "killed" and row.get("again", False) for row in rows)
    return {
        "mutants": len(rows),
        **outcomes,
        "killed_by_no_end": no_end,
        "killed_by_tests_written_since": later,
        "share": round(counts["killed"] / (judged or 1), 3),
    }


def holds(body: Mapping[str, Any]) -> bool:
    """Return whether all were tried, enough killed, in each package too, and few enough listed as equivalent."""
    whole, parts = body["all"], body["packages"].values()
    enough = whole["share"] >= LEAST and all(part["share"] >= LEAST_IN_PACKAGE for part in parts)
    return whole["mutants"] == body["sample"] and enough and whole["equivalent"] <= MOST_EQUIVALENT * whole["mutants"]


def rows_of(mutants: Sequence[Mutant], arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the results of mutants that are known already, then those of the others, until the time is over."""
    suite, known, listed = digests()["tests"], _known(), _equivalent()
    wanted = {(mutant.place, mutant.operator, *mutant.diff()): mutant for mutant in mutants}
    survived = set()
    for key in wanted.keys() & known.keys():
        is_listed = (wanted[key].file, *wanted[key].diff()) in listed
        if known[key]["outcome"] == "killed" or known[key]["suite"] == suite or is_listed:
            yield known[key]
            del wanted[key]
        else:
            survived.add(key)
    end = time.monotonic() + 60 * arguments.minutes
    runner = Runner(arguments.jobs, Covering())

    def attempt(key: Key, mutant: Mutant) -> dict[str, Any] | None:
        return runner.attempt(mutant, again=key in survived) if time.monotonic() < end else None

    with ThreadPoolExecutor(arguments.jobs) as threads, DONE.open("a") as file:
        attempts = [threads.submit(attempt, key, mutant) for key, mutant in wanted.items()]
        for row in filter(None, (each.result() for each in as_completed(attempts))):
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(f"{row['outcome']:8} {row['seconds']:5.0f} s  {row['place']}  {' '.join(row['diff'])}", flush=True)
            yield row


def _known() -> dict[Key, dict[str, Any]]:
    """Return the last result of each mutant that was tried."""
    rows = [json.loads(line) for line in DONE.read_text().splitlines()] if DONE.exists() else []
    return {(row["place"], row["operator"], *row["diff"]): row for row in rows}


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
    mutants = sample(arguments.mutants, arguments.seed, now["code"], WORK / "sample.json")
    arguments.mutants = len(mutants)  # rounding may give one more or less
    body = report(list(rows_of(mutants, arguments)), arguments)
    arguments.output.write_text(json.dumps(body, indent=1) + "\n")
    for name, counts in [("all", body["all"]), *body["packages"].items()]:
        print(f"{name:8} {counts['killed']} of {counts['killed'] + counts['survived']} killed: {counts['share']:.1%}")
    sys.exit(0 if holds(body) else 1)


if __name__ == "__main__":
    main()
