"""`bench timing`: ways to time a kernel, which all need a GPU, and the summary over processes, which does not."""

import json

import pytest

from tilewise.benchmarks.gpu import timing
from tilewise.cli import main


def test_a_method_is_summed_up_over_the_processes_in_which_it_worked():
    def run(fast, slow):
        return {"sizes": {"2 us": {"fast": fast, "slow": slow}}}

    failed = {"error": "RuntimeError: no"}
    runs = [run({"median_us": us, "seconds": us / 10}, failed) for us in (2.0, 2.1, 2.2)]
    fast, slow = timing._rows("2 us", [*runs, run(failed, failed)])
    assert fast == {"size": "2 us", "method": "fast", "median_us": 2.1, "spread": 0.1, "seconds": 0.21}
    assert slow == {"size": "2 us", "method": "slow", **failed}


@pytest.mark.needs_gpu
def test_the_command_times_every_size_with_every_method_on_a_gpu(tmp_path):
    file = tmp_path / "timing.json"
    with pytest.raises(SystemExit) as ended:
        main(["bench", "timing", "--processes", "2", "-o", str(file)])
    assert not ended.value.code
    body = json.loads(file.read_text())
    assert len(body["processes"]) == 2
    times = {(row["size"], row["method"]): row.get("median_us") for row in body["rows"]}
    assert times["2 us", "cupti, zeroed"] < times["130 us", "cupti, zeroed"]
    assert times["15 us", "events, zeroed"] == pytest.approx(times["15 us", "cupti, zeroed"], rel=0.5)
