#!/usr/bin/env python3
"""Use the wheel on other versions of Python, and note which versions were tried, when, and how it went.

    make try-pythons PYTHONS="python3.12 python3.13"
    tools/try_pythons.py dist/tilewise-0.1.0-py3-none-any.whl python3.13 -o docs/results/pythons.json

For each interpreter the wheel is installed with its core dependencies, in the versions of constraints.txt, into a fresh
environment. There a recording is tuned; a result of tests/golden is looked up, exported, imported into another database
and served; a question goes to the server and its page is read. `tilewise doctor` must find nothing broken. Where
triton-ascend does not exist for the version, `tilewise tune` on a modelled part must say so in a line that names 3.11.
The exit code is 1 if a version fails. Needs the standard library alone, to run where nothing else is installed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DATABASE = ROOT / "tests/golden/tiles.db.gz"
RECORDING = ROOT / "landscapes/max_rows-300x4096-float32-Ascend910B4-modelled.json.gz"
PROBLEM = ("row_reduce", "-s", "M=1000,N=8192")
SECONDS = 600


class Install:
    """The wheel in a fresh environment of an interpreter. Raises `Failed` with what a command printed if one fails."""

    def __init__(self, python: str, wheel: Path, folder: Path) -> None:
        self.bin, self.folder = folder / "env/bin", folder
        self._call(python, "-m", "venv", folder / "env")
        self._call(self.bin / "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel)
        self.version = self._call(
            self.bin / "python", "-c", "import platform; print(platform.python_version())"
        ).strip()

    def tilewise(self, *words: str | Path, database: str = "tiles.db", code: int = 0) -> str:
        return self._call(self.bin / "tilewise", *words, database=database, code=code)

    def environment(self, database: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        files = {"TILEWISE_DB": f"sqlite:///{self.folder / database}", "TILEWISE_CACHE": str(self.folder / "cache")}
        return {**kept, **files, "TILEWISE_MISSES": "off", "HOME": str(self.folder)}

    def _call(self, *words: str | Path, database: str = "tiles.db", code: int = 0) -> str:
        done = subprocess.run(
            list(map(str, words)),
            cwd=self.folder,
            env=self.environment(database),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode != code:
            command = " ".join(map(str, words))
            raise Failed(f"{command} ended with {done.returncode}, not {code}: {done.stdout}{done.stderr}")
        return done.stdout + (done.stderr if code else "")

    @contextmanager
    def server(self) -> Iterator[str]:
        """Serve the database and yield the address."""
        words = [str(self.bin / "tilewise"), "serve", "--port", "0"]
        process = subprocess.Popen(words, env=self.environment("tiles.db"), stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            address = re.search(r"http://[\d.:]+", line)
            if address is None:
                raise Failed(f"tilewise serve began with: {line}")
            yield address.group(0)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=SECONDS)


class Failed(Exception):
    """Something that should work does not; the text says what."""


def try_install(install: Install) -> None:
    """Use what a core install offers. Raises `Failed`."""
    install.tilewise("tune", f"replay:{RECORDING}", "--trials", "8", database="replayed.db")
    (install.folder / "tiles.db").write_bytes(gzip.decompress(DATABASE.read_bytes()))
    found = _one(json.loads(install.tilewise("lookup", *PROBLEM, "--device", "Ascend910B4", "--json")))
    install.tilewise("export", "--kernel", "row_reduce", "-o", "configs.json")
    install.tilewise("import", "configs.json", database="other.db")
    again = install.tilewise("lookup", *PROBLEM, "--device", "Ascend910B4", "--json", database="other.db")
    _equal("the config after export and import", _one(json.loads(again))["config"], found["config"])
    with install.server() as address:
        query = "M=1000&N=8192&dtype=float32&device=Ascend910B4"
        answer = json.loads(_get(f"{address}/v1/configs/row_reduce?{query}"))
        _equal("the config over REST", answer["config"], found["config"])
        problem = re.findall(r'href="(/problems/[^"/]+)"', _get(f"{address}/?kernel=row_reduce"))[0]
        _equal("the page names a parameter", "BLOCK_SIZE_M" in _get(address + problem), True)
    _equal("doctor finds all good", json.loads(install.tilewise("doctor", "--json"))["good"], True)
    said = install.tilewise("tune", *PROBLEM, "--device", "model:Ascend910B4", code=1)
    newer = tuple(map(int, install.version.split(".")[:2])) > (3, 11)
    _equal("tune names triton-ascend", "triton-ascend" in said and (not newer or "3.11" in said), True)


def _one(body: dict[str, Any]) -> dict[str, Any]:
    if len(found := body["results"]) != 1:
        raise Failed(f"a look-up gave {len(found)} results; expected 1")
    result: dict[str, Any] = found[0]
    return result


def _equal(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Failed(f"{what}: {found}; expected {expected}")


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    parser.add_argument("-o", "--output", type=Path, help="note the versions in this JSON file")
    arguments = parser.parse_args()
    noted = arguments.output is not None and arguments.output.exists()
    known = json.loads(arguments.output.read_text())["pythons"] if noted else {}
    bad = False
    for python in arguments.pythons:
        with tempfile.TemporaryDirectory(prefix="tilewise-python-") as name:
            try:
                install = Install(python, arguments.wheel.resolve(), Path(name))
                try_install(install)
            except (Failed, OSError, subprocess.TimeoutExpired) as error:
                bad = True
                print(f"{python}: {error}", file=sys.stderr)
                continue
        now = datetime.now(UTC).isoformat(timespec="seconds")
        row = {"version": install.version, "date": now, "wheel": arguments.wheel.name}
        known[install.version.rpartition(".")[0]] = row
        print(f"{python}: Python {install.version} works")
    if arguments.output and known:
        about = {"command": "make try-pythons", "date": max(row["date"] for row in known.values())}
        arguments.output.write_text(json.dumps({**about, "pythons": dict(sorted(known.items()))}, indent=1) + "\n")
    sys.exit(bad)


if __name__ == "__main__":
    main()
