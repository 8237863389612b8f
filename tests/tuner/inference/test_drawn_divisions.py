"""Divisions of work found for kernels drawn at random, in all that the rules treat apart."""

import drawn_divisions


def test_divisions_of_drawn_kernels_are_those_of_the_table():
    for number, (now, before) in enumerate(zip(drawn_divisions.now(), drawn_divisions.before(), strict=True), start=1):
        assert now == before, f"the {number}th kernel"
