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
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import LANDSCAPES, ROOT
from release_check import faults

import tilewise

CORE = ROOT / ".venv-core"
PROBLEM = ("row_reduce", "-s", "M=200,N=1000")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source distribution, built like `make wheel` does, from a copy of the checkout."""
    tree, dist = tmp_path_factory.mktemp("tree") / "tilewise", tmp_path_factory.mktemp("dist")
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]  # new files too, before they are added
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    excluded = ("docs/", "landscapes/")
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
    assert {name.split("/")[0] for name in names} == {"tilewise", f"tilewise-{tilewise.__version__}.dist-info"}
    for package in packages:
        here = {f"tilewise/{path.relative_to(ROOT)}" for path in (ROOT / package).rglob("*.py")}
        assert here == {name for name in modules(names) if name.startswith(f"tilewise/{package}/")}
    data = {"tilewise/py.typed", "tilewise/db/sql/migrations/script.py.mako"}
    pages = {
        path.relative_to(ROOT) for kind in ("templates", "static") for path in (ROOT / "api/pages" / kind).iterdir()
    }
    assert data | {f"tilewise/{path}" for path in pages} <= set(names)


def test_both_are_ready_to_be_released(built):
    assert list(faults(ROOT, *built)) == []


@pytest.mark.parametrize(
    ("file", "text", "instead", "fault"),
    [
        ("CHANGELOG.md", "## [{}]", "## [9.9.9]", "CHANGELOG.md has no entry for {}; expected ## [{}] - DATE"),
        ("CHANGELOG.md", "## [{}] - ", "## [{}] - soon", "CHANGELOG.md dates {} 'soon"),
        ("CHANGELOG.md", "\n- ", "\n", "CHANGELOG.md lists nothing for {}"),
        ("README.md", "tilewise-{}-py3", "tilewise-9.9.9-py3", "README.md names version 9.9.9; pyproject.toml has {}"),
        ("README.md", "# tilewise", "# tilewise, older", "disagree on description"),
        ("docker/compose.yaml", "serve:{}", "serve:9.9.9", "docker/compose.yaml names version 9.9.9"),
        ("pyproject.toml", '>=3.11"', '>=3.12"', "disagree on requires python: '>=3.11'"),
        ("pyproject.toml", 'version = "{}"', 'version = "9.9.9"', "disagree on version: '{}'"),
        ("pyproject.toml", "plot = [", "plots = [", "disagree on extras"),
    ],
)
def test_a_release_whose_parts_do_not_agree_is_not_ready(built, tmp_path, file, text, instead, fault):
    for name in ("pyproject.toml", "Makefile", "README.md", "CHANGELOG.md", "docker", "docs"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    changed, version = tmp_path / file, tilewise.__version__
    before, after = (words.replace("{}", version) for words in (text, instead))
    assert before in changed.read_text()
    changed.write_text(changed.read_text().replace(before, after))
    assert any(fault.replace("{}", version) in found for found in faults(tmp_path, *built))


def test_a_wheel_with_a_test_a_benchmark_or_invalid_metadata_is_not_ready(built, tmp_path):
    wheel, added = tmp_path / built[0].name, ("tilewise/tuner/test_tuned.py", "tilewise/benchmarks/speed.py")
    with zipfile.ZipFile(built[0]) as old, zipfile.ZipFile(wheel, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b"Requires-Python: >=3.11\n", b"Requires-Python: new\n"))
        for name in added:
            new.writestr(name, "")
    metadata, *inside = faults(ROOT, wheel, built[1])
    assert metadata.startswith(f"{wheel.name}: its metadata is invalid: 'new' is invalid for 'requires-python'")
    assert inside == [f"{wheel.name} contains {name}" for name in added]


@pytest.mark.full
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
        pytest.skip("no environment of core dependencies; run `make .venv-core/ready`")
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


@pytest.fixture(scope="module")
def served(core, tuned_outside) -> Iterator[str]:
    """The address of a server that is the installed wheel's."""
    environment = {**os.environ, "TILEWISE_DB": f"sqlite:///{tuned_outside / 'tiles.db'}"}
    words = [core, "serve", "--port", "0"]
    server = subprocess.Popen(words, cwd=tuned_outside, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        yield re.search(r"http://[\d.:]+", server.stderr.readline()).group(0)
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=120)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=120) as answer:
        return answer.read().decode()


def test_a_core_install_serves_look_ups(core, served, tmp_path):
    path = "/v1/configs/row_reduce?M=200&N=1000&dtype=float32&device=Ascend910B4"
    answer = json.loads(get(served + path))
    assert (answer["match"], answer["verified"]) == ("exact", True)
    words = ("lookup", *PROBLEM, "--device", "Ascend910B4", "--server", served, "--json")
    assert json.loads(run(core, *words, cwd=tmp_path).stdout)["results"][0]["config"] == answer["config"]


def test_a_core_install_serves_its_pages_with_all_that_they_load(served):
    [problem] = set(re.findall(r'href="(/problems/[^"/]+)"', get(f"{served}/")))
    pages = [get(served + path) for path in ("/", problem, "/jobs")]
    assert "BLOCK_SIZE_M" in pages[1]
    loaded = {path for page in pages for path in re.findall(r'(?:src|href)="(/static/[^"]+)"', page)}
    assert {path.rpartition(".")[2] for path in loaded} == {"css", "js", "svg"}
    assert all(get(served + path) for path in loaded)


@pytest.mark.full
def test_a_core_install_tunes_a_recording(core, tmp_path):
    file = LANDSCAPES / "max_rows-300x4096-float32-Ascend910B4-modelled.json.gz"
    done = run(core, "tune", f"replay:{file}", "--trials", "8", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [result] = json.loads(done.stdout)["results"]
    assert (result["kernel"], result["trials"]["total"]) == ("max_rows", 8)


@pytest.mark.full
def test_the_doctor_of_a_core_install_finds_what_it_has_and_nothing_broken(core, tuned_outside):
    done = run(core, "doctor", "--json", cwd=tuned_outside)
    body = json.loads(done.stdout)
    found = {finding["name"]: finding for finding in body["findings"]}
    assert (done.returncode, body["good"]) == (0, True), done.stdout
    assert found["packages"]["verdict"] == found["model:PART"]["verdict"] == "not here"
    assert found["database"]["facts"]["problems"] == 1
    assert found["extras"]["facts"]["extras"] == {"postgres": False, "plot": False, "parquet": False, "fleet": False}


def test_python_looks_up_from_a_core_install(core, tuned_outside):
    asked = 'tilewise.lookup("row_reduce", {"M": 200, "N": 1000}, device="Ascend910B4").winner.verified'
    done = run(core.parent / "python", "-c", f"import tilewise; print({asked})", cwd=tuned_outside)
    assert done.stdout == "True\n", done.stderr


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
