"""A program of eight ranks on two nodes, which are processes, launched by torchrun and `tilewise run`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from places import HELPERS

pytest.importorskip("triton.backends.ascend")
pytest.importorskip("torch.distributed")
pytestmark = pytest.mark.full

PROGRAM = HELPERS / "programs" / "all_ranks.py"


@pytest.fixture(scope="module")
def node_folders(tmp_path_factory):
    """Return the folder of a node that has the program's kernel tuned, and that of a node that has nothing."""
    tuned, empty = (tmp_path_factory.mktemp(name) for name in ("tuned", "empty"))
    words = ("tune", f"{PROGRAM}:double_kernel", "--program", "--device", "model:Ascend910B4")
    subprocess.run([sys.executable, "-m", "tilewise.cli", *words], env=environment(tuned), check=True)
    return tuned, empty


def environment(folder, **more):
    own = {"TILEWISE_DATA": str(folder), "TILEWISE_CACHE": str(folder), "TILEWISE_DB": f"sqlite:///{folder}/tiles.db"}
    return {**os.environ, **own, "TILEWISE_MISSES": "off", "OMP_NUM_THREADS": "1", **more}


def run_nodes(node_folders, **more):
    """Run the program on two nodes to their end, and return their exit codes and outputs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = ("--nnodes=2", "--nproc-per-node=4", "--master-addr=127.0.0.1", f"--master-port={port}")
    run = ("-m", "tilewise.cli", "run", "--interpret", "--for-device", "Ascend910B4", str(PROGRAM))
    nodes = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *common, f"--node-rank={index}", *run],
            env=environment(folder, **more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index, folder in enumerate(node_folders)
    ]
    outputs = [node.communicate(timeout=600)[0] for node in nodes]
    return [node.returncode for node in nodes], "".join(outputs)


def lines(output):
    return [line for line in output.splitlines() if line.startswith("launched")]


def test_all_ranks_launch_the_stored_config_that_one_node_lacks(node_folders):
    codes, output = run_nodes(node_folders)
    assert codes == [0, 0], output
    told = lines(output)
    assert len(told) == 8 and len(set(told)) == 1, output
    assert told[0].startswith("launched ['exact ") and told[0].endswith("all ranks have 102400"), output


def test_all_ranks_launch_what_a_file_of_choices_pins(node_folders, tmp_path):
    choices = tmp_path / "choices.jsonl"
    run_nodes(node_folders, TILEWISE_CHOICES=str(choices))
    pinned = choices.read_text()
    assert '"match":"exact"' in pinned and '"ROWS":1,' not in pinned
    choices.write_text(pinned.replace('"ROWS":16', '"ROWS":1').replace('"ROWS":4', '"ROWS":1'))
    codes, output = run_nodes(node_folders, TILEWISE_CHOICES=str(choices))
    assert codes == [0, 0] and set(lines(output)) == {"launched ['exact 1'], all ranks have 102400"}, output
    assert len(choices.read_text().splitlines()) == 1


def test_no_rank_waits_for_one_that_died(node_folders):
    codes, output = run_nodes(node_folders, DYING_RANK="5")
    assert codes == [1, 1] and "(exitcode: 7)" in output, output
