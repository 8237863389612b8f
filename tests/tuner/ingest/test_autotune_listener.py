"""Trials stored from triton's own autotuner."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tilewise.db.exchange.import_file import UNKNOWN_SOURCE
from tilewise.db.records import Clock, Status
from tilewise.errors import Unavailable
from tilewise.tuner.ingest import autotune_listener as harvest
from tilewise.tuner.ingest.autotune_listener import Harvest, harvesting, unavailable_reason

PROGRAM = '''
"""A program's module, in which the autotuner takes the function's name."""

class Jitted:
    def __init__(self, fn):
        self.fn, self.__name__, self.__module__ = fn, fn.__name__, fn.__module__

class Autotuner:
    def __init__(self, fn, keys):
        self.fn, self.keys = fn, keys

def scale(x, y, n, k, BLOCK):
    return x  # a comment

jitted = Jitted(scale)
scale = Autotuner(jitted, ["n", "k"])
'''


@pytest.fixture
def program(tmp_path: Path):
    path = tmp_path / "harvested_program.py"
    path.write_text(PROGRAM)
    location = importlib.util.spec_from_file_location("harvested_program", path)
    module = importlib.util.module_from_spec(location)
    sys.modules[module.__name__] = module
    location.loader.exec_module(module)
    yield module
    del sys.modules[module.__name__]


def config(**kwargs: Any) -> SimpleNamespace:
    """The attributes of a `triton.Config` of triton 3.9, hashed by identity as a dictionary's key must be."""
    attributes = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None, "pre_hook": None}
    made = type(
        "Config", (), {"__init__": lambda self: vars(self).update(kwargs=kwargs, ir_override=None, **attributes)}
    )
    return made()


def told(function, key=(64, 32, "torch.float16", "torch.float16"), **changes: Any) -> dict[str, Any]:
    inf = float("inf")
    timings = {config(BLOCK=16): [0.0125, 0.012, 0.013], config(BLOCK=512): [inf, inf, inf]}
    body = {"fn": function, "key": key, "best_config": None, "configs_timings": timings, "duration": 1.0}
    return body | {"cache_hit": False} | changes


def listener(store, then: Any = None) -> Harvest:
    return Harvest(store, "NVIDIA H200", 132, "triton 3.9.0 autotune", then)


def test_every_config_is_kept_under_the_names_of_the_key(store, program):
    found = listener(store)
    found(**told(program.jitted))
    assert found.missed == []
    [scope] = store.scopes()
    assert (scope.kernel, scope.dims, scope.dtype) == ("scale", {"n": 64, "k": 32}, "float16")
    assert (scope.device, scope.cores, scope.clock) == ("NVIDIA H200", 132, Clock.MEASURED)
    good, failed = store.trials(scope)
    assert (good.config, good.time_us, good.p20_us) == ({"BLOCK": 16, "num_warps": 4, "num_stages": 3}, 12.5, 12.0)
    assert (good.status, failed.status) == (Status.CORRECT, Status.RUNTIME)
    assert (failed.config["BLOCK"], failed.time_us) == (512, None)
    assert good.why == "triton's autotuner measured it; its output was not checked" and failed.why == ""
    assert not good.verified and good.search == failed.search == "triton.autotune"
    assert list(found.kept.values()) == [(scope, 2)]


def test_nothing_harvested_is_a_best(store, program):
    listener(store)(**told(program.jitted))
    [scope] = store.scopes()
    assert store.result(scope).winner is None
    assert store.lookup(scope.question) is None


def test_the_source_counts_without_its_comments(store, program, tmp_path):
    listener(store)(**told(program.jitted))
    path = Path(program.__file__)
    path.write_text(PROGRAM.replace("# a comment", "# another"))
    listener(store)(**told(program.jitted))
    assert len(list(store.scopes())) == 1
    path.write_text(PROGRAM.replace("return x", "return y"))
    listener(store)(**told(program.jitted))
    assert len({scope.source_hash for scope in store.scopes()}) == 2


def test_a_function_whose_source_cannot_be_read_is_kept_under_an_unknown_one(store, program):
    home = {"__name__": program.__name__}
    exec("def scale(x, y, n, k, BLOCK):\n    return x", home)
    found = listener(store)
    found(**told(program.Jitted(home["scale"])))
    assert found.missed == []
    assert [scope.source_hash for scope in store.scopes()] == [UNKNOWN_SOURCE]


