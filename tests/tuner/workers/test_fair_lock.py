"""A lock for threads: one holds it at a time, and one that waits has it before the last one has it again."""

import threading

import pytest

from tilewise.tuner.workers.fair_lock import FairLock

WAIT = 60


def begun(*targets):
    threads = [threading.Thread(target=target, daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    return threads


def test_one_thread_at_a_time_holds_it():
    lock, counts = FairLock(), [0]

    def count():
        for _ in range(200):
            with lock:
                before = counts[0]
                with lock:
                    counts[0] = before + 1

    for thread in begun(count, count, count):
        thread.join(WAIT)
    assert counts == [600]


def test_a_thread_that_takes_it_again_and_again_lets_another_in_between():
    lock, stopping, held = FairLock(), threading.Event(), threading.Event()

    def greedy():
        while not stopping.is_set():
            with lock:
                held.set()
                stopping.wait(0.01)

    [thread] = begun(greedy)
    assert held.wait(WAIT)
    for _ in range(5):
        with lock:
            assert not stopping.is_set()
    stopping.set()
    thread.join(WAIT)
    assert not thread.is_alive()


def test_an_error_releases_it():
    lock = FairLock()
    with pytest.raises(ValueError, match="an error"), lock, lock:
        raise ValueError("an error")
    with lock:
        pass
    had = threading.Event()

    def take():
        with lock:
            had.set()

    begun(take)
    assert had.wait(WAIT)
