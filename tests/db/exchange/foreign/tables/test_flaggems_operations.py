"""The parameters of FlagGems' operations by operation, as listed by parameters."""

from __future__ import annotations

import importlib.util

import pytest

NAME = "tilewise.db.exchange.foreign.tables.flaggems_operations"


@pytest.fixture
def parameters():
    """The table as a new import makes it."""
    spec = importlib.util.find_spec(NAME)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PARAMETERS


@pytest.mark.parametrize(
    ("operation", "takes"),
    [
        ("mm", [("BLOCK_M", "BLOCK_N", "BLOCK_K")]),
        ("argmax", [("BLOCK_M",)]),
        ("batch_norm", [()]),
        ("masked_fill", [("BLOCK_SIZE",), ("BLOCK_SIZE", "BLOCK_SIZE_SUB")]),
    ],
)
def test_an_operation_has_the_parameters_of_each_vendor_in_order(operation, takes, parameters):
    assert parameters[operation] == tuple(takes)


def test_operations_of_other_names_have_none(parameters):
    assert "row_reduce" not in parameters
    assert len(parameters) > 60
