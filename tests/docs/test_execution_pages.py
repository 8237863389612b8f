"""The pages of executed programs and of mutations match the recorded results."""

import json

from places import RESULTS

from tilewise.benchmarks.model.execution_report import execution_page, mutations_page


def recorded(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def test_the_page_of_executed_programs_is_that_of_the_recorded_results():
    assert execution_page(recorded("model-execution")) == (RESULTS / "model-execution.md").read_text()


def test_the_page_of_mutations_is_that_of_the_recorded_results():
    assert mutations_page(recorded("model-mutations")) == (RESULTS / "model-mutations.md").read_text()
