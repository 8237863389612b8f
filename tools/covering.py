"""Recording of which test runs which line, in a copy of the repository under build/mutation."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Set
from functools import cache
from pathlib import Path

import coverage
from coverage_contexts import BEFORE, OUTCOMES, TEST
from mutants import PACKAGES, ROOT, Mutant

__all__ = ["PLUGINS", "WORK", "Covering", "copy_tree", "digests", "environment", "record"]

WORK = ROOT / "build/mutation"
PLUGINS = ("-p", "coverage_contexts", "-p", "no:cacheprovider")

_LINES, _TIMES, _TEST_FILES = WORK / "lines/coverage", WORK / "outcomes.jsonl", WORK / "tests.json"
_BEGUN = WORK / "begun.json"
_NOTHING_LEFT = 5
_LEFT_OUT = (
    *("tests/docker", "tests/benchmarks", "tests/end_to_end/test_packages.py"),
    *("tests/api/pages/test_browser.py", "tests/test_golden.py"),
)

_TEST_SECONDS = 90.0
"""Time of the tests that a mutant has to be noticed by: a third each for the nearest of them, for those of `_TABLES`,
and for the fastest."""

_TABLES = (
    "tests/kernels/test_offered_configs.py",
    "tests/tuner/prior/test_expected_penalties.py",
    "tests/tuner/samplers/test_courses.py",
    "tests/tuner/devices/ascend_model/test_modelled_times.py",
)
"""Tests that compare a table of tests/golden notice most for their time. Too slow for the fastest, and too far from
most code for the nearest, they would be left out."""


_DOCUMENT = ("tests/api/http/test_openapi.py::test_the_document",)
"""Tests that compare all that routes and schemas declare, which is made on import."""


class Covering:
    """The tests that run a line, and the time that each test takes."""

    def __init__(self) -> None:
        self._lines = coverage.CoverageData(str(_LINES))
        self._lines.read()
        self._folder = os.path.commonpath(self._lines.measured_files())
        self.seconds: Counter[str] = Counter()
        outcomes = [json.loads(line) for line in _TIMES.read_text().splitlines()]
        for test, _, seconds in outcomes:
            self.seconds[test] += seconds
        for test in {test for test, outcome, _ in outcomes if outcome != "passed" or test.startswith(_LEFT_OUT)}:
            del self.seconds[test]
        recorded = json.loads(_TEST_FILES.read_text())
        self._changed = {name for name, digest in _test_files().items() if recorded.get(name) != digest}
        self._new = self._changed - recorded.keys()

    def of(self, mutant: Mutant, *, again: bool) -> tuple[list[str], int]:
        """Return the tests to run, in order, and the number of all that run the line.

        A mutant that is tried `again` has survived the recorded ones. It is given files that have changed since then:
        the one that mirrors its module, those with a recorded test of the line, and those that are new, if they are of
        the mirror's folder or one around it.
        """
        place = Path("tests", mutant.file.replace("/jit/", "/"))
        mirror = place.with_name(f"test_{place.stem.lstrip('_')}.py")

        def far(test: str) -> tuple[int, float]:
            path = Path(test.partition("::")[0])
            shared = len(os.path.commonpath([path.parent, mirror.parent]))
            return -shared - 100 * (path.name == mirror.name), self.seconds[test]

        covering = self._tests(mutant) & self.seconds.keys()
        new = {name for name in self._new if mirror.is_relative_to(Path(name).parent)}
        files = {str(mirror), *(test.partition("::")[0] for test in covering), *new} & self._changed
        chosen = dict.fromkeys(sorted(files, key=far))
        tables = sorted(test for test in covering if test.startswith(_TABLES))
        for tests in () if again else (sorted(covering, key=far), tables, self._by_time(covering)):
            left = _TEST_SECONDS / 3
            for test in tests:
                if test not in chosen and self.seconds[test] <= left:
                    chosen[test] = None
                    left -= self.seconds[test]
        return [*chosen], len(covering)

    def _by_time(self, tests: Set[str]) -> list[str]:
        """Return tests, the fastest first, but one case of each before a second one, which notices much the same."""
        cases: Counter[str] = Counter()
        ranks: dict[str, tuple[int, float]] = {}
        for test in sorted(tests, key=self.seconds.__getitem__):
            name = test.partition("[")[0]
            ranks[test] = cases[name], self.seconds[test]
            cases[name] += 1
        return sorted(ranks, key=ranks.__getitem__)

    def _tests(self, mutant: Mutant) -> set[str]:
        tests = self._lines.contexts_by_lineno(os.path.join(self._folder, mutant.file))
        bodies, statements = _structure(mutant.file)
        lines = [statements.get(mutant.line, range(mutant.line, mutant.line + 1))]
        if is_run := any(mutant.line in body for body in bodies) and "/jit/" not in mutant.file:
            bodies = []
        found = {test for span in (*lines, *bodies) for line in span for test in tests.get(line, ())} - {""}
        if is_run:
            return found or self._around(mutant.file)
        rules = ("tests/docs/", "tests/test_imports.py", *(_DOCUMENT if mutant.file.startswith("api/") else ()))
        of_rules = {test for test in self.seconds if test.startswith(rules)}
        if "/jit/" in mutant.file:
            words = _kernels_of(mutant.file)
            return of_rules | {test for test in self.seconds if any(word in test for word in words)}
        nearby = {test for test in self.seconds if test.startswith(f"tests/{Path(mutant.file).parent}/")}
        return (found or nearby) | of_rules

    def _around(self, file: str) -> set[str]:
        """Return the tests of the nearest folder for a line that none was seen to run.

        A process that several tests share is recorded as the first one's, or ends before it has saved its lines.
        """
        for folder in Path("tests", file).parents[:-1]:
            if found := {test for test in self.seconds if test.startswith(f"{folder}/")}:
                return found
        return set()


@cache
def _kernels_of(file: str) -> set[str]:
    """Return the words by which tests name the kernels that launch functions of this file."""
    module = file.removesuffix(".py").replace("/", ".")
    words = set()
    for spec in (file for folder in ("kernels", "tuner") for file in (ROOT / folder).rglob("*.py")):
        text = spec.read_text()
        if "jit" not in spec.parts and re.search(rf"\b{module}\b", text):
            words |= {spec.stem, *re.findall(r'\bname="(\w+)"', text)}
    return words


@cache
def _structure(file: str) -> tuple[list[range], dict[int, range]]:
    """Return the lines of each function's body, and the lines of the innermost statement, or its header, at a line."""
    bodies, statements = [], {}
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            bodies.append(range(node.body[0].lineno, (node.end_lineno or 0) + 1))
        if isinstance(node, ast.stmt | ast.ExceptHandler):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno
            span = range(node.lineno, max(node.lineno, last or 0) + 1)
            statements.update(dict.fromkeys(span, span))
    return bodies, statements


