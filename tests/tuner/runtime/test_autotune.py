"""`autotune` over the part of a `triton.jit` function that it uses."""

from __future__ import annotations

import inspect
import logging
import os
import subprocess
import sys
from datetime import timedelta
from types import SimpleNamespace

import pytest
from places import HELPERS

import tilewise
from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import UsageError
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.settings import read_settings
from tilewise.tuner.inference.kept_specs import keep_spec
from tilewise.tuner.runtime.autotune import autotuning

PROGRAM = (HELPERS / "programs" / "vector_add.py").resolve()

SPEC_TEXT = f'''
from tilewise.kernels.inferred import config_for
from tilewise.kernels.spec import Buffer, KernelSpec, Parameter, Tiling, ceil_div

SPEC = KernelSpec(
    name="add_kernel",
    summary="",
    function="{PROGRAM}:add_kernel",
    dims=("n_elements",),
    dtypes=("float32",),
    parameters=(Parameter("BLOCK_SIZE", lambda problem, target: [256, 1024, 4096, 8192]),),
    buffers=lambda problem: {{
        name: Buffer((problem.dims["n_elements"],), problem.dtype) for name in ("x_ptr", "y_ptr", "out_ptr")
    }},
    scalars=lambda problem: dict(problem.dims),
    grid=lambda config, problem: (ceil_div(problem.dims["n_elements"], config["BLOCK_SIZE"]),),
    tiling=lambda config, problem: Tiling((), 0, 0),
    flops=lambda problem: 0,
    default=lambda problem, target: {{"BLOCK_SIZE": 256}},
    inferred=True,
)
'''


def add_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE):  # noqa: N803
    """Stand in for the function of the program, whose file it claims."""


class Jitted:
    arg_names = ("x_ptr", "y_ptr", "out_ptr", "n_elements", "BLOCK_SIZE")

    def __init__(self):
        self.launches = []
        self.fn = add_kernel

    def run(self, *args, grid, warmup, **kwargs):
        self.launches.append(kwargs)
        return "launched"


class Tensor:
    dtype = "torch.float32"

    def get_device(self):
        return 0


CONFIGS = [SimpleNamespace(all_kwargs=lambda size=size: {"BLOCK_SIZE": size}) for size in (512, 1024)]


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Keep a spec of the program's kernel, and a database with a result for 1000 elements."""
    monkeypatch.setenv("TILEWISE_DATA", str(tmp_path))
    monkeypatch.setenv("TILEWISE_DB", f"sqlite:///{tmp_path / 'tiles.db'}")
    file = keep_spec(SPEC_TEXT, "add_kernel", tmp_path)
    spec = registry.load(f"{file}:SPEC")
    problem = Problem("add_kernel", {"n_elements": 1000}, "float32")
    scope = Scope(problem, source_hash(spec), "Ascend910B4", Clock.MODELLED, "model", 40)
    with open_store(read_settings().database_url) as store:
        store.record(scope, [Trial({"BLOCK_SIZE": 4096}, Status.CORRECT, time_us=1.0, verified=True)])
    return spec


@pytest.fixture
def decorated(monkeypatch):
    def decorate(**options):
        there = SimpleNamespace(**{**vars(inspect), "getsourcefile": lambda function: str(PROGRAM)})
        monkeypatch.setattr("tilewise.tuner.runtime.autotune.inspect", there)
        function = Jitted()
        return tilewise.autotune(CONFIGS, ["n_elements"], **options)(function), function

    return decorate


def launch(kernel, n=1000, **more):
    return kernel[(1,)](Tensor(), Tensor(), Tensor(), n, **more)


def test_a_stored_config_is_launched(kept, decorated):
    kernel, function = decorated(device="Ascend910B4")
    assert launch(kernel) == launch(kernel) == "launched"
    assert [given["BLOCK_SIZE"] for given in function.launches] == [4096, 4096]
    assert kernel.choices[0].match == "exact"


