"""Compiled code of every kernel with the modelled times that it had, so that a change of the model shows what it moves.

Where times move, `_MODEL_VERSION` in tuner/hardware/calibrated_costs.py has to rise, or stored results would be mixed
with new ones. Then write the file anew with `python tests/helpers/modelled_times.py`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.settings import read_settings
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.ir.hivm import parse
from tilewise.tuner.devices.ascend_model.model_config import Machines
from tilewise.tuner.hardware import calibrated_costs
from tilewise.tuner.space.search_space import enumerate_space

FILE = Path(__file__).parents[1] / "golden" / "modelled.json.gz"
TARGET = Target("ascend", "Ascend910B4", 40, 196608, 32, 65535)
SIZES: tuple[tuple[str, dict[str, int]], ...] = (
    ("float32", {"M": 1000, "N": 8192, "C": 64, "HW": 3136, "H": 32, "HALF": 64, "E": 64, "TOPK": 6}),
    ("bfloat16", {"M": 37, "N": 1000, "C": 300, "HW": 50, "H": 5, "HALF": 33, "E": 37, "TOPK": 3}),
)


def known() -> dict[str, Any]:
    """Return the version of the model, and rows by kernel."""
    body: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))
    return body


def timed(row: dict[str, Any]) -> dict[str, Any]:
    """Return what the model says now of a row's compiled code, to 9 digits: times in us, at each end of the costs."""
    spec = registry.load(row["kernel"])
    problem = Problem(row["kernel"], row["dims"], row["dtype"])
    machines = Machines(spec, problem, row["config"], TARGET, [parse(code) for code in row["codes"]])
    times = {end: machines.time(end) for end in ("value", "low", "high")}
    made: dict[str, Any] = _rounded({end: {"time_us": time.time_us, **time.to_json()} for end, time in times.items()})
    return made


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def _codes(spec: KernelSpec, problem: Problem, config: Config) -> list[str]:
    """Return the compiled code of each launch, or nothing if one is refused."""
    made = []
    for launch in spec.plan(config, problem):
        linalg = toolchain.lower(spec, problem, config, launch, TARGET.name)
        folder = read_settings().cache_folder
        made.append(toolchain.compile_linalg(linalg, TARGET.name, config, cache_folder=folder).code)
    return made if all(made) else []


def _rows(name: str) -> list[dict[str, Any]]:
    spec, found = registry.load(name), list[dict[str, Any]]()
    for dtype, sizes in SIZES:
        dims = {dim: sizes["M" if dim == "N" and "C" in spec.dims else dim] for dim in spec.dims}
        problem = Problem(name, dims, dtype)
        space = enumerate_space(spec, problem, TARGET)
        for config in (spec.default(problem, TARGET), space.configs[len(space) // 2]):
            if codes := _codes(spec, problem, config):
                row = {"kernel": name, "dims": dims, "dtype": dtype, "config": dict(config), "codes": codes}
                found.append(row | {"times": timed(row)})
    return found


def write() -> None:
    body = {
        "version": calibrated_costs._MODEL_VERSION,
        "kernels": {name: _rows(name) for name in registry.vector_names()},
    }
    FILE.write_bytes(gzip.compress(json.dumps(body).encode(), mtime=0))


if __name__ == "__main__":
    write()
