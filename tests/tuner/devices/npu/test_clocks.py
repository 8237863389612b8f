"""The NPU's clocks and runtime in this process, on a stand-in whose time only kernels advance."""

import sys
from decimal import Decimal
from types import SimpleNamespace

import pytest

from tilewise.errors import Unavailable
from tilewise.kernels.spec import Target
from tilewise.tuner.devices.measured.accelerator import Job, turns
from tilewise.tuner.devices.npu import accelerator, timer
from tilewise.tuner.devices.npu.accelerator import NpuRuntime
from tilewise.tuner.devices.npu.records import ClockError, KernelRecord
from tilewise.tuner.devices.npu.timer import PROBES, EventTimer, MsptiTimer, NpuTimer, ProfilerTimer, choose_timer

torch = pytest.importorskip("torch")

CLEARING, GAP_US = "aclnnReduceSum", 2.0


class Eviction:
    """The buffer that is read to empty the cache, in 200 us."""

    def __init__(self, chip):
        self.chip = chip

    def sum(self):
        self.chip.launch(CLEARING, 200.0)


class Chip:
    """`torch_npu.npu` of a chip that runs launches one after the other, with a gap before each.

    `ran` lists name, start and end in nanoseconds, `calls` also what was waited for.
    """

    def __init__(self):
        self.now_us, self.ran, self.calls, self.available, self.selected = 1e6, [], [], True, []
        chip = self

        class Event:
            def __init__(self, enable_timing=False):
                assert enable_timing

            def record(self):
                self.at_us = chip.now_us

            def elapsed_time(self, end):
                return (end.at_us - self.at_us) / 1e3

        self.Event = Event

    def launch(self, name, us):
        start = self.now_us + GAP_US
        self.now_us = start + us
        self.ran.append((name, round(start * 1e3), round(self.now_us * 1e3)))
        self.calls.append(name)

    def synchronize(self, device=None):
        self.calls.append("wait")

    def is_available(self):
        return self.available

    def device_count(self):
        return 2

    def set_device(self, index):
        self.selected.append(index)

    def mem_get_info(self, index):
        return 1 << 30, (32 << 30) + index

    def get_device_name(self, index):
        return f"Ascend910B{index}"

    def get_device_properties(self, index):
        return SimpleNamespace(vector_core_num=40)

    def get_device_limit(self, index):
        return {"vector_core_num": 24 if index else 48}


class Monitor:
    """`mspti.KernelMonitor`; `fails` names what does not succeed, `lost` counts records that are lost."""

    fails, lost = "", 0

    def __init__(self, chip):
        self.chip = chip

    def start(self, seen):
        self.first, self.seen = len(self.chip.ran), seen
        return "no" if self.fails == "start" else "success"

    def stop(self):
        ran = self.chip.ran[self.first :][self.lost :]
        for name, start, end in reversed(ran):  # the order is that of the buffers
            self.seen(SimpleNamespace(name=name, start=start, end=end))
        return "no" if self.fails == "stop" else "success"


@pytest.fixture
def chip(monkeypatch):
    chip = Chip()
    monkeypatch.setitem(sys.modules, "torch_npu", SimpleNamespace(npu=chip))
    result = SimpleNamespace(MSPTI_SUCCESS="success")
    monkeypatch.setitem(sys.modules, "mspti", SimpleNamespace(KernelMonitor=lambda: Monitor(chip), MsptiResult=result))
    monkeypatch.setattr(Monitor, "fails", "")
    monkeypatch.setattr(Monitor, "lost", 0)
    return chip


@pytest.fixture(params=[MsptiTimer, EventTimer])
def clock(request, chip):
    return request.param(Eviction(chip))


def kernel(chip, *kernels, before=None):
    return Job(lambda: [chip.launch(*each) for each in kernels], [name for name, _ in kernels], before)


def test_each_run_begins_after_what_comes_before_it_on_an_empty_cache(clock, chip):
    job = kernel(chip, ("sums", 7.0), before=lambda: chip.launch("fill", 30.0))
    gap = GAP_US if isinstance(clock, EventTimer) else 0.0
    assert clock.samples_us(job.run, job.kernels, 3, job.before) == pytest.approx([7.0 + gap] * 3)
    assert chip.calls == ["fill", CLEARING, "wait", "sums", "wait"] * 3
    chip.calls.clear()
    assert clock.samples_us(job.run, job.kernels, 2, warm=True) == pytest.approx([7.0 + gap] * 2)
    assert chip.calls == ["wait", "sums", "wait"] * 2


def test_jobs_take_turns_in_the_order_that_all_timers_share(clock, chip):
    jobs = [kernel(chip, ("sums", 7.0)), kernel(chip, ("parts", 5.0), ("total", 2.0)), kernel(chip, ("other", 3.0))]
    gap = GAP_US if isinstance(clock, EventTimer) else 0.0
    times = clock.rounds_us(jobs, 5)
    assert times == [
        pytest.approx([us + gap * len(job.kernels)] * 5) for us, job in zip((7.0, 7.0, 3.0), jobs, strict=True)
    ]
    firsts = [name for name in chip.calls if name in ("sums", "parts", "other")]
    assert firsts == [("sums", "parts", "other")[index] for order in turns(3, 5) for index in order]


