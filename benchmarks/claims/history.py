"""Dates of raw files and last changes of modules, so that the page can say which figures are older than their code."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["Change", "History", "code_of", "moment"]


@dataclass(frozen=True, slots=True)
class Change:
    """The last change of a module or a folder. `commit` is None if the change is not committed yet."""

    path: str
    commit: str | None
    when: datetime | None

    @property
    def text(self) -> str:
        return f"{self.commit} of {self.when:%Y-%m-%d %H:%M}" if self.when else "not committed yet"

    def is_after(self, then: datetime) -> bool:
        """Return whether this change was made after a moment; one that is not committed is later than all."""
        return self.when is None or self.when > then


class History:
    """The git history of a checkout."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[tuple[str, bool], Change] = {}
        self._answers: dict[tuple[str, ...], str] = {}

    @classmethod
    def of(cls, root: Path) -> History | None:
        """Return the history of the checkout at `root`; None if git or the checkout's history is missing."""
        if not (root / ".git").exists():
            return None
        try:
            subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        return cls(root)

    def commit_of(self, path: str) -> str:
        """Return which commit holds a raw file as it is."""
        changed = self._git("status", "--porcelain", "--", path)
        return "not committed yet" if changed else "in " + self._git("log", "-1", "--format=%h", "--", path)

    def code(self, path: str, *, names: bool = True) -> Change:
        """Return the last change of a module's code, across renames of its file. Prose and imports do not count.

        Without `names`, neither do changes that leave all but names and texts as it was. Of a folder, it is the last
        change of a module in it; one that was moved there counts as changed.
        """
        if (path, names) not in self._known:
            of = self._folder if (self._root / path).is_dir() else self._code
            self._known[path, names] = of(path, names)
        return self._known[path, names]

    def _folder(self, path: str, names: bool) -> Change:
        modules = f":(glob){path}/**/*.py"
        if self._git("status", "--porcelain", "--", modules):
            return Change(path, None, None)
        for commit, name in self._entries("--no-renames", "--", modules):
            before, after = (self._shown(f"{commit.split()[0]}{which}:{name}") for which in ("^", ""))
            if None in (before, after) or code_of(str(before), names=names) != code_of(str(after), names=names):
                return self._change(path, commit)
        raise ValueError(f"{path} holds no module that git knows; name a folder with modules")

    def _shown(self, version: str) -> str | None:
        """Return a file as it was in a commit; None if it did not exist."""
        try:
            return self._git("show", version)
        except subprocess.CalledProcessError:
            return None

    def _code(self, path: str, names: bool) -> Change:
        now, latest = code_of((self._root / path).read_text(), names=names), ""
        for commit, name in self._versions(path):
            before = self._shown(f"{commit.split()[0]}:{name}")
            if before is None or code_of(before, names=names) != now:  # None where an earlier file of that name ended
                break
            latest = commit
        if not latest and not self._git("status", "--porcelain", "--", path):  # a merge alone made it
            latest = self._git("log", "-1", "--first-parent", "--format=%h %cI", "--", path)
        return self._change(path, latest) if latest else Change(path, None, None)

    def _change(self, path: str, line: str) -> Change:
        commit, when = line.split()
        return Change(path, commit, datetime.fromisoformat(when))

    def _versions(self, path: str) -> Iterator[tuple[str, str]]:
        """Yield each commit of a file with its date, and the name that the file had then, the latest first."""
        return self._entries("--follow", "--", path)

    def _entries(self, *words: str) -> Iterator[tuple[str, str]]:
        """Yield the commits that `git log` finds with their dates, and the names of their files, the latest first."""
        for entry in self._git("log", "--name-only", "--format=%x00%h %cI", *words).split("\0")[1:]:
            commit, *names = entry.split("\n")
            yield from ((commit, name) for name in names if name)

    def _git(self, *words: str) -> str:
        if words not in self._answers:
            done = subprocess.run(["git", *words], cwd=self._root, capture_output=True, text=True, check=True)
            self._answers[words] = done.stdout.strip()
        return self._answers[words]


def moment(date: str) -> datetime:
    """Return when a raw file was made; of a date without an hour, the beginning of its day."""
    when = datetime.fromisoformat(date)
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def code_of(source: str, *, names: bool = True) -> str:
    """Return a module's code without comments, docstrings, layout and imports; on request without names and texts.

    Without names, `mean(x)` and `median(y)` are alike: it tells what a change was made of, not that it changed nothing.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            body[:] = [each for each in body if not _is_prose(each)]
        if not names:
            _blank(node)
    return ast.dump(tree)


def _is_prose(node: ast.AST) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _blank(node: ast.AST) -> None:
    for field, value in ast.iter_fields(node):
        if isinstance(value, str):
            setattr(node, field, "")
