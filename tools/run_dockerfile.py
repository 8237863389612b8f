#!/usr/bin/env python3
"""Run Dockerfile.serve step by step without a container engine, and test the server that it builds.

    sudo tools/run_dockerfile.py -o docs/results/docker-serve.json

This needs Linux, root, debootstrap and iproute2. A bare Debian with Python in /usr/local replaces the base image; all
further instructions of the Dockerfile are carried out in that root. Then the server runs as the image's user, on a
read-only root and in separate namespaces without a network, and must return a config that is stored while it runs. Exit
code 1 means that a step or a check failed.

`--share PATH` makes a file or folder of this machine, such as pip's configuration or certificates, visible to the RUN
steps. They also get the variables PIP_* and SSL_CERT_FILE.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
DOCKERFILE = REPOSITORY / "docker/Dockerfile.serve"
MIRROR = "http://deb.debian.org/debian"
SHARED = ("/etc/resolv.conf",)  # as an engine does

TUNED = """
from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.db.sql.sql_store import open_store
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.settings import read_settings

problem = Problem("row_reduce", {"M": 1000, "N": 8192}, "float32")
source = source_hash(registry.load("row_reduce"))
scope = Scope(problem, source, "Ascend910B4", Clock.MODELLED, "none: written to try the image", 40)
config = {"BLOCK_SIZE_M": 25, "SUB_BLOCK_SIZE_M": 25, "BLOCK_SIZE_N": 256, "multibuffer": True}
with open_store(read_settings().database_url) as store:
    store.record(scope, [Trial(config, Status.CORRECT, time_us=1.0, samples=1, verified=True, ordinal=1)])
"""

ASK = """
import json, urllib.request
url = "http://127.0.0.1:8300/v1/configs/row_reduce?M=1000&N=8192&dtype=float32&device=Ascend910B4"
print(json.load(urllib.request.urlopen(url, timeout=5))["config"]["BLOCK_SIZE_M"])
"""

ABSENT = "import importlib.util; print([n for n in ('torch', 'triton') if importlib.util.find_spec(n)])"


class Failed(Exception):
    """A failed step or check; the message is for the user."""


class Image:
    """A root folder, and the settings for running its program from the instructions so far."""

    def __init__(self, root: Path, shared: Sequence[Path]) -> None:
        self.root = root
        self.environment = {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"}
        self.folder = "/"
        self.user = "0"
        self.volumes: list[str] = []
        self.healthcheck: list[str] = []
        self.entrypoint: list[str] = []
        self.command: list[str] = []
        self._shared = shared

    def do(self, word: str, rest: str) -> None:
        """Carry out one instruction; raise `Failed` if it is not supported."""
        step = getattr(self, f"_{word.lower()}", None)
        if step is None:
            raise Failed(f"{DOCKERFILE.name} has {word}, which this script does not support")
        step(rest)

    def _from(self, rest: str) -> None:
        if not re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", rest):
            raise Failed(f"a bare Debian cannot replace the base image {rest}; expected python:3.11.N-slim-bookworm")
        call("debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", str(self.root), MIRROR)
        self._run(
            "export DEBIAN_FRONTEND=noninteractive && apt-get install -y -qq --no-install-recommends python3.11-venv"
            " && python3.11 -m venv /usr/local"
        )

    def _workdir(self, rest: str) -> None:
        self.folder = rest
        self._within(rest).mkdir(parents=True, exist_ok=True)

    def _copy(self, rest: str) -> None:
        *sources, target = rest.split()
        for source in sources:
            here, there = REPOSITORY / source, self._within(self.folder, target)
            if not here.exists():
                raise Failed(f"COPY {source}: no such file")
            if here.is_dir():
                shutil.copytree(here, there, symlinks=True, ignore=ignored, dirs_exist_ok=True)
            else:
                shutil.copy(here, there / here.name if target.endswith("/") else there)

    def _run(self, rest: str) -> None:
        """Run a command in a separate mount namespace, with the shared paths bound into the root."""
        lines = ["set -e", f"mount -t proc proc {self.root}/proc"]
        for path in self._shared:
            target = self._within(str(path))
            if not target.exists():  # an empty file or folder stays in the image
                target.parent.mkdir(parents=True, exist_ok=True)
                target.mkdir() if path.is_dir() else target.touch()
            lines.append(f"mount --bind {path} {target}")
        lines.append('exec chroot "$@"')
        passed = {name: value for name, value in os.environ.items() if re.match("PIP_|SSL_CERT_FILE$", name)}
        inside = ["/bin/sh", "-c", f"cd {self.folder} && {rest}"]
        call(
            "unshare",
            "--mount",
            "bash",
            "-c",
            "\n".join(lines),
            "-",
            str(self.root),
            *env(self.environment | passed),
            *inside,
        )

    def _env(self, rest: str) -> None:
        self.environment |= dict(pair.split("=", 1) for pair in rest.split())

    def _volume(self, rest: str) -> None:
        self.volumes.append(rest)

    def _user(self, rest: str) -> None:
        self.user = rest

    def _expose(self, rest: str) -> None:
        pass  # documentation only; it opens no port

    def _healthcheck(self, rest: str) -> None:
        self.healthcheck = json.loads(rest[rest.index("CMD") + 3 :])

    def _entrypoint(self, rest: str) -> None:
        self.entrypoint = json.loads(rest)

    def _cmd(self, rest: str) -> None:
        self.command = json.loads(rest)

    def _within(self, *parts: str) -> Path:
        """Return the path on this machine of a path in the image."""
        return self.root / os.path.join("/", *parts).lstrip("/")


class Container:
    """The image's running program: read-only root, the image's user, no capabilities, only a loopback network."""

    def __init__(self, image: Image) -> None:
        self._image = image
        root = image.root
        lines = ["set -e", "ip link set lo up", f"mount --bind {root} {root}", f"mount -o remount,bind,ro {root}"]
        lines += [f"mount -t proc proc {root}/proc", f"mount -t tmpfs tmpfs {root}/tmp"]
        for index, volume in enumerate(image.volumes):  # like an engine, fill it from the image, which sets its owner
            kept = root.parent / f"volume{index}"
            shutil.rmtree(kept, ignore_errors=True)
            call("cp", "--archive", str(image._within(volume)), str(kept))
            lines.append(f"mount --bind {kept} {image._within(volume)}")
        lines.append('exec "$@"')
        self.log = root.parent / "server.log"
        with self.log.open("w") as log:
            command = ["unshare", "--mount", "--net", "bash", "-c", "\n".join(lines), "-", *self._as_user()]
            self.process = subprocess.Popen([*command, *image.entrypoint, *image.command], stdout=log, stderr=log)

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the image beside the server."""
        command = ["nsenter", f"--target={self.process.pid}", "--mount", "--net", *self._as_user(), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def wait_until_healthy(self, seconds: float) -> float:
        began = time.monotonic()
        while self.ask(*self._image.healthcheck).returncode:
            if self.process.poll() is not None or time.monotonic() - began > seconds:
                raise Failed(f"the server is not healthy: {self.log.read_text()[-2000:]}")
            time.sleep(0.1)
        return time.monotonic() - began

    def resident_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        [kib] = re.findall(r"VmRSS:\s+(\d+) kB", status)
        return round(int(kib) / 1024, 1)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def _as_user(self) -> list[str]:
        user = self._image.user
        drop = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs"]
        drop += ["--bounding-set=-all", "--inh-caps=-all"]
        return ["chroot", str(self._image.root), *drop, *env(self._image.environment)]


def env(variables: dict[str, str]) -> list[str]:
    return ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]