def test_work_of_any_kernels_takes_the_mean_of_runs_after_the_first(clock, chip):
    def work():
        chip.launch("cast", 50.0 if not chip.ran else 3.0)
        chip.launch("add", 4.0)

    gaps = 2 * GAP_US if isinstance(clock, EventTimer) else 0.0
    assert clock.busy_us(work, 4) == pytest.approx(7.0 + gaps)
    assert len(chip.ran) == 2 * 5
    clock.busy_us(work)
    assert len(chip.ran) == 2 * 5 + 2 * (1 + PROBES)
    assert PROBES == 8


def test_recording_clocks_name_what_a_function_launches_and_events_need_not(clock, chip):
    job = kernel(chip, ("parts", 5.0), ("total", 2.0))
    assert clock.names(job.run) == (["parts", "total"] if isinstance(clock, MsptiTimer) else [])


def test_a_record_that_is_lost_is_no_time(chip, monkeypatch):
    monkeypatch.setattr(Monitor, "lost", 1)
    clock, job = MsptiTimer(Eviction(chip)), kernel(chip, ("sums", 7.0))
    with pytest.raises(ClockError, match=r"^it recorded 3 kernels in 4 identical runs$"):
        clock.busy_us(job.run, 4)
    monkeypatch.setattr(Monitor, "lost", 4)
    with pytest.raises(ClockError, match=r"^it recorded 0 kernels in 4 identical runs$"):
        clock.busy_us(job.run, 4)


@pytest.mark.parametrize(
    ("fails", "reason"),
    [("start", r"^MSPTI does not start: no; is libmspti\.so in LD_PRELOAD\?$"), ("stop", "^MSPTI does not stop: no$")],
)
def test_a_monitor_that_fails_is_no_clock(chip, monkeypatch, fails, reason):
    monkeypatch.setattr(Monitor, "fails", fails)
    with pytest.raises(ClockError, match=reason):
        MsptiTimer(Eviction(chip)).names(lambda: None)


def test_records_are_sorted_by_their_start_and_in_microseconds(chip):
    records = MsptiTimer(Eviction(chip))._recorded(lambda: [chip.launch("b", 2.5), chip.launch("a", 1.0)])
    assert records == [
        KernelRecord("b", Decimal(1_000_002_000), 2.5),
        KernelRecord("a", Decimal(1_000_006_500), 1.0),
    ]


def test_only_the_profiler_is_slow_to_start():
    assert [kind.cheap for kind in (NpuTimer, MsptiTimer, EventTimer, ProfilerTimer)] == [True, True, True, False]


def test_the_profiler_records_the_npu_whole_and_its_folder_goes_with_it(chip, monkeypatch):
    made, read = [], []

    class Profile:
        def __init__(self, **given):
            made.append(given)

        def __enter__(self):
            pass

        def __exit__(self, *error):
            pass

    profiler = SimpleNamespace(
        profile=Profile,
        ProfilerActivity=SimpleNamespace(NPU="NPU"),
        AiCMetrics=SimpleNamespace(PipeUtilization="PipeUtilization"),
        ProfilerLevel=SimpleNamespace(Level1="Level1"),
        _ExperimentalConfig=lambda **options: options,
        tensorboard_trace_handler=lambda folder: folder,
    )
    monkeypatch.setitem(sys.modules, "torch_npu", SimpleNamespace(npu=chip, profiler=profiler))
    monkeypatch.setattr(timer, "read_kernel_details", lambda folder: read.append(folder) or ["record"])
    assert ProfilerTimer(Eviction(chip))._recorded(lambda: None) == ["record"]
    assert made == [
        {
            "activities": ["NPU"],
            "on_trace_ready": str(read[0]),
            "experimental_config": {
                "aic_metrics": "PipeUtilization",
                "profiler_level": "Level1",
                "l2_cache": False,
                "data_simplification": False,  # which would leave out kernel_details.csv
            },
        }
    ]
    assert not read[0].exists()


# Choosing a clock -----------------------------------------------------------------------------------------------------


@pytest.fixture
def choosing(chip, monkeypatch):
    """Choose a clock where the clocks report these microseconds for a read, or fail with this error."""

    def choose(mspti, profiler, events=200.0):
        def reporting(answer):
            def busy_us(self, run):
                if isinstance(answer, Exception):
                    raise answer
                return answer

            return busy_us

        for kind, answer in ((MsptiTimer, mspti), (ProfilerTimer, profiler), (EventTimer, events)):
            monkeypatch.setattr(kind, "busy_us", reporting(answer))
        return choose_timer("cpu")

    monkeypatch.setattr(timer, "EVICTION_BYTES", 4096)
    return choose


