"""The bench process on a device whose clock is a test's: facts, drift, and repeats."""

import errno
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tilewise.db.records import ENERGY, METRICS, Status
from tilewise.errors import BadSpec
from tilewise.kernels import registry
from tilewise.kernels.spec import Buffer, Problem, Target
from tilewise.tuner.devices.measured import accelerator, bench_process
from tilewise.tuner.devices.measured.accelerator import Failure, Job, State, turns
from tilewise.tuner.devices.measured.bench_process import PAUSES, SECONDS, Bench, call
from tilewise.tuner.measure.drift import DRIFT
from tilewise.tuner.measure.outcome import Outcome, Timing

JOB = Job(lambda: None, ["kernel"])


class Reference:
    """A drift reference that answers with the given ratios."""

    def __init__(self, *ratios):
        self.ratios, self.renewed = list(ratios), 0

    def ratio(self):
        return self.ratios.pop(0)

    def renew(self):
        self.renewed += 1


@pytest.fixture
def bench(monkeypatch):
    """A bench on whose device every timing takes 0.25 s; `asked` lists the limits given, `slept` the pauses."""
    now, asked, slept = [500.0], [], []

    def timed(sample, *, to_beat_us, seconds):
        now[0] += 0.25
        asked.append((to_beat_us, seconds))
        return Timing(float(len(asked)))

    def sleep(seconds):
        now[0] += seconds
        slept.append(seconds)

    monkeypatch.setattr(bench_process, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(bench_process, "time_adaptively", timed)
    runtime = SimpleNamespace(
        timer=SimpleNamespace(name="events", samples_us=len), warm=False, state=lambda: State(1200.0, "")
    )
    made = Bench(runtime)
    made.asked, made.slept = asked, slept
    return made


def test_the_facts_of_a_timing_are_its_seconds_and_the_state_as_far_as_it_is_known(bench):
    bench._drift_reference = lambda: None
    timing, facts = bench._timed(JOB, 7.0)
    assert facts == {"timing_s": 0.25, "clock_mhz": 1200.0}
    assert (timing.time_us, timing.method, timing.l2) == (1.0, "events", "cold")
    assert bench.asked == [(7.0, SECONDS)]
    bench.runtime.warm = True
    assert bench._timed(JOB, None)[0].l2 == "warm"


@pytest.mark.parametrize(
    ("ratios", "repeats", "lasts"),
    [([None], None, False), ([1.2, None], 1, False), ([1.2, 1.1, 1.3, None], 3, False), ([1.2, 1, 1, 1], 3, True)],
)
def test_a_config_is_timed_again_while_the_device_drifts_with_ever_longer_pauses(bench, ratios, repeats, lasts):
    reference = Reference(*ratios)
    bench._drift_reference = lambda: reference
    timing, facts = bench._timed(JOB, None)
    assert timing.time_us == len(bench.asked) == len(ratios)
    pauses = list(PAUSES[: len(ratios) - 1])
    assert bench.slept == pauses
    assert facts["timing_s"] == pytest.approx(0.25 * len(ratios) + sum(pauses))
    drift = {"ratio": 1.2, "clock_mhz": 1200.0, "repeats": repeats, "lasts": lasts}
    assert facts.get(DRIFT) == (None if repeats is None else drift)
    assert reference.renewed == int(lasts)
    assert reference.ratios == []


def test_the_reference_is_timed_once_and_only_where_there_is_one(bench, monkeypatch):
    opened = []
    monkeypatch.setattr(bench_process, "Reference", lambda sampler: opened.append(sampler) or "reference")
    bench.runtime.reference = lambda: None
    assert bench._drift_reference() is None
    bench.runtime.reference = lambda: JOB
    assert [bench._drift_reference() for _ in range(2)] == ["reference"] * 2
    assert len(opened) == 1


def test_samples_are_taken_with_what_comes_before_a_run_and_the_cache_as_wanted(bench):
    given = []
    bench.runtime.timer.samples_us = lambda *positional, **more: given.append((positional, more))
    job, bench.runtime.warm = replace(JOB, before=len), True
    bench._sampler(job)(10)
    assert given == [((job.run, ["kernel"], 10), {"before": len, "warm": True})]


@pytest.mark.parametrize(
    ("needed", "told", "known"), [(True, 512.5, {METRICS: {ENERGY: 512.5}}), (True, None, {}), (False, 512.5, {})]
)
def test_energy_is_measured_after_the_time_where_the_spec_needs_it(bench, needed, told, known):
    asked = []
    nothing = SimpleNamespace(restore=lambda: None, poison=lambda: None, damage=lambda: None)
    bench.arguments, bench.job = lambda *about: nothing, lambda *about: JOB
    bench._drift_reference = lambda: None
    bench.runtime.place, bench.runtime.reference_place = "cuda:0", "cpu"
    bench.runtime.synchronize, bench.runtime.kernel_facts = lambda: None, lambda kernels: {}
    bench.runtime.energy_uj = lambda *about: asked.append(about) or told
    outcome = bench._measured(SimpleNamespace(needs_energy=needed), None, {}, None)
    assert {name: fact for name, fact in outcome.facts.items() if name == METRICS} == known
    assert asked == ([(JOB, outcome.timing.time_us)] if needed else [])


def test_turns_shuffle_every_round_in_the_same_way_each_time():
    assert turns(3, 4) == turns(3, 4)
    assert all(sorted(order) == [0, 1, 2] for order in turns(3, 50))
    assert len({tuple(order) for order in turns(3, 50)}) == 6


def test_the_order_of_the_turns_is_the_same_in_every_process():
    assert turns(4, 3) == [[3, 1, 0, 2], [3, 1, 2, 0], [2, 3, 0, 1]]


@pytest.mark.parametrize("lost", [False, True])
def test_a_race_in_which_one_config_fails_has_no_times_and_says_whether_the_process_is_lost(bench, lost):
    class Broken(Exception):
        pass

    def job(spec, problem, config):
        raise Broken("the launch failed")

    bench.job = job
    bench.runtime.failure = lambda error: Failure(Outcome(Status.RUNTIME, reason=str(error)), lost=lost)
    bench.runtime.synchronize = lambda: None
    reply = bench.race(SimpleNamespace(), None, [{}, {}], 3)
    assert (reply.answer, reply.lost) == ([], lost)


class Runtime:
    """An accelerator whose launches are a function of the tensors, on the host's memory; `faults` are raised."""

    place = reference_place = "cpu"
    warm = False

    def __init__(self, launch):
        self.launch, self.waits, self.failing, self.launched = launch, 0, None, []
        self.timer = SimpleNamespace(
            name="events", samples_us=len, rounds_us=lambda jobs, rounds, warm: [[7.0] * rounds for _ in jobs]
        )

    def launcher(self, spec, problem, config, tensors):
        def run():
            self.launched.append(config["TILE"])
            self.launch(config, tensors)
            return ["code"]

        return run

    def synchronize(self):
        self.waits += 1
        if self.failing is not None:
            raise self.failing

    def failure(self, error):
        return Failure(Outcome(Status.RUNTIME, f"{type(error).__name__}: {error}"), lost=isinstance(error, MemoryError))

    def describe(self):
        return SimpleNamespace(target=Target("nvidia", "a GPU", 20, 65536, 16, 2**31 - 1))

    def kernel_names(self, spec, problem, config):
        return ["kernel"]

    def kernel_facts(self, kernels):
        return {"kernels": kernels}

    def reference(self):
        return None

    def state(self):
        return State()


def spec_of(bowl, **changes):
    """Return a kernel that doubles a vector."""
    buffers = {"x": Buffer((100,), "float32"), "out": Buffer((100,), "float32", "out")}
    plain = {"buffers": lambda problem: buffers, "reference": lambda inputs: {"out": 2 * inputs["x"]}}
    return replace(bowl.SPEC, **{**plain, **changes})


PROBLEM = Problem("bowl", {"M": 100}, "float32")


def doubled(config, tensors):
    tensors["out"].copy_(2 * tensors["x"])


def timed_bench(monkeypatch, launch):
    made = Bench(Runtime(launch))
    monkeypatch.setattr(bench_process, "time_adaptively", lambda sample, **limits: Timing(5.0))
    return made


def test_a_right_config_is_run_compared_and_timed(bowl, monkeypatch):
    bench = timed_bench(monkeypatch, doubled)
    reply = bench.measure(spec_of(bowl), PROBLEM, bowl.DEFAULT)
    assert (reply.lost, reply.answer.status, reply.answer.timing.time_us) == (False, Status.CORRECT, 5.0)
    assert reply.answer.facts["kernels"] == ["code"] and METRICS not in reply.answer.facts
    assert (bench.runtime.launched, bench.runtime.waits) == ([1], 2)


def test_a_wrong_config_is_not_timed_where_the_comparison_is_on_the_device(bowl, monkeypatch):
    bench = timed_bench(monkeypatch, lambda config, tensors: tensors["out"].fill_(1.0))
    outcome = bench.measure(spec_of(bowl), PROBLEM, bowl.DEFAULT).answer
    assert outcome.status is Status.CORRECTNESS and outcome.reason.startswith("out: ") and outcome.timing is None
    bench.runtime.reference_place = "cpu:0"
    assert bench.measure(spec_of(bowl), PROBLEM, bowl.DEFAULT).answer.status is Status.CORRECT


def test_a_config_that_writes_to_its_input_is_wrong_though_its_output_is_right(bowl, monkeypatch):
    def spoils(config, tensors):
        doubled(config, tensors)
        tensors["x"][0] += 1

    bench = timed_bench(monkeypatch, spoils)
    bench.runtime.reference_place = "cpu:0"
    outcome = bench.measure(spec_of(bowl), PROBLEM, bowl.DEFAULT).answer
    assert (outcome.status, outcome.reason) == (Status.CORRECTNESS, "x: the kernel wrote to its input")


@pytest.mark.parametrize(
    ("error", "second", "reason", "lost"),
    [
        (ValueError("it fails"), None, "ValueError: it fails", False),
        (MemoryError("gone"), None, "MemoryError: gone", True),
        (ValueError("it fails"), OSError("no device"), "OSError: no device", True),
        (OSError(errno.ENOSPC, "disk full"), None, "OSError: [Errno 28] disk full", True),
        (OSError(errno.EACCES, "denied"), None, "PermissionError: [Errno 13] denied", False),
    ],
)
def test_after_a_failure_the_device_is_tried_and_a_lost_one_or_a_full_disk_ends_the_process(
    bowl, monkeypatch, error, second, reason, lost
):
    def fails(config, tensors):
        raise error

    bench = timed_bench(monkeypatch, fails)
    bench.runtime.failing = second
    spec = spec_of(bowl)
    reply = bench.measure(spec, PROBLEM, bowl.DEFAULT)
    assert (reply.answer.status, reply.answer.reason, reply.lost) == (Status.RUNTIME, reason, lost)
    verdict = bench.verify(spec, PROBLEM, bowl.DEFAULT)
    assert (verdict.answer.agreed, verdict.answer.status, verdict.lost) == (False, Status.RUNTIME, lost)
    assert verdict.answer.reason == f"the launch failed: {reason}"


def test_a_race_waits_for_the_device_at_its_end(bowl, monkeypatch):
    bench = timed_bench(monkeypatch, doubled)
    configs = [bowl.DEFAULT, bowl.BEST]
    assert bench.race(spec_of(bowl), PROBLEM, configs, 3).answer == [[7.0] * 3] * 2
    assert bench.runtime.waits == 1
    assert bench.verify(spec_of(bowl), PROBLEM, bowl.DEFAULT).answer.agreed


def test_the_tensors_of_the_last_problem_are_kept(bowl, monkeypatch):
    bench, spec = timed_bench(monkeypatch, doubled), spec_of(bowl)
    first = bench.arguments(spec, PROBLEM)
    assert bench.arguments(spec, PROBLEM) is first
    other = bench.arguments(spec, replace(PROBLEM, dims={"M": 101}))
    assert other is not first and bench.arguments(spec, PROBLEM) is not first


def test_without_a_reference_the_default_is_launched_or_the_first_small_config_that_runs(bowl, monkeypatch):
    broken = set()

    def launch(config, tensors):
        if config["TILE"] in broken:
            raise ValueError(f"{config['TILE']} does not compile")
        doubled(config, tensors)

    spec = spec_of(bowl, reference=None)
    bench = timed_bench(monkeypatch, launch)
    assert bench.measure(spec, PROBLEM, bowl.BEST).answer.status is Status.CORRECT
    assert bench.runtime.launched == [5, 1] and bench.runtime.waits == 3
    broken |= {1}
    bench = timed_bench(monkeypatch, launch)
    assert bench.measure(spec, PROBLEM, bowl.BEST).answer.status is Status.CORRECT
    assert bench.runtime.launched == [5, 1, 1, 4] and bench.runtime.waits == 3
    broken |= set(range(11))
    outcome = timed_bench(monkeypatch, launch).measure(spec, PROBLEM, bowl.BEST).answer
    assert outcome.reason == "ValueError: 5 does not compile"
    with pytest.raises(ValueError, match=r"^1 does not compile$"):
        bench._run_default(spec, PROBLEM, bench.arguments(spec, PROBLEM))


def test_requests_of_a_process_are_answered_by_one_bench_of_its_runtime(bowl, monkeypatch):
    opened, checked, spec = [], [], spec_of(bowl)

    def opens(*arguments):
        opened.append(Runtime(doubled))
        opened[-1].check, opened[-1].bytes_per_us = checked.append, lambda: arguments
        return opened[-1]

    monkeypatch.setitem(sys.modules, "a_device", SimpleNamespace(opens=opens))
    monkeypatch.setattr(bench_process, "_spec", {"bowl's place": spec}.__getitem__)
    monkeypatch.setattr(bench_process, "time_adaptively", lambda sample, **limits: Timing(5.0))
    first, second = ("a_device:opens", 0), ("a_device:opens", 1)
    assert call(first, "bytes_per_us") == (0,) and call(second, "bytes_per_us") == (1,)
    assert call(first, "describe").target.name == "a GPU"
    call(first, "prepare", "bowl's place", PROBLEM)
    assert (checked, opened[0].waits, opened[0].launched) == ([spec], 1, [])
    assert call(first, "measure", "bowl's place", PROBLEM, bowl.DEFAULT).answer.timing.time_us == 5.0
    assert call(first, "verify", "bowl's place", PROBLEM, bowl.DEFAULT).answer.agreed
    assert call(first, "race", "bowl's place", PROBLEM, [bowl.DEFAULT] * 2, 3).answer == [[7.0] * 3] * 2
    assert len(opened) == 2 and opened[1].launched == []


def test_a_spec_that_cannot_be_launched_is_no_failure_of_a_config(bowl, monkeypatch):
    def fails(config, tensors):
        raise BadSpec("no such function")

    with pytest.raises(BadSpec, match="no such function"):
        timed_bench(monkeypatch, fails).measure(spec_of(bowl), PROBLEM, bowl.DEFAULT)


class LeastRuntime(accelerator.Runtime):
    """What every accelerator has to bring along, and nothing more."""

    describe = synchronize = failure = None


def test_an_accelerator_that_measures_no_more_than_time_says_so():
    runtime = LeastRuntime()
    assert (runtime.reference(), runtime.energy_uj(JOB, 5.0), runtime.bytes_per_us()) == (None, None, None)
    assert (runtime.state(), runtime.kernel_facts(["code"]), runtime.warm) == (State(), {}, False)


def test_an_accelerator_knows_the_functions_of_a_spec_and_refuses_one_without():
    pytest.importorskip("triton")
    runtime, spec = LeastRuntime(), registry.load("layer_norm_backward")
    problem = Problem(spec.name, {"M": 64, "N": 64}, "float32")
    config = spec.default(problem, Target("nvidia", "a GPU", 20, 65536, 16, 2**31 - 1))
    runtime.check(spec)
    assert runtime.kernel_names(spec, problem, config) == [
        step.function.rpartition(":")[2] for step in spec.plan(config, problem)
    ]
    with pytest.raises(BadSpec, match="nothing"):
        runtime.check(replace(registry.load("row_reduce"), function="tilewise.kernels.jit.row_reduce:nothing"))