def instructions(dockerfile: Path) -> Iterator[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", dockerfile.read_text(), flags=re.MULTILINE)
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            yield word.upper(), " ".join(rest.split())


def ignored(folder: str, names: list[str]) -> set[str]:
    """Return the names that .dockerignore excludes from copied folders."""
    lines = (REPOSITORY / ".dockerignore").read_text().splitlines()
    patterns = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
    return {name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)}


def call(*command: str) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise Failed(f"{command[0]} ended with {done.returncode}: {done.stdout[-2000:]}")
    return done.stdout


def build(image: Image) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for word, rest in instructions(DOCKERFILE):
        began = time.monotonic()
        image.do(word, rest)
        steps.append({"step": f"{word} {rest}", "seconds": round(time.monotonic() - began, 1)})
        print(f"{steps[-1]['seconds']:6.1f} s  {steps[-1]['step'][:100]}", file=sys.stderr)
    return steps


def try_out(image: Image) -> dict[str, Any]:
    """Run the server and return what was observed; raise `Failed` if it differs from what the image promises."""
    container = Container(image)
    try:
        found: dict[str, Any] = {"healthy_after_s": round(container.wait_until_healthy(30), 2)}
        found["user"] = expect(container, "id -u", image.user, "id", "-u")
        found["capabilities"] = expect(
            container, "capabilities", "0000000000000000", "awk", "/^CapBnd/ {print $2}", "/proc/self/status"
        )
        for path in ("/opt/tilewise/README.md", "/usr/local/x", "/etc/x"):
            if container.ask("touch", path).returncode == 0:
                raise Failed(f"{path} can be written; expected a read-only root")
        found["absent"] = expect(container, "packages that should be absent", "[]", "python", "-c", ABSENT)
        expect(container, "writing a result beside the server", "", "python", "-c", TUNED)
        found["answer"] = expect(container, "the look-up", "25", "python", "-c", ASK)
        found["check"] = container.ask("tilewise", "db", "check").stdout.splitlines()
        found["python"] = container.ask("python", "-V").stdout.strip()
        found["packages"] = container.ask("pip", "list", "--format=freeze").stdout.split()
        found["resident_mib"] = container.resident_mib()
    finally:
        code = container.stop()
    if code != 0:
        raise Failed(f"the server ended with {code} on SIGTERM: {container.log.read_text()[-2000:]}")
    return found | {"ended_with": code}


def expect(container: Container, name: str, wanted: str, *words: str) -> str:
    done = container.ask(*words)
    if done.returncode or done.stdout.strip() != wanted:
        raise Failed(f"{name}: expected {wanted!r}, got {done.stdout.strip()!r} {done.stderr[-1000:]}")
    return wanted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="file for the JSON report (default: standard output)")
    parser.add_argument("--share", type=Path, action="append", default=[], help="a path to make visible to RUN steps")
    options = parser.parse_args()
    missing = [name for name in ("debootstrap", "ip", "unshare", "nsenter") if shutil.which(name) is None]
    if os.getuid() or missing:
        print(f"run_dockerfile: needs root and {', '.join(missing) or 'nothing else'}", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="tilewise-image-"))
    try:
        image = Image(folder / "root", [*map(Path, SHARED), *options.share])
        steps = build(image)
        found = try_out(image)
        size = int(call("du", "--summarize", "--bytes", str(image.root)).split()[0])
    except Failed as error:
        print(f"run_dockerfile: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder)
    report = {
        "command": "tools/run_dockerfile.py -o docs/results/docker-serve.json" + " --share ..." * bool(options.share),
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} cores",
        "image": {"dockerfile": DOCKERFILE.name, "steps": steps, "root_mib": round(size / 2**20)},
        "run": found,
    }
    text = json.dumps(report, indent=2) + "\n"
    options.output.write_text(text) if options.output else print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
