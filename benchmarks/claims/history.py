"""Commits of raw files and of modules, so that the page can say which figures are older than their code."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

__all__ = ["Change", "History", "code_of"]


@dataclass(frozen=True, slots=True)
class Change:
    """The last change of a file. `commit` is None if the change is not committed yet."""

    path: str
    commit: str | None
    when: datetime | None

    @property
    def text(self) -> str:
        return f"{self.commit} of {self.when:%Y-%m-%d %H:%M}" if self.when else "not committed yet"

    def is_after(self, other: Change) -> bool:
        """Return whether this change was made later; one that is not committed is later than all that are."""
        if self.when is None or other.when is None:
            return self.when is None and other.when is not None
        return self.when > other.when


class History:
    """The git history of a checkout."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[tuple[str, bool], Change] = {}

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

    def file(self, path: str) -> Change:
        """Return the last change of a file's bytes."""
        if self._git("status", "--porcelain", "--", path):
            return Change(path, None, None)
        return self._change(path, self._git("log", "-1", "--format=%h %cI", "--", path))

    def code(self, path: str, *, names: bool = True) -> Change:
        """Return the last change of a module's code, across renames of its file. Prose and imports do not count.

        Without `names`, neither do changes that leave all but names and texts as it was.
        """
        if (path, names) not in self._known:
            self._known[path, names] = self._code(path, names)
        return self._known[path, names]

    def _code(self, path: str, names: bool) -> Change:
        now, latest = code_of((self._root / path).read_text(), names=names), ""
        for commit, name in self._versions(path):
            if code_of(self._git("show", f"{commit.split()[0]}:{name}"), names=names) != now:
                break
            latest = commit
        return self._change(path, latest) if latest else Change(path, None, None)

    def _change(self, path: str, line: str) -> Change:
        commit, when = line.split()
        return Change(path, commit, datetime.fromisoformat(when))

    def _versions(self, path: str) -> Iterator[tuple[str, str]]:
        """Yield each commit of a file with its date, and the name that the file had then, the latest first."""
        log = self._git("log", "--follow", "--name-only", "--format=%x00%h %cI", "--", path)
        for entry in log.split("\0")[1:]:
            commit, *names = entry.split("\n")
            yield commit, next(name for name in names if name)

    def _git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self._root, capture_output=True, text=True, check=True)
        return done.stdout.strip()


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
