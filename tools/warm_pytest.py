"""Runs pytest again and again, each time in a fork of a process that has imported other projects' packages.

Such imports take several times as long as most tests. Nothing of this project is imported before the fork. A run sees
only its own processes, because a mutant may kill whatever it sees, and none of them outlives it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from pathlib import Path

from coverage_contexts import OUTCOMES

__all__ = ["End", "WarmPytest"]

_PACKAGES = (
    *("pytest", "hypothesis", "schemathesis.pytest.xdist", "xdist.plugin", "anyio._backends._asyncio"),
    *(
        "numpy",
        "torch",
        "triton",
        "scipy.optimize",
        "sqlalchemy.orm",
        "alembic.command",
        "fastapi",
        "uvicorn",
        "optuna",
    ),
)
"""None of them starts a thread, which would not survive a fork, or reads a user's settings when it is imported."""

_MEMORY_BYTES = 16 << 30
"""Of address space for a process, so that a mutant that allocates without end fails by itself."""

_START_SECONDS = 120.0
"""Limit on what comes before the first test."""

_NOTHING_RAN = 5
"""Pytest's exit code where all tests were deselected."""

_NEW_USER, _NEW_PIDS, _NEW_MOUNTS = 0x10000000, 0x20000000, 0x00020000
_PRIVATE, _END_WITH_PARENT = 0x4000 | 0x40000, 1  # MS_REC | MS_PRIVATE; PR_SET_PDEATHSIG
_LIBC = ctypes.CDLL(None, use_errno=True)


class End(StrEnum):
    """The end of a run. A test that takes too long, or dies with its process, does not end."""

    PASSED = "passed"
    FAILED = "failed"
    NO_END = "no end"


class WarmPytest:
    """The process that forks, seen from the one that wants tests to run."""

    def __init__(self, copy: Path, settings: Mapping[str, str]) -> None:
        self.copy, self._outcomes = copy, copy / "build/outcomes.jsonl"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "start_new_session": True}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "warm_pytest"], cwd=copy, env={**settings, OUTCOMES: str(self._outcomes)}, **pipes
        )

    def run(self, words: Sequence[str], limits: Mapping[str, float]) -> tuple[End, str | None]:
        """Run pytest up to the first failure. Return how that ended, and the test that failed or did not end.

        No test is named if the run ended before the first. `limits` are seconds by test; those of "" hold for others.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([words, limits]) + "\n")
        self._process.stdin.flush()
        if not (answer := self._process.stdout.readline()):
            raise RuntimeError("the process that forks has ended")
        end, test = json.loads(answer)
        return End(end), test


def _serve() -> None:
    """Answer each line of stdin."""
    for name in _PACKAGES:
        import_module(name)
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit("an imported package has started a thread")
    gc.freeze()  # a collection in a fork need not look at all this
    outcomes = Path(os.environ.pop(OUTCOMES))
    for line in sys.stdin:
        print(json.dumps(_run(*json.loads(line), outcomes)), flush=True)


def _run(words: Sequence[str], limits: Mapping[str, float], outcomes: Path) -> tuple[End, str | None]:
    outcomes.write_text("")
    if not (child := os.fork()):
        _run_apart(words, outcomes)
    running, since = None, time.monotonic()
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if (test := _running(outcomes)) != running:
            running, since = test, time.monotonic()
        if ended:
            return _end(os.waitstatus_to_exitcode(status), outcomes, test)
        if time.monotonic() - since > (limits.get(test, limits[""]) if test else _START_SECONDS):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return End.NO_END, test
        time.sleep(0.02)


def _end(code: int, outcomes: Path, running: str | None) -> tuple[End, str | None]:
    if code in (0, _NOTHING_RAN):
        return End.PASSED, None
    failed = [test for test, outcome, _ in map(json.loads, outcomes.read_text().splitlines()) if outcome == "failed"]
    if not 0 < code < 128:  # a signal ended it
        return End.NO_END, running
    return End.FAILED, failed[0] if failed else running


def _running(outcomes: Path) -> str | None:
    lines = outcomes.read_text().splitlines(keepends=True)
    whole = [line for line in lines[-2:] if line.endswith("\n")]
    return json.loads(whole[-1])[0] if whole else None


def _run_apart(words: Sequence[str], outcomes: Path) -> None:
    """Run pytest under a first process of a new name space of processes. All in it end with the first one."""
    os.setsid()
    _end_with_parent()
    user, group = os.geteuid(), os.getegid()
    _check(_LIBC.unshare(_NEW_PIDS | _NEW_MOUNTS | (_NEW_USER if user else 0)))
    if user:
        for name, text in {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}.items():
            Path("/proc/self", name).write_text(text)
    if first := os.fork():
        _exit_like(os.waitpid(first, 0)[1])
    _end_with_parent()
    _check(_LIBC.mount(b"none", b"/", None, _PRIVATE, None))
    _check(_LIBC.mount(b"proc", b"/proc", b"proc", 0, None))
    if tests := os.fork():
        while True:  # reap what the tests leave
            ended, status = os.wait()
            if ended == tests:
                _exit_like(status)
    _run_tests(words, outcomes)


def _run_tests(words: Sequence[str], outcomes: Path) -> None:
    """Do what `python -m pytest` does, silently."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    os.environ[OUTCOMES] = str(outcomes)
    sys.argv = ["pytest", *words]
    runpy.run_module("pytest", run_name="__main__", alter_sys=True)


def _end_with_parent() -> None:
    _check(_LIBC.prctl(_END_WITH_PARENT, signal.SIGKILL))


def _exit_like(status: int) -> None:
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    _serve()
