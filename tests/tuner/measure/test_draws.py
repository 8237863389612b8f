"""The ways to draw inputs: what each puts where, in every dtype, and which edges a config has."""

import math

import pytest

from tilewise.kernels import registry
from tilewise.kernels.inferred import between
from tilewise.kernels.spec import Axis, Buffer, Problem, Tiling
from tilewise.tuner.measure.draws import DRAWS, EXTREME, Way, draw, edges

torch = pytest.importorskip("torch")

FLOATS = ["float32", "float16", "bfloat16"]
PLANTED = [Way.PEAKS, Way.TROUGHS, Way.SPARSE, Way.ACROSS]


def drawn(way, shape=(40, 50), dtype="float32", places=None, **kwargs):
    buffer = Buffer(shape, dtype, **kwargs)
    tensor = torch.empty(shape, dtype=getattr(torch, dtype))
    draw(tensor, buffer, torch.Generator().manual_seed(way), way, places or {})
    return tensor


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("way", Way)
def test_every_way_gives_finite_numbers_of_several_values(way, dtype):
    x = drawn(way, dtype=dtype)
    assert x.isfinite().all()
    assert x.unique().numel() > 20


def test_negative_inputs_have_no_other_sign():
    assert (drawn(Way.NEGATIVE) < 0).all()
    assert (drawn(Way.NEGATIVE, dtype="int32") < 0).all()
    assert (drawn(Way.PEAKS) < 0).sum() == 40 * 49
    assert (drawn(Way.TROUGHS) > 0).sum() == 40 * 49


def test_exponentials_of_large_inputs_overflow():
    assert drawn(Way.LARGE).exp().isinf().any(1).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("way", [Way.PEAKS, Way.TROUGHS, Way.SPARSE])
def test_every_row_has_one_extreme_at_an_edge_and_each_edge_some(way, dtype):
    x = drawn(way, dtype=dtype, places={50: (49, 0, 31, 32)}).float()
    rows, columns = (x.abs() == EXTREME).nonzero(as_tuple=True)
    assert rows.tolist() == list(range(40))
    assert columns.tolist() == [49, 0, 31, 32] * 10


def test_across_every_column_has_one():
    x = drawn(Way.ACROSS, places={40: (39, 0, 8)})
    columns, rows = (x.T == EXTREME).nonzero(as_tuple=True)
    assert columns.tolist() == list(range(50))
    assert rows.tolist()[:4] == [0, 8, 39, 0]


@pytest.mark.parametrize("shape", [(50,), (1, 50), (1, 1, 50)])
def test_a_single_row_has_its_extreme_at_the_end_and_across_at_the_start(shape):
    assert int(drawn(Way.SPARSE, shape).flatten().argmax()) == 49
    assert int(drawn(Way.ACROSS, shape).flatten().argmax()) == 0


@pytest.mark.parametrize("way", PLANTED)
@pytest.mark.parametrize("shape", [(1,), (1, 1), (3, 1), (1, 3), ()])
def test_small_tensors_have_extremes_too(way, shape):
    if shape:
        assert (drawn(way, shape).abs() == EXTREME).any()
    else:
        assert drawn(way, (1,)).numel() == 1


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
@pytest.mark.parametrize("way", Way)
def test_integers_stay_small_enough_to_add_up(way, dtype):
    x = drawn(way, dtype=dtype).long()
    assert x.min() >= -9 and x.max() <= 8
    assert dtype != "uint8" or x.min() >= 0


def test_a_buffers_own_draw_is_used_in_every_way_unless_any_value_may_be_there():
    buffer = Buffer((40, 50), "float32", draw=lambda tensor, generator: tensor.fill_(3.0))
    x = torch.empty(40, 50)
    for way in Way:
        draw(x, buffer, torch.Generator(), way, {})
        assert (x == 3).all()
        draw(x, buffer, torch.Generator(), way, {}, any_value=True)
        assert bool((x == 3).all()) == (way is Way.NORMAL)


def test_weights_beside_a_sparse_matrix_stay_normal():
    for way in (Way.SPARSE, Way.ACROSS):
        w = torch.empty(500)
        draw(w, Buffer((500,), "float32"), torch.Generator().manual_seed(1), way, {}, beside=True)
        assert 0.8 < w.std() < 1.2
        assert w.abs().max() < 10


def test_a_kernel_whose_inputs_have_a_draw_is_still_tried_on_all_others():
    for name in ("max_all", "max_rows"):
        assert registry.load(name).any_value == ("x_ptr",)
    assert registry.load("prod_all").any_value == ()


