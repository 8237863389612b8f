"""The pages of executed programs and of mutations match the recorded results, which cover what they should."""

import json

from places import RESULTS

from tilewise.benchmarks.model.execution_report import execution_page, mutations_page
from tilewise.kernels import registry


def recorded(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def test_the_page_of_executed_programs_is_that_of_the_recorded_results():
    assert execution_page(recorded("model-execution")) == (RESULTS / "model-execution.md").read_text()


def test_the_page_of_mutations_is_that_of_the_recorded_results():
    assert mutations_page(recorded("model-mutations")) == (RESULTS / "model-mutations.md").read_text()


def test_twenty_configs_of_every_kernel_in_two_dtypes_are_recorded():
    rows = recorded("model-execution")["rows"]
    for name in registry.names():
        mine = [row for row in rows if row["kernel"] == name]
        assert len(mine) >= 20
        assert len({row["dtype"] for row in mine}) == 2


def test_of_two_hundred_changes_95_percent_of_those_that_matter_were_reported():
    changes = recorded("model-mutations")["changes"]
    counting = [change for change in changes if change["counts"]]
    assert len(changes) >= 200
    refused = [change for change in counting if change["report"] and change["reported_as"] != "noted"]
    assert len(refused) >= 0.95 * len(counting)
