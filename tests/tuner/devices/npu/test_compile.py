"""Compiling for an NPU without one: Triton's front end, Huawei's compiler, and the compiler's output.

Only CANN's closed half is a stand-in, with which bishengir-compile succeeds as on a host with CANN.
"""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tilewise.tuner.cluster.farm_socket import FarmSocket
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.npu.compile import _first_error, effective_options
from tilewise.tuner.workers.worker import Worker, WorkerFailed

if reason := toolchain.unavailable_reason():
    pytest.skip(reason, allow_module_level=True)

SCRIPT = """
import json, sys
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.npu.compile import compile_config
problem, said = Problem("row_reduce", {"M": 1000, "N": 8192}, "float32"), []
for m, sub_m, n, multibuffer in json.loads(sys.argv[1]):
    config = {"BLOCK_SIZE_M": m, "SUB_BLOCK_SIZE_M": sub_m, "BLOCK_SIZE_N": n, "multibuffer": multibuffer}
    try:
        said.append(compile_config("row_reduce", problem, config, "Ascend910B4"))
    except Exception as error:
        said.append([type(error).__name__, str(error)])
print(json.dumps([said, [m for m in ("torch_npu", "acl") if m in sys.modules]]))
"""
PLAIN, TIGHT, TIGHT_SINGLE, TOO_LARGE = (
    (25, 25, 256, True),
    (25, 5, 2048, True),
    (25, 5, 2048, False),
    (50, 25, 512, True),
)


@pytest.fixture(scope="module")
def runner(npu_environment, cann, tmp_path_factory):
    """A function that compiles configs in a fresh process with a cache folder of its own, and that folder."""
    cache = tmp_path_factory.mktemp("triton")
    basic = os.environ | npu_environment(cann) | {"TRITON_CACHE_DIR": str(cache), "TMPDIR": str(cache)}
    basic |= {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}

    def run(*configs, **more):
        environment = basic | more
        command = [sys.executable, "-c", SCRIPT, json.dumps(configs)]
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert ran.returncode == 0, ran.stderr
        said, imported = json.loads(ran.stdout.splitlines()[-1])
        assert imported == []  # no NPU, no CANN
        return said

    return run, cache


@pytest.fixture(scope="module")
def in_processes(runner):
    """Results per config of a fresh process, and of a second one that finds the first one's binaries."""
    run, cache = runner
    first = run(PLAIN, TIGHT, TIGHT_SINGLE, TOO_LARGE, PLAIN)
    return first, run(TIGHT, PLAIN), cache


@pytest.mark.full
def test_double_buffering_that_the_compiler_dropped_is_noticed_although_it_succeeds(in_processes):
    first, _, _ = in_processes
    assert first[0]["effective_options"] == {"multibuffer": True, "code_motion": True}
    assert first[1]["effective_options"] == {"multibuffer": False, "code_motion": False}
    assert first[2]["effective_options"] == {"multibuffer": False, "code_motion": True}  # as requested


@pytest.mark.full
def test_it_is_remembered_with_the_binary(in_processes):
    _, second, cache = in_processes
    assert [said["effective_options"]["multibuffer"] for said in second] == [False, True]
    assert all(said["compile_s"] < 1 for said in second[1:])
    words = [file.read_text() for file in Path(cache).rglob("bishengir-compile.txt")]
    assert len(words) == 3
    assert sum("enable-auto-multi-buffer to false; compilation then succeeded" in text for text in words) == 1


@pytest.mark.full
def test_a_host_that_shares_artefacts_fetches_the_binaries_of_another_and_what_the_compiler_said(runner, tmp_path):
    run, _ = runner
    key = tmp_path / "kernel.key"
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    shared = {"TILEWISE_ARTEFACTS": f"sqlite:///{tmp_path / 'shared.db'}", "TILEWISE_KERNEL_KEY": str(key)}
    one, other = ({**shared, "TRITON_CACHE_DIR": str(tmp_path / name)} for name in ("one", "other"))
    made, fetched = run(TIGHT, TOO_LARGE, **one), run(TIGHT, TOO_LARGE, **other)
    assert (
        made[0]["effective_options"] == fetched[0]["effective_options"] == {"multibuffer": False, "code_motion": False}
    )
    assert made[1] == fetched[1] and made[1][0] == "CompilerRefused"
    binaries = [[file.read_bytes() for file in (tmp_path / name).rglob("*.npubin")] for name in ("one", "other")]
    assert len(binaries[0]) == 1 and binaries[0] == binaries[1]
    said = [
        [file.read_text() for file in (tmp_path / name).rglob("bishengir-compile.txt")] for name in ("one", "other")
    ]
    assert len(said[0]) == 1 and said[0] == said[1]  # with the names of the first one's temporary files
    with sqlite3.connect(tmp_path / "shared.db") as database:
        assert database.execute("SELECT count(*) FROM artefacts").fetchone() == (1,)
        assert database.execute("SELECT count(*) FROM compilations").fetchone() == (0,)


def test_a_host_of_a_farm_gets_the_binaries_and_what_the_compiler_said_and_compiles_what_the_farm_refused(
    runner, npu_environment, cann, tmp_path
):
    run, _ = runner
    made = npu_environment(cann) | {"TRITON_CACHE_DIR": str(tmp_path / "farm"), "OMP_NUM_THREADS": "1"}
    worker, orders, refused = Worker("tilewise.tuner.workers.farm:make", env=made), [], []

    def answer(order):
        orders.append(order)
        try:
            content, compiled = worker.call(order, timeout=300.0)
        except WorkerFailed as error:
            refused.append(error.kind)
            return None
        assert compiled
        return content

    with FarmSocket(answer) as socket:
        said = run(TIGHT, TOO_LARGE, TRITON_CACHE_DIR=str(tmp_path / "here"), TILEWISE_FARM=socket.address)
    worker.close()
    assert said[0]["effective_options"] == {"multibuffer": False, "code_motion": False}
    assert said[1][0] == "CompilerRefused"
    assert len({order.key for order in orders}) == len(orders) == 2
    assert refused == ["CompilerRefused"]
    binaries = [[file.read_bytes() for file in (tmp_path / name).rglob("*.npubin")] for name in ("farm", "here")]
    assert len(binaries[0]) == 1 and binaries[0] == binaries[1]


def test_a_refusal_is_the_compilers_own_first_error_and_taints_nobody(in_processes):
    first, _, _ = in_processes
    kind, message = first[3]
    assert kind == "CompilerRefused"
    assert message.startswith("ub overflow, requires 1654784 bits while 1572864 bits available!")
    assert first[4]["effective_options"] == first[0]["effective_options"]


def test_the_binaries_are_made_from_what_the_real_compiler_scheduled(in_processes):
    _, _, cache = in_processes
    binaries = list(Path(cache).rglob("*.npubin"))
    assert len(binaries) == 3
    assert all(b"hivm.hir" in file.read_bytes() for file in binaries)


def test_what_nobody_heard_is_not_known():
    assert effective_options({"multibuffer": True}, ["", None]) == {}
    assert effective_options({}, [""]) == {"effective_options": {"multibuffer": True, "code_motion": True}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a.mlir:1: error: ub overflow\nerror: Failed to run pass\nerror: another", "ub overflow"),
        ("error: Failed to run pass\na.mlir:1: error: ub overflow", "ub overflow"),
        ("error: Failed to run pass\nerror: Failed to run more", "Failed to run pass"),
        ("no word of what it is", "no word of what it is"),
    ],
)
def test_of_errors_the_first_that_says_what_is_wrong_is_told(text, told):
    assert _first_error(text) == told
