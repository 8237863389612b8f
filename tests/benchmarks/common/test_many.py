"""A database of many problems: each of its shapes has a verified winner."""

from tilewise.benchmarks.common.many import DEVICE, KERNEL, fill, shapes
from tilewise.db.records import Problem, Question
from tilewise.db.sql.sql_store import open_store


def test_every_shape_is_stored_with_a_winner_and_a_default(url):
    fill(url, 25)
    chosen = shapes(25)
    assert chosen == shapes(25) and len({tuple(dims.values()) for dims in chosen}) == 25
    with open_store(url) as store:
        assert len(list(store.scopes())) == 25
        for dims in chosen:
            result = store.lookup(Question(Problem(KERNEL, dims, "float32"), DEVICE))
            assert result.winner.verified and result.winner.time_us < result.default.time_us
