"""Ctrl-C and SIGTERM: both unwind what is open, so that no process, lock or temporary file stays."""

from __future__ import annotations

import signal
import threading
from types import FrameType

__all__ = ["Terminated", "exit_code", "unwind_on_sigterm"]


class Terminated(KeyboardInterrupt):
    """SIGTERM came: to be handled wherever Ctrl-C is."""


def unwind_on_sigterm() -> None:
    """From now on SIGTERM raises `Terminated` in the main thread; without that it would end the process on the spot."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _raise)


def exit_code(error: BaseException) -> int:
    """As a shell has it: 128 and the signal's number."""
    terminated = isinstance(error, Terminated) or isinstance(error.__cause__, Terminated)
    return 128 + (signal.SIGTERM if terminated else signal.SIGINT)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Terminated
