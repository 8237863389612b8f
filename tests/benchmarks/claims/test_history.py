"""A claim is marked if its raw file is older than the code that it is about, by the commits of a real repository."""

import os
import subprocess

import pytest

from tilewise.benchmarks.claims.claim import Claim
from tilewise.benchmarks.claims.history import History, code_of
from tilewise.benchmarks.claims.report import age

CODE = '''"""A module."""
import math

LIMIT = 4


def area(radius):
    """Return the area."""
    return math.pi * radius**2
'''
CLAIM = Claim(
    name="area",
    question="?",
    figure=lambda raw: "",
    cases=lambda raw: "",
    files=("raw.json",),
    places=(),
    about=("area.py",),
    designed="",
    not_designed="",
)


class Repository:
    def __init__(self, root):
        self.root, self.day = root, 0
        self.git("init", "-q")

    def git(self, *words):
        at = f"2026-01-{self.day + 1:02}T12:00:00+00:00"
        who = {f"GIT_{role}_{what}": "x" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        dates = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
        subprocess.run(
            ["git", *words],
            cwd=self.root,
            check=True,
            capture_output=True,
            env={"PATH": os.environ["PATH"], **who, **dates},
        )

    def commit(self, **files):
        for name, text in files.items():
            (self.root / name.replace("_", ".")).write_text(text)
        self.day += 1
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x")

    def age(self):
        return age(CLAIM, History.of(self.root))


@pytest.fixture
def repository(tmp_path):
    repository = Repository(tmp_path)
    repository.commit(area_py=CODE)
    repository.commit(raw_json="{}")
    return repository


def test_a_file_recorded_after_its_code_has_no_mark(repository):
    assert "older" not in repository.age()
    assert "of 2026-01-03 12:00; code" in repository.age()


def test_a_file_recorded_before_its_code_changed_is_marked_with_both_dates(repository):
    repository.commit(area_py=CODE.replace("**2", "**3"))
    assert "2026-01-03" in repository.age() and "2026-01-04" in repository.age()
    assert repository.age().endswith("**older than the code**")


def test_a_constant_that_changed_counts(repository):
    repository.commit(area_py=CODE.replace("LIMIT = 4", "LIMIT = 5"))
    assert repository.age().endswith("**older than the code**")


def test_prose_imports_and_a_move_do_not_count(repository):
    prose = CODE.replace("A module.", "Areas.").replace("import math", "import math  # for pi\nimport os")
    repository.git("mv", "area.py", "old.py")
    repository.commit()
    repository.git("mv", "old.py", "area.py")
    repository.commit(area_py=prose)
    assert "older" not in repository.age()
    assert "2026-01-02" in repository.age()


def test_a_change_of_names_alone_is_told_apart(repository):
    repository.commit(area_py=CODE.replace("radius", "r"))
    assert repository.age().endswith("older than the code by only names and texts")


def test_a_change_that_is_not_committed_is_later_than_all_commits(repository):
    (repository.root / "area.py").write_text(CODE.replace("**2", "**3"))
    assert "code not committed yet (area.py); **older than the code**" in repository.age()
    (repository.root / "raw.json").write_text("[]")
    assert repository.age().startswith("raw not committed yet") and "older" not in repository.age()


def test_without_git_nothing_is_said_of_age(tmp_path):
    assert History.of(tmp_path) is None
    assert age(CLAIM, None) == "not known, because git has no history here"


def test_code_without_names_keeps_numbers_and_structure():
    assert code_of("a = f(1)", names=False) == code_of("b = g(1)", names=False)
    assert code_of("a = f(1)", names=False) != code_of("a = f(2)", names=False)
    assert code_of("a = f(1)") != code_of("b = f(1)")
