"""The values with which the form of a new job is filled on a problem's page."""

from __future__ import annotations

import pytest

from tilewise.api.pages.problem.routes import _problem_of
from tilewise.db.records import Clock, Problem, Scope


@pytest.mark.parametrize(("clock", "device"), [(Clock.MODELLED, "model:Ascend910B4"), (Clock.MEASURED, "")])
def test_a_modelled_problem_is_tuned_again_on_its_model_and_a_measured_one_where_the_user_says(clock, device):
    problem = Problem("row_reduce", {"M": 1000, "N": 8192}, "float16")
    scope = Scope(problem, "a1", "Ascend910B4", clock, "t", 40)
    words = {"kernel": "row_reduce", "dims": "M=1000,N=8192", "dtype": "float16"}
    assert _problem_of(scope) == words | {"device": device}
