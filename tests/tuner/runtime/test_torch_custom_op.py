"""Launches as operations of torch: what they declare, and what they are called with."""

from __future__ import annotations

import pytest
import torch

from tilewise.kernels import registry
from tilewise.tuner.runtime.torch_custom_op import custom_op

NAMES = ("x_ptr", "w_ptr", "out_ptr", "M", "N", "eps")


def operation(names=NAMES, launch=lambda *arguments: None, place="module:launch", **options):
    return custom_op(registry.load("rms_norm"), names, launch, {}, place=place, **options)


@pytest.mark.parametrize(
    ("names", "first", "declared"),
    [
        (NAMES, (), "Tensor x_ptr, Tensor w_ptr, Tensor(a2!) out_ptr, SymInt M, SymInt N, float eps"),
        (("out_ptr", "eps"), ("str config", "int[] grid"), "str config, int[] grid, Tensor(a2!) out_ptr, float eps"),
        (("w_ptr",), (), "Tensor w_ptr"),
        ((), (), ""),
    ],
)
def test_an_operation_declares_each_argument_and_which_buffers_it_writes(names, first, declared):
    schema = str(operation(names, first=first)._opoverload._schema)
    assert schema.partition("(")[2] == f"{declared}) -> ()"


def test_a_launch_is_given_the_arguments_of_the_operation_and_what_it_writes_is_seen():
    given = []

    def launch(x, w, out, *scalars):
        given.extend(scalars)
        out.copy_(x + w)

    x, out = torch.ones(2, 3), torch.zeros(2, 3)
    called = operation(launch=launch, place="module:writer")
    assert called(x, torch.ones(3), out, 2, 3, 0.5) is None
    assert given == [2, 3, 0.5] and out.tolist() == [[2.0] * 3] * 2


def test_an_argument_of_unknown_type_makes_no_operation():
    assert operation((*NAMES, "BLOCK_SIZE_N")) is None
