"""The arguments that kernels store through, by their text: nothing of it runs."""

from __future__ import annotations

from typing import Any

from tilewise.tuner.capture.stores import stored_arguments

tl: Any = None
helper: Any = None


def kernel(x, out, counts, lengths, n):
    at = tl.arange(0, n)
    size = tl.load(lengths + at)
    place = out
    for step in range(size):
        place += step
    tl.store(pointer=place + size, value=tl.load(x + at))
    tl.atomic_add(counts + size, 1)


def blocks(x, table, out):
    block = tl.make_block_ptr(base=out, shape=(4,))
    block = tl.advance(block, (1,))
    tl.store(block, tl.load(x))
    helper(table, tl.load(x))


def described(desc, x):
    desc.store([0], tl.load(x))


def test_an_argument_is_stored_through_the_pointers_that_follow_from_it_not_through_what_it_is_loaded_for():
    assert stored_arguments(kernel) == {"out", "counts"}


def test_block_pointers_and_what_is_handed_to_other_functions_count_as_stored():
    assert stored_arguments(blocks) == {"out", "table"}
    assert stored_arguments(described) == {"desc"}


def test_a_function_without_a_text_may_store_through_all_its_arguments():
    names: dict[str, object] = {}
    exec("def made(x, out): ...", names)
    assert stored_arguments(names["made"]) == {"x", "out"}
