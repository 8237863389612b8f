"""The flow of the README at a small shape, on the real compiler: tune, look up, explain, export, import and serve."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from pathlib import Path

import pytest
from places import ROOT

PROBLEM = ("row_reduce", "-s", "M=200,N=1000")


def looked_up(tilewise):
    return tilewise.json("lookup", *PROBLEM, "--device", "Ascend910B4")["results"][0]


def test_tuning_gives_a_verified_best_with_its_evidence(tuned):
    result = looked_up(tuned)
    assert result["verified"] is True
    assert result["clock"] == "modelled"
    assert result["match"] == "exact"
    assert result["trials"]["total"] >= 8
    assert result["time_us"] <= result["default"]["time_us"]
    assert "programs on 40 cores" in result["why"]


def test_the_readme_shows_what_its_first_command_prints(tilewise):
    text = (ROOT / "README.md").read_text()
    command, shown = re.search(r"```\n\$ tilewise (tune .*)\n```\n\n```\n(.*?)```", text, re.DOTALL).groups()
    seconds = r"\d+\.\d s\.$"
    printed = re.sub(seconds, "", tilewise(*command.split()).stdout, flags=re.MULTILINE)
    assert printed == re.sub(seconds, "", shown, flags=re.MULTILINE)


def test_a_second_run_repeats_no_trial_and_answers_the_same(tuned):
    before = looked_up(tuned)
    again = tuned.json("tune", *PROBLEM, "--device", "model:Ascend910B4", "--trials", "8")["results"][0]
    assert again == before


@pytest.mark.full
def test_the_same_seed_finds_the_same_on_another_database(tuned, tilewise):
    result = tilewise.json("tune", *PROBLEM, "--device", "model:Ascend910B4", "--trials", "8")["results"][0]
    first = looked_up(tuned)
    for key in ("config", "time_us", "evaluations_to_best", "trials"):
        assert result[key] == first[key]


def test_every_output_of_a_modelled_time_says_that_it_is_modelled(tuned):
    for words in (
        ("tune", *PROBLEM, "--device", "model:Ascend910B4", "--trials", "8"),
        ("lookup", *PROBLEM, "--device", "Ascend910B4"),
    ):
        assert "modelled" in tuned(*words).stdout


def test_explaining_the_winner_agrees_with_what_is_stored(tuned):
    result = looked_up(tuned)
    config = ",".join(f"{name}={value}" for name, value in result["config"].items())
    explained = tuned.json("explain", *PROBLEM, "-c", config, "--device", "model:Ascend910B4")
    assert explained["feasible"] is True
    assert explained["time_us"] == result["time_us"]
    assert explained["on_chip_bits"]["required"] <= explained["on_chip_bits"]["available"] == 1572864
    assert set(explained["pipes_us"]) == {"S", "V", "MTE2", "MTE3"}
    assert explained["bound_by"] in explained["pipes_us"]
    assert set(explained["effective_options"]) >= {"multibuffer"}
    assert all(factor >= 1 for factor in explained["penalties"].values())


@pytest.mark.full
def test_a_tile_beyond_on_chip_memory_is_explained_by_its_bits(tilewise):
    config = "BLOCK_SIZE_M=25,SUB_BLOCK_SIZE_M=5,BLOCK_SIZE_N=4096"
    words = ("explain", "row_reduce", "-s", "M=1000,N=8192", "-c", config, "--device", "model:Ascend910B4")
    explained = tilewise.json(*words)
    assert explained["feasible"] is False
    assert explained["on_chip_bits"]["required"] > explained["on_chip_bits"]["available"]
    assert "time_us" not in explained


def test_an_export_imported_elsewhere_is_the_same_export(tuned, tilewise):
    file = tuned.folder / "configs.json"
    assert tuned("export", "-o", str(file)).returncode == 0
    assert tilewise("import", str(file)).returncode == 0
    copy = tilewise.folder / "again.json"
    assert tilewise("export", "-o", str(copy)).returncode == 0
    first, second = json.loads(file.read_text()), json.loads(copy.read_text())
    assert first["entries"] == second["entries"]
    assert first["sha256"] == second["sha256"]
    assert looked_up(tilewise) == looked_up(tuned)


def test_a_recorded_landscape_replays_every_search(tuned):
    file = tuned.folder / "landscape.json.gz"
    assert tuned("export", "--format", "t4", "-o", str(file)).returncode == 0
    body = tuned.json(
        "bench", "search", str(file), "--budget", "20", "--seeds", "2", "--search", "guided", "--search", "tpe"
    )
    (row,) = body["landscapes"]
    assert set(row["searches"]) == {"guided", "tpe"}
    assert row["searches"]["guided"]["fraction"]["20"] == 1.0


def test_the_server_answers_as_the_command_line_does(tuned, without_torch_and_triton):
    process = tuned.start("serve", "--port", "0", prelude=without_torch_and_triton)
    try:
        address = re.search(r"http://[\d.:]+", process.stderr.readline()).group(0)
        path = "/v1/configs/row_reduce?M=200&N=1000&dtype=float32&device=Ascend910B4"
        with urllib.request.urlopen(address + path, timeout=120) as answer:
            served = json.load(answer)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    assert served == looked_up(tuned)


def test_a_core_only_install_lists_looks_up_and_exports(tuned, without_torch_and_triton, tmp_path: Path):
    for words in (
        ("kernels",),
        ("devices",),
        ("lookup", *PROBLEM, "--device", "Ascend910B4"),
        ("export", "-o", str(tmp_path / "configs.json")),
    ):
        done = tuned(*words, prelude=without_torch_and_triton)
        assert done.returncode == 0, (words, done.stderr)
        assert done.stdout
