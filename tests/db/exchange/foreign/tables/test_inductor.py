"""Tables of `torch.compile`, looked up by the installed torch's own code."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tilewise.db.exchange.foreign.tables.inductor import INDUCTOR
from tilewise.db.exchange.selection import Selection
from tilewise.errors import NotFound, UsageError

TILE = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_M": 8}
POINTERS = {"VARIANT": "pointers", **TILE, "SPLIT_K": 1, "PROGRAMS": 0, "num_warps": 8, "num_stages": 4}


@pytest.fixture
def gemm(store, make_scope, make_trial):
    """Store trials of a product, and return the table that is written of it."""

    def table(*trials, unverified=False, dims=(("M", 64), ("N", 256), ("K", 512)), **scope):
        where = make_scope(kernel="gemm", dims=dict(dims), dtype="float16", device="NVIDIA H200", **scope)
        store.record(where, [make_trial(**trial) for trial in trials])
        written = INDUCTOR.write(Selection(store, [where], unverified))
        return json.loads(written.files[""])

    return table


def found_by_torch(table, b_stride, k=512):
    """Return what inductor finds for a product of 64 x k by k x 256 on an H200."""
    torch = pytest.importorskip("torch")
    lookup_table = pytest.importorskip("torch._inductor.lookup_table")
    from torch._inductor.graph import GraphLowering
    from torch._inductor.kernel_inputs import MMKernelInputs
    from torch._inductor.virtualized import V

    class Choices(lookup_table.LookupTableChoices):
        def _get_lookup_table(self):
            return table

        @staticmethod
        def _get_device_key(device):
            return "NVIDIA H200"

    def node(sizes, strides):
        return SimpleNamespace(
            get_size=lambda: sizes,
            get_stride=lambda: strides,
            get_dtype=lambda: torch.float16,
            get_device=lambda: torch.device("cuda", 0),
        )

    graph = GraphLowering(torch.fx.symbolic_trace(torch.nn.Identity()))
    with V.set_graph_handler(graph):
        inputs = MMKernelInputs([node([64, k], [k, 1]), node([k, 256], b_stride)])
        return Choices().lookup_template_configs(inputs, "mm", ["aten::mm", "triton::mm"], {"triton::mm": "any"})


def test_inductor_finds_the_best_config_of_its_template(gemm):
    table = gemm({"config": POINTERS, "time_us": 9.0, "verified": True})
    expected = {**TILE, "EVEN_K": True, "num_warps": 8, "num_stages": 4}
    assert found_by_torch(table, [256, 1]) == {"triton::mm": [expected]}
    assert found_by_torch(table, [1, 512]) == {}
    assert found_by_torch(table, [256, 1], k=544) == {}


def test_a_column_major_matrix_has_other_strides(gemm):
    shape = (("M", 64), ("N", 256), ("K", 500), ("column_major", True))
    table = gemm({"config": POINTERS, "time_us": 9.0, "verified": True}, dims=shape)
    assert found_by_torch(table, [1, 500], k=500)["triton::mm"][0]["EVEN_K"] is False
    assert found_by_torch(table, [256, 1], k=500) == {}


def test_the_fastest_config_that_the_template_can_have_is_taken(gemm):
    descriptors = POINTERS | {"VARIANT": "descriptors", "PROGRAMS": 132}
    parts, slow = POINTERS | {"SPLIT_K": 4}, POINTERS | {"BLOCK_M": 32}
    trials = [
        {"config": descriptors, "time_us": 5.0, "verified": True},
        {"config": parts, "time_us": 6.0, "verified": True},
        {"config": POINTERS, "time_us": 9.0, "verified": False},
        {"config": slow, "time_us": 12.0, "verified": True},
    ]
    [[entry]] = gemm(*trials).values()
    assert entry["BLOCK_M"] == 32
    [[entry]] = gemm(*trials, unverified=True).values()
    assert entry["BLOCK_M"] == 64


def test_what_the_template_cannot_compute_is_refused(gemm):
    trial = {"config": POINTERS, "time_us": 9.0, "verified": True}
    with pytest.raises(UsageError, match="is no plain product of matrices"):
        gemm(trial, dims=(("M", 64), ("N", 256), ("K", 512), ("bias", True)))
    with pytest.raises(UsageError, match="is no plain product of matrices"):
        gemm(trial, dims=(("M", 64), ("N", 256)))
    with pytest.raises(NotFound, match="no verified config has one tile per program"):
        gemm({**trial, "config": POINTERS | {"SPLIT_K": 2}})


@pytest.mark.needs_gpu
def test_inductor_knows_a_gpu_by_the_name_under_which_results_are_stored():
    torch = pytest.importorskip("torch")
    choices = pytest.importorskip("torch._inductor.lookup_table").LookupTableChoices
    assert choices._get_device_key(torch.device("cuda", 0)) == torch.cuda.get_device_name(0)
