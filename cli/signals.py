"""Ctrl-C and SIGTERM: both unwind the stack, so that no process, lock or temporary file is left behind."""

from __future__ import annotations

import signal
import threading
from types import FrameType

__all__ = ["Terminated", "exit_code", "unwind_on_sigterm"]


class Terminated(KeyboardInterrupt):
    """A SIGTERM, handled wherever Ctrl-C is."""


def unwind_on_sigterm() -> None:
    """Make SIGTERM raise `Terminated` in the main thread, instead of ending the process at once."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _raise)


def exit_code(error: BaseException) -> int:
    """Return the exit code that a shell expects: 128 plus the signal's number."""
    terminated = isinstance(error, Terminated) or isinstance(error.__cause__, Terminated)
    return 128 + (signal.SIGTERM if terminated else signal.SIGINT)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Terminated
