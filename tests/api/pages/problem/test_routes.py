"""The values with which the form of a new job is filled on a problem's page."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tilewise.api.pages.problem.routes import _problem_of, _trial_number
from tilewise.db.records import Clock, Problem, Scope
from tilewise.errors import UsageError


@pytest.mark.parametrize(("clock", "device"), [(Clock.MODELLED, "model:Ascend910B4"), (Clock.MEASURED, "")])
def test_a_modelled_problem_is_tuned_again_on_its_model_and_a_measured_one_where_the_user_says(clock, device):
    problem = Problem("row_reduce", {"M": 1000, "N": 8192}, "float16")
    scope = Scope(problem, "a1", "Ascend910B4", clock, "t", 40)
    words = {"kernel": "row_reduce", "dims": "M=1000,N=8192", "dtype": "float16"}
    assert _problem_of(scope) == words | {"device": device}


@pytest.mark.parametrize(
    ("given", "otherwise", "number"), [("0", None, 0), ("2", None, 2), (None, 1, 1), ("2", 0, 2), ("02", None, 2)]
)
def test_a_trial_is_chosen_by_its_number_or_is_the_usual_one(given, otherwise, number):
    request = SimpleNamespace(query_params={} if given is None else {"a": given})
    assert _trial_number(request, "a", otherwise, 3) == number


@pytest.mark.parametrize("given", ["3", "-1", "x", "", None, "1" * 10])
def test_a_number_that_no_trial_has_is_refused_with_the_numbers_there_are(given):
    request = SimpleNamespace(query_params={} if given is None else {"a": given})
    with pytest.raises(UsageError, match="expected the number of a trial, from 0 to 2"):
        _trial_number(request, "a", None, 3)
