#!/usr/bin/env python3
"""Take a newcomer's three commands in a fresh environment, and note the seconds of each step.

    make first-steps
    tools/first_steps.py dist/tilewise-0.1.0-py3-none-any.whl -o docs/results/first-steps.json

The packages are downloaded first, since that depends on the network alone. Then come the three commands: the install
from what was downloaded, the tuning of examples/softmax.py as a modelled part runs it, and the program's launch with
the stored configs, interpreted on the CPU. The launch must find a tuned config. Needs the standard library alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DEVICE = "Ascend910B4"
SECONDS = 1800


class Newcomer:
    """A folder with nothing but the wheel and the program. Raises `SystemExit` if a command fails."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "env/bin"
        self._wheel, self.seconds = wheel, dict[str, float]()
        (folder / "softmax.py").write_text((ROOT / "examples/softmax.py").read_text())

    def take_steps(self) -> None:
        what = ["-c", ROOT / "constraints.txt", f"{self._wheel}[ascend]"]
        self._take("environment", sys.executable, "-m", "venv", self.folder / "env")
        self._take("download", self.bin / "pip", "download", "-q", "-d", self.folder / "wheels", *what)
        offline = ["--no-index", "--no-cache-dir", "--find-links", self.folder / "wheels"]
        self._take("install", self.bin / "pip", "install", "-q", *offline, *what)
        self._take("tune", self.bin / "tilewise", "tune", "softmax.py:softmax_kernel", "--program")
        run = ("run", "--interpret", "--for-device", DEVICE, "softmax.py")
        told = self._take("launch", self.bin / "tilewise", *run)
        if "every row is right" not in told or "was never tuned" in told:
            sys.exit(f"the program was not launched with a stored config: {told}")

    def _take(self, step: str, *words: str | Path) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TILEWISE_"))}
        files = {"TILEWISE_DB": f"sqlite:///{self.folder / 'tiles.db'}", "TILEWISE_CACHE": str(self.folder / "cache")}
        began = time.monotonic()
        done = subprocess.run(
            list(map(str, words)),
            cwd=self.folder,
            env={**kept, **files, "TILEWISE_DATA": str(self.folder / "data"), "HOME": str(self.folder)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        self.seconds[step] = round(time.monotonic() - began, 1)
        print(f"{step}: {self.seconds[step]} s", file=sys.stderr)
        if done.returncode:
            sys.exit(f"{step} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout + done.stderr


def noted(newcomer: Newcomer, wheel: Path, load: float) -> dict[str, Any]:
    """Return the JSON of the steps. `load` is the machine's when the first began: others may have used it too."""
    seconds = newcomer.seconds
    return {
        "command": "make first-steps",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "load_before": round(load, 1),
        "clock": "modelled",
        "versions": {"python": platform.python_version()},
        "wheel": wheel.name,
        "seconds": seconds,
        "three_commands_s": round(seconds["install"] + seconds["tune"] + seconds["launch"], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("-o", "--output", type=Path, help="note the seconds in this JSON file")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="tilewise-first-") as name:
        newcomer = Newcomer(arguments.wheel.resolve(), Path(name))
        newcomer.take_steps()
    body = json.dumps(noted(newcomer, arguments.wheel, load), indent=1)
    print(body)
    if arguments.output:
        arguments.output.write_text(body + "\n")


if __name__ == "__main__":
    main()
