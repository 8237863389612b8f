"""Problems read back from a call's arguments."""

from __future__ import annotations

from tilewise.kernels.spec import Buffer, KernelSpec, Tiling
from tilewise.tuner.runtime.call_signature import call_signature

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
