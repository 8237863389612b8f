"""A quick look at an installation: what is installed, which devices work, and where results are kept.

It reads only: no device is opened, no compiler is run, and no file is made, not even beside a database.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tilewise.db.summary import Summary, summarize
from tilewise.errors import StoreError, Unavailable, UsageError
from tilewise.kernels.signing import read_key
from tilewise.settings import Settings
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.npu.toolchain import cann_version
from tilewise.tuner.devices.registry import DEFAULT_PART, FAMILIES
from tilewise.tuner.diagnostics.selftest import Step, Verdict
from tilewise.tuner.hardware.ascend_parts import PARTS
from tilewise.tuner.hardware.calibrated_costs import calibration, calibration_file
from tilewise.tuner.workers.artefacts import artefacts_key

__all__ = ["EXTRAS", "examine"]

PACKAGES = ("triton-ascend", "triton", "ascendnpu-ir", "xdsl", "torch", "torch_npu")
"""Packages that decide which devices work."""

EXTRAS = {"postgres": "psycopg", "plot": "matplotlib", "parquet": "pyarrow", "fleet": "ray"}
"""Extras that add a feature of the command line, with the package that each needs."""


def examine(settings: Settings, url: str) -> Iterator[Step]:
    """Yield one finding each for packages, devices, the database at `url`, folders, calibrations and extras, and for
    compiled artefacts if this host shares any.

    `FAILED` is something of the user's that does not work; `NOT_HERE` is something that this machine does without.
    Every finding but `OK` says what to do.
    """
    yield _packages()
    yield from _devices()
    yield _database(url, "TILEWISE_DB")
    if settings.artefacts_url is not None:
        yield _artefacts(settings.artefacts_url, settings.kernel_key_file)
    yield _folder("cache", settings.cache_folder, "TILEWISE_CACHE")
    yield _folder("data", settings.data_folder, "TILEWISE_DATA")
    yield _calibrations()
    yield _extras()


def _packages() -> Step:
    found = {name: number for name in PACKAGES if (number := _version(name)) is not None}
    cann = cann_version() if os.environ.get("ASCEND_HOME_PATH") else None
    facts = {"packages": found, "cann": cann}
    listed = ", ".join([f"{name} {number}" for name, number in found.items()] + [f"CANN {cann}"] * (cann is not None))
    if "torch_npu" in found and cann is None:
        advice = "source CANN's set_env.sh, or pip uninstall torch_npu"
        return Step("packages", Verdict.FAILED, f"torch_npu breaks torch where CANN is not set up: {advice}", facts)
    if {"triton", "triton-ascend"} <= found.keys():
        advice = "give each an environment of its own"
        return Step("packages", Verdict.FAILED, f"triton and triton-ascend overwrite each other: {advice}", facts)
    if not found:
        advice = "to tune here, see Install in README.md"
        return Step("packages", Verdict.NOT_HERE, f"no compiler; look-ups and the server work without: {advice}", facts)
    return Step("packages", Verdict.OK, listed, facts)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _devices() -> Iterator[Step]:
    for family in FAMILIES.values():
        for row in family.rows() if not family.argument else ():
            yield _device(row.id, row.name, row.unavailable_reason, Verdict.NOT_HERE)
    # Not the rows of `tilewise devices`: to fill those, the compiler describes each part, into the cache.
    halfway = toolchain.missing_packages() == ["triton-ascend"]  # its extra is installed all the same
    verdict = Verdict.FAILED if halfway else Verdict.NOT_HERE
    names = f"{len(PARTS)} modelled parts, such as {DEFAULT_PART}"
    yield _device("model:PART", names, toolchain.unavailable_reason(), verdict)


def _device(device_id: str, name: str, reason: str, without: Verdict) -> Step:
    facts = {"device": device_id, "available": not reason}
    return Step(device_id, without if reason else Verdict.OK, reason or name, facts)


def _database(url: str, variable: str) -> Step:
    if (file := _absent_file(url)) is not None:
        return _absent_database(file, variable)
    try:
        found = summarize(url)
    except StoreError as error:
        return Step("database", Verdict.FAILED, str(error))
    facts = {"url": found.url, "schema": found.revision, "needed": found.head, "problems": found.problems}
    return Step("database", Verdict.OK, f"{found.url}: {_state(found)}", facts)


def _artefacts(url: str, key_file: Path | None) -> Step:
    try:
        read_key(artefacts_key(key_file))
    except UsageError as error:
        return Step("artefacts", Verdict.FAILED, str(error))
    return replace(_database(url, "TILEWISE_ARTEFACTS"), name="artefacts")


def _state(found: Summary) -> str:
    if found.revision is None:
        return "empty; the first command that writes makes its tables"
    problems = f"{found.problems} problem{'s' * (found.problems != 1)}"
    if found.revision != found.head:
        return f"schema {found.revision}, {problems}; the next command that writes upgrades it to {found.head}"
    advice = "; read-only: to tune into it, give write permission on it and its folder" if found.read_only else ""
    return f"schema {found.revision}, {problems}{advice}"


def _absent_file(url: str) -> Path | None:
    """Return the SQLite file that a URL names, if it does not exist yet."""
    name = url.removeprefix("sqlite:///").partition("?")[0]
    named = url.startswith("sqlite:///") and name not in ("", ":memory:") and not name.startswith("file:")
    return Path(name) if named and not Path(name).exists() else None


def _absent_database(file: Path, variable: str) -> Step:
    facts = {"url": f"sqlite:///{file}", "schema": None, "problems": 0}
    if (fault := _fault_of_folder(file.parent)) is not None:
        return Step(
            "database", Verdict.FAILED, f"{facts['url']} cannot be made: {fault}; set {variable} to another", facts
        )
    return Step(
        "database", Verdict.NOT_HERE, f"{facts['url']} does not exist yet: tilewise tune or import makes it", facts
    )


def _folder(name: str, folder: Path, variable: str) -> Step:
    facts = {"folder": str(folder)}
    if (fault := _fault_of_folder(folder)) is not None:
        return Step(name, Verdict.FAILED, f"{folder} cannot be used: {fault}; set {variable} to another folder", facts)
    return Step(
        name, Verdict.OK, str(folder) + (" can be written" if folder.exists() else " is made when needed"), facts
    )


def _fault_of_folder(folder: Path) -> str | None:
    """Return why no file can be made in a folder, or None. It need not exist, if it can be made."""
    above = next(place for place in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(place))
    if not above.is_dir():
        return f"{above} is not a folder"
    return None if os.access(above, os.W_OK | os.X_OK) else f"{above} is not writable"


def _calibrations() -> Step:
    fitted: list[str] = []
    for part in PARTS:
        try:
            if (found := calibration(part)) is not None:
                fitted.append(f"{part} from {found.created[:10]}")
        except Unavailable as error:
            return Step("calibration", Verdict.FAILED, str(error))
    if fitted:
        facts = {"fitted": fitted}
        advice = "to undo: tilewise calibrate --forget PART"
        return Step("calibration", Verdict.OK, f"{', '.join(fitted)}; {advice}", facts)
    folder = calibration_file(DEFAULT_PART).parent
    advice = "on an NPU, tilewise calibrate fits them"
    return Step("calibration", Verdict.NOT_HERE, f"none in {folder}, the model uses its shipped figures: {advice}")


def _extras() -> Step:
    there: dict[str, Any] = {extra: importlib.util.find_spec(module) is not None for extra, module in EXTRAS.items()}
    missing = [extra for extra, found in there.items() if not found]
    listed = ", ".join(extra for extra, found in there.items() if found)
    if not missing:
        return Step("extras", Verdict.OK, listed, {"extras": there})
    advice = f"pip install 'tilewise[{','.join(missing)}]'"
    return Step(
        "extras", Verdict.NOT_HERE, f"{listed or 'none'}; without {', '.join(missing)}: {advice}", {"extras": there}
    )