def test_edges_are_ends_tails_and_both_sides_of_tiles():
    spec = registry.load("row_reduce")
    config = {"BLOCK_SIZE_M": 25, "SUB_BLOCK_SIZE_M": 4, "BLOCK_SIZE_N": 256}
    found = edges(spec, Problem("row_reduce", {"M": 90, "N": 1000}, "float32"), config)
    assert found[90][:2] == (89, 0)
    assert {88, 87, 75, 74, 4, 3, 25, 24} <= set(found[90])
    assert {999, 0, 768, 767, 256, 255} <= set(found[1000])
    assert all(0 <= place < size for size, places in found.items() for place in places)


def test_there_are_as_many_ways_as_draws():
    assert len(Way) == DRAWS >= 4
    assert [int(way) for way in Way] == list(range(DRAWS))
    assert math.isinf(float(torch.tensor(EXTREME).exp()))


@pytest.mark.parametrize(
    ("dtype", "way", "least", "most"),
    [
        ("int32", Way.NORMAL, -8, 7),
        ("int8", Way.LARGE, -8, 7),
        ("int32", Way.NEGATIVE, -8, -1),
        ("uint8", Way.NORMAL, 0, 7),
        ("uint8", Way.NEGATIVE, 0, 7),
        ("int32", Way.PEAKS, -8, 8),  # an extreme is one step beyond
        ("int32", Way.TROUGHS, -9, 7),
        ("uint8", Way.TROUGHS, 0, 7),
        ("uint32", Way.NORMAL, 0, 8),  # the same numbers without their signs
        ("uint16", Way.NORMAL, 0, 8),
        ("uint64", Way.NORMAL, 0, 8),
        ("uint32", Way.NEGATIVE, 1, 8),
        ("uint32", Way.TROUGHS, 0, 9),
    ],
)
def test_integers_are_small_and_their_extremes_a_step_beyond(dtype, way, least, most):
    x = drawn(way, dtype=dtype).to(torch.int64)
    assert (int(x.min()), int(x.max())) == (least, most)


def test_unsigned_numbers_are_drawn_from_the_whole_range_that_a_buffer_asks_for():
    x = drawn(Way.NORMAL, dtype="uint32", draw=between(2**31, 2**32 - 1)).to(torch.int64)
    assert x.min() >= 2**31 and x.max() <= 2**32 - 1 and x.unique().numel() > 1000


def test_what_surrounds_extremes_is_far_from_zero_or_near_it():
    assert float(drawn(Way.PEAKS).max(1).values.min()) == EXTREME == 200.0
    for way, least, most in ((Way.PEAKS, 16.0, 22.0), (Way.TROUGHS, 16.0, 22.0), (Way.SPARSE, 0.0, 0.1)):
        x = drawn(way).abs()
        around = x[x != EXTREME]
        assert least <= float(around.min()) and float(around.max()) <= most
    assert float(drawn(Way.TROUGHS).min()) == -EXTREME
    assert 1.5 < float(drawn(Way.NEGATIVE).abs().mean()) < 1.7  # twice a half normal's
    assert 90 < float(drawn(Way.LARGE).std()) < 110


def test_edges_are_the_ends_and_both_sides_of_each_tail_the_last_element_first():
    class Spec:
        @staticmethod
        def tiling(config, problem):
            return Tiling((Axis("M", 100, 32, 8), Axis("N", 10, 16, 4)), 0, 0)

    found = edges(Spec, Problem("k", {}, "float32"), {})
    assert found == {100: (99, 0, 96, 95, 8, 7, 32, 31), 10: (9, 0, 8, 7, 4, 3)}


def test_no_axis_has_more_than_sixteen_edges():
    class Spec:
        @staticmethod
        def tiling(config, problem):
            return Tiling(tuple(Axis("M", 1000, block, step) for block, step in ((300, 7), (130, 11), (77, 13))), 0, 0)

    (found,) = edges(Spec, Problem("k", {}, "float32"), {}).values()
    assert found == (999, 0, 994, 993, 900, 899, 7, 6, 300, 299, 990, 989, 910, 909, 11, 10)


def test_truth_values_are_drawn_of_both_kinds():
    counts = [int(drawn(way, dtype="bool").sum()) for way in Way]
    assert all(900 < count < 1100 for count in counts)


@pytest.mark.parametrize(("dtype", "extreme"), [("float8_e4m3fn", 192.0), ("float8_e5m2", 192.0)])
def test_floats_of_8_bits_have_extremes_as_others_have(dtype, extreme):
    """200 lies between 192 and 208 or 224, and is rounded to the even one."""
    x = drawn(Way.SPARSE, dtype=dtype, places={50: (49, 0)}).float()
    rows, columns = (x == float(torch.tensor(EXTREME).to(getattr(torch, dtype)))).nonzero(as_tuple=True)
    assert (rows.tolist(), columns.tolist()) == (list(range(40)), [49, 0] * 20)
    assert float(x.max()) == extreme
    assert (drawn(Way.NEGATIVE, dtype=dtype).float() <= 0).all()
