"""`tilewise selftest`: a check, step by step, that a device does what tilewise relies on.

Every step uses an opened device through the `Device` contract alone, so all devices take the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from tilewise.db.records import Clock, Status
from tilewise.errors import Unavailable
from tilewise.kernels import registry
from tilewise.kernels.spec import Axis, Buffer, Config, Dot, KernelSpec, Parameter, Problem, Tiling, ceil_div
from tilewise.tuner.devices.base import Device
from tilewise.tuner.devices.replay import ReplayDevice
from tilewise.tuner.measure.outcome import Outcome

__all__ = ["PRODUCT", "SPEC", "STEPS", "Bench", "Step", "Verdict", "selftest"]

RIGHT: Config = {"BLOCK": 8192, "SUB_BLOCK": 2048, "SHIFT": 0}
WRONG: Config = {**RIGHT, "SHIFT": 1}

SMALL, LARGE = Problem("doubled", {"N": 100_003}, "float32"), Problem("doubled", {"N": 1 << 25}, "float32")
"""Problems to check values, with a tail, and to time: 268 MB moved, more than any cache holds."""

REPEATS, APART = 5, 0.02
"""Timings of one config, and the limit on how far the largest may exceed the smallest (relative, at 50 us or more)."""

LEAST_SHARE = 0.3
"""Least share of the device's own memory rate: a plain kernel with an untuned tile reaches it on any device."""


def _tiling(config: Config, problem: Problem) -> Tiling:
    block, sub_block = int(config["BLOCK"]), int(config["SUB_BLOCK"])
    axis = Axis("N", problem.dims["N"], block, sub_block)
    return Tiling((axis,), streamed_bytes=2 * sub_block * problem.item_bytes, resident_bytes=0)


SPEC = KernelSpec(
    name="doubled",
    summary="out = 2 * x",
    function="tilewise.kernels.jit.selftest:doubled_kernel",
    dims=("N",),
    dtypes=("float32",),
    parameters=(
        Parameter("BLOCK", lambda problem, target: [8192]),
        Parameter("SUB_BLOCK", lambda problem, target: [2048]),
        Parameter("SHIFT", lambda problem, target: [0, 1]),
    ),
    buffers=lambda problem: {
        "x_ptr": Buffer((problem.dims["N"],), problem.dtype),
        "out_ptr": Buffer((problem.dims["N"],), problem.dtype, role="out"),
    },
    scalars=lambda problem: dict(problem.dims),
    grid=lambda config, problem: (ceil_div(problem.dims["N"], int(config["BLOCK"])),),
    tiling=_tiling,
    reference=lambda inputs: {"out_ptr": 2 * inputs["x_ptr"]},
    flops=lambda problem: problem.dims["N"],
    default=lambda problem, target: dict(RIGHT),
)


MULTIPLIED = Problem("multiplied", {"M": 100, "N": 70, "K": 130}, "float16")
"""A product with a tail along each axis."""

RIGHT_PRODUCT: Config = {"BLOCK": 64, "SHIFT": 0}
WRONG_PRODUCT: Config = {**RIGHT_PRODUCT, "SHIFT": 1}


def _product_buffers(problem: Problem) -> dict[str, Buffer]:
    m, n, k = (problem.dims[axis] for axis in "MNK")
    return {
        "a_ptr": Buffer((m, k), problem.dtype),
        "b_ptr": Buffer((k, n), problem.dtype),
        "out_ptr": Buffer((m, n), "float32", role="out", terms=k),
    }


def _product_tiling(config: Config, problem: Problem) -> Tiling:
    block, deep = int(config["BLOCK"]), problem.dims["K"]
    axes = tuple(Axis(n, problem.dims[n], taken, block) for n, taken in (("M", block), ("K", deep), ("N", block)))
    streamed = 2 * block * block * problem.item_bytes
    return Tiling(axes, streamed, 4 * block * block, dot=Dot(block, block, block, alone=True))


