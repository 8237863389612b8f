"""`bench page`, on a tiny case."""

import json
import shutil
from itertools import islice

import pytest
from places import LANDSCAPES

from tilewise.benchmarks.service.page import _endless, _largest, bench_page
from tilewise.cli import main
from tilewise.errors import Unavailable, UsageError

FILE = LANDSCAPES / "batch_norm-3x200x900-float32-Ascend910B4-modelled.json.gz"


@pytest.mark.full
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed: apt-get install chromium")
def test_the_command_opens_a_landscape_until_it_is_usable(tmp_path, capsys):
    file = tmp_path / "page.json"
    words = f"page {FILE} --trials 30 --loads 2"
    with pytest.raises(SystemExit) as ended:
        main(["bench", *words.split(), "-o", str(file)])
    assert not ended.value.code
    body = json.loads(file.read_text())
    [row] = body["rows"]
    assert (row["trials"], len(row["loads"])) == (30, 2)
    for load in row["loads"]:
        assert 0 < load["first_byte_ms"] <= load["trials_ms"] < load["usable_ms"]
    assert body["command"] == f"tilewise bench {words}"
    assert "30 trials: usable after" in capsys.readouterr().out


def test_a_landscape_grows_by_slower_copies_that_are_configs_of_their_own():
    trials = _largest(str(FILE)).trials
    grown = list(islice(_endless(trials), 2 * len(trials) + 1))
    assert grown[: len(trials)] == list(trials)
    assert len({one.config_key for one in grown}) == len(grown)
    timed = next(number for number, one in enumerate(trials) if one.time_us)
    assert grown[len(trials) + timed].time_us == pytest.approx(1.01 * trials[timed].time_us)


def test_without_a_browser_or_a_file_the_benchmark_says_what_is_missing(monkeypatch):
    with pytest.raises(UsageError, match=r"cannot read none\.json: No such file"):
        bench_page(["none.json"], [10], loads=1, say=str)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match="is not installed"):
        bench_page([str(FILE)], [10], loads=1, say=str)
