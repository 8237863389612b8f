"""Courses run one at a time, and end together."""

import threading
import time

import pytest

from tilewise.tuner.devices.ascend_model.clock.turns import Deadlock, Turns


def test_a_course_goes_on_until_it_waits_for_another():
    turns, said = Turns(), []

    def first():
        said.append("first begins")
        turns.wait(lambda: "second begins" in said, "the second")
        said.append("first ends")
        return 1

    def second():
        said.append("second begins")
        turns.wait(lambda: "first ends" in said, "the first")
        return 2

    assert turns.run([first, second]) == [1, 2]
    assert said == ["first begins", "second begins", "first ends"]


def test_courses_that_wait_for_one_another_are_a_deadlock_that_says_for_what():
    turns = Turns()
    with pytest.raises(Deadlock, match="deadlock: a flag"):
        turns.run([lambda: turns.wait(lambda: False, "a flag"), lambda: None])


def test_the_error_of_one_course_ends_all():
    turns, threads = Turns(), threading.active_count()

    def fails():
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        turns.run([lambda: turns.wait(lambda: False, "never"), fails])
    assert threading.active_count() == threads


def test_no_thread_is_left_when_all_courses_have_ended(monkeypatch):
    class Slow(threading.Thread):
        def run(self):
            super().run()
            time.sleep(0.05)  # after it has given its turn back

    monkeypatch.setattr(threading, "Thread", Slow)
    assert Turns().run([lambda: 1, lambda: 2]) == [1, 2]
    assert not [thread for thread in threading.enumerate() if isinstance(thread, Slow)]