def test_a_kernel_that_was_never_tuned_launches_its_first_config_and_says_so_once(
    decorated, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("TILEWISE_DATA", str(tmp_path))
    kernel, function = decorated()
    with caplog.at_level(logging.WARNING, "tilewise.runtime"):
        launch(kernel), launch(kernel, n=7)
    assert [given["BLOCK_SIZE"] for given in function.launches] == [512, 512]
    assert len(caplog.messages) == 1 and "add_kernel was never tuned; tilewise tune " in caplog.messages[0]


@pytest.fixture
def ranks(monkeypatch):
    """Make this process one of a job's ranks."""
    distributed = pytest.importorskip("torch.distributed")
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
    for name, value in (("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", str(store.port))):
        monkeypatch.setenv(name, value)
    return store


def leave_for_a_node_without_files(monkeypatch, folder):
    monkeypatch.setenv("TILEWISE_DATA", str(folder))
    monkeypatch.setenv("TILEWISE_CACHE", str(folder))
    monkeypatch.setenv("TILEWISE_DB", f"sqlite:///{folder / 'none.db'}")


def test_a_rank_without_the_files_launches_what_another_found_in_them(kept, decorated, ranks, tmp_path, monkeypatch):
    first, _ = decorated(device="Ascend910B4")
    launch(first)
    leave_for_a_node_without_files(monkeypatch, tmp_path / "other node")
    other, function = decorated(device="Ascend910B4")
    launch(other)
    assert function.launches[0]["BLOCK_SIZE"] == 4096 and other.choices[0].match == "exact"


def test_ranks_launch_the_default_if_the_first_of_them_has_no_files(
    kept, decorated, ranks, tmp_path, monkeypatch, caplog
):
    with monkeypatch.context() as there:
        leave_for_a_node_without_files(there, tmp_path / "other node")
        launch(decorated(device="Ascend910B4")[0])
    kernel, function = decorated(device="Ascend910B4")
    caplog.clear()
    launch(kernel)
    launch(kernel)
    assert [given["BLOCK_SIZE"] for given in function.launches] == [512, 512]
    assert len(caplog.messages) == 1 and "copy TILEWISE_DATA there" in caplog.messages[0]


def test_a_launch_outside_the_spec_uses_the_first_config(kept, decorated, caplog):
    kernel, function = decorated(device="Ascend910B4")
    with caplog.at_level(logging.WARNING, "tilewise.runtime"):
        launch(kernel, n=0)
        kernel[(1,)](*[SimpleNamespace(dtype="torch.int8", get_device=lambda: 0)] * 3, 1000)
    assert [given["BLOCK_SIZE"] for given in function.launches] == [512, 512]
    assert "n_elements is 0" in caplog.text and "does not take 'int8'" in caplog.text


def test_a_call_with_another_flag_is_another_problem(decorated, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("TILEWISE_DATA", str(tmp_path))
    monkeypatch.setenv("TILEWISE_DB", f"sqlite:///{tmp_path / 'tiles.db'}")
    text = SPEC_TEXT.replace("    parameters=", '    flags=(Flag("EXACT", (False, True)),),\n    parameters=')
    text = text.replace("import Buffer,", "import Buffer, Flag,")
    file = keep_spec(text, "add_kernel", tmp_path)
    spec = registry.load(f"{file}:SPEC")
    with open_store(read_settings().database_url) as store:
        for flags, size in (({}, 1024), ({"EXACT": True}, 8192)):
            problem = Problem("add_kernel", {"n_elements": 1000}, "float32", flags)
            scope = Scope(problem, source_hash(spec), "Ascend910B4", Clock.MODELLED, "model", 40)
            store.record(scope, [Trial({"BLOCK_SIZE": size}, Status.CORRECT, time_us=1.0, verified=True)])
    kernel, function = decorated(device="Ascend910B4")
    launch(kernel), launch(kernel, EXACT=True), launch(kernel, EXACT=False), launch(kernel, EXACT="odd")
    assert [given["BLOCK_SIZE"] for given in function.launches] == [1024, 8192, 1024, 512]
    assert "EXACT" in caplog.text


def test_on_a_miss_triton_may_tune(kept, decorated, monkeypatch):
    kernel, _ = decorated(device="Ascend910B4", on_miss="tune")
    monkeypatch.setattr(kernel, "_own", SimpleNamespace(run=lambda *args, **kwargs: "tuned by triton"))
    assert launch(kernel) == "launched" and launch(kernel, n=123456) == "tuned by triton"


@pytest.mark.parametrize("given", [{"on_miss": "guess"}, {"configs": []}])
def test_mistakes_are_told(given):
    with pytest.raises(UsageError):
        tilewise.autotune(**{"configs": CONFIGS, "key": [], **given})


def test_triton_autotune_is_replaced_for_a_program():
    triton = pytest.importorskip("triton")
    before = triton.autotune
    with autotuning(on_miss="default", source=None, device=None):
        function = SimpleNamespace(arg_names=("n", "B"), fn=add_kernel)
        kernel = triton.autotune([triton.Config({"B": 1})], ["n"])(function)
        assert type(kernel).__name__ == "AutotunedFunction"
    assert triton.autotune is before and "triton" in sys.modules


def test_torch_wraps_a_kernel_of_a_program(monkeypatch):
    library = pytest.importorskip("torch.library")
    pytest.importorskip("triton")
    before = library.wrap_triton
    with autotuning(on_miss="default", source=None, device=None):
        kernel = tilewise.autotune(CONFIGS, ["n_elements"])(SimpleNamespace(arg_names=("n", "B"), fn=add_kernel))
        own = SimpleNamespace()
        monkeypatch.setattr(kernel, "_own", own)
        with pytest.raises(RuntimeError, match="wrap_triton"):  # torch's own refusal of anything else
            library.wrap_triton(own)
    assert library.wrap_triton is before
    monkeypatch.setattr(library, "wrap_triton", lambda given: given)  # as torch does outside a graph
    with autotuning(on_miss="default", source=None, device=None):
        assert library.wrap_triton(kernel) is kernel


MADE = []
"""What Triton's own autotuner was given to reset or restore, and its options."""


class Own:
    """Triton's own autotuner, as far as a graph asks."""

    def __init__(self, function, names, configs, keys, *reset, **options):
        self.configs = [config.all_kwargs() for config in configs]
        MADE.append((reset, options))

    def launch(self, *args):
        return self.configs


@pytest.fixture
def in_graph(decorated, monkeypatch):
    """A function that launches a kernel through `wrap_triton` as in a graph, with Triton's own classes replaced, and
    returns the configs that the graph has."""
    library = pytest.importorskip("torch.library")
    pytest.importorskip("triton")
    monkeypatch.setattr("triton.runtime.autotuner.Autotuner", Own)
    monkeypatch.setattr("triton.Config", lambda given, **own: SimpleNamespace(all_kwargs=lambda: {**given, **own}))
    monkeypatch.setattr(library, "wrap_triton", lambda own: {GRID: own.launch})  # torch wraps what it traces

    def run(n=1000, **how):
        kernel, _ = decorated(device="Ascend910B4", **how)
        with autotuning(on_miss="default", source=None, device=None):
            return library.wrap_triton(kernel)[GRID](Tensor(), Tensor(), Tensor(), n)

    return run


GRID = (1,)


class SymInt:
    """A size that torch does not know while it traces."""


def test_a_graph_has_the_one_stored_config(kept, in_graph):
    assert in_graph() == [{"BLOCK_SIZE": 4096}]


def test_a_graph_with_symbols_for_sizes_has_the_first_config_and_says_so(kept, in_graph, caplog):
    with caplog.at_level(logging.WARNING, "tilewise.runtime"):
        assert in_graph(SymInt()) == [{"BLOCK_SIZE": 512}]
    [message] = caplog.messages
    assert message.startswith("add_kernel launches its default: sizes are symbols in a compiled graph; ")


def test_a_graph_of_a_shape_that_was_never_tuned_has_all_configs_only_if_triton_is_to_tune(kept, in_graph):
    assert in_graph(123456, on_miss="tune") == [{"BLOCK_SIZE": 512}, {"BLOCK_SIZE": 1024}]
    assert in_graph(0) == [{"BLOCK_SIZE": 512}] and in_graph(on_miss="tune") == [{"BLOCK_SIZE": 4096}]


def test_a_graph_keeps_what_triton_was_told_but_not_how_to_prune_configs(kept, in_graph):
    in_graph(prune_configs_by={"top_k": 1}, restore_value=["out_ptr"], rep=5)
    assert MADE[-1] == ((None, ["out_ptr"]), {"rep": 5})


def test_the_interpreter_gets_no_compile_options(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWISE_DATA", str(tmp_path))
    monkeypatch.setattr("tilewise.tuner.runtime.autotune.inspect.getsourcefile", lambda function: str(PROGRAM))
    function = type("InterpretedFunction", (Jitted,), {})()
    config = SimpleNamespace(all_kwargs=lambda: {"BLOCK_SIZE": 512, "num_warps": 4})
    launch(tilewise.autotune([config], ["n_elements"])(function))
    assert function.launches == [{"BLOCK_SIZE": 512}]


COMPILED = """
import torch
import triton
import triton.language as tl
from tilewise import autotune


@autotune(configs=[triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def twice(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@torch.compile(backend="aot_eager")
def program(x):
    out, n = torch.empty_like(x), x.numel()
    twice[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
    return out + 1


for n in (1000, 500):
    assert program(torch.ones(n)).tolist() == [3.0] * n
"""


@pytest.mark.full
def test_a_compiled_program_launches_a_kernel_that_was_never_tuned(tmp_path):
    pytest.importorskip("triton")
    (tmp_path / "program.py").write_text(COMPILED)
    ran = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "TRITON_INTERPRET": "1", "TILEWISE_DATA": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0 and "twice was never tuned" in ran.stderr, ran.stderr


@pytest.fixture
def recording(kept, decorated, monkeypatch):
    """A kernel whose launches are recorded; `kept_calls` has the number of calls at each writing."""

    class Recorder:
        def __init__(self):
            self.kernels = [SimpleNamespace(calls=[], left_out=[])]

        def launched(self, owner, grid, args, kwargs):
            self.kernels[0].calls.append((grid, args[3:], kwargs))

    kernel, function = decorated(device="Ascend910B4", on_miss="record")
    kernel._recorder, writings = Recorder(), []
    monkeypatch.setattr(
        "tilewise.tuner.runtime.autotune.keep_launch", lambda kept, folder: writings.append((len(kept.calls), folder))
    )
    return kernel, function, writings


def test_a_launch_without_a_stored_config_is_recorded_once_per_process(recording, tmp_path, monkeypatch):
    kernel, function, writings = recording
    for n in (1000, 2000, 2000, 3000):
        launch(kernel, n)
    assert len(function.launches) == 4
    assert [call[1] for call in kernel._recorder.kernels[0].calls] == [(2000,), (3000,)]
    assert writings == [(1, tmp_path), (2, tmp_path)]
    monkeypatch.setattr("tilewise.tuner.runtime.autotune.MOST_CALLS", 2)
    launch(kernel, 4000)
    assert len(writings) == 2
    monkeypatch.setattr("tilewise.tuner.runtime.autotune.MOST_CALLS", 3)
    monkeypatch.setattr("tilewise.tuner.runtime.autotune.is_capturing", lambda: True)
    launch(kernel, 4000)
    assert len(writings) == 2


def test_a_launch_that_cannot_be_recorded_goes_on_and_is_told_once(recording, monkeypatch, caplog):
    kernel, function, _ = recording

    def fail(kept, folder):
        raise UsageError("the folder is read-only")

    monkeypatch.setattr("tilewise.tuner.runtime.autotune.keep_launch", fail)
    kernel._recorder.kernels[0].left_out.append("it has no tensors")
    with caplog.at_level(logging.WARNING):
        launch(kernel, 2000)
        launch(kernel, 3000)
    assert len(function.launches) == 2
    assert [record.message for record in caplog.records if "recorded" in record.message] == [
        "launches of add_kernel are not recorded: the folder is read-only",
        "a launch of add_kernel is not recorded: it has no tensors",
    ]


def test_warming_up_compiles_the_first_config_and_a_run_chooses(kept, decorated):
    kernel, function = decorated(device="Ascend910B4")
    calls, plain = [], function.run
    function.run = lambda *args, **kwargs: calls.append((args[3:], kwargs)) or plain(*args, **kwargs)
    assert kernel.run(Tensor(), Tensor(), Tensor(), 1000, grid=(1,), warmup=True) == "launched"
    assert calls == [((1000,), {"grid": (1,), "warmup": True, "BLOCK_SIZE": 512})]
    assert kernel.run(Tensor(), Tensor(), Tensor(), 1000, grid=(1,)) == "launched"
    assert function.launches[-1] == {"BLOCK_SIZE": 4096}
    assert [choice.config for choice in kernel.choices] == [{"BLOCK_SIZE": 4096}]


def test_options_that_a_program_gives_by_place_have_the_names_of_its_triton(decorated):
    triton = pytest.importorskip("triton")
    names = list(inspect.signature(triton.autotune).parameters)[2:4]
    with autotuning(device="Ascend910B4"):
        made = triton.autotune(CONFIGS, ["n_elements"], "one", "two", warmup=3)
        decorated()
        kernel = made(Jitted())
    assert kernel._options == {names[0]: "one", names[1]: "two", "warmup": 3}
    assert (kernel._device, kernel.keys) == ("Ascend910B4", ["n_elements"])
