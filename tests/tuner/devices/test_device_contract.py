"""The contract of every device, as tilewise/tuner/devices/base.py states it.

To add a device, add a fixture to DEVICES that returns a `Subject`: the device and a kernel with known outcomes.
"""

import json
from dataclasses import asdict, dataclass, replace

import pytest
from places import HELPERS

from tilewise.db.records import Clock, Status
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.device import ModelDevice
from tilewise.tuner.devices.base import Device
from tilewise.tuner.devices.cuda import device as cuda
from tilewise.tuner.devices.recorded_chip import SUFFIX, Planted, RecordedChip
from tilewise.tuner.devices.replay import ReplayDevice
from tilewise.tuner.measure.outcome import Outcome, Timing, Verdict

pytest.importorskip("torch")

KERNELS = HELPERS / "faulty_kernels.py"


@dataclass
class Subject:
    device: Device
    spec: object
    problem: Problem
    good: list  # configs that compile and run
    bad: list  # configs that do not
    wrong: tuple  # a spec, and a config that runs but computes something else
    shared: bool = False  # one device for all tests of the module, since opening it takes seconds


@pytest.fixture(scope="module")
def npu_chip(shared_npu, halves):
    problem = Problem("halves", {"N": 50_000}, "float32")

    def config(size, fault=0):
        return {"SIZE": size, "FAULT": fault, "multibuffer": True}

    good, bad = [config(size) for size in (8192, 4096, 16384)], [config(65536), config(131072)]
    wrong = config(8192, fault=3)
    list(shared_npu.evaluate(halves, problem, [*good, wrong]))  # compile them all: the stand-in's own process cannot
    return Subject(shared_npu, halves, problem, good, bad, (halves, wrong), shared=True)


@pytest.fixture(scope="module")
def modelled(tmp_path_factory):
    if reason := toolchain.unavailable_reason():
        pytest.skip(reason)
    good = [{"ROWS": 8, "SUB": sub, "COLS": 64} for sub in (1, 4, 8)]
    bad = [{"ROWS": rows, "SUB": rows, "COLS": 1 << 10} for rows in (128, 256)]  # beyond on-chip memory
    wrong = (registry.load(f"{KERNELS}:MISSING_COLUMN"), good[0])
    problem = Problem("right", {"M": 300, "N": 1500}, "float32")
    with ModelDevice("Ascend910B4", jobs=1, cache_folder=tmp_path_factory.mktemp("modelled")) as device:
        yield Subject(device, registry.load(f"{KERNELS}:RIGHT"), problem, good, bad, wrong, shared=True)
    device.close()


@pytest.fixture(scope="module")
def cuda_gpu():
    good = [{"ROWS": 8, "SUB": sub, "COLS": 64} for sub in (1, 4, 8)]
    no_power_of_two, too_big = {"ROWS": 8, "SUB": 3, "COLS": 64}, {"ROWS": 1 << 12, "SUB": 1 << 12, "COLS": 1 << 12}
    wrong = (registry.load(f"{KERNELS}:MISSING_COLUMN"), good[0])
    problem = Problem("right", {"M": 19, "N": 150}, "float32")
    with cuda.CudaDevice(jobs=2) as device:
        spec = registry.load(f"{KERNELS}:RIGHT")
        yield Subject(device, spec, problem, good, [no_power_of_two, too_big], wrong, shared=True)