@pytest.mark.parametrize(
    ("mspti", "profiler", "name", "passed_over"),
    [
        (150.0, 150.0, "mspti", ()),
        (ClockError("none"), 150.0, "profiler", ("mspti: none",)),
        (RuntimeError("a"), OSError("b"), "events", ("mspti: a", "profiler: b")),
    ],
)
def test_the_best_clock_that_works_is_chosen_and_why_others_are_not(choosing, mspti, profiler, name, passed_over):
    choice = choosing(mspti, profiler)
    assert (choice.timer.name, choice.passed_over) == (name, passed_over)
    assert (choice.timer._eviction.nbytes, choice.timer._eviction.dtype) == (4096, torch.float32)


@pytest.mark.parametrize(
    ("reported", "agrees"),
    [(200.0, True), (400.0, True), (10.0, True), (400.1, False), (9.99, False), (0.0, False), (-1.0, False)],
)
def test_a_clock_is_trusted_from_half_to_twenty_times_the_time_of_the_events(choosing, reported, agrees):
    if agrees:
        assert choosing(reported, reported).timer.name == "mspti"
        return
    with pytest.raises(Unavailable, match=rf"^the clock mspti reports {reported:.4g} us where events measure 200 us: "):
        choosing(reported, reported)


# The runtime ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def opened(chip, monkeypatch):
    def choose(place):
        return timer.Choice(MsptiTimer(Eviction(chip)), (f"profiler: none on {place}",))

    monkeypatch.setattr(accelerator, "choose_timer", choose)
    monkeypatch.setattr(accelerator.npu_toolchain, "fingerprint", lambda: "triton-ascend 3")
    monkeypatch.delenv("TRITON_ALL_BLOCKS_PARALLEL", raising=False)
    return NpuRuntime


@pytest.mark.parametrize(("available", "index"), [(True, 2), (True, 3), (False, 0)])
def test_an_npu_that_torch_does_not_see_is_refused(opened, chip, available, index):
    chip.available = available
    with pytest.raises(Unavailable, match=rf"^no device npu:{index}: torch_npu sees 2 NPUs$"):
        opened(index)
    assert chip.selected == []


def test_torch_npu_that_does_not_import_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    with pytest.raises(Unavailable, match=r"^no device npu: torch_npu does not import: "):
        NpuRuntime()


@pytest.mark.parametrize(
    ("index", "warm", "cores", "parallel", "programs"),
    [(0, False, 40, "", 65535), (1, True, 24, "1", 2**31 - 1)],
)
def test_an_npu_is_described_by_what_may_change_its_times(
    opened, chip, monkeypatch, index, warm, cores, parallel, programs
):
    monkeypatch.setenv("TRITON_ALL_BLOCKS_PARALLEL", parallel or "0")
    runtime = opened(index, warm)
    described = runtime.describe()
    assert described.target == Target("ascend", f"Ascend910B{index}", cores, 196608, 32, programs)
    assert described.toolchain == f"triton-ascend 3, timed by mspti, {'warm' if warm else 'cold'} L2"
    assert described.memory_bytes == 8 << 30
    assert described.notes == (f"not timed by profiler: none on npu:{index}",)
    assert (runtime.place, runtime.reference_place, runtime.warm, chip.selected) == (
        f"npu:{index}",
        "cpu",
        warm,
        [index],
    )


@pytest.mark.parametrize(
    ("bits", "facts"),
    [
        ([1024, 4096, None], {"on_chip_bits": {"required": 4096, "available": 1572864}}),
        ([None, None], {}),
        ([0], {}),
    ],
)
def test_of_several_kernels_the_most_memory_is_told_if_the_compiler_told_any(opened, bits, facts):
    kernels = [SimpleNamespace(metadata=SimpleNamespace(required_ub_bits=each)) for each in bits]
    kernels += [SimpleNamespace(metadata=SimpleNamespace())]
    assert opened().kernel_facts(kernels) == facts


def test_the_reference_adds_one_to_32_mib_unless_timing_it_takes_seconds(opened, chip, monkeypatch):
    runtime = opened()
    runtime.place = "cpu"
    added = []
    monkeypatch.setattr(runtime.timer, "names", lambda run: added.append(run) or ["add"])
    job = runtime.reference()
    assert (list(job.kernels), added) == (["add"], [job.run])
    monkeypatch.setattr(MsptiTimer, "cheap", False)
    assert runtime.reference() is None
    (x,) = (cell.cell_contents for cell in job.run.__closure__)
    assert x.nbytes == 32 << 20
    assert (x == 1.0).all()  # it has run once
    job.run()
    assert (x == 2.0).all()


@pytest.mark.parametrize(("read_us", "copied_us", "rate"), [(10.0, 40.0, 409.6), (40.0, 16.0, 512.0)])
def test_the_memory_rate_is_the_better_of_reading_and_copying(opened, monkeypatch, read_us, copied_us, rate):
    runtime = opened()
    runtime.place = "cpu"
    monkeypatch.setattr(accelerator, "RATE_BYTES", 4096)
    times = iter([read_us, copied_us])
    monkeypatch.setattr(runtime.timer, "busy_us", lambda run: run() is not None and next(times))
    assert runtime.bytes_per_us() == pytest.approx(rate)


def test_waiting_is_for_the_npu(opened, chip):
    runtime = opened()
    runtime.synchronize()
    assert chip.calls == ["wait"]
