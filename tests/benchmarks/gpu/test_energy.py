"""`tilewise bench energy` keeps each kernel's figures as soon as they are known."""

from types import SimpleNamespace

import pytest

from tilewise.benchmarks.gpu import energy


class Device:
    id, toolchain, measures_energy, target = "cuda:0", "a test's", True, SimpleNamespace(name="a GPU")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


@pytest.mark.parametrize("tunings", [2, 3, 4])
def test_a_run_that_is_cut_off_has_kept_the_kernels_before(monkeypatch, tunings):
    tuned, kept = [], []

    def tune(spec, *about, **options):
        if len(tuned) == tunings:
            raise KeyboardInterrupt
        tuned.append(spec.name)
        winner = SimpleNamespace(config={"BLOCK": 64})
        return SimpleNamespace(counts={"measured": 3}, seconds=1.25, winner=winner)

    monkeypatch.setattr(energy, "CudaDevice", Device)
    monkeypatch.setattr(energy, "tune", tune)
    monkeypatch.setattr(energy, "_in_turns", lambda *about: [])

    def run():
        return energy.bench_energy(
            3, 2, lambda text: None, lambda body: kept.append([r["kernel"] for r in body["rows"]])
        )

    if tunings == 4:
        assert [row["kernel"] for row in run()["rows"]] == ["row_reduce", "gemm"]
        assert kept == [["row_reduce"], ["row_reduce", "gemm"]]
    else:
        with pytest.raises(KeyboardInterrupt):
            run()
        assert kept == [["row_reduce"]]
