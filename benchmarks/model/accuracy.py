"""The deviation of kernels, and of torch's own on the same data, from float64, on data that is hard for float32.

Normalisations get data with mean 10**4 and standard deviation 1, for which a variance computed as `E[x^2] - E[x]^2` has
no correct digit. The GELUs get evenly spaced numbers from -8 to 8, and are compared with the exact (erf) form.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewise.errors import UsageError
from tilewise.kernels import registry
from tilewise.kernels.spec import Config, KernelSpec, Problem, Target
from tilewise.tuner.devices.ascend_model.device import ModelDevice
from tilewise.tuner.devices.base import Device
from tilewise.tuner.devices.cuda.device import CudaDevice
from tilewise.tuner.measure.launch import launch
from tilewise.tuner.measure.verify import Arguments
from tilewise.tuner.prior.penalties import rank_by_prior
from tilewise.tuner.space.search_space import enumerate_space
from tilewise.tuner.workers.worker import Worker

if TYPE_CHECKING:
    import torch

__all__ = ["CASES", "Case", "bench_accuracy", "measure"]

_SECONDS = 120.0
"""The time limit for one case in the interpreter."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel at dims that an interpreter can handle, and the data of its x."""

    kernel: str
    dims: Mapping[str, int]
    data: str
    dtype: str = "float32"

    def problem(self) -> Problem:
        return Problem(self.kernel, dict(self.dims), self.dtype)


_FAR, _EVEN = "mean 1e4, std 1", "evenly from -8 to 8"

CASES = (
    Case("layer_norm", {"M": 24, "N": 8192}, _FAR),
    Case("batch_norm", {"N": 8, "C": 6, "HW": 3136}, _FAR),
    *(Case(f"gelu_{form}", {"N": 2**16}, _EVEN) for form in ("erf", "tanh", "rational")),
)


def bench_accuracy(
    device: Device, cases: Sequence[Case] = CASES, *, progress: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Run `tilewise bench accuracy` and return its JSON: a row for each case and variant, with the prior's best config.

    `error` is the largest absolute deviation from float64 by output, and `torch_error` that of torch's own kernels on
    the same device and data. Both are in the output's unit (the outputs y have RMS 1). On a modelled device the
    kernels run in Triton's interpreter, on a CPU.
    """
    if isinstance(device, CudaDevice):
        return _bench(
            device, cases, device.id, lambda case, config: measure(case, config, f"cuda:{device.index}"), progress
        )
    if not isinstance(device, ModelDevice):
        raise UsageError(f"bench accuracy runs on cuda or model:PART, not on {device.id}")
    worker = Worker("tilewise.benchmarks.model.interpreter_worker:measure_accuracy", env={"TRITON_INTERPRET": "1"})
    try:
        interpreted = functools.partial(worker.call, timeout=_SECONDS)
        return _bench(
            device, cases, "Triton's interpreter", lambda case, config: interpreted(case, config, "cpu"), progress
        )
    finally:
        worker.close()


def _bench(
    device: Device,
    cases: Sequence[Case],
    run_by: str,
    errors: Callable[[Case, Config], Mapping[str, Any]],
    progress: Callable[[str], None],
) -> dict[str, Any]:
    rows = []
    for case in cases:
        for config in _best_per_variant(registry.load(case.kernel), case.problem(), device.target):
            progress(f"{case.kernel} {config['VARIANT']}")
            row = {"kernel": case.kernel, "dims": dict(case.dims), "dtype": case.dtype, "data": case.data}
            rows.append({**row, "variant": config["VARIANT"], "config": dict(config), **errors(case, config)})
    return {"device": device.target.name, "run_by": run_by, "toolchain": device.toolchain, "rows": rows}


def measure(case: Case, config: Config, place: str) -> dict[str, dict[str, float]]:
    """Launch the config on the case's data on torch device `place`; compare it and torch with float64."""
    spec, problem = registry.load(case.kernel), case.problem()
    arguments = Arguments(spec, problem, device=place)
    tensors = arguments.bind(config)
    _fill(tensors, case.data)
    arguments.poison()
    launch(spec, problem, config, tensors)
    exact = registry.load("gelu_erf") if case.data == _EVEN else spec
    wanted = exact.reference_of(problem)({name: tensor.double() for name, tensor in arguments.inputs.items()})
    eager = exact.reference_of(problem)(arguments.inputs)
    return {"error": _off(arguments.outputs, wanted), "torch_error": _off(eager, wanted)}


def _fill(tensors: Mapping[str, torch.Tensor], data: str) -> None:
    import torch

    x = tensors["x_ptr"]
    if data == _EVEN:
        x.copy_(torch.linspace(-8, 8, x.numel()).view(x.shape))
        return
    x.copy_(1e4 + torch.randn(x.shape, generator=torch.Generator().manual_seed(1)))
    tensors["w_ptr"].fill_(1.0)
    tensors["b_ptr"].zero_()


def _off(got: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Return the largest absolute deviations, by output name without `_ptr`."""
    return {
        name.removesuffix("_ptr"): float(f"{float((got[name].double() - wanted[name]).abs().max()):.3g}")
        for name in wanted
    }


def _best_per_variant(spec: KernelSpec, problem: Problem, target: Target) -> list[Config]:
    best: dict[Any, Config] = {}
    for config in rank_by_prior(spec, problem, enumerate_space(spec, problem, target).configs, target):
        best.setdefault(config["VARIANT"], config)
    return [best[variant] for variant in sorted(best)]
