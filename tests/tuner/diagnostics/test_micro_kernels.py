"""The probes that a calibration is fitted to."""

from tilewise.kernels.spec import Target
from tilewise.tuner.diagnostics.micro_kernels import probes

TARGET = Target("ascend", "Ascend910B4", 40, 196608, 32, 65535)

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


OTHERS = {
    "empty, 1 programs": ((1, 8), 32),
    "empty, 40 programs": ((40, 8), 1280),
    "empty, 400 programs": ((400, 8), 12_800),
    "empty, 2000 programs": ((2000, 8), 64_000),
    "store, one core": ((1, 8, 40, 8192), 262_144),
    "store, all cores": ((40, 8, 40, 8192), 10_485_760),
    "copy, global memory": ((40, 200, 8192), 524_288_000),
    **dict.fromkeys(("scale", "add", "exp", "log", "sqrt", "divide", "cast", "select"), ((1, 200, 8192), 65_536)),
    "atomic, 40 programs": ((40, 64), 260),
    "atomic, 400 programs": ((400, 64), 260),
    "product, one trip": ((1, 1, 16, 16, 16), 2048),
    "products, large tiles": ((1, 200, 128, 256, 128), 229_376),
    "products, tall tiles": ((1, 200, 256, 16, 128), 86_016),
    "products, wide tiles": ((1, 200, 16, 256, 128), 86_016),
    "operands, one core": ((1, 8, 40, 256, 16, 256, 256), 1_073_152),
    "operands, all cores": ((20, 8, 40, 128, 16, 512, 512), 21_151_744),
    "operands, rows of 64 B": ((1, 8, 40, 256, 16, 32, 512), 2_114_560),
    "operands, far rows": ((1, 1, 40, 32, 16, 128, 65_536), 4_200_448),
    "results, one core": ((1, 100, 128, 256, 16), 13_119_488),
    "product, squared": ((1, 1, 16, 16, 16), 2048),
}
"""Programs and constants on 40 cores, and the bytes of the buffers: 4 for a number in and out, 2 for an operand."""


def test_the_others_have_buffers_for_all_that_they_move():
    others = [probe for probe in probes(40) if not probe.name.startswith("load")]
    found = {probe.name: (tuple(probe.problem.dims.values()), probe.spec.bytes(probe.problem)) for probe in others}
    assert found == OTHERS
    assert [*found] == [*OTHERS]


def test_what_a_probe_leaves_to_choose_is_chosen():
    chosen = {probe.name: dict(probe.config) for probe in probes(40)}
    assert [name for name, config in chosen.items() if not config["multibuffer"]] == ["load, one after the other"]
    assert {name: config["OP"] for name, config in chosen.items() if "OP" in config} == {
        op: op for op in ("scale", "add", "exp", "log", "sqrt", "divide", "cast", "select")
    }
    assert [name for name, config in chosen.items() if config.get("EPILOGUE")] == ["product, squared"]


def test_a_probe_is_a_config_of_its_kernel_and_all_but_one_have_as_many_buffers_as_the_default():
    apart = []
    for probe in probes(40):
        spec, problem, config = probe.spec, probe.problem, dict(probe.config)
        choices = {each.name: tuple(each.values(problem, TARGET)) for each in spec.parameters}
        assert config.keys() == choices.keys()
        assert all(config[name] in values for name, values in choices.items())
        assert choices["multibuffer"] == (True, False) and spec.options() == {"multibuffer"}
        if dict(spec.default(problem, TARGET)).items() - config.items():
            apart.append(probe.name)
    assert apart == ["load, one after the other"]


def test_a_probes_launch_passes_its_sizes_to_the_function_of_its_name():
    for probe in probes(40):
        (launch,) = probe.spec.plan(probe.config, probe.problem)
        sizes = {name: size for name, size in probe.problem.dims.items() if name != "programs"}
        assert (launch.grid, dict(launch.constants)) == ((probe.problem.dims["programs"],), sizes)
        assert launch.function == f"tilewise.kernels.jit.micro_kernels:{probe.spec.name}"
        multiplies = probe.name.startswith(("product", "operand", "result"))
        assert (probe.spec.matrix_dtype(probe.problem) if multiplies else probe.spec.matrix_dtype) == (
            "float16" if multiplies else None
        )