@pytest.fixture(scope="module")
def host():
    """This machine's processor behind the code that measured devices share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HELPERS)
        spec = registry.load(f"{HELPERS / 'host.py'}:SPEC")
        from host import PROBLEM, HostDevice

        good = [{"TILE": tile, "FAULT": ""} for tile in (1, 2, 3)]
        bad = [{"TILE": 4, "FAULT": fault} for fault in ("compile", "raises", "nan")]
        with HostDevice(name="Contract") as device:
            yield Subject(device, spec, PROBLEM, good, bad, (spec, {"TILE": 5, "FAULT": "one input"}), shared=True)
        device.close()


def landscape(tmp_path, **options):
    """Return a recording of six configs with known outcomes; one ran and gave wrong results."""

    def record(x, y, time, **more):
        return f"{x},{y}", {"x": x, "y": y, "time": time, **more}

    ran = [record(x, 1, x / 8, times=[x / 16, x / 8, x / 4]) for x in (1, 2, 4)]
    failed = [record(8, 1, "CompilationFailedConfig"), record(1, 2, "RuntimeFailedConfig"), record(2, 2, "wrong")]
    path = tmp_path / "cache.json"
    about = {"device_name": "Some GPU", "kernel_name": "sums", "tune_params_keys": ["x", "y"]}
    path.write_text(json.dumps({**about, "cache": dict([*ran, *failed])}))
    device = ReplayDevice(path, **options)
    configs = [{"x": x, "y": y} for x, y in ((1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (2, 2))]
    return Subject(device, device.spec, device.problem, configs[:3], configs[3:], (device.spec, configs[5]))


@pytest.fixture
def replayed(tmp_path):
    return landscape(tmp_path)


@pytest.fixture
def replayed_with_noise(tmp_path):
    return landscape(tmp_path, noise=True)


@pytest.fixture
def recorded_chip(tmp_path):
    like = landscape(tmp_path)
    planted = Planted(str(like.device.path), "Some GPU", "replay", slowness=1.1, noise=0.02, variation=0.1)
    file = tmp_path / f"one{SUFFIX}"
    file.write_text(json.dumps(asdict(planted)))
    return replace(like, device=RecordedChip(file))


GPU = pytest.param("cuda_gpu", marks=pytest.mark.needs_gpu)
DEVICES = ["modelled", "npu_chip", GPU, "host", "replayed", "replayed_with_noise", "recorded_chip"]


@pytest.fixture(params=DEVICES)
def subject(request):
    subject = request.getfixturevalue(request.param)
    yield subject
    if not subject.shared:
        subject.device.close()


def test_it_says_what_it_is(subject):
    device = subject.device
    assert device.id
    assert device.target.name
    assert device.target.cores >= 1
    assert device.clock in Clock
    assert device.toolchain
    assert "\n" not in device.toolchain
    assert device.memory_bytes() > 0


def test_the_batch_is_a_constant_of_the_class(subject):
    assert type(subject.device).batch == subject.device.batch >= 1


def test_there_is_one_outcome_a_config_in_order(subject):
    configs = [subject.good[0], subject.bad[0], *subject.good[1:], *subject.bad[1:]]
    outcomes = list(subject.device.evaluate(subject.spec, subject.problem, configs))
    assert len(outcomes) == len(configs)
    assert [o.status is Status.CORRECT for o in outcomes] == [config in subject.good for config in configs]


def test_a_correct_outcome_has_a_timing_and_a_failed_one_a_reason_of_one_line(subject):
    for outcome in subject.device.evaluate(subject.spec, subject.problem, [*subject.good, *subject.bad]):
        assert isinstance(outcome, Outcome)
        if outcome.status is Status.CORRECT:
            assert isinstance(outcome.timing, Timing)
            assert outcome.reason == ""
        else:
            assert outcome.timing is None
            assert outcome.reason
            assert "\n" not in outcome.reason


def test_a_measured_time_has_a_spread_and_a_modelled_one_has_none(subject):
    for outcome in subject.device.evaluate(subject.spec, subject.problem, subject.good):
        timing = outcome.timing
        assert timing.time_us > 0
        if subject.device.clock is Clock.MODELLED:
            assert (timing.p20_us, timing.p80_us, timing.samples) == (None, None, 1)
        else:
            assert timing.p20_us <= timing.time_us <= timing.p80_us
            assert timing.samples > 1


def test_facts_are_plain_json(subject):
    for outcome in subject.device.evaluate(subject.spec, subject.problem, [*subject.good, *subject.bad]):
        assert json.loads(json.dumps(dict(outcome.facts), allow_nan=False)) == dict(outcome.facts)


def test_outcomes_come_one_by_one_and_a_caller_may_stop(subject):
    outcomes = subject.device.evaluate(subject.spec, subject.problem, subject.good)
    assert next(outcomes).status is Status.CORRECT
    outcomes.close()
    (again,) = subject.device.evaluate(subject.spec, subject.problem, subject.good[:1])
    assert again.status is Status.CORRECT


def test_no_config_is_no_outcome(subject):
    assert list(subject.device.evaluate(subject.spec, subject.problem, [])) == []


def test_a_right_config_is_verified_and_a_wrong_one_refused(subject):
    right = subject.device.verify(subject.spec, subject.problem, subject.good[0])
    assert isinstance(right, Verdict)
    assert right.agreed, right.reason
    assert right.error <= right.tolerance
    wrong_spec, config = subject.wrong
    wrong = subject.device.verify(wrong_spec, subject.problem, config)
    assert not wrong.agreed
    assert wrong.reason
    assert "\n" not in wrong.reason


def test_verifying_what_does_not_run_is_a_refusal(subject):
    verdict = subject.device.verify(subject.spec, subject.problem, subject.bad[0])
    assert not verdict.agreed
    assert verdict.reason


def test_the_floor_is_unknown_or_positive(subject):
    floor = subject.device.floor_us(subject.spec, subject.problem)
    assert floor is None or floor > 0


def test_warming_up_returns_at_once_and_closing_twice_is_allowed(subject):
    """A device that tests share is closed twice by its fixture."""
    subject.device.warm_up()
    if not subject.shared:
        subject.device.close()
        subject.device.close()


def test_a_noisy_device_times_configs_in_turns_and_finds_the_one_that_fails(subject):
    device, good = subject.device, subject.good[:2]
    if not device.noisy:
        with pytest.raises(NotImplementedError, match=device.id):
            device.race(subject.spec, subject.problem, good, 3)
        return
    outcomes = device.race(subject.spec, subject.problem, good, 3)
    assert [(o.status, len(o.timing.times_us)) for o in outcomes] == [(Status.CORRECT, 3)] * 2
    mixed = device.race(subject.spec, subject.problem, [good[0], subject.bad[0], good[1]], 2)
    assert [o.status is Status.CORRECT for o in mixed] == [True, False, True]
    assert mixed[1].reason
    assert len(mixed[2].timing.times_us) == 2


def test_what_is_clearly_behind_may_be_dropped_and_then_says_so(subject):
    (outcome,) = subject.device.evaluate(subject.spec, subject.problem, subject.good[:1], to_beat_us=lambda: 1e-3)
    assert outcome.status is Status.CORRECT
    assert outcome.timing.dropped == (subject.device.noisy and outcome.timing.samples >= 10)
    if outcome.timing.dropped:
        assert outcome.timing.low_us > 1e-3
