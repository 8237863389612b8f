"""`tilewise tune --rungs`: a whole table in one call, on a device whose times are a formula."""

from __future__ import annotations

import json
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import contextmanager
from subprocess import CompletedProcess

import pytest
from noise import Noise

from tilewise.cli import main
from tilewise.db.exchange.foreign.tables.size_tables import LADDER
from tilewise.db.records import Status
from tilewise.db.sql.sql_store import open_store
from tilewise.tuner.cluster import borrowed_chip, ray_engine
from tilewise.tuner.devices import registry
from tilewise.tuner.devices.registry import Family
from tilewise.tuner.hardware.targets import known_target

ROWS = ("tune", "row_reduce", "-s", "N=32")


def bowl_us(config):
    """Return 10 us at one config of `row_reduce`, more with every step away from it."""
    return 10.0 + abs(config["BLOCK_SIZE_M"] - 2) + abs(config["SUB_BLOCK_SIZE_M"] - 2) + (not config["multibuffer"])


@pytest.fixture
def run(tmp_path, monkeypatch, capfd) -> Callable[..., CompletedProcess[str]]:
    """A function that runs the command line in this process, on a device that it is given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWISE_DB", f"sqlite:///{tmp_path / 'tiles.db'}")
    monkeypatch.setattr(registry, "choose", lambda device: device)

    def run(device, *words: str) -> CompletedProcess[str]:
        monkeypatch.setattr(registry, "FAMILIES", defaultdict(lambda: Family(lambda *how: device, list)))
        on_sigterm = signal.getsignal(signal.SIGTERM)
        try:
            with pytest.raises(SystemExit) as ended:
                main(words)
        finally:
            signal.signal(signal.SIGTERM, on_sigterm)
        out, err = capfd.readouterr()
        return CompletedProcess(words, ended.value.code, out, err)

    return run


@pytest.fixture
def device(bowl):
    return bowl.FormulaDevice(bowl_us)


def tuned(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["results"]


def test_two_commands_tune_and_export_a_whole_table(run, device, tmp_path):
    done = run(device, *ROWS, "--rungs", "vllm", "--trials", "3")
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stderr.splitlines() if line.startswith("rung ")] == [
        f"rung {number} of 18" for number in range(1, 19)
    ]
    title, rows = done.stdout.splitlines()[0], [line.split("│")[1:-1] for line in done.stdout.splitlines()]
    assert title == "row_reduce N=32 float32 on Bowl, modelled times"
    shown = [[cell.strip() for cell in row] for row in rows if row]
    assert [int(row[0]) for row in shown] == list(LADDER)
    assert all(row[-2].endswith("x") and 1 <= int(row[-1]) <= 4 for row in shown)
    assert done.stdout.endswith("18 of 18 rungs tuned, none slower than the default.\n")

    exported = run(device, "export", "--kernel", "row_reduce", "--format", "vllm", "-o", "tables")
    assert exported.returncode == 0, exported.stderr
    [file] = (tmp_path / "tables").iterdir()
    assert file.name == "N=32,device_name=Bowl,dtype=float32.json"
    assert [int(size) for size in json.loads(file.read_text())] == list(LADDER)


def test_rungs_are_tuned_for_each_shape_and_come_as_results_of_shapes_do(run, device):
    results = tuned(run(device, *ROWS, "-s", "N=16", "--rungs", "M=64,4", "--trials", "2", "--json"))
    assert [result["dims"] for result in results] == [{"M": m, "N": n} for n in (32, 16) for m in (4, 64)]
    again = tuned(run(device, "tune", "row_reduce", "-s", "M=4,N=32", "--trials", "2", "--json"))
    assert again == results[:1]


@pytest.mark.full
def test_a_matrix_product_is_tuned_over_its_rows(run, bowl):
    device = bowl.FormulaDevice(lambda config: 100.0 / config["BLOCK_N"])
    device.target = known_target("NVIDIA H200", 132)
    words = ("tune", "gemm", "-s", "N=64,K=64,bias=true", "--dtype", "bfloat16", "--rungs", "M=1,16,256")
    results = tuned(run(device, *words, "--trials", "16", "--json"))
    assert [result["dims"] for result in results] == [{"M": m, "N": 64, "K": 64, "bias": True} for m in (1, 16, 256)]
    assert all(result["config"]["BLOCK_N"] == 64 and result["default"]["time_us"] for result in results)


def test_a_second_run_repeats_no_trial(run, device):
    first = tuned(run(device, *ROWS, "--rungs", "M=4,64", "--trials", "6", "--json"))
    tried = len(device.evaluated)
    assert tuned(run(device, *ROWS, "--rungs", "M=4,64", "--trials", "6", "--json")) == first
    assert len(device.evaluated) == tried
    more = tuned(run(device, *ROWS, "--rungs", "M=4,16,64", "--trials", "6", "--json"))
    assert [more[0], more[2]] == first


def test_an_interrupted_table_goes_on_where_it_stopped(run, bowl, url):
    def stops_after(count):
        def time_of(config):
            if len(device.evaluated) > count:
                raise KeyboardInterrupt
            return bowl_us(config)

        device = bowl.FormulaDevice(time_of)
        return device

    words = (*ROWS, "--rungs", "M=4,16,64", "--trials", "6", "--db", url, "--json")
    stopped = run(stops_after(10), *words)
    assert (stopped.returncode, stopped.stdout) == (130, "")
    assert "the same command resumes" in stopped.stderr
    with open_store(url) as store:
        kept = {scope.dims["M"]: len(store.trials(scope)) for scope in store.scopes()}
    assert kept[4] >= 6
    assert 64 not in kept
    rest = bowl.FormulaDevice(bowl_us)
    assert [result["dims"]["M"] for result in tuned(run(rest, *words))] == [4, 16, 64]
    assert len(rest.evaluated) <= 3 * 7 - sum(kept.values())


def test_a_rung_starts_from_the_winner_of_its_neighbour(run, bowl):
    device = bowl.FormulaDevice(bowl_us)
    [first] = tuned(run(device, *ROWS, "--rungs", "M=64", "--trials", "60", "--json"))
    assert first["time_us"] == 10.0
    begun = len(device.evaluated)
    tuned(run(device, *ROWS, "--rungs", "M=64,96", "--trials", "60", "--json"))
    assert first["config"] in device.evaluated[begun : begun + device.batch]


def test_no_rung_is_slower_than_the_default_even_where_times_vary(run, bowl):
    """The default is the fastest config of every rung, and two random trials rarely find it."""

    def time_of(config):
        is_default = config["BLOCK_SIZE_M"] in (8, 32) and config["SUB_BLOCK_SIZE_M"] == 8 and config["multibuffer"]
        return 12.0 if is_default else 12.02 + bowl_us(config) / 1e3

    device = bowl.NoisyDevice(Noise("skewed", 1), time_of)
    results = tuned(run(device, *ROWS, "--rungs", "M=16,64,96", "--trials", "2", "--search", "random", "--json"))
    assert [result["config"] for result in results] == [result["default"]["config"] for result in results]
    assert [result["time_us"] for result in results] == [result["default"]["time_us"] for result in results]
    in_contest = [{(c["BLOCK_SIZE_M"], c["SUB_BLOCK_SIZE_M"]) for c in race} for race in device.races]
    assert all((8, 8) in race or (32, 8) in race for race in in_contest)


def test_a_rung_that_is_slower_than_the_default_is_named(capsys):
    from tilewise.cli.progress import show_rungs

    def rung(m, time_us, default):
        facts = {"kernel": "k", "dtype": "float16", "device": "Bowl", "clock": "modelled"}
        return {**facts, "dims": {"M": m}, "config": {"B": m}, "time_us": time_us, "default": default} | {
            "trials": {"total": 5}
        }

    failed = {**rung(8, None, None), "config": None, "why": "none of 5 configs ran correctly"}
    show_rungs("M", [failed, rung(4, 10.0, {"time_us": 9.0}), rung(2, 10.0, {}), rung(1, 10.0, {"time_us": 15.0})])
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
    assert [row for row in cells if row] == [
        ["1", "1", "10.00", "1.50x", "5"],
        ["2", "2", "10.00", "failed", "5"],
        ["4", "4", "10.00", "0.90x", "5"],
        ["8", "", "no config", "", ""],
    ]
    assert lines[-1] == "3 of 4 rungs tuned, slower than the default: M=4."


def test_a_rung_without_a_correct_config_fails_the_command_and_not_the_others(run, bowl):
    device = bowl.FormulaDevice(lambda config: 9.0 if config["BLOCK_SIZE_M"] > 1 else Status.RUNTIME)
    done = run(device, *ROWS, "--rungs", "M=1,4", "--trials", "200", "--json")
    assert done.returncode == 1
    assert [result["config"] is None for result in json.loads(done.stdout)["results"]] == [True, False]


def test_a_total_limit_ends_the_table_and_leaves_no_rung_out(run, bowl):
    def slowly(config):
        time.sleep(0.02)
        return bowl_us(config)

    words = (*ROWS, "--rungs", "M=64,96,128", "--search", "random", "--total-timeout", "1", "--json")
    results = tuned(run(bowl.FormulaDevice(slowly, batch=1), *words))
    assert all(result["config"] for result in results)
    assert sum(result["trials"]["total"] for result in results) <= 50 + 3 * 2


def test_a_table_that_does_not_fit_is_refused_before_a_rung_is_tuned(run, device):
    done = run(device, "tune", "row_reduce", "-s", "N=64", "--rungs", "vllm")
    assert (done.returncode, done.stdout, device.evaluated) == (2, "", [])
    assert "M=4096,N=64 needs 0.0 GiB of buffers" in done.stderr


@pytest.fixture
def two_chips(bowl, run, monkeypatch):
    """`two_chips(*words)` runs the command line where there are two chips, and returns its end and the devices."""
    made = {number: bowl.FormulaDevice(bowl_us) for number in "01"}
    for number, device in made.items():
        device.id = f"npu:{number}"
    family = Family(lambda number, wait, l2: made[number], list, chips=lambda: 2)

    def run_there(*words):
        monkeypatch.setattr(registry, "FAMILIES", {"npu": family})
        with pytest.raises(SystemExit) as ended:
            main(words)
        return ended.value.code, made

    return run_there


SHAPES = ("tune", "row_reduce", "-s", "M=64,N=32", "-s", "M=96,N=32", "-s", "M=128,N=32", "-s", "M=160,N=32")


@pytest.mark.parametrize("which", [("--device", "npu"), ("--devices", "npu:1,npu:0")])
def test_several_shapes_are_tuned_on_all_free_chips_at_once(two_chips, capfd, which):
    code, made = two_chips(*SHAPES, *which, "--trials", "8", "--json")
    out, err = capfd.readouterr()
    results = json.loads(out)["results"]
    assert (code, [result["dims"]["M"] for result in results]) == (0, [64, 96, 128, 160])
    assert all(device.evaluated and device.closed for device in made.values())
    begun = [line for line in err.splitlines() if " on npu:" in line]
    assert {line.split(":")[0] for line in begun} == {f"shape {number} of 4" for number in (1, 2, 3, 4)}


def test_one_shape_or_a_chip_by_its_number_takes_one_chip(two_chips, capfd):
    for words in ((*SHAPES[:4], "--device", "npu"), (*SHAPES, "--device", "npu:0")):
        code, made = two_chips(*words, "--trials", "8", "--json")
        assert (code, made["1"].evaluated) == (0, [])


def test_the_configs_of_one_shape_are_spread_over_the_devices_that_are_listed(two_chips, capfd):
    code, made = two_chips(*SHAPES[:4], "--devices", "npu:0,npu:1", "--trials", "8", "--json")
    [result] = json.loads(capfd.readouterr().out)["results"]
    assert (code, result["dims"]["M"]) == (0, 64)
    assert all(device.evaluated and device.closed for device in made.values())


def test_the_configs_of_one_shape_are_spread_over_chips_of_a_fleet_while_its_cluster_is_connected(
    bowl, capfd, monkeypatch, store_url
):
    made, open_ = [bowl.FormulaDevice(bowl_us) for _ in range(2)], []

    @contextmanager
    def connected(address):
        open_.append(address)
        yield "ray"
        assert all(device.closed for device in made)
        open_.clear()

    monkeypatch.setattr(ray_engine, "connected", connected)
    monkeypatch.setattr(
        borrowed_chip, "borrow", lambda ray, name: made if (ray, name) == ("ray", "NVIDIA H200") else []
    )
    for number, device in enumerate(made):
        device.id = f"cuda:{number}"
    with pytest.raises(SystemExit) as ended:
        main(
            (*SHAPES[:4], "--fleet", "head:1", "--device", "NVIDIA H200", "--trials", "8", "--json", "--db", store_url)
        )
    [result] = json.loads(capfd.readouterr().out)["results"]
    assert (ended.value.code, result["dims"]["M"], open_) == (0, 64, [])
    assert all(device.evaluated for device in made)


def test_an_interruption_of_several_says_how_many_trials_are_stored(two_chips, capfd, bowl, monkeypatch):
    def interrupt(device, *given, **how):
        raise KeyboardInterrupt

    monkeypatch.setattr(bowl.FormulaDevice, "verify", interrupt)
    code, _ = two_chips(*SHAPES, "--devices", "npu:0,npu:1", "--trials", "8")
    assert code == 130
    assert "interrupted; 0 trials are stored; the same command resumes" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*SHAPES, "--device", "npu", "--devices", "npu:0"), "--device and --devices both choose devices"),
        (("tune", "replay:some.json", "--devices", "npu:0"), "replay:some.json is already a device"),
        ((*SHAPES, "--fleet", "head:1"), "--fleet takes the name of its chips in --device"),
        ((*SHAPES, "--fleet", "head:1", "--device", "npu:0"), "--fleet takes the name of its chips in --device"),
        ((*SHAPES, "--fleet", "head:1", "--device", "H200", "--devices", "npu:0"), "--fleet takes the name"),
        ((*SHAPES, "--fleet", "head:1", "--device", "H200", "--l2", "warm"), "--l2 is for devices of this host"),
    ],
)
def test_devices_that_are_chosen_twice_are_refused(two_chips, capfd, words, said):
    assert two_chips(*words)[0] == 2
    assert said in capfd.readouterr().err
