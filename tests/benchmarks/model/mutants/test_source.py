"""Mutants of the kernels' source: single changes that parse, the same for the same seed, of all kinds."""

import ast
import difflib

import pytest

from tilewise.benchmarks.model.mutants.source import MODULES, all_mutants, mutated_text, sample, text_of

KINDS = {
    *("bound", "mask", "other", "initial value", "dtype", "arithmetic", "index", "number", "operation"),
    "dropped statement",
}


def test_there_are_far_more_than_400_of_every_kind_and_module():
    mutants = list(all_mutants())
    assert len({mutant.name for mutant in mutants}) > 1000
    assert {mutant.kind for mutant in mutants} == KINDS
    assert {mutant.module for mutant in mutants} == set(MODULES)


@pytest.mark.full
def test_a_mutant_changes_one_place_and_still_parses():
    for mutant in sample(60, 3):
        text = mutated_text(mutant)
        ast.parse(text)
        before, after = text_of(mutant.module), text
        changed = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[:1] in "+-"]
        assert changed, mutant
        start = len(before.splitlines()[: mutant.line - 1])
        assert before.splitlines()[:start] == after.splitlines()[:start]


@pytest.mark.full
def test_a_sample_depends_on_its_seed_alone_and_a_longer_one_begins_with_it():
    drawn = sample(40, 1)
    assert sample(80, 1)[:40] == drawn != sample(40, 2)
    assert {mutant.kind for mutant in drawn} == KINDS


def test_what_changes_no_result_is_left_alone():
    for mutant in all_mutants():
        assert not mutant.change.startswith(("PropagateNan", "ALL", '"evict', "NUM_STAGES", "num_stages"))
