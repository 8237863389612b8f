"""Calls and results of operations as JSON, and what is refused of them."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from tilewise.api.jobs.operations import OPERATIONS, _plain, _refuse_huge_integers
from tilewise.db.records import Clock, Problem, Scope
from tilewise.errors import StoreError, UsageError

GET, RUNNING, SCOPES = (OPERATIONS[name] for name in ("jobs.get", "jobs.running", "store.scopes"))


def test_names_are_a_part_and_a_method():
    for name, operation in OPERATIONS.items():
        assert name == f"{operation.part}.{operation.method}" == operation.name


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_arguments_have_their_names_however_a_call_gives_them(operation):
    _, *parameters = operation.signature.parameters.values()
    wanted = {parameter.name: number for number, parameter in enumerate(parameters)}
    first = [parameter for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]
    for count in range(len(first) + 1):
        given, named = [*wanted.values()][:count], dict([*wanted.items()][count:])
        assert operation.by_name(given, named) == wanted


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
@pytest.mark.parametrize("place", [lambda v: {"a": v}, lambda v: {"a": [1, [v]]}, lambda v: {"a": {"b": [{"c": v}]}}])
def test_integers_have_64_bits(value, place):
    with pytest.raises(UsageError, match="an integer among the arguments does not fit 64 bits"):
        _refuse_huge_integers(place(value))
    _refuse_huge_integers(place(value - 1 if value > 0 else value + 1))
    _refuse_huge_integers(place(True))


@pytest.mark.parametrize("body", [{}, {"number": "text"}, {"number": 1, "other": 2}, {"other": 1}])
def test_arguments_of_another_kind_or_name_are_refused_with_the_operations_name(body):
    with pytest.raises(UsageError, match=r"^arguments of jobs\.get: "):
        GET.from_json(body)
    assert GET.from_json({"number": 1}) == {"number": 1}


def test_what_is_no_plain_value_cannot_be_sent():
    assert _plain({"a": MappingProxyType({"b": [1, 2]})}) == {"a": {"b": [1, 2]}}
    with pytest.raises(StoreError, match="cannot be sent as JSON: object is no plain value"):
        _plain({"a": object()})


def test_a_result_of_another_type_is_one_of_another_version():
    with pytest.raises(StoreError, match=r"^the server's answer to jobs\.running is of another version: "):
        RUNNING.result_from_json([{"no": "such"}])


def test_a_lazy_result_is_sent_as_a_list_and_comes_back_one_by_one():
    scope = Scope(Problem("gemm", {"M": 1}, "float16"), "a1", "Ascend910B4", Clock.MODELLED, "t", 40)
    sent = SCOPES.result_to_json(iter([scope, scope]))
    assert isinstance(sent, list) and len(sent) == 2
    found = SCOPES.result_from_json(sent)
    assert next(found) == scope and list(found) == [scope]
    assert RUNNING.result_from_json([]) == [] == RUNNING.result_to_json([])
