"""The names that statements bind and use, and what stands around a function."""

from __future__ import annotations

import ast

import pytest

from tilewise.kernels.definitions import definitions_of, nesting_of, opened, parsed, statements_of, used_names


def texts(statements):
    return [ast.unparse(node) for node in statements]


@pytest.mark.parametrize(
    ("test", "is_main"),
    [
        ("__name__ == '__main__'", True),
        ("'__main__' == __name__", True),
        ("__name__ != '__main__'", False),
        ("__name__ == '__main__' == x", False),
        ("__name__ == 'main'", False),
        ("name == '__main__'", False),
        ("__name__", False),
    ],
)
def test_statements_of_a_main_program_stand_at_the_top(test, is_main):
    text = f"a = 1\nif {test}:\n    b = 2\nelse:\n    c = 3\nd = 4"
    found = texts(statements_of(parsed(text)))
    assert found == (
        ["a = 1", "b = 2", "c = 3", "d = 4"] if is_main else ["a = 1", texts(parsed(text).body)[1], "d = 4"]
    )


def test_a_name_has_the_statements_that_bind_it_in_branches_too():
    text = """
import os
a = 1
a: int = 2
if x:
    b = 3
elif y:
    def b(): c = 4
try:
    d = 5
except E:
    e = 6
match m:
    case 1:
        f = 7
for g in h:
    i, (j, k.l) = 8
with n as o:
    p += 9
class Q:
    r = 10
def s(t):
    u = 11
"""
    found = definitions_of(parsed(text))
    assert {name: len(nodes) for name, nodes in found.items()} == {
        "a": 2,
        "b": 1,
        "d": 1,
        "e": 1,
        "f": 1,
        "g": 1,
        "i": 1,
        "j": 1,
        "k": 1,
        "p": 1,
        "Q": 1,
        "s": 1,
    }
    assert texts(found["a"]) == ["a = 1", "a: int = 2"]


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("def f(x, y=a): z = x + b; return z", {"f", "a", "b"}),
        ("def f():\n    def g(): return c\n    return g", {"f", "c"}),
        ("def f(): global d; d = 1", {"f", "d"}),
        ("x = [y for y in e]", {"x", "e"}),
        ("class C(B):\n    g = h\n    def m(self): return k", {"C", "B", "h", "k"}),
        ("x.y = z", {"x", "z"}),
    ],
)
def test_used_names_are_those_of_the_file(code, names):
    (statement,) = parsed(code).body
    assert used_names(statement) >= names
    assert not {"z1", "self", "y1"} & used_names(statement)
    assert used_names(statement) - {"g"} == names


def test_decorators_may_be_left_out():
    (function,) = parsed("@one\n@two(a)\ndef f(): return b").body
    assert used_names(function) == {"one", "two", "a", "f", "b"}
    assert used_names(function, function.decorator_list[:1]) == {"two", "a", "f", "b"}
    assert used_names(function, function.decorator_list) == {"f", "b"}
    assert len(function.decorator_list) == 2  # it is left as it was


def make(first, *rest, key=None, **more):
    class Around:
        def inner(self):
            return first

    return Around.inner


def test_a_function_is_named_behind_those_around_it():
    assert nesting_of(make(1)) == "make.Around.inner"
    assert nesting_of(make) == "make"


def test_bodies_around_a_function_stand_at_the_top_of_the_file_last():
    text = """
a = 1
if x:
    def outer(p, *q, r=2, **s):
        b = 3
        class C:
            c = 4
            def inner(t):
                d = 5
"""
    tree, arguments = opened(parsed(text), "outer.C.inner")
    assert texts(tree.body)[0] == "a = 1"
    assert [type(node).__name__ for node in tree.body] == [
        *("Assign", "If"),  # the file
        *("Assign", "ClassDef"),  # outer
        *("Assign", "FunctionDef"),  # C
    ]
    assert arguments == {"p", "q", "r", "s"}
    alone, none = opened(parsed(text), "outer")
    assert (len(alone.body), none) == (2, frozenset())
    assert len(opened(parsed(text), "nothing.inner")[0].body) == 2
