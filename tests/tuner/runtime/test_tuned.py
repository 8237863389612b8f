"""`tuned` functions over a stand-in for a `triton.jit` function that records its launches."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import multiprocessing
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from scopes import changed

from tilewise.db.exchange.native.runtime_file import encode_winners
from tilewise.db.records import Clock, Problem, Result, Scope, Status, Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import BadSpec, UsageError
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.tuner.hardware.targets import known_target
from tilewise.tuner.portfolio.build import portfolios
from tilewise.tuner.runtime import shared_choices
from tilewise.tuner.runtime import tuned as tuned_module
from tilewise.tuner.runtime.tuned import tuned
from tilewise.tuner.runtime.untuned_shapes import UntunedShapes

SPEC = registry.load("row_reduce")
CONFIG = {"BLOCK_SIZE_M": 25, "SUB_BLOCK_SIZE_M": 25, "BLOCK_SIZE_N": 256, "multibuffer": True}
SCOPE = Scope(
    Problem("row_reduce", {"M": 1000, "N": 8192}, "float32"),
    source_hash(SPEC),
    "Ascend910B4",
    Clock.MODELLED,
    "model-1",
    40,
)


class Tensor:
    """The part of a torch tensor that a launch uses."""

    def __init__(self, dtype="torch.float32"):
        self.dtype = dtype
        self.filled = []

    def get_device(self):
        return 0

    def fill_(self, value):
        self.filled.append(value)


class Jitted:
    """The part of a JITFunction that `tuned` uses. `fails` returns the exception to raise for a config, or None."""

    constants = ("BLOCK_SIZE_M", "SUB_BLOCK_SIZE_M", "BLOCK_SIZE_N", "EVICT_FIRST")
    arg_names = ("x_ptr", "w_ptr", "out_ptr", "M", "N", *constants)

    def __init__(self, fails=lambda config: None):
        self.launches, self.fails = [], fails

    def run(self, *args, grid, warmup, **kwargs):
        if (error := self.fails(kwargs)) is not None:
            raise error
        self.launches.append((args, grid, warmup, kwargs))
        return "launched"

    @property
    def configs(self):
        return [kwargs for *_, kwargs in self.launches]


def result(m, n=8192, config=None, time_us=31.5, **changes):
    scope = {"dims": {"M": m, "N": n}, **changes}
    moment = datetime(2026, 11, 20, tzinfo=UTC)
    winner = Trial(dict(config or CONFIG), Status.CORRECT, time_us=time_us, verified=True, created=moment)
    return Result(changed(SCOPE, **scope), winner, None, {}, 1.0)


@pytest.fixture
def misses(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWISE_MISSES", str(tmp_path / "misses.jsonl"))
    return UntunedShapes(tmp_path / "misses.jsonl")


@pytest.fixture
def file(tmp_path, misses):
    """An export file with results of 1000x8192 and 2000x8192."""
    other = CONFIG | {"BLOCK_SIZE_N": 512}
    path = tmp_path / "configs.json"
    path.write_bytes(encode_winners(r.to_json() for r in (result(1000), result(2000, config=other))))
    return path


def launch(kernel, m, n=8192, dtype="torch.float32", grid=(1,)):
    return kernel[grid](Tensor(dtype), Tensor(dtype), Tensor(dtype), m, n)


def over(jitted, cache, **options):
    return tuned(SPEC, cache, **{"device": "Ascend910B4"} | options)(jitted)


def test_a_tuned_shape_is_launched_with_its_config_and_the_grid_as_given(file):
    jitted = Jitted()
    kernel, grid = over(jitted, file), lambda meta: (meta["BLOCK_SIZE_M"],)
    assert launch(kernel, 1000, grid=grid) == "launched"
    assert launch(kernel, 1000, grid=grid) == "launched"
    (args, used, warmup, kwargs), again = jitted.launches
    assert (args[3:], used, warmup, kwargs) == ((1000, 8192), grid, False, CONFIG)
    assert again[1:] == (grid, False, CONFIG)
    assert [choice.match for choice in kernel.choices] == ["exact"]


def test_arguments_may_be_given_by_name(file):
    jitted = Jitted()
    kernel = over(jitted, file)
    x = Tensor()
    for _ in range(2):
        kernel[(1,)](x, w_ptr=x, out_ptr=x, M=1000, N=8192)
        kernel[(1,)](x, x, x, 1000, N=8192)
    assert len(kernel.choices) == 1
    assert all(CONFIG.items() <= kwargs.items() for kwargs in jitted.configs)


def test_a_known_way_to_call_by_name_is_as_direct_as_a_positional_call(file, monkeypatch):
    jitted, x = Jitted(), Tensor()
    kernel = over(jitted, file)
    calls = [
        lambda: kernel[(1,)](x_ptr=x, w_ptr=x, out_ptr=x, M=1000, N=8192),
        lambda: kernel[(1,)](x, x, N=8192, M=1000, out_ptr=x),
    ]
    for call in calls:
        call()
    monkeypatch.setattr(kernel, "_launch_by_name", lambda *args, **kwargs: pytest.fail("looked up again"))
    assert [call() for call in calls] == ["launched"] * 2 and len(jitted.launches) == 4


def test_copies_and_pickles_are_the_function_itself(file, monkeypatch):
    class Named(Jitted):
        def __init__(self):
            super().__init__()
            self.fn = launch  # any function of this module

    kernel = over(Named(), file)
    monkeypatch.setitem(globals(), "launch", kernel)
    assert copy.deepcopy({"kernel": kernel})["kernel"] is kernel and copy.copy(kernel) is kernel
    assert pickle.loads(pickle.dumps(kernel)) is kernel


def test_results_of_another_version_of_the_source_are_told_of_once(tmp_path, misses, caplog):
    path = tmp_path / "configs.json"
    path.write_bytes(encode_winners([result(1000, source_hash="0" * 16).to_json()]))
    kernel = over(Jitted(), path)
    with caplog.at_level(logging.WARNING, "tilewise.runtime"):
        launch(kernel, 1000), launch(kernel, 2000)
    (told,) = (message for message in caplog.messages if "the source of row_reduce has changed" in message)
    assert "since it was tuned for Ascend910B4, so its results are not used; tune it again" in told


def test_a_missing_argument_is_named(file):
    with pytest.raises(UsageError, match="an argument is missing; its shape is read from M, N, x_ptr"):
        over(Jitted(), file)[(1,)](w_ptr=Tensor(), M=1000, N=8192)


def test_dimensions_may_come_from_a_function_of_the_arguments(file):
    class Flat(Jitted):
        arg_names = ("x_ptr", "w_ptr", "out_ptr", "shape", *Jitted.arg_names[5:])

    jitted = Flat()
    kernel = over(jitted, file, dims=lambda named: dict(zip("MN", named["shape"], strict=True)))
    for _ in range(2):
        kernel[(1,)](Tensor(), Tensor(), Tensor(), (1000, 8192))
    assert jitted.configs == [CONFIG, CONFIG]


@pytest.mark.parametrize(
    ("m", "n", "match"),
    [(1000, 8192, "exact"), (1100, 8192, "nearest"), (50, 300, "portfolio")],
)
def test_a_choice_says_how_far_it_relaxed(file, misses, m, n, match):
    kernel = over(Jitted(), file)
    launch(kernel, m, n)
    (choice,) = kernel.choices
    assert choice.match == match
    assert choice.is_guess == (match != "exact")
    assert [miss.question.dims for miss in misses.all()] == ([{"M": m, "N": n}] if choice.is_guess else [])


def test_a_file_of_winners_and_portfolio_answers_for_a_shape_between_the_tuned_ones(tmp_path, misses):
    wide = CONFIG | {"BLOCK_SIZE_N": 512}
    small = [result(1000), result(1000, config=wide, time_us=60.0)]
    large = [result(4000, time_us=60.0), result(4000, config=wide)]
    (portfolio,) = portfolios([(some[0].scope, [one.winner for one in some]) for some in (small, large)], SPEC)
    path = tmp_path / "runtime.json"
    path.write_bytes(encode_winners([], [portfolio.to_json()]))
    for m, columns in ((1300, 256), (3000, 512)):
        kernel = over(Jitted(), path)
        launch(kernel, m)
        (choice,) = kernel.choices
        assert (choice.match, choice.config["BLOCK_SIZE_N"]) == ("portfolio", columns)


def test_a_portfolio_of_another_version_is_not_used_and_the_log_says_so(tmp_path, misses, caplog):
    (portfolio,) = portfolios([(result(1000).scope, [result(1000).winner])], SPEC)
    path = tmp_path / "runtime.json"
    path.write_bytes(encode_winners([result(1000).to_json()], [portfolio.to_json() | {"version": 1}]))
    assert launch(over(Jitted(), path), 1000) == "launched"
    assert "the portfolio has version 1, but this tilewise reads 2; export it again" in caplog.text


def test_without_any_result_the_prior_and_without_leave_the_default_is_launched(file, misses):
    for match, expected in (("predicted", "predicted"), ("nearest", "default")):
        kernel = over(Jitted(), file, match=match)
        launch(kernel, 1000, dtype="torch.float16")
        assert [choice.match for choice in kernel.choices] == [expected]
    (miss,) = misses.all()
    assert (miss.processes, miss.question.dtype, miss.origin) == (2, "float16", "row_reduce")


def test_another_source_and_another_chip_are_not_used(tmp_path, misses):
    path = tmp_path / "others.json"
    others = [{"source_hash": "other"}, {"device": "Ascend910B1"}, {"cores": 20}, {"dtype": "float16"}]
    path.write_bytes(encode_winners(result(1000, **changes).to_json() for changes in others))
    for device in ("Ascend910B4", "Ascend910B2"):
        kernel = over(Jitted(), path, device=device, match="portfolio")
        launch(kernel, 1000)
        assert kernel.choices[0].match == "default"
    asked_for = over(Jitted(), path, device="Ascend910B1")
    launch(asked_for, 1000)
    assert asked_for.choices[0].match == "exact"


@pytest.mark.in_part(2)
@pytest.mark.parametrize(
    "config",
    [
        {"FOO": 1},
        {"BLOCK_SIZE_M": 25},
        {**CONFIG, "grid": 3},
        {**CONFIG, "BLOCK_SIZE_M": "25"},
        {**CONFIG, "BLOCK_SIZE_M": 25.0},
    ],
)
def test_what_could_not_be_passed_to_the_kernel_is_no_config(tmp_path, misses, config):
    result = Result(SCOPE, Trial(config, Status.CORRECT, time_us=9.0, verified=True), None, {}, 1.0)
    path = tmp_path / "configs.json"
    path.write_bytes(encode_winners([result.to_json()]))
    kernel = over(Jitted(), path)
    launch(kernel, 1000)
    assert kernel.choices[0].is_guess
    assert {name: type(value) for name, value in kernel.choices[0].config.items()} == {
        name: type(value) for name, value in CONFIG.items()
    }


def test_a_config_from_before_its_spec_had_an_option_is_launched_without(tmp_path, misses):
    config = {name: value for name, value in CONFIG.items() if name != "multibuffer"}
    result = Result(SCOPE, Trial(config, Status.CORRECT, time_us=9.0, verified=True), None, {}, 1.0)
    path = tmp_path / "configs.json"
    path.write_bytes(encode_winners([result.to_json()]))
    kernel = over(Jitted(), path)
    launch(kernel, 1000)
    assert (kernel.choices[0].match, kernel.choices[0].config) == ("exact", config)


def test_the_default_is_launched_where_it_won_wherever_it_is(tmp_path, misses):
    default = SPEC.default(Problem("row_reduce", SCOPE.dims, "float32"), known_target("Ascend910B4", 40))
    spec = dataclasses.replace(SPEC, default=lambda problem, target: {**default, "BLOCK_SIZE_N": 384.0})
    result = Result(
        SCOPE, Trial({**default, "BLOCK_SIZE_N": 384.0}, Status.CORRECT, time_us=9.0, verified=True), None, {}, 1.0
    )
    path = tmp_path / "configs.json"
    path.write_bytes(encode_winners([result.to_json()]))
    kernel = tuned(spec, path, device="Ascend910B4")(Jitted())
    launch(kernel, 1000)
    assert kernel.choices[0].match == "exact"


def test_a_function_that_chooses_by_itself_or_takes_no_config_of_the_spec_is_refused(file):
    class Autotuner(Jitted):
        def __init__(self, function):
            super().__init__()
            self.fn = function

    for function in (Autotuner(Jitted()), over(Jitted(), file)):
        with pytest.raises(UsageError, match=r"is wrapped in (Autotuner|TunedFunction) already"):
            over(function, file)
    fixed = Jitted()
    fixed.arg_names = tuple(name for name in Jitted.arg_names if name != "BLOCK_SIZE_N")
    with pytest.raises(BadSpec, match="row_reduce tunes BLOCK_SIZE_N, which the function does not take"):
        over(fixed, file)


def test_a_device_that_nobody_knows_is_said(file, caplog):
    launch(over(Jitted(), file), 1000)
    assert "unknown device" not in caplog.text
    launch(tuned(SPEC, file, device="Ascent910B4")(Jitted()), 1000)
    assert caplog.text.count("unknown device 'Ascent910B4'") == 1


def test_tensors_on_no_known_device_need_one_named(file):
    torch = pytest.importorskip("torch")
    x = torch.empty(1)
    with pytest.raises(UsageError, match=r"tensors are on cpu.*device="):
        over(Jitted(), file, device=None)[(1,)](x, x, x, 1000, 8192)


def test_a_choice_is_not_printed_where_nobody_asks(file, capsys):
    launch(over(Jitted(), file), 1000)
    assert "exact" not in capsys.readouterr().err


def test_each_choice_is_logged_once_and_explained_where_asked(file, caplog, capsys):
    kernel = over(Jitted(), file, explain=True)
    with caplog.at_level(logging.INFO, "tilewise.runtime"):
        for _ in range(3):
            launch(kernel, 1000)
    assert len(caplog.messages) == 1
    assert "exact: BLOCK_SIZE_M=25" in caplog.text
    assert capsys.readouterr().err.count("row_reduce M=1000,N=8192 float32 on Ascend910B4: exact") == 1


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"\0\xff\x80",
        b"{}",
        b'{"format": "tilewise", "version": 99, "entries": []}',
        b"[" * 100_000,
        b"\x1f\x8b\x08broken",
    ],
)
def test_a_cache_that_cannot_be_used_is_reported_and_launches_go_on(tmp_path, misses, caplog, content):
    path = tmp_path / "configs.json"
    if content is not None:
        path.write_bytes(content)
    jitted = Jitted()
    kernel = over(jitted, path, match="exact")
    assert "continuing without tuned configs of row_reduce" in caplog.text
    assert launch(kernel, 1000) == "launched"
    assert kernel.choices[0].match == "default"


def test_a_flipped_byte_makes_the_whole_file_unusable(file, caplog):
    data = bytearray(file.read_bytes())
    place = data.index(b'"BLOCK_SIZE_M":25') + 16
    data[place : place + 1] = b"9"
    file.write_bytes(data)
    kernel = over(Jitted(), file, match="exact")
    assert "checksum" in caplog.text
    launch(kernel, 1000)
    assert kernel.choices[0].match == "default"


def test_a_file_with_evidence_serves_as_well(tmp_path, misses):
    from tilewise.db.exchange.native.export_file import encode, export_native

    with open_store(f"sqlite:///{tmp_path / 'tiles.db'}") as store:
        for answer in (result(1000), result(4000)):
            store.record(answer.scope, [answer.winner])
        (tmp_path / "full.json").write_bytes(encode(export_native(store, store.scopes())))
    for cache in (tmp_path / "full.json", f"sqlite:///{tmp_path / 'tiles.db'}"):
        kernel = over(Jitted(), cache)
        launch(kernel, 1000)
        launch(kernel, 1001)
        assert [choice.match for choice in kernel.choices] == ["exact", "nearest"]


def test_a_guess_that_does_not_compile_gives_way_to_the_default(file):
    class OutOfResources(Exception):
        pass

    jitted = Jitted(lambda config: OutOfResources("shared memory") if config["BLOCK_SIZE_N"] == 256 else None)
    kernel = over(jitted, file)
    assert launch(kernel, 1001) == "launched"
    (choice,) = kernel.choices
    assert choice.match == "default"
    assert "OutOfResources: shared memory" in choice.why
    assert launch(kernel, 1001) == "launched"
    assert jitted.configs[0] == jitted.configs[1] == choice.config


def test_a_guess_that_comes_later_gives_way_to_the_default_too(file):
    class OutOfResources(Exception):
        pass

    jitted = Jitted(lambda config: OutOfResources("shared memory") if config["BLOCK_SIZE_N"] == 256 else None)
    kernel = over(jitted, "nowhere.json", match="older")
    assert launch(kernel, 1001) == "launched"
    (default,) = kernel.choices
    late = dataclasses.replace(default, match="nearest", config=CONFIG)
    with kernel.selector.lock:
        kernel._changed(kernel.selector._keep(late))  # as on a late answer of a server
    assert launch(kernel, 1001) == launch(kernel, 1001) == "launched"
    assert "OutOfResources" in kernel.choices[0].why
    assert [config == jitted.configs[0] for config in jitted.configs] == [True] * 3


def test_a_tuned_config_that_fails_is_the_callers_to_see(file):
    class OutOfResources(Exception):
        pass

    kernel = over(Jitted(lambda config: OutOfResources("shared memory")), file)
    with pytest.raises(OutOfResources):
        launch(kernel, 1000)


def test_an_output_that_is_accumulated_into_starts_from_its_initial_value(file):
    import dataclasses

    from tilewise.kernels.spec import Buffer

    def buffers(problem):
        return {**SPEC.buffers(problem), "out_ptr": Buffer((problem.dims["M"],), problem.dtype, "out", initial=0.0)}

    spec = dataclasses.replace(SPEC, buffers=buffers)
    for reset, filled in ((True, [0.0, 0.0]), (False, [])):
        out = Tensor()
        kernel = tuned(spec, file, device="Ascend910B4", reset=reset)(Jitted())
        kernel[(1,)](Tensor(), Tensor(), out, 1000, 8192)
        kernel.warmup(Tensor(), Tensor(), out, 1000, 8192, grid=(1,))
        kernel.run(Tensor(), Tensor(), out, 1000, 8192, grid=(1,))  # as a function that wraps this one does
        assert out.filled == filled


def test_threads_that_meet_a_shape_at_once_choose_once(file):
    jitted = Jitted()
    kernel = over(jitted, file)
    barrier = threading.Barrier(8)

    def work(number):
        barrier.wait()
        for m in range(1000, 1040):
            launch(kernel, m)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(kernel.choices) == 40
    assert len(jitted.launches) == 8 * 40
    by_shape = {}
    for args, _, _, kwargs in jitted.launches:
        by_shape.setdefault(args[3], []).append(kwargs)
    assert all(kwargs == configs[0] for configs in by_shape.values() for kwargs in configs)


def test_the_child_of_a_fork_goes_on_while_another_thread_held_the_lock(tmp_path, misses):
    url = f"sqlite:///{tmp_path / 'tiles.db'}"
    with open_store(url) as store:
        store.record(result(1000).scope, [result(1000).winner])
    kernel = over(Jitted(), url)
    launch(kernel, 1000)
    held, leave = threading.Event(), threading.Event()

    def hold():
        with kernel.selector.lock:
            held.set()
            leave.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = multiprocessing.get_context("fork").Process(target=_child, args=(kernel,))
    child.start()
    child.join(20)
    leave.set()
    holder.join()
    assert child.exitcode == 0


def _child(kernel):
    launch(kernel, 1001)
    os._exit(0 if [choice.match for choice in kernel.choices] == ["exact", "nearest"] else 1)


def test_warming_up_compiles_what_a_launch_would_run(file):
    jitted = Jitted()
    kernel = over(jitted, file)
    x = Tensor()
    kernel.warmup(x, x, x, 1000, 8192, grid=(1,))
    assert [(warmup, kwargs) for _, _, warmup, kwargs in jitted.launches] == [(True, CONFIG)]


def test_misses_that_cannot_be_kept_do_not_end_the_launch(file, monkeypatch, tmp_path, caplog):
    (tmp_path / "plain").write_text("")
    monkeypatch.setenv("TILEWISE_MISSES", str(tmp_path / "plain" / "misses.jsonl"))
    assert launch(over(Jitted(), file), 1001) == "launched"
    assert "untuned shapes are not recorded" in caplog.text


def test_misses_are_counted_by_process_and_forgotten_once_tuned(misses):
    one, other = (result(m).scope.question for m in (1, 2))
    for question in (one, other, other):
        misses.add(question, "row_reduce", "portfolio")
    with misses.path.open("ab") as file:
        file.write(b'{"kernel": "cut sh')
    assert [(miss.question, miss.processes) for miss in misses.all()] == [(other, 2), (one, 1)]
    with misses.path.open("ab") as file:
        file.write(b"\n")
    misses.forget(other)
    assert [miss.question for miss in misses.all()] == [one]
    assert json.loads(misses.path.read_text().splitlines()[0])["match"] == "portfolio"


def test_a_kernel_of_several_functions_is_no_decorators(file):
    with pytest.raises(UsageError, match="takes several functions"):
        tuned("softmax", file)


def test_what_is_no_jitted_function_or_another_specs_is_refused_when_it_is_wrapped(file):
    def plain(x_ptr):
        pass

    with pytest.raises(UsageError, match=r"^plain is not a triton\.jit function; write @triton\.jit between tuned"):
        tuned(SPEC, file)(plain)
    other = Jitted()
    other.arg_names = ("x_ptr", "out_ptr", "n_elements")
    with pytest.raises(BadSpec) as caught:
        tuned(SPEC, file)(other)
    assert str(caught.value) == (
        "a problem is read from M, N, but the function takes x_ptr, out_ptr, n_elements; pass its own spec"
    )


def test_processes_with_other_results_launch_what_the_first_put_into_the_file_of_choices(tmp_path, misses, monkeypatch):
    monkeypatch.setenv("TILEWISE_CHOICES", str(tmp_path / "choices.jsonl"))
    kernels, jitted = [], [Jitted(), Jitted()]
    for number, one in enumerate(jitted):
        path = tmp_path / f"configs-{number}.json"
        config = CONFIG | {"BLOCK_SIZE_N": 128 << number}
        path.write_bytes(encode_winners([result(1000, config=config).to_json()]))
        kernels.append(over(one, path))
    for kernel in reversed(kernels):
        launch(kernel, 1000)
    assert [one.configs[0]["BLOCK_SIZE_N"] for one in jitted] == [256, 256]
    assert [kernel.choices[0].match for kernel in kernels] == ["exact", "exact"]


def test_a_shared_choice_of_other_parameters_is_not_launched(file, tmp_path, monkeypatch, caplog):
    choices = tmp_path / "choices.jsonl"
    monkeypatch.setenv("TILEWISE_CHOICES", str(choices))
    launch(over(Jitted(), file), 1000)
    choices.write_text(choices.read_text().replace("BLOCK_SIZE_N", "BLOCK_SIZE_X"))
    shared_choices._opened.cache_clear()
    jitted = Jitted()
    launch(over(jitted, file), 1000)
    assert jitted.configs == [CONFIG]
    assert "is not launchable here" in caplog.text


# In a graph of torch.compile, whose tracing is stood in for


@pytest.fixture
def compiling(file):
    """A kernel as the compiler reads it, with the launches that it put into its graph."""
    jitted = Jitted()
    kernel = over(jitted, file)
    kernel.put, kernel.jitted = [], jitted
    kernel._is_compiling = lambda: True
    kernel._operation = lambda *given, **named: kernel.put.append((*given, named))
    kernel._sample = {"BLOCK_SIZE_M": 16, "SUB_BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 128, "EVICT_FIRST": False}
    return kernel


def test_a_launch_on_whole_numbers_is_put_into_the_graph_with_them(compiling):
    x = Tensor()
    compiling[(7, 2)](x, x, x, 1000, N=8192)
    compiling[5](x, x, x, 1000, 8192)
    assert compiling.put == [((7, 2), False, x, x, x, 1000, {"N": 8192}), ((5,), False, x, x, x, 1000, 8192, {})]
    assert compiling.jitted.launches == []


def test_a_grid_that_follows_from_the_config_is_that_of_a_sample_in_a_graph(compiling):
    x = Tensor()
    compiling[lambda meta: (meta["M"] // meta["BLOCK_SIZE_M"], meta["BLOCK_SIZE_N"])](x, x, x, 1000, 8192)
    assert compiling.put == [((62, 128), True, x, x, x, 1000, 8192, {})]


def test_a_kernel_that_no_operation_can_be_made_of_is_left_to_python(compiling):
    compiling._operation, compiling._uncompiled = None, lambda grid, *args: ("uncompiled", grid, args)
    assert compiling[(3,)](1, 2) == ("uncompiled", (3,), (1, 2))


def grid_of(rows, block):
    (launch,) = SPEC.plan(CONFIG | {"BLOCK_SIZE_M": block}, Problem("row_reduce", {"M": rows, "N": 8192}, "float32"))
    return launch.grid


def test_a_graph_launches_on_its_grid_or_on_that_of_the_spec(compiling):
    x = Tensor()
    compiling._launch_from_graph([7], False, x, x, x, 1000, 8192)
    sample = SPEC.plan(compiling._sample, Problem("row_reduce", {"M": 1000, "N": 8192}, "float32"))[0].grid
    compiling._launch_from_graph([*sample], True, x, x, x, 1000, 8192)
    compiling._launch_from_graph([*sample, 1, 1], True, x, x, x, 1000, 8192)
    assert [grid for _, grid, *_ in compiling.jitted.launches] == [(7,), grid_of(1000, 25), grid_of(1000, 25)]
    assert all(CONFIG.items() <= config.items() for config in compiling.jitted.configs)


def test_a_graph_does_not_launch_on_another_grid_than_its_spec_s(compiling):
    x, problem = Tensor(), Problem("row_reduce", {"M": 1000, "N": 8192}, "float32")
    sample = SPEC.plan(compiling._sample, problem)[0].grid
    for grid in ([sample[0] + 1], [*sample, 2]):
        with pytest.raises(UsageError) as refused:
            compiling._launch_from_graph(grid, True, x, x, x, 1000, 8192)
        told = "x".join(map(str, grid)), "x".join(map(str, sample))
        assert f"over another grid than its spec's ({told[0]}, not {told[1]})" in str(refused.value)
    assert compiling.jitted.launches == []


@pytest.mark.parametrize(
    ("grid", "whole", "shown"), [((5,), (5, 1, 1), "5"), ((5, 2), (5, 2, 1), "5x2"), ((1, 2, 3), (1, 2, 3), "1x2x3")]
)
def test_a_grid_has_three_sizes(grid, whole, shown):
    assert tuned_module._whole(grid) == whole
    assert tuned_module._times(grid) == shown


def test_a_sample_has_the_first_value_of_each_parameter_on_either_kind_of_device():
    sample = tuned_module._sample_config(SPEC, {})
    targets = known_target("Ascend910B4", 40), known_target("NVIDIA H200", 132)
    problem = Problem("row_reduce", {"M": 64, "N": 64}, "float32")
    for parameter in SPEC.parameters:
        values = [value for target in targets for value in parameter.values(problem, target)]
        assert sample.get(parameter.name) == (values[0] if values else None)


def test_of_the_ways_to_call_by_name_the_first_sixty_four_are_direct(file, monkeypatch):
    monkeypatch.setattr(tuned_module, "_MOST_WAYS", 2)
    kernel, x = over(Jitted(), file), Tensor()
    names = {"x_ptr": x, "w_ptr": x, "out_ptr": x, "M": 1000, "N": 8192}
    for order in (list(names), list(names)[::-1], [*names][1:] + [*names][:1]):
        kernel[(1,)](**{name: names[name] for name in order})
    assert len(kernel._keys_by_name) == 2
