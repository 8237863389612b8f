"""Bearer tokens: what each right includes, and which texts are known."""

from __future__ import annotations

import itertools

import pytest

from tilewise.db.tokens import Right, Tokens
from tilewise.errors import NotFound, UsageError

KINDS = pytest.mark.parametrize("store", ["sqlite-file", "sqlite-memory", "postgresql"], indirect=True)
"""No server tells a worker of tokens."""


@pytest.fixture
def tokens(store) -> Tokens:
    return Tokens(store.database)


def test_each_right_includes_those_before_it():
    rights = [Right.READ, Right.SUBMIT, Right.ADMIN]
    for (low, less), (high, more) in itertools.product(enumerate(rights), repeat=2):
        assert more.includes(less) is (low <= high)


@KINDS
def test_a_token_is_known_by_its_whole_text_until_it_is_revoked(tokens):
    first, second = tokens.create("one", Right.READ), tokens.create("x" * 100, Right.ADMIN)
    one, other = tokens.list()
    assert [(token.name, token.right, token.revoked) for token in (one, other)] == [
        ("one", Right.READ, None),
        ("x" * 100, Right.ADMIN, None),
    ]
    assert tokens.check(first) == (one.id, Right.READ) and tokens.check(second) == (other.id, Right.ADMIN)
    secret = first.rpartition(f"tw_{one.id}_")[2]
    for text in ("", "tw_", first[:-1], first + "x", first.upper(), f"tw_{other.id}_{secret}", f"tw_0{one.id}_{secret}",
                 f"tw_999_{secret}", f"x{first}", f"tw_{one.id}_"):  # fmt: skip
        assert tokens.check(text) is None
    tokens.revoke(one.id)
    revoked = tokens.list()[0].revoked
    tokens.revoke(one.id)
    assert tokens.check(first) is None and tokens.check(second) is not None
    assert revoked is not None and tokens.list()[0].revoked == revoked


@KINDS
def test_what_is_no_token_and_no_name_is_refused(tokens):
    with pytest.raises(NotFound) as refused:
        tokens.revoke(7)
    assert str(refused.value) == "token 7 does not exist; tilewise token list shows all tokens"
    for name in ("", "x" * 101, "two\nlines"):
        with pytest.raises(UsageError, match="a token's name must have 1 to 100 printable characters"):
            tokens.create(name, Right.READ)
    assert tokens.list() == []