PRODUCT = KernelSpec(
    name="multiplied",
    summary="out = a @ b",
    function="tilewise.kernels.jit.selftest:product_kernel",
    dims=("M", "N", "K"),
    dtypes=("float16",),
    parameters=(
        Parameter("BLOCK", lambda problem, target: [64]),
        Parameter("SHIFT", lambda problem, target: [0, 1]),
    ),
    buffers=_product_buffers,
    scalars=lambda problem: dict(problem.dims),
    grid=lambda config, problem: (
        ceil_div(problem.dims["M"], int(config["BLOCK"])) * ceil_div(problem.dims["N"], int(config["BLOCK"])),
    ),
    tiling=_product_tiling,
    reference=lambda inputs: {"out_ptr": inputs["a_ptr"] @ inputs["b_ptr"]},
    flops=lambda problem: 2 * problem.dims["M"] * problem.dims["N"] * problem.dims["K"],
    matrix_dtype=lambda problem: problem.dtype,
    default=lambda problem, target: dict(RIGHT_PRODUCT),
)


class Verdict(StrEnum):
    OK = "ok"
    FAILED = "failed"
    NOT_HERE = "not here"


@dataclass(frozen=True, slots=True)
class Step:
    """The result of a step. `detail` is one line, and `facts` are plain JSON values."""

    name: str
    verdict: Verdict
    detail: str
    facts: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"verdict": str(self.verdict)}


class Bench:
    """An opened device with the kernels of the self-test, and the outcomes that several steps share."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.spec = registry.load(f"{Path(__file__)}:SPEC")
        self.product = registry.load(f"{Path(__file__)}:PRODUCT")

    @cached_property
    def small(self) -> Outcome:
        return self._run(SMALL)

    @cached_property
    def times_us(self) -> list[float]:
        """Return the times of one config, measured `REPEATS` times; failed runs are omitted."""
        outcomes = [self._run(LARGE) for _ in range(REPEATS)]
        return [o.timing.time_us for o in outcomes if o.timing is not None]

    def _run(self, problem: Problem) -> Outcome:
        return next(iter(self.device.evaluate(self.spec, problem, [RIGHT])))


def compile_step(bench: Bench) -> Step:
    outcome = bench.small
    seconds = outcome.facts.get("compile_s")
    took = f" in {seconds:.1f} s" if isinstance(seconds, int | float) else ""
    facts = {k: outcome.facts[k] for k in ("compile_s", "effective_options", "on_chip_bits") if k in outcome.facts}
    if outcome.status in (Status.COMPILE, Status.CONSTRAINTS) or outcome.reason.startswith("compiling"):
        return Step("compile", Verdict.FAILED, outcome.reason, facts)
    return Step("compile", Verdict.OK, f"a kernel compiles{took}", facts)


def launch_step(bench: Bench) -> Step:
    if (timing := bench.small.timing) is None:
        return Step("launch", Verdict.FAILED, bench.small.reason, dict(bench.small.facts))
    facts = {"time_us": timing.time_us, "samples": timing.samples, "method": timing.method, "l2": timing.l2}
    timed = f", timed by {timing.method} with a {timing.l2} L2" if timing.method else ""
    return Step("launch", Verdict.OK, f"it runs in {timing.time_us:.2f} us ({bench.device.clock}){timed}", facts)


def right_step(bench: Bench) -> Step:
    verdict = bench.device.verify(bench.spec, SMALL, RIGHT)
    facts = {"error": verdict.error, "tolerance": verdict.tolerance}
    if not verdict.agreed:
        return Step("right values", Verdict.FAILED, verdict.reason, {})
    return Step("right values", Verdict.OK, f"they agree with float64, error {verdict.error:.1e} of the RMS", facts)


def wrong_step(bench: Bench) -> Step:
    verdict = bench.device.verify(bench.spec, SMALL, WRONG)
    if verdict.agreed:
        return Step("wrong values", Verdict.FAILED, "a kernel that adds 1 to every value was verified as correct")
    if verdict.status is not Status.CORRECTNESS:
        return Step("wrong values", Verdict.FAILED, f"the values were not compared: {verdict.reason}")
    return Step("wrong values", Verdict.OK, "a wrong kernel is rejected")


def repeat_step(bench: Bench) -> Step:
    times = bench.times_us
    if len(times) < REPEATS:
        return Step("repeated timing", Verdict.FAILED, f"{REPEATS - len(times)} of {REPEATS} timings failed")
    apart = max(times) / min(times) - 1
    verdict = Verdict.OK if apart <= APART else Verdict.FAILED
    facts = {"times_us": times, "apart": round(apart, 5)}
    return Step("repeated timing", verdict, f"{REPEATS} timings differ by {apart:.2%} (allowed: {APART:.0%})", facts)


def bandwidth_step(bench: Bench) -> Step:
    if not bench.times_us:
        return Step("bandwidth", Verdict.FAILED, "nothing was timed")
    best, moved = min(bench.times_us), bench.spec.bytes(LARGE)
    floor = bench.device.floor_us(bench.spec, LARGE)
    facts: dict[str, Any] = {"gb_s": round(moved / best / 1e3, 1)}
    rate = f"{moved / best / 1e6:.2f} TB/s ({bench.device.clock})"
    if floor is None:
        return Step("bandwidth", Verdict.OK, f"{rate}; the device's own rate is unknown", facts)
    share = floor / best
    facts["share"] = round(share, 4)
    verdict = Verdict.OK if LEAST_SHARE <= share <= 1.1 else Verdict.FAILED
    return Step("bandwidth", verdict, f"{rate}, {share:.0%} of the device's own rate", facts)


def product_step(bench: Bench) -> Step:
    """Run a product on the device's matrix units, compare it, and have a wrong one rejected."""
    (outcome,) = bench.device.evaluate(bench.product, MULTIPLIED, [RIGHT_PRODUCT])
    if outcome.timing is None:
        return Step("product", Verdict.FAILED, outcome.reason, dict(outcome.facts))
    right, wrong = (bench.device.verify(bench.product, MULTIPLIED, config) for config in (RIGHT_PRODUCT, WRONG_PRODUCT))
    if not right.agreed:
        return Step("product", Verdict.FAILED, right.reason)
    if wrong.agreed or wrong.status is not Status.CORRECTNESS:
        what = "a product that leaves out a column was verified as correct" if wrong.agreed else wrong.reason
        return Step("product", Verdict.FAILED, what)
    took = f"it runs in {outcome.timing.time_us:.2f} us ({bench.device.clock})"
    facts = {"time_us": outcome.timing.time_us, "error": right.error, "tolerance": right.tolerance}
    return Step("product", Verdict.OK, f"{took} and agrees with float64; a wrong one is rejected", facts)


