"""A kernel's form, read from recorded launches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewise.errors import BadSpec
from tilewise.tuner.capture.calls import Call, CapturedKernel, TensorArgument, TritonDtype
from tilewise.tuner.inference.form import _is_tile, find_form


def tensor(*shape, dtype="float32", strides=None, **more):
    dense = [1]
    for size in reversed(shape[1:]):
        dense.insert(0, dense[0] * size)
    return TensorArgument(shape, tuple(strides or dense), dtype, **more)


def kernel(*calls, constants=(), **more):
    parameters = tuple(dict.fromkeys((*calls[0].arguments, *constants)))
    found = CapturedKernel("kernel", Path("program.py"), parameters, frozenset(constants), **more)
    for call in calls:
        found.add(call)
    return found


def call(configs=({},), grids=None, computed=None, **arguments):
    grids = grids or [(1,)] * len(configs)
    return Call(arguments, tuple(configs), tuple(grids), tuple(computed or [{}] * len(configs)))


def texts(fits):
    return {name: fit.text for name, fit in fits.items()}


def test_integers_that_equal_extents_are_dimensions_and_strides_follow():
    form = find_form(
        kernel(
            call(x=tensor(100, 64), x_stride=64, rows=100, cols=64, eps=1e-6, one=1),
            call(x=tensor(30, 128), x_stride=128, rows=30, cols=128, eps=1e-6, one=1),
        )
    )
    assert form.dims == ["rows", "cols"]
    assert [size.text for size in form.buffers["x"].sizes] == ["rows", "cols"]
    assert texts(form.fits) == {"x_stride": "cols", "rows": "rows", "cols": "cols", "one": "1"}
    assert form.fixed == {"eps": "1e-06"}
    assert [dict(problem.dims) for problem in form.problems] == [{"rows": 100, "cols": 64}, {"rows": 30, "cols": 128}]


def test_a_length_that_is_an_argument_makes_a_tensor_flat():
    form = find_form(kernel(call(x=tensor(10, 7, 3), n=210)))
    assert form.dims == ["n"] and [size.text for size in form.buffers["x"].sizes] == ["n"]


def test_extents_that_no_argument_gives_get_names():
    form = find_form(kernel(call(x=tensor(100, 64), w=tensor(64), cols=64)))
    assert form.dims == ["cols", "D0"]
    assert [size.text for size in form.buffers["x"].sizes] == ["D0", "cols"]


def test_equal_integers_are_one_dimension():
    form = find_form(kernel(call(a=tensor(512, 512), M=512, N=512, K=512)))
    assert form.dims == ["M"] and texts(form.fits) == {"M": "M", "N": "M", "K": "M"}


def test_a_transposed_tensor_is_taken_in_memory_order_and_a_view_with_gaps_whole():
    form = find_form(kernel(call(a=tensor(30, 50, strides=(1, 30)), b=tensor(8, 16, strides=(37, 1)), M=30, K=50)))
    assert [size.text for size in form.buffers["a"].sizes] == ["K", "M"]
    assert form.problems[0].dims[form.buffers["b"].sizes[0].text] == 7 * 37 + 16


def test_tile_sizes_that_the_program_sets_are_parameters_unless_a_dimension_explains_them():
    form = find_form(
        kernel(call(x=tensor(1000), n=1000, BLOCK=256, WIDE=1024, grids=[(4,)]), constants=("BLOCK", "WIDE"))
    )
    assert form.configs == [{"BLOCK": 256}] and texts(form.fits)["WIDE"] == "next_power_of_two(n)"
    assert form.grid[0].text == "4"  # so small a number says nothing


def test_a_tile_size_that_equals_a_dimension_is_one_where_the_grid_needs_it():
    calls = [call(x=tensor(t, 64), T=t, D=64, BT=64, grids=[(t // 64,)]) for t in (512, 2048)]
    form = find_form(kernel(*calls, constants=("BT",)))
    assert form.configs == [{"BT": 64}] and form.grid[0].text == "ceil_div(T, BT)"
    calls = [call(x=tensor(t, 64), T=t, D=64, BD=64, grids=[(t,)]) for t in (512, 2048)]
    assert texts(find_form(kernel(*calls, constants=("BD",))).fits)["BD"] == "next_power_of_two(D)"


def test_a_tile_size_that_equals_a_dimension_of_the_only_launch_is_noted():
    calls = [call(x=tensor(t, 64), T=t, BT=64, grids=[(t,)]) for t in (64, 2048)]
    (note,) = find_form(kernel(calls[0], constants=("BT",))).notes
    assert note.startswith("Not tuned, as the only launch has BT = next_power_of_two(T)")
    assert find_form(kernel(*calls, constants=("BT",))).notes == []


def test_a_count_of_elements_makes_dimensions_of_extents_that_never_change():
    calls = [call(x=tensor(512, n), elements=512 * n, n=n, B=2048, grids=[(512 * n // 2048,)]) for n in (512, 2048)]
    form = find_form(kernel(*calls, constants=("B",)))
    assert form.dims == ["n", "D0"] and texts(form.fits)["elements"] == "n * D0"
    assert form.grid[0].text == "ceil_div(n * D0, B)"


def test_where_no_form_explains_all_launches_the_first_stands_alone():
    form = find_form(kernel(*(call(x=tensor(n), n=n, grids=[(grid,)]) for n, grid in ((64, 17), (96, 5)))))
    assert [dict(problem.dims) for problem in form.problems] == [{"n": 64}] and form.grid[0].text == "17"
    assert "Only the first launch is read" in form.notes[-1] and "the grid of kernel does not follow" in form.notes[-1]


def test_the_grid_follows_from_configs():
    configs = [{"B": 32, "num_warps": 4}, {"B": 128, "num_warps": 8}]
    form = find_form(kernel(call(configs, [(32, 2), (8, 2)], x=tensor(1000), n=1000), constants=("B",)))
    assert [fit.text for fit in form.grid] == ["ceil_div(n, B)", "2"]
    assert form.blocks == ["B"] and form.options == {"num_warps"}


def test_programs_that_are_told_their_number_are_as_many_whatever_else_equals_it():
    configs = ({"BM": 128, "BN": 128}, {"BM": 128, "BN": 256})

    def launch(rows, cols, programs):
        return call(configs, [(20,)] * 2, x=tensor(rows, cols), rows=rows, cols=cols, PROGRAMS=programs)

    tiles = find_form(kernel(launch(256, 384, 7), launch(251, 389, 7), constants=("PROGRAMS", "BM", "BN")))
    assert tiles.grid[0].text != "20"
    told = find_form(kernel(launch(256, 384, 20), launch(251, 389, 20), constants=("PROGRAMS", "BM", "BN")))
    assert [fit.text for fit in told.grid] == ["20"]


def test_heuristics_follow_from_dimensions_and_configs():
    configs = [{"B": 32}, {"B": 128}]
    given = {"x": tensor(160), "n": 160}
    form = find_form(kernel(call(configs, [(5,), (2,)], [{"EVEN": True}, {"EVEN": False}], **given), constants=("B",)))
    assert form.computed["EVEN"].text == "n % B == 0"
    form = find_form(kernel(call([{"B": 32}], [(5,)], [{"LEAST": float("-inf")}], **given), constants=("B",)))
    assert form.computed["LEAST"].text == 'float("-inf")'
    with pytest.raises(BadSpec, match="X of kernel, which triton"):
        find_form(kernel(call(configs, [(5,), (2,)], [{"X": 3}, {"X": 11}], **given), constants=("B",)))


def test_truths_and_words_that_differ_are_flags():
    form = find_form(
        kernel(
            call(x=tensor(8), n=8, causal=False, mode="sum", other=True),
            call(x=tensor(8), n=8, causal=True, mode="mean", other=True),
        )
    )
    assert form.flags == {"causal": [False, True], "mode": ["sum", "mean"]} and form.fixed == {"other": "True"}
    assert [dict(problem.flags) for problem in form.problems] == [{}, {"causal": True, "mode": "mean"}]


def test_launches_of_another_form_are_left_out_and_told():
    calls = [call(x=tensor(size), b=None, n=size) for size in (8, 16)]
    form = find_form(kernel(call(x=tensor(8), b=tensor(8), n=8), *calls))
    assert len(form.calls) == 2 and form.fixed == {"b": "None"}
    assert form.notes == ["1 different launches with other optional arguments are left out"]


def test_launches_with_another_dtype_of_triton_as_an_argument_are_left_out():
    launches = ((64, "tl.float32"), (96, "tl.float16"), (32, "tl.float16"))
    form = find_form(kernel(*(call(x=tensor(n), n=n, t=TritonDtype(word)) for n, word in launches)))
    assert [problem.dims["n"] for problem in form.problems] == [96, 32]


def test_dtypes_of_the_problem_and_values_of_integers():
    form = find_form(
        kernel(
            call(x=tensor(9, dtype="float16"), i=tensor(4, dtype="int64", low=0, high=8), n=9, m=4),
            call(x=tensor(9, dtype="bfloat16"), i=tensor(4, dtype="int64", low=1, high=5), n=9, m=4),
        )
    )
    assert form.dtypes == ["float16", "bfloat16"] and form.buffers["x"].dtype is None
    assert (form.buffers["i"].dtype, form.buffers["i"].draw) == ("int64", "between(1, 5)")
    rising = find_form(kernel(call(x=tensor(9), i=tensor(2, dtype="int32", low=0, high=9, values=(0, 9)), n=9)))
    assert rising.buffers["i"].draw == "exactly(0, 9)"
    many = tuple(range(3000))
    placed = find_form(kernel(call(x=tensor(9), i=tensor(3000, dtype="int32", low=0, high=9, values=many), n=9)))
    assert placed.buffers["i"].draw.startswith('exactly(*unpacked("') and len(placed.buffers["i"].draw) < 200


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (
            lambda: CapturedKernel("k", Path("p.py"), (), frozenset(), obstacles=["it is inside a function"]),
            "inside a fu",
        ),
        (lambda: CapturedKernel("k", Path("p.py"), (), frozenset()), "it was never launched"),
        (lambda: kernel(call(n=3)), "a kernel without tensors"),
        (
            lambda: kernel(call([{"B": 2}, {"B": 4}], [(17,), (5,)], x=tensor(64), n=64), constants=("B",)),
            "the grid of",
        ),
        (
            lambda: kernel(call([{"B": 2}, {"B": 4}], [(32,), (16, 2)], x=tensor(64), n=64), constants=("B",)),
            "the grid of kernel has 1 or 2 axes; capture one alone",
        ),
        (
            lambda: kernel(
                *(call([{"B": 2}, {"B": 4}], [(17,), (5,)], x=tensor(n), n=n) for n in (64, 96)), constants=("B",)
            ),
            "the grid of kernel does not follow from n, B;",
        ),
    ],
)
def test_what_is_missing_is_one_line(found, reason):
    with pytest.raises(BadSpec, match=reason):
        find_form(found())


def test_a_number_that_changes_and_is_no_size_is_no_dimension():
    calls = [call(x=tensor(n), n=n, offset=offset, seed=seed) for n, offset, seed in ((512, 0, 1 << 40), (96, 128, 7))]
    form = find_form(kernel(*calls))
    assert form.dims == ["n"] and (form.fixed["offset"], form.fixed["seed"]) == ("0", str(1 << 40))
    assert form.notes == [
        "offset is 0 in the spec, although launches differ in it",
        f"seed is {1 << 40} in the spec, although launches differ in it",
    ]


@pytest.mark.parametrize(
    ("number", "is_size"), [(-1, False), (0, False), (1, True), ((1 << 31) - 1, True), (1 << 31, False)]
)
def test_sizes_are_from_one_to_the_largest_integer_of_32_bits(number, is_size):
    calls = [call(x=tensor(n), n=n, groups=groups) for n, groups in ((512, number), (96, 10), (96, 14))]
    form = find_form(kernel(*calls))
    assert form.dims == ["n", "groups"][: 1 + is_size]
    assert form.fixed == ({} if is_size else {"groups": str(number)})
    same = find_form(kernel(*(call(x=tensor(n), n=n, groups=number) for n in (512, 96))))
    assert (same.dims, same.fits["groups"].text, same.notes) == (["n"], str(number), [])


def test_a_dtype_that_no_spec_takes_is_named_with_its_argument():
    with pytest.raises(BadSpec, match="inferred for kernel: locks is complex64; a spec takes float32"):
        find_form(kernel(call(x=tensor(100), locks=tensor(1, dtype="complex64"), n=100)))


@pytest.mark.parametrize(
    ("name", "least"), [("BLOCK", 2), ("BLOCK_SIZE_M", 2), ("tile", 2), ("eps", 16), ("heads", 16), ("", 16)]
)
def test_powers_of_two_are_tile_sizes_from_a_least_one_on_that_depends_on_the_name(name, least):
    assert [size for size in range(-4, 70) if _is_tile(size, name)] == [n for n in (2, 4, 8, 16, 32, 64) if n >= least]


def test_an_integer_that_changes_and_follows_from_nothing_is_a_dimension():
    calls = [call(x=tensor(n), n=n, heads=heads, half=heads // 2) for n, heads in ((512, 6), (96, 10), (96, 14))]
    form = find_form(kernel(*calls))
    assert form.dims == ["n", "heads", "half"]
    assert texts(form.fits) == {"n": "n", "heads": "heads", "half": "half"}
    assert [dict(problem.dims) for problem in form.problems] == [
        {"n": n, "heads": heads, "half": heads // 2} for n, heads in ((512, 6), (96, 10), (96, 14))
    ]


def test_a_constant_named_as_a_heuristic_prefers_the_dimension_of_its_last_word():
    configs = [{"BLOCK_M": size, "BLOCK_K": size} for size in (32, 64)]
    given = {"x": tensor(160, 96), "M": 160, "K": 96}
    even = [{"EVEN_K": True, "EVEN_M": True}, {"EVEN_K": False, "EVEN_M": False}]
    made = kernel(call(configs, [(5,), (3,)], even, **given), constants=("BLOCK_M", "BLOCK_K"))
    computed = find_form(made).computed
    assert (computed["EVEN_K"].text, computed["EVEN_M"].text) == ("K % BLOCK_K == 0", "M % BLOCK_M == 0")