def test_what_is_no_size_becomes_part_of_the_kernels_name(store, program):
    listener(store)(**told(program.jitted, key=(64, True, "torch.float16", "torch.float32")))
    [scope] = store.scopes()
    assert (scope.kernel, scope.dims, scope.dtype) == ("scale[k=True]", {"n": 64}, "float16,float32")


def test_a_key_whose_names_are_not_found_is_numbered(store, program):
    program.scale.keys = ["n"]
    listener(store)(**told(program.jitted))
    assert [scope.dims for scope in store.scopes()] == [{"key0": 64, "key1": 32}]


def test_what_was_read_from_tritons_cache_is_not_kept_again(store, program):
    found = listener(store)
    found(**told(program.jitted, cache_hit=True))
    assert (list(store.scopes()), found.missed) == ([], [])


def test_the_program_goes_on_whatever_fails_and_others_still_hear(store, program):
    heard = []
    found = listener(store, then=lambda **words: heard.append(words))
    found(**told(program.jitted, configs_timings={config(BLOCK=[1]): [1.0]}))
    found(fn=None)
    store.close()
    found(**told(program.jitted))
    assert len(found.missed) == 3
    assert all("\n" not in reason for reason in found.missed)
    assert len(heard) == 3


def test_the_listener_is_there_for_the_block_only(store, monkeypatch):
    autotuning = SimpleNamespace(listener=print)
    triton = ModuleType("triton")
    triton.knobs = SimpleNamespace(autotuning=autotuning)
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(harvest, "_device", lambda: ("NVIDIA H200", 132, "t"))
    with harvesting(store) as found:
        assert autotuning.listener is found
    assert autotuning.listener is print


def test_a_triton_that_does_not_tell_is_named(store):
    pytest.importorskip("triton")
    if not unavailable_reason():
        pytest.skip("this triton reports what its autotuner finds")
    with (
        pytest.raises(Unavailable, match=r"triton [0-9.]+ does not report what its autotuner finds, triton 3\.8 does"),
        harvesting(store),
    ):
        pass


def test_the_command_runs_the_program_with_its_arguments_and_ends_as_it_does(tmp_path, monkeypatch, capfd):
    from click.testing import CliRunner

    from tilewise.cli.commands.tuning.harvest import harvest as command

    monkeypatch.setattr(harvest, "unavailable_reason", lambda: "")
    monkeypatch.setattr(harvest, "_device", lambda: ("NVIDIA H200", 132, "t"))
    autotuning = SimpleNamespace(listener=None)
    monkeypatch.setattr(
        harvest.importlib, "import_module", lambda name: SimpleNamespace(knobs=SimpleNamespace(autotuning=autotuning))
    )
    script = tmp_path / "program.py"
    script.write_text("import sys\nprint(sys.argv[1:])\nassert __name__ == '__main__'\nsys.exit(3)\n")
    words = ["--db", f"sqlite:///{tmp_path}/t.db", "--json", str(script), "--flag", "-x", "1"]
    done = CliRunner().invoke(command, words, standalone_mode=False)
    assert done.return_value == 3
    assert json.loads(done.stdout) == {"script": str(script), "kept": [], "missed": []}
    assert "['--flag', '-x', '1']" in done.stderr


@pytest.mark.parametrize(
    ("installed", "available", "refusal"),
    [
        (False, False, "harvesting needs torch, to name the device: pip install 'tilewise[cuda]'"),
        (True, False, "torch 2.11 sees no GPU, so there is nothing to harvest here"),
        (True, True, ""),
    ],
)
def test_the_device_is_that_of_torch_or_the_harvest_is_refused(monkeypatch, installed, available, refusal):
    properties = {1: SimpleNamespace(name="NVIDIA H200", multi_processor_count=132)}
    cuda = SimpleNamespace(
        is_available=lambda: available, current_device=lambda: 1, get_device_properties=properties.__getitem__
    )
    modules = {"torch": SimpleNamespace(cuda=cuda, __version__="2.11"), "triton": SimpleNamespace(__version__="3.6")}
    monkeypatch.setattr(harvest.importlib.util, "find_spec", lambda name: object() if installed else None)
    monkeypatch.setattr(harvest.importlib, "import_module", modules.__getitem__)
    if refusal:
        with pytest.raises(Unavailable) as caught:
            harvest._device()
        assert str(caught.value) == refusal
    else:
        assert harvest._device() == ("NVIDIA H200", 132, "triton 3.6 autotune, torch 2.11")
