"""A time limit of several tunings: equal shares, unspent time passed on, and room for what follows a search."""

import pytest

from tilewise.tuner.tuning.shared_time import SharedTime


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still unless a test moves it: a list of one number of seconds."""
    now = [1000.0]
    monkeypatch.setattr("tilewise.tuner.tuning.shared_time.time.monotonic", lambda: now[0])
    return now


def shares(shared, clock, took, most=None):
    """Return the share of each tuning; `took` gives its seconds, as a function of its share."""
    given = []
    for seconds in took:
        with shared.share(most) as share:
            given.append(share)
            clock[0] += seconds(share)
    return given


def test_without_a_limit_each_tuning_has_its_own_alone(clock):
    assert shares(SharedTime(None, 2), clock, [lambda share: 9.0] * 2, most=5.0) == [5.0, 5.0]
    assert shares(SharedTime(None, 2), clock, [lambda share: 9.0] * 2) == [None, None]


def test_tunings_that_use_their_shares_get_equal_ones(clock):
    assert shares(SharedTime(60.0, 3), clock, [lambda share: share] * 3) == [20.0, 20.0, 20.0]


def test_unspent_time_goes_to_all_that_follow(clock):
    assert shares(SharedTime(60.0, 3), clock, [lambda share: 10.0, lambda share: share, lambda share: share]) == [
        20.0,
        25.0,
        25.0,
    ]


def test_a_limit_per_tuning_holds_within_the_shares(clock):
    assert shares(SharedTime(60.0, 3), clock, [lambda share: share] * 3, most=12.0) == [12.0, 12.0, 12.0]
    assert shares(SharedTime(30.0, 3), clock, [lambda share: share] * 3, most=12.0) == [10.0, 10.0, 10.0]


def test_what_follows_a_search_is_kept_free_so_that_the_total_holds(clock):
    began = clock[0]
    given = shares(SharedTime(60.0, 4), clock, [lambda share: share + 3.0] * 4)
    assert given == [15.0, 11.0, 11.0, 11.0]
    assert clock[0] - began == 60.0


def test_one_long_ending_does_not_take_the_shares_of_all_that_follow(clock):
    began = clock[0]
    endings = [2.0, 2.0, 20.0, *[2.0] * 6]
    given = shares(SharedTime(90.0, 9), clock, [lambda share, end=end: share + end for end in endings])
    assert min(given) > 2.0
    assert clock[0] - began == pytest.approx(90.0, abs=4.0)


def test_a_tuning_for_which_no_time_is_left_still_runs(clock):
    given = shares(SharedTime(10.0, 3), clock, [lambda share: share + 20.0] * 3)
    assert given[0] == pytest.approx(10 / 3)
    assert all(0 < share < 0.01 for share in given[1:])


def test_a_failed_tuning_counts_as_one(clock):
    shared = SharedTime(60.0, 3)

    def fails():
        with shared.share() as share:
            clock[0] += share
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert shares(shared, clock, [lambda share: share] * 2) == [20.0, 20.0]


def test_of_tunings_of_which_several_run_at_once_each_has_more_time(clock):
    limit = SharedTime(100.0, 5, at_once=2)
    given = []
    for _ in range(5):
        with limit.share() as seconds:
            given.append(seconds)
    assert given == [40.0, 50.0, pytest.approx(200 / 3), 100.0, 100.0]
