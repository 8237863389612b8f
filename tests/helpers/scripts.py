"""Runs scripts in a process that has imported torch and Triton's interpreter already."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback


def run(script: str, *arguments: str) -> tuple[int, str, str]:
    """Run a script in a fork of this process; return its exit code and the text on its stdout and stderr."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                sys.argv = ["-c", *arguments]
                exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()
