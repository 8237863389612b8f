"""The wheel and the source distribution: their content, and that they work outside the checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from pathlib import Path

import pytest
from places import ROOT

CORE = ROOT / ".venv-core"
PROBLEM = ("row_reduce", "-s", "M=200,N=1000")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source distribution, built like `make wheel` does, from a copy of the checkout."""
    tree, dist = tmp_path_factory.mktemp("tree") / "tilewise", tmp_path_factory.mktemp("dist")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    excluded = ("docs/", "landscapes/", "tests/")
    for name in listed.split("\n"):
        if name and not name.startswith(excluded) and (ROOT / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), str(tree)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    [wheel], [sdist] = dist.glob("*.whl"), dist.glob("*.tar.gz")
    return wheel, sdist


def modules(names: list[str]) -> set[str]:
    return {name for name in names if name.endswith(".py")}


def test_the_wheel_holds_the_product_whole_and_nothing_else(built):
    names = zipfile.ZipFile(built[0]).namelist()
    packages = {name.split("/")[1] for name in modules(names) if name.count("/") > 1}
    assert packages == {"api", "cli", "db", "kernels", "tuner"}
    assert {name.split("/")[0] for name in names} == {"tilewise", "tilewise-0.1.0.dist-info"}
    for package in packages:
        here = {f"tilewise/{path.relative_to(ROOT)}" for path in (ROOT / package).rglob("*.py")}
        assert here == {name for name in modules(names) if name.startswith(f"tilewise/{package}/")}
    data = {"tilewise/py.typed", "tilewise/db/sql/migrations/script.py.mako"}
    pages = {
        path.relative_to(ROOT) for kind in ("templates", "static") for path in (ROOT / "api/pages" / kind).iterdir()
    }
    assert data | {f"tilewise/{path}" for path in pages} <= set(names)


def test_the_source_distribution_makes_the_same_wheel(built, tmp_path):
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    [tree] = tmp_path.iterdir()
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(tmp_path), str(tree)]
    subprocess.run(command, capture_output=True, check=True)
    [wheel] = tmp_path.glob("*.whl")
    assert sorted(zipfile.ZipFile(wheel).namelist()) == sorted(zipfile.ZipFile(built[0]).namelist())
    assert not [name for name in tree.rglob("*") if "benchmarks" in name.parts and name.suffix == ".py"]


@pytest.fixture(scope="module")
def core(built) -> Path:
    """The `tilewise` command of the wheel, installed into an environment with the core dependencies alone."""
    if not (CORE / "ready").exists():
        give_up = pytest.fail if os.environ.get("CI") else pytest.skip
        give_up("no environment of core dependencies; run `make .venv-core/ready`")
    words = ["install", "-qq", "--no-deps", "--no-index", "--force-reinstall", str(built[0])]
    subprocess.run([CORE / "bin" / "pip", *words], check=True)
    return CORE / "bin" / "tilewise"


@pytest.fixture(scope="module")
def with_compiler(built, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables for a process that uses the wheel instead of the checkout, with all that tuning needs."""
    folder = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(built[0]).extractall(folder)
    return {"PYTHONPATH": str(folder)}


def run(*words: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    settings = {"TILEWISE_DB": f"sqlite:///{cwd / 'tiles.db'}", "TILEWISE_MISSES": "off"}
    return subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env={**inherited, **settings, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def tuned_outside(with_compiler, artefacts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside the checkout, with a database made by the wheel's `tune`."""
    folder = tmp_path_factory.mktemp("outside")
    code = "import tilewise, sys; from tilewise.cli import main; print(tilewise.__file__, file=sys.stderr); main()"
    words = ("tune", *PROBLEM, "--device", "model:Ascend910B4", "--trials", "4")
    done = run(sys.executable, "-c", code, *words, cwd=folder, TILEWISE_CACHE=str(artefacts), **with_compiler)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(with_compiler["PYTHONPATH"])
    return folder


def test_a_core_install_looks_up_and_exports_what_was_tuned(core, tuned_outside, tmp_path):
    found = run(core, "lookup", *PROBLEM, "--device", "Ascend910B4", "--json", cwd=tuned_outside)
    assert json.loads(found.stdout)["results"][0]["verified"] is True, found.stderr
    exported = run(core, "export", "-o", tmp_path / "configs.json", cwd=tuned_outside)
    assert exported.returncode == 0, exported.stderr
    imported = run(core, "import", tmp_path / "configs.json", cwd=tmp_path)
    assert imported.returncode == 0, imported.stderr


def test_a_core_install_serves_look_ups_and_the_page(core, tuned_outside):
    environment = {**os.environ, "TILEWISE_DB": f"sqlite:///{tuned_outside / 'tiles.db'}"}
    server = subprocess.Popen(
        [core, "serve", "--port", "0"], cwd=tuned_outside, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        address = re.search(r"http://[\d.:]+", server.stderr.readline()).group(0)
        path = "/v1/configs/row_reduce?M=200&N=1000&dtype=float32&device=Ascend910B4"
        with urllib.request.urlopen(address + path, timeout=20) as answer:
            assert json.load(answer)["match"] == "exact"
        for path, expected in (("/", "row_reduce"), ("/static/style.css", "{")):
            with urllib.request.urlopen(address + path, timeout=20) as answer:
                assert expected in answer.read().decode()
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=20)


def test_a_core_install_says_what_tuning_needs(core, tmp_path):
    done = run(core, "tune", *PROBLEM, "--device", "model:Ascend910B4", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "triton-ascend" in done.stderr


@pytest.mark.parametrize("words", [["search", "file.json"], ["--help"], ["nonsense"]])
def test_benchmarks_run_from_a_checkout_only(core, tmp_path, words):
    done = run(core, "bench", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("tilewise: benchmarks run from a checkout")
    assert done.stderr.count("\n") == 1
