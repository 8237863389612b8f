"""Fixtures of the device tests: a machine with a stand-in for an NPU.

Only the chip and CANN's closed half of the compiler are stand-ins; triton-ascend, the rest of the compiler, the bench
process and tilewise are real.
"""

import itertools
import json
import os
import shutil
from pathlib import Path

import pytest
from places import HELPERS

from tilewise.kernels import registry
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.measured.device import Limits
from tilewise.tuner.devices.npu.device import NpuDevice

HERE = HELPERS
STAND_IN = HERE / "npu_stand_in"
LIMITS = Limits(run_seconds=3.0, floors=0)
CHIPS = itertools.count()


def npu_environment(cann, **modes):
    """Return that machine's environment variables; `modes` are the stand-in's."""
    library = cann / "lib64" / "libmspti.so"
    if not library.exists():  # any library can be loaded beforehand
        library.parent.mkdir(parents=True, exist_ok=True)
        mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
        shutil.copy(next(file for file in mapped if "/libm.so" in file or "/libm-" in file), library)
        (cann / "version.cfg").write_text("version=[8.5.0]\n")
    return {
        "ASCEND_HOME_PATH": str(cann),
        "NPU_STAND_IN": json.dumps(modes),
        "TILEWISE_JOBS": "1",
        "OMP_NUM_THREADS": "1",  # threads that wait for one another are slow on shared cores
        "PATH": os.pathsep.join(
            [str(STAND_IN / "bin"), str(Path(toolchain.tool("bishengir-compile")).parent), os.environ["PATH"]]
        ),
        "TILEWISE_CACHE": str(cann.parent / "cache"),
    }


def become_npu_machine(patch, cann, **modes):
    """Make this machine one with an NPU, until `patch`, a monkeypatch, is undone."""
    if reason := toolchain.unavailable_reason():
        pytest.skip(reason)
    pytest.importorskip("torch")
    for name, value in npu_environment(cann, **modes).items():
        patch.setenv(name, value)
    patch.setenv("ASCEND_RT_VISIBLE_DEVICES", str(next(CHIPS)))  # one chip per process and device
    patch.syspath_prepend(STAND_IN)
    patch.setattr("tilewise.tuner.devices.npu.device.unavailable_reason", lambda: None)


def open_npu(patch, cann, *, warm=False, **modes):
    become_npu_machine(patch, cann, **modes)
    return NpuDevice(jobs=1, limits=LIMITS, warm=warm)


@pytest.fixture(scope="session", name="npu_environment")
def give_npu_environment():
    return npu_environment


@pytest.fixture(scope="session")
def cann(tmp_path_factory):
    """A folder for CANN beside the one for tilewise's cache, so that kernels compile once per session."""
    return tmp_path_factory.mktemp("npu") / "cann"


@pytest.fixture
def npu_machine(monkeypatch, cann):
    """`npu_machine(**modes)` makes this a machine with an NPU, without opening the NPU."""
    return lambda **modes: become_npu_machine(monkeypatch, cann, **modes)


@pytest.fixture
def npu(monkeypatch, cann):
    """`npu(**modes)` opens the device."""
    with_modes = []

    def opened(**modes):
        with_modes.append(open_npu(monkeypatch, cann, **modes))
        return with_modes[-1]

    yield opened
    for device in with_modes:
        device.close()


@pytest.fixture(scope="module")
def shared_npu(cann):
    """One healthy device for many tests."""
    with pytest.MonkeyPatch.context() as patch, open_npu(patch, cann) as device:
        yield device
        device.close()


@pytest.fixture(scope="session")
def halves():
    """A kernel for the stand-in: `FAULT` 1 is a device fault, 2 a hang, 3 a wrong result."""
    pytest.importorskip("triton")
    return registry.load(f"{HERE / 'npu_kernels.py'}:HALVES")
