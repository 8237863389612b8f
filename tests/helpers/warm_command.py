"""Runs `tilewise` in forks of a process that has imported what most commands need, which takes seconds each time.

Each command has its own process, folder, environment and files, as if started by a user.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

_PACKAGES = ("torch", "sqlalchemy.orm", "sqlalchemy.dialects.sqlite", "alembic.command", "rich.table", "rich.progress")
"""None of them starts a thread, which would not survive a fork, or reads a user's settings when it is imported."""


class WarmCommand:
    """The process that forks, seen from the tests. It ends with them."""

    def __init__(self) -> None:
        settings = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # more would be threads
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._server = subprocess.Popen([sys.executable, __file__], env=settings, **pipes)

    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float
    ) -> tuple[int, str, str]:
        """Return the exit code of `tilewise` with these words, and the text on its stdout and stderr."""
        server = self._server
        assert server.stdin is not None and server.stdout is not None
        with tempfile.NamedTemporaryFile("r+") as out, tempfile.NamedTemporaryFile("r+") as err:
            request = [list(words), str(folder), dict(environment), out.name, err.name]
            server.stdin.write(json.dumps(request).encode() + b"\n")
            server.stdin.flush()
            if not select.select([server.stdout], [], [], seconds)[0]:
                server.kill()
                raise TimeoutError(f"tilewise {' '.join(words)} has not ended after {seconds:g} s")
            return int(server.stdout.readline()), out.read(), err.read()

    def close(self) -> None:
        self._server.communicate()


def _serve() -> None:
    """Answer each line of stdin with the exit code of a command; in a fork, return when it is to run."""
    for name in _PACKAGES:
        import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "an imported package has started a thread"
    gc.freeze()  # a collection in a fork need not look at all this
    answers = os.dup(1)
    os.set_inheritable(answers, False)
    for line in sys.stdin:
        if not (child := os.fork()):
            os.close(answers)
            _run(*json.loads(line))
        os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _run(words: list[str], folder: str, environment: dict[str, str], out: str, err: str) -> NoReturn:
    for descriptor, file in enumerate(("/dev/null", out, err)):
        opened = os.open(file, os.O_RDWR | os.O_APPEND)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv, sys.path[0] = ["-c", *words], ""
    from tilewise.cli import main  # reads the settings of this command

    code: str | int | None = 0
    try:
        main(words)
    except SystemExit as error:
        code = error.code
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else code is not None)  # taking torch apart would take half a second


if __name__ == "__main__":
    _serve()