STEPS: dict[str, Callable[[Bench], Step]] = {
    "compile": compile_step,
    "launch": launch_step,
    "right values": right_step,
    "wrong values": wrong_step,
    "repeated timing": repeat_step,
    "bandwidth": bandwidth_step,
    "product": product_step,
}


def selftest(open_device: Callable[[], Device]) -> Iterator[Step]:
    """Yield each step as soon as it is done. If the device is not available, that is the only step."""
    try:
        device = open_device()
    except Unavailable as error:
        yield Step("device", Verdict.NOT_HERE, str(error))
        return
    with device:
        facts = {"toolchain": device.toolchain, "notes": list(device.notes)}
        yield Step("device", Verdict.OK, "; ".join([_described(device), *device.notes]), facts)
        if isinstance(device, ReplayDevice):
            yield Step("kernels", Verdict.OK, f"none to test: a record of {len(device.rows)} configs cannot run any")
            return
        bench = Bench(device)
        for name, step in STEPS.items():
            try:
                yield step(bench)
            except Exception as error:
                yield Step(name, Verdict.FAILED, f"{type(error).__name__}: {' '.join(str(error).split())}")


def _described(device: Device) -> str:
    memory = f"{device.memory_bytes() / 2**30:.1f} GiB for a problem" if device.memory_bytes() < 2**62 else "no memory"
    modelled = " (nothing runs on hardware)" if device.clock is Clock.MODELLED else ""
    return f"{device.target.name}, {device.target.cores} cores, {memory}{modelled}; {device.toolchain}"
