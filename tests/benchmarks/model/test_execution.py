"""Execution of compiled programs of all kernels, and detection of faults put into them."""

import json
import random

import numpy as np
import pytest

from tilewise.tuner.devices.ascend_model import toolchain

if reason := toolchain.unavailable_reason():
    pytest.skip(reason, allow_module_level=True)
pytest.importorskip("torch")

from tilewise.benchmarks.model.execution import DIMS, execute_config, reported_as, sample
from tilewise.benchmarks.model.mutations import KINDS, Finding, _Listing, study
from tilewise.cli import main
from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.settings import read_settings
from tilewise.tuner.devices.ascend_model.clock.core import PIPES
from tilewise.tuner.devices.ascend_model.executor.hazards import FlagFault, Order, Race
from tilewise.tuner.devices.ascend_model.executor.memory import View
from tilewise.tuner.devices.ascend_model.ir.hivm import Op
from tilewise.tuner.measure.verify import Arguments


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TILEWISE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def command(capsys):
    """A function that runs `tilewise bench ...` and returns its output."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["bench", *arguments])
        assert not ended.value.code
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="module")
def target(_cache):
    return toolchain.target("Ascend910B4", read_settings().cache_folder)


@pytest.mark.in_part(3)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", registry.vector_names())
def test_a_config_of_every_kernel_is_right_as_compiled(name, dtype, target):
    """Execute one of the twenty configs of `tilewise bench execute`, without Triton's interpreter."""
    spec = registry.load(name)
    problem = Problem(name, dict(DIMS[spec.dims]), dtype)
    ((config, functions),) = sample(spec, problem, target, read_settings().cache_folder, 1, 0)
    arguments = Arguments(spec, problem)
    row = execute_config(spec, arguments, problem, config, functions, target.on_chip_bytes, None)
    assert row.fault == ""
    assert row.verdict.agreed
    assert 0 <= row.verdict.error <= row.verdict.tolerance


@pytest.mark.full
def test_fifteen_changes_are_reported_if_they_matter(target):
    findings = list(study(15, 3, target, read_settings().cache_folder))
    assert {finding.kind for finding in findings} == set(KINDS)
    counting = [finding for finding in findings if finding.counts]
    assert len(counting) >= 5
    assert [finding for finding in counting if not finding.report] == []
    harmless = [finding for finding in findings if finding.report and not finding.counts]
    assert all(reported_as(finding) == "flag" for finding in harmless)


@pytest.mark.full
def test_of_a_hundred_changes_95_percent_of_those_that_matter_are_reported(target):
    counting = [f for f in study(100, 11, target, read_settings().cache_folder) if f.counts]
    refused = [finding for finding in counting if finding.report and reported_as(finding) != "noted"]
    assert len(counting) >= 30
    assert len(refused) >= 0.95 * len(counting)


@pytest.mark.parametrize("seed", range(40))
def test_vector_clocks_find_exactly_the_races_that_listing_everything_finds(seed):
    """Issue random operations, flags and barriers over a few small tiles; each flag is waited for as often as set."""
    generator = random.Random(seed)
    tiles = [View(-1, 32 * start, 0, (rows, 8), (8, 1), "f32") for start in range(4) for rows in (1, 2)]
    pairs: set[tuple[int, int]] = set()
    order, listing = Order(1024), _Listing(pairs)
    pending: list[tuple[int, int, int]] = []
    for number in range(1, 60):
        op = Op("hivm.hir.any", (), (), {}, (), (), (), number)
        kind = generator.choice(["use", "use", "use", "set", "wait", "wait", "barrier"])
        if kind == "set":
            flag = (*generator.sample(range(len(PIPES)), 2), generator.randrange(2))
            pending.append(flag)
            order.set_flag(*flag, op)
            listing.set_flag(*flag, op)
        elif kind == "wait" and pending:
            flag = pending.pop(generator.randrange(len(pending)))
            order.wait_flag(*flag, op)
            listing.wait_flag(*flag, op)
        elif kind == "barrier":
            pipe = generator.choice([None, 1, 2, 3])
            order.barrier(pipe)
            listing.barrier(pipe)
        elif kind == "use":
            pipe, reads, writes = generator.randrange(4), [generator.choice(tiles)], [generator.choice(tiles)]
            found = len(pairs)
            listing.use(pipe, op, reads, writes)
            if len(pairs) > found:
                with pytest.raises(Race):
                    order.use(pipe, op, reads, writes)
                return
            order.use(pipe, op, reads, writes)


def test_both_find_a_flag_that_is_not_set():
    op, pairs = Op("hivm.hir.wait_flag", (), (), {}, (), (), (), 1), set()
    _Listing(pairs).wait_flag(1, 2, 0, op)
    assert pairs == {(-1, 1)}
    with pytest.raises(FlagFault):
        Order(64).wait_flag(1, 2, 0, op)


@pytest.mark.parametrize(
    ("report", "kind"),
    [
        ("", "nothing"),
        ("race: vadd (operation 3) on V reads on-chip byte 32, which load ...", "race"),
        ("vadd (operation 3) reads what vexp (operation 2) on V wrote without a barrier between", "noted"),
        ("deadlock: V waits at wait_flag (operation 6) for event 0 of MTE2, which is not set", "flag"),
        ("load (operation 11) uses element 77 of x_ptr, which has 77", "out of bounds"),
        ("load (operation 11) is between memory of shapes (12,) and (13,)", "shapes"),
        ("out_ptr: 3 of 7 elements wrong, never written: first nan instead of 1 at [0]", "wrong result"),
    ],
)
def test_reports_are_counted_by_their_kind(report, kind):
    assert reported_as(Finding("flag dropped", "k", "", True, False, report)) == kind


def test_the_command_writes_what_it_prints(command, tmp_path):
    file = tmp_path / "mutations.json"
    body = json.loads(command("mutations", "--count", "4", "--json", "-o", str(file)))
    assert body == json.loads(file.read_text())
    assert [change["kind"] for change in body["changes"]] == list(KINDS)
    assert body["summary"]["changes"] == 4
    assert np.all([change["counts"] or not change["result_changed"] for change in body["changes"]])


def test_the_command_executes_the_kernels_it_is_given(command, tmp_path):
    file = tmp_path / "execution.json"
    assert "agree with float64: 2\n" in command("execute", "max_all", "--count", "2", "-o", str(file))
    rows = json.loads(file.read_text())["rows"]
    assert [row["kernel"] for row in rows] == ["max_all", "max_all"]
    assert rows[0]["dtype"] == "float32" != rows[1]["dtype"]
    assert all(row["verdict"]["agreed"] and row["interpreted"]["agreed"] for row in rows)


def test_an_unknown_kernel_is_bad_usage(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", "execute", "row_reduc"])
    assert ended.value.code == 2
    assert "did you mean row_reduce?" in capsys.readouterr().err
