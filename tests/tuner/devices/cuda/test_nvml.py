"""A GPU's state in words, from a stand-in for NVIDIA's management library."""

from types import SimpleNamespace

import pytest

from tilewise.tuner.devices.cuda import nvml
from tilewise.tuner.devices.cuda.nvml import Management, driver_version
from tilewise.tuner.devices.measured.accelerator import State

REASONS = {
    "SwPowerCap": (4, "power cap"),
    "HwSlowdown": (8, "hardware slowdown"),
    "SyncBoost": (16, "synchronised boost"),
    "SwThermalSlowdown": (32, "temperature (software)"),
    "HwThermalSlowdown": (64, "temperature (hardware)"),
    "HwPowerBrakeSlowdown": (128, "power brake"),
}
IDLE = 1


class NVMLError(Exception):
    """An error with the library's name for it."""


class Library(SimpleNamespace):
    """`pynvml`, as far as it is used, with one GPU."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1

    def __init__(self, *, reasons=0, fails=()):
        bits = {f"nvmlClocksThrottleReason{name}": bit for name, (bit, _) in REASONS.items()}
        super().__init__(reasons=reasons, fails=fails, **bits)

    def answer(self, request, value):
        if request in self.fails:
            raise NVMLError(request)
        return value

    def nvmlInit(self):  # noqa: N802 - the library's names, here and below
        self.answer("init", None)

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        if uuid != "GPU-12-34":
            raise NVMLError(uuid)
        return "handle"

    def nvmlDeviceGetClockInfo(self, handle, clock):  # noqa: N802
        assert (handle, clock) == ("handle", self.NVML_CLOCK_SM)
        return self.answer("clock", 1980)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):  # noqa: N802
        assert handle == "handle"
        return self.answer("reasons", self.reasons)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: N802
        assert handle == "handle"
        return self.answer("energy", 123456)

    def nvmlSystemGetDriverVersion(self):  # noqa: N802
        return self.answer("version", "575.57.08")


@pytest.fixture
def library(monkeypatch):
    def use(**modes):
        made = Library(**modes)
        monkeypatch.setitem(__import__("sys").modules, "pynvml", made)
        return made

    return use


@pytest.mark.parametrize(("bit", "words"), [*REASONS.values(), (0, ""), (IDLE, ""), (4 | 64, "")])
def test_reasons_that_slow_a_busy_gpu_are_told_in_words_and_idling_is_none(library, bit, words):
    library(reasons=bit | IDLE)
    words = "power cap, temperature (hardware)" if bit == 4 | 64 else words
    assert Management.open("12-34").state() == State(1980.0, words)


@pytest.mark.parametrize(
    ("fails", "state"),
    [(("clock",), State(None, "power cap")), (("reasons",), State(1980.0)), (("clock", "reasons"), State())],
)
def test_what_cannot_be_read_is_left_out(library, fails, state):
    library(reasons=4, fails=fails)
    assert Management.open("12-34").state() == state


def test_a_gpu_that_the_library_does_not_know_has_no_state(library):
    library()
    assert Management.open("56-78") is None
    library(fails=("init",))
    assert Management.open("12-34") is None


@pytest.mark.parametrize(("fails", "said"), [((), "575.57.08"), (("version",), "unknown"), (("init",), "unknown")])
def test_the_drivers_version_is_unknown_without_the_library(library, fails, said):
    library(fails=fails)
    assert driver_version() == said
    assert (nvml._library() is None) == ("init" in fails)


def test_the_energy_is_read_in_millijoules_where_the_gpu_counts_it(library):
    library()
    assert Management.open("12-34").energy_mj() == 123456.0
    library(fails=("energy",))
    assert Management.open("12-34").energy_mj() is None
