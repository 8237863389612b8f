"""The project's files on a call stack, for the tests of routes. Run as a script, it takes one of the routes.

`python routes.py ROUTE FOLDER` prints a JSON list of stacks. A stack is a list of file names from the outermost call to
the innermost, with one entry each time that a call moves to another file.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]


def files_of_stack() -> list[str]:
    """Return the product's files on the stack by their names below the project's root, without tests."""
    names = [Path(frame.filename).resolve() for frame in traceback.extract_stack()]
    ours = [str(name.relative_to(ROOT)) for name in names if name.is_relative_to(ROOT)]
    product = [name for name in ours if not name.startswith(("tests/", "."))]
    return [name for name, _ in groupby(product)]


@contextmanager
def listening(target: Any, name: str, heard: list[list[str]]) -> Iterator[None]:
    """Append the stack of each call of `target.name` to `heard`."""
    original = getattr(target, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        heard.append(files_of_stack())
        return original(*args, **kwargs)

    with mock.patch.object(target, name, call):
        yield


def storing_a_trial(folder: Path) -> list[list[str]]:
    """Go from `tilewise tune` to the statement that adds a trial."""
    from tilewise.cli import main
    from tilewise.db.sql import sql_store

    heard: list[list[str]] = []
    problem = ["tune", "row_reduce", "-s", "M=100,N=500", "--device", "model:Ascend910B4", "--trials", "1"]
    with listening(sql_store, "insert", heard):
        _ends(lambda: main([*problem, "--db", f"sqlite:///{folder / 'tiles.db'}"]))
    return heard


def handing_over_a_config(folder: Path) -> list[list[str]]:
    """Go from `tilewise tune` to the call that sends a config to the process that times it."""
    from tilewise.cli import main
    from tilewise.tuner.workers.worker import WorkerPool

    heard: list[list[str]] = []
    problem = ["tune", "row_reduce", "-s", "M=100,N=500", "--device", "model:Ascend910B4", "--trials", "1"]
    with listening(WorkerPool, "submit", heard):
        _ends(lambda: main([*problem, "--db", f"sqlite:///{folder / 'tiles.db'}"]))
    return heard


def timing_a_config(folder: Path) -> list[list[str]]:
    """Go, in that process, from the call that it answers to the clock of a pipe."""
    from tilewise.kernels import registry
    from tilewise.kernels.spec import Problem
    from tilewise.tuner.devices.ascend_model import toolchain
    from tilewise.tuner.devices.ascend_model.clock.core import Core
    from tilewise.tuner.devices.ascend_model.compile_job import call
    from tilewise.tuner.workers.supervisor_process import _answer

    heard: list[list[str]] = []
    spec, problem = registry.load("row_reduce"), Problem("row_reduce", {"M": 100, "N": 500}, "float32")
    target = toolchain.target("Ascend910B4", folder)
    config = dict(spec.default(problem, target))
    with listening(Core, "occupy", heard):
        kind, outcome = _answer(call, ("evaluate", "row_reduce", problem, config, target, folder))
    if (kind, str(getattr(outcome, "status", ""))) != ("answer", "correct"):
        raise RuntimeError(f"{kind}: {outcome}")
    return heard


def timing_on_an_accelerator(folder: Path) -> list[list[str]]:
    """Go, in the bench process of a measured device (here the processor), to its timer."""
    import host

    from tilewise.kernels import registry
    from tilewise.tuner.devices.measured.bench_process import Bench

    heard: list[list[str]] = []
    spec = registry.load(f"{host.__file__}:SPEC")
    config = next(config for config in spec.configs(host.PROBLEM, None) if not config["FAULT"])
    with listening(host.HostTimer, "samples_us", heard):
        reply = Bench(host.HostRuntime()).measure(spec, host.PROBLEM, config)
    if str(reply.answer.status) != "correct":
        raise RuntimeError(reply.answer.reason)
    return heard


def choosing_a_config(folder: Path) -> list[list[str]]:
    """Go from a launch to where its shape is read from the file of configs."""
    import torch

    import tilewise
    from tilewise.cli import main
    from tilewise.db.exchange.native.runtime_file import WinnersFile
    from tilewise.kernels.spec import Target
    from tilewise.tuner.runtime import config_selector
    from tilewise.tuner.runtime.current_device import CurrentDevice

    heard: list[list[str]] = []
    url, file = f"sqlite:///{folder / 'tiles.db'}", str(folder / "configs.json")
    _ends(
        lambda: main(
            ["tune", "row_reduce", "-s", "M=100,N=500", "--device", "model:Ascend910B4", "--trials", "1", "--db", url]
        )
    )
    _ends(lambda: main(["export", "--format", "runtime", "-o", file, "--db", url]))
    here = CurrentDevice(Target("ascend", "Ascend910B4", 40, 196608, 32, 65535), "")
    kernel = tilewise.tuned("row_reduce", file, device="Ascend910B4")(_Stub())
    x, w, out = torch.zeros(100, 500), torch.zeros(500), torch.zeros(100)
    with (
        mock.patch.object(config_selector, "current_device", return_value=here),
        listening(WinnersFile, "answers", heard),
    ):
        kernel[(1,)](x, w, out, 100, 500)
    return heard


def forming_an_answer(folder: Path) -> list[list[str]]:
    """Go from `GET /v1/configs/..` to the statement that reads its answer."""
    from starlette.testclient import TestClient

    from tilewise.api.app import create_app
    from tilewise.api.service.service import Options
    from tilewise.cli import main
    from tilewise.db.sql.database import Database

    heard: list[list[str]] = []
    url = f"sqlite:///{folder / 'tiles.db'}"
    _ends(
        lambda: main(
            ["tune", "row_reduce", "-s", "M=100,N=500", "--device", "model:Ascend910B4", "--trials", "1", "--db", url]
        )
    )
    with TestClient(create_app(url, Options(run_jobs=False))) as client, listening(Database, "fetch", heard):
        answer = client.get("/v1/configs/row_reduce", params={"M": 100, "N": 500, "device": "Ascend910B4"})
        answer.raise_for_status()
    return heard


class _Stub:
    """The part of a jitted function that a launch needs."""

    from tilewise.kernels.jit.row_reduce import row_reduce_kernel as _kernel

    fn, arg_names, params = _kernel.fn, _kernel.arg_names, _kernel.params
    __name__ = "row_reduce_kernel"

    def run(self, *args: Any, **kwargs: Any) -> None:
        return


def _ends(command: Callable[[], None]) -> None:
    try:
        command()
    except SystemExit as end:
        code = end.code
    if code:
        raise RuntimeError(f"the command ended with {code}")


if __name__ == "__main__":
    route, folder = sys.argv[1:]
    stacks = globals()[route](Path(folder))
    print(json.dumps(stacks))
