"""Courses of code that run in turns, one at a time: each goes on until it waits for what another has yet to do.

The functions of a mixed kernel wait for one another in the middle of their loops. Each has a thread of its own, of
which only one ever runs, so that the course of all is the same every time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Deadlock", "Turns"]


class Deadlock(ValueError):
    """Every course waits for another; the message names what the first of them waits for."""


class _Abandoned(BaseException):
    """Ends a course whose turn will not come again."""


class _Course:
    """One course: its thread, and what it waits for."""

    def __init__(self) -> None:
        self.turn = threading.Semaphore(0)
        self.ready: Callable[[], bool] = lambda: True
        self.waits_for = ""
        self.result: Any = None
        self.error: BaseException | None = None
        self.ended = False


class Turns:
    """Runs courses in turns. A course calls `wait` to let others go on."""

    def __init__(self) -> None:
        self._courses: list[_Course] = []
        self._back = threading.Semaphore(0)
        self._running: _Course | None = None
        self._abandoned = False

    def run(self, courses: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run all courses to their ends, the first one first, and return their results.

        Raises what the first course to fail raises, or `Deadlock`.
        """
        self._courses = [_Course() for _ in courses]
        threads = [
            threading.Thread(target=self._run, args=(course, call), daemon=True)
            for course, call in zip(self._courses, courses, strict=True)
        ]
        for thread in threads:
            thread.start()
        try:
            while left := [course for course in self._courses if not course.ended]:
                running = next((course for course in left if course.ready()), None)
                if running is None:
                    raise Deadlock(f"deadlock: {left[0].waits_for}")
                self._give(running)
                if running.error is not None:
                    raise running.error
        finally:
            self._abandoned = True
            for course in self._courses:
                if not course.ended:
                    self._give(course)
            for thread in threads:
                thread.join()
        return [course.result for course in self._courses]

    def wait(self, ready: Callable[[], bool], waits_for: str) -> None:
        """Let other courses go on until `ready()`; `waits_for` says for what, for a message."""
        if ready():
            return
        course = self._running
        assert course is not None
        course.ready, course.waits_for = ready, waits_for
        self._back.release()
        course.turn.acquire()
        if self._abandoned:
            raise _Abandoned

    def _give(self, course: _Course) -> None:
        self._running = course
        course.turn.release()
        self._back.acquire()

    def _run(self, course: _Course, call: Callable[[], Any]) -> None:
        course.turn.acquire()
        try:
            if not self._abandoned:
                course.result = call()
        except _Abandoned:
            pass
        except BaseException as error:  # raised again by `run`
            course.error = error
        finally:
            course.ended = True
            self._back.release()
