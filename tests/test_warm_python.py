"""Supervisors that tests start are forks of a process with torch, and are in all else like fresh processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tilewise.tuner.workers.worker import Worker, WorkerDied


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Worker]]:
    """A function that opens a worker which evaluates expressions, with more variables of the environment."""
    (tmp_path / "calls_of_forks.py").write_text("import os, sys\ndef run(text):\n    return eval(text)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        yield lambda **variables: stack.enter_context(closing(Worker("calls_of_forks:run", env=variables)))


def test_a_fork_has_torch_and_an_environment_and_a_folder_of_its_own(opened, tmp_path):
    worker = opened(ONLY_THERE="yes", HOME=None)
    seen = worker.call("os.environ['ONLY_THERE'], 'HOME' in os.environ, os.getcwd()", timeout=60)
    assert seen == ("yes", False, str(tmp_path))
    assert worker.call("'torch' in sys.modules, 'pytest' in sys.modules", timeout=60) == (True, False)


def test_a_process_that_would_import_otherwise_is_a_fresh_one(opened):
    assert opened(TRITON_INTERPRET="1").call("'torch' in sys.modules", timeout=60) is False


def test_the_end_of_a_fork_is_told_as_that_of_a_process(opened):
    worker = opened()
    supervisor = worker.call("os.getppid()", timeout=60)
    with pytest.raises(WorkerDied, match="died of SIGKILL"):
        worker.call("os.kill(os.getppid(), 9) or __import__('time').sleep(60)", timeout=60)
    assert worker.call("os.getppid()", timeout=60) != supervisor
