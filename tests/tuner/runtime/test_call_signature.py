"""Problems read back from a call's arguments."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tilewise.errors import BadSpec
from tilewise.kernels.spec import Buffer, KernelSpec, Tiling
from tilewise.tuner.runtime.call_signature import call_signature, dtype_argument, signature_from_buffers

DIMS = tuple("ABCDEFGHIJ")

SPEC = KernelSpec(
    name="many",
    summary="",
    function="nowhere:many",
    dims=DIMS,
    dtypes=("float32",),
    parameters=(),
    buffers=lambda problem: {"x": Buffer((problem.dims["I"], problem.dims["J"]), problem.dtype)},
    scalars=lambda problem: {dim.lower(): problem.dims[dim] for dim in DIMS[:8]},
    grid=lambda config, problem: (1,),
    tiling=lambda config, problem: Tiling((), 0, 0),
    flops=lambda problem: 0,
    default=lambda problem, target: {},
)


def test_a_kernel_may_have_any_number_of_dimensions():
    signature = call_signature(SPEC)
    assert signature.dims == (*((dim.lower(), None) for dim in DIMS[:8]), ("x", 0), ("x", 1))
    assert signature.tensor == "x"


def test_a_problem_is_read_from_scalars_before_axes_and_from_buffers_alone_where_there_are_no_scalars():
    buffers = lambda problem: {  # noqa: E731
        "out": Buffer((problem.dims["N"],), problem.dtype, "out"),
        "x": Buffer((problem.dims["M"], problem.dims["N"]), problem.dtype),
        "ids": Buffer((problem.dims["M"],), "int32"),
    }
    spec = replace(SPEC, dims=("M", "N"), buffers=buffers, scalars=lambda problem: {"rows": problem.dims["M"]})
    called, built = call_signature(spec), signature_from_buffers(spec)
    assert (called.dims, built.dims) == ((("rows", None), ("out", 0)), (("x", 0), ("out", 0)))
    assert called.tensor == built.tensor == "x"
    tensors = {"out": torch.empty(5), "x": torch.empty(3, 5), "ids": torch.empty(3)}
    assert called.sizes({**tensors, "rows": 3}) == built.sizes(tensors) == (3, 5)
    arguments = [tensors["x"], tensors["out"], 3]
    assert called.key_of(("x", "out", "rows"))(arguments) == (3, 5, torch.float32, -1)
    by_name = called.key_of_call(("x", "out", "rows"), 1, ("rows", "out"))
    assert by_name(arguments[:1], {"rows": 3, "out": tensors["out"]}) == (3, 5, torch.float32, -1)
    assert called.key_of_call(("x", "out", "rows"), 2, ()) is None


@pytest.mark.parametrize(
    ("read", "changes", "complaint"),
    [
        (call_signature, {"scalars": lambda problem: {}}, r"many: A, B, .*H cannot be read .*pass tuned\("),
        (
            signature_from_buffers,
            {},
            "many: A, B, .*H cannot be read .*an operator needs, for each dimension, a buffer",
        ),
        (
            dtype_argument,
            {"buffers": lambda problem: {"x": Buffer((1,), "int32")}},
            "many has no buffer of the problem's",
        ),
        (
            dtype_argument,
            {"dtypes": ("float32", "float16"), "buffers": lambda problem: {"x": Buffer((1,), "float32")}},
            "many has no buffer",
        ),
    ],
)
def test_a_kernel_whose_calls_do_not_tell_the_problem_is_refused(read, changes, complaint):
    with pytest.raises(BadSpec, match=complaint):
        read(replace(SPEC, **changes))


def test_a_launch_without_an_argument_of_the_problem_is_refused():
    with pytest.raises(BadSpec, match=r"a problem is read from a, x, but the function takes b, .*; pass its own spec"):
        call_signature(SPEC).key_of(("b", "c", "d", "e", "f", "g", "h"))
