"""A claim is marked if its raw file was made before the code that it is about, by the commits of a real repository."""

import dataclasses
import json
import os
import subprocess

import pytest

from tilewise.benchmarks.claims.claim import Claim, RawFiles
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
    independent="",
)


class Repository:
    def __init__(self, root):
        self.root, self.day = root, 0
        self.git("init", "-q")

    def git(self, *words):
        at = f"2026-01-{self.day + 1:02}T12:00:00+00:00"
        who = {f"GIT_{role}_{what}": "x" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        dates = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
        return subprocess.run(
            ["git", *words],
            cwd=self.root,
            check=True,
            capture_output=True,
            env={"PATH": os.environ["PATH"], **who, **dates},
        )

    def commit(self, **files):
        for name, text in files.items():
            path = self.root / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        self.day += 1
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x")

    def age(self, **changes):
        return age(dataclasses.replace(CLAIM, **changes), RawFiles(self.root), History.of(self.root))


@pytest.fixture
def repository(tmp_path):
    repository = Repository(tmp_path)
    repository.commit(area_py=CODE)
    repository.commit(raw_json=made(3))
    return repository


def made(day, hour="T11:00:00+00:00", **more):
    return json.dumps({"date": f"2026-01-{day:02}{hour}", **more})


def test_a_file_made_after_its_code_has_no_mark(repository):
    assert "older" not in repository.age()
    assert repository.age().startswith("raw that ended on 2026-01-03 11:00, in ")


def test_a_file_made_before_its_code_changed_is_marked_with_both_dates(repository):
    repository.commit(area_py=CODE.replace("**2", "**3"))
    assert "2026-01-03" in repository.age() and "2026-01-04" in repository.age()
    assert repository.age().endswith("**older than the code**")


def test_a_file_that_is_committed_again_is_as_old_as_before(repository):
    repository.commit(area_py=CODE.replace("**2", "**3"))
    repository.commit(raw_json=made(3).replace("{", '{"device": "x", '))
    assert repository.age().endswith("**older than the code**")


def test_without_an_hour_code_of_the_same_day_leaves_the_order_open(repository):
    repository.commit(raw_json=made(2, ""))
    assert repository.age().startswith("raw of 2026-01-02, in ")
    assert repository.age().endswith("; perhaps older than the code: it tells no beginning")
    repository.commit(raw_json=made(1, ""))
    assert repository.age().endswith("**older than the code**")
    repository.commit(raw_json=made(3, ""))
    assert "older" not in repository.age()


def test_code_that_changed_in_the_run_is_newer_than_the_file(repository):
    during = "T13:00:00+00:00"
    repository.commit(raw_json=made(2, during))
    assert repository.age().endswith("; perhaps older than the code: it tells no beginning")
    repository.commit(raw_json=made(2, during, began="2026-01-02T11:00:00+00:00"))
    assert repository.age().endswith("**older than the code**")
    repository.commit(raw_json=made(2, during, began="2026-01-02T12:30:00+00:00"))
    assert "older" not in repository.age()


def test_the_first_of_several_files_counts_and_files_of_earlier_runs_do_not(repository):
    repository.commit(other_json=made(1))
    both = ("raw.json", "other.json")
    assert repository.age(files=both).startswith("raw that ended on 2026-01-01 11:00")
    assert repository.age(files=both).endswith("**older than the code**")
    assert "older" not in repository.age(earlier=("other.json",))


def test_a_folder_stands_for_all_modules_in_it(repository):
    repository.commit(shapes__area_py=CODE, shapes__notes_txt="")
    assert repository.age(about=("shapes",)).endswith("(shapes); **older than the code**")
    repository.commit(raw_json=made(5))
    repository.commit(shapes__area_py=CODE.replace("A module.", "Areas."), shapes__notes_txt="x")
    assert "2026-01-04" in repository.age(about=("shapes",)) and "older" not in repository.age(about=("shapes",))
    (repository.root / "shapes" / "volume.py").write_text(CODE)
    assert "code not committed yet (shapes); **older" in repository.age(about=("shapes",))


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


def test_a_module_that_was_deleted_and_made_anew_is_as_old_as_the_second(repository):
    (repository.root / "area.py").unlink()
    repository.commit(other_py="SIDES = 4")
    repository.commit(area_py=CODE)
    assert repository.age().endswith("**older than the code**")


def test_code_that_a_merge_alone_made_is_as_old_as_the_merge(repository):
    main = repository.git("rev-parse", "--abbrev-ref", "HEAD").stdout.decode().strip()
    repository.git("checkout", "-q", "-b", "other")
    repository.commit(other_py="SIDES = 4")
    repository.git("checkout", "-q", main)
    repository.commit(third_py="CORNERS = 4")
    repository.git("merge", "-q", "--no-commit", "other")
    repository.commit(area_py=CODE.replace("**2", "**3"))
    assert repository.age().endswith("**older than the code**")
    assert "not committed" not in repository.age()


def test_a_change_of_names_alone_is_told_apart(repository):
    repository.commit(area_py=CODE.replace("radius", "r"))
    assert repository.age().endswith("older than the code by only names and texts")


def test_a_change_that_is_not_committed_is_later_than_all_commits(repository):
    (repository.root / "area.py").write_text(CODE.replace("**2", "**3"))
    assert "code not committed yet (area.py); **older than the code**" in repository.age()
    (repository.root / "raw.json").write_text(made(9))
    assert repository.age().startswith("raw that ended on 2026-01-09 11:00, not committed yet; code not committed yet")


def test_without_git_nothing_is_said_of_age(tmp_path):
    assert History.of(tmp_path) is None
    assert age(CLAIM, RawFiles(tmp_path), None) == "not known, because git has no history here"


def test_code_without_names_keeps_numbers_and_structure():
    assert code_of("a = f(1)", names=False) == code_of("b = g(1)", names=False)
    assert code_of("a = f(1)", names=False) != code_of("a = f(2)", names=False)
    assert code_of("a = f(1)") != code_of("b = f(1)")