def environment(copy: Path) -> dict[str, str]:
    """Return this process's environment, with the copy's code and without settings of tilewise.

    Compiled modules are kept: without them each start takes seconds longer.
    """
    mine = {name: value for name, value in os.environ.items() if not name.startswith("TILEWISE_")}
    mine.pop("PYTHONDONTWRITEBYTECODE", None)
    return mine | {
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": f"{copy / 'src'}:{copy / 'tools'}",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(WORK / "found"),
    }


def copy_tree(folder: Path) -> Path:
    """Copy what belongs to the repository, and link the wheels that tests read."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in _files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    (folder / "build").mkdir()
    for name in ("wheels", "readers"):
        (folder / "build" / name).symlink_to(ROOT / "build" / name)
    return folder


def _files() -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted({name for name in names if name and os.path.lexists(ROOT / name)})


def digests() -> dict[str, str]:
    """Return digests of the code that is changed, without comments and docstrings, and of the tests."""
    found = {"code": hashlib.sha256(), "tests": hashlib.sha256()}
    for name in _files():
        if not (ROOT / name).is_file():
            continue
        if name.startswith("tests/"):
            found["tests"].update(name.encode() + (ROOT / name).read_bytes())
        elif name.startswith(tuple(PACKAGES.values())) and name.endswith(".py"):
            found["code"].update(name.encode() + _code((ROOT / name).read_text()))
    return {part: digest.hexdigest() for part, digest in found.items()}


def _code(text: str) -> bytes:
    """Return what runs, and where it begins."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            if isinstance(statements := getattr(node, name, None), list):
                setattr(node, name, [each for each in statements if not _is_words(each)])
        if hasattr(node, "end_lineno"):
            node.end_lineno = node.end_col_offset = 0  # that of a function without statements is its docstring's
    return ast.dump(tree, include_attributes=True).encode()


def _is_words(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def record(jobs: int) -> None:
    """Run the suite in a copy and record which test runs which line. One that was interrupted goes on with the rest."""
    copy, now = WORK / "recorded", digests()
    if not _BEGUN.exists() or json.loads(_BEGUN.read_text()) != now:
        shutil.rmtree(WORK, ignore_errors=True)
        _LINES.parent.mkdir(parents=True)
        copy_tree(copy)
        _TEST_FILES.write_text(json.dumps(_test_files()))
        _TIMES.touch()
        _BEGUN.write_text(json.dumps(now))
    packages = "".join(f"\n    {copy / folder}/*" for folder in ("api", "db", "kernels", "tuner"))
    settings = WORK / "coveragerc"
    settings.write_text(
        f"[run]\ndata_file = {_LINES}\nparallel = true\nsigterm = true\npatch =\n    _exit\n    fork\n"
        f"context = ${{{TEST}-}}\nplugins = coverage_contexts\ninclude ={packages}\n"
    )
    shutil.copy(_TIMES, before := WORK / "before.jsonl")
    names = {"COVERAGE_PROCESS_START": str(settings), OUTCOMES: str(_TIMES), BEFORE: str(before)}
    words = [*PLUGINS, "-n", str(jobs), "--dist", "loadfile", *(f"--ignore={path}" for path in _LEFT_OUT)]
    command = [sys.executable, "-m", "pytest", *words]
    code = subprocess.run(command, cwd=copy, env=environment(copy) | names, check=False).returncode
    if code not in (0, 1, _NOTHING_LEFT):
        sys.exit(f"pytest ended with exit code {code}; start again to go on")
    combine = ["combine", "-q", f"--data-file={_LINES}", str(_LINES.parent)]
    subprocess.run([sys.executable, "-m", "coverage", *combine], cwd=WORK, check=True, capture_output=True)
    (WORK / "digests.json").write_text(json.dumps(now))


def _test_files() -> dict[str, str]:
    """Return a digest of each file of tests."""
    names = [
        name for name in _files() if re.match(r"tests/(.*/)?test_\w+\.py$", name) and not name.startswith(_LEFT_OUT)
    ]
    return {name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest() for name in names}
