"""The probes that a calibration is fitted to."""

from tilewise.tuner.diagnostics.micro_kernels import probes

LOADS = {
    "load, one core": (1, 8, 40, 1, 8192, 8192),
    "load, half the cores": (20, 8, 40, 1, 8192, 8192),
    "load, all cores": (40, 8, 40, 1, 8192, 8192),
    "load, short tiles": (1, 8, 80, 1, 512, 512),
    "load, short tiles, all cores": (40, 8, 80, 1, 2048, 2048),
    "load, rows of 1 KB": (1, 8, 40, 32, 256, 512),
    "load, rows of 256 B": (1, 8, 40, 64, 64, 512),
    "load, rows of 128 B, all cores": (40, 8, 80, 128, 32, 128),
    "load, rows off the blocks": (40, 8, 40, 32, 256, 513),
    "load, one after the other": (1, 8, 40, 1, 1024, 1024),
    "load, short programs": (400, 1, 4, 1, 4096, 4096),
    "load, from global memory": (40, 400, 1, 1, 8192, 8192),
}
"""Programs, tiles, repeats, rows, columns and pitch on 40 cores."""


def test_the_loads_are_those_that_stored_calibrations_were_fitted_to():
    loads = [probe for probe in probes(40) if probe.name.startswith("load")]
    assert {probe.name: tuple(probe.problem.dims.values()) for probe in loads} == LOADS
    assert tuple(loads[0].problem.dims) == ("programs", "TILES", "REPEATS", "ROWS", "COLS", "PITCH")
