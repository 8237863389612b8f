"""Builds the next release and looks for faults in its wheel, in its source distribution, and around them.

`python tools/release_check.py FOLDER` builds both into FOLDER, and prints one line per fault. It exits with 1 if there
is one.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.metadata import Metadata
from packaging.utils import canonicalize_name

__all__ = ["faults"]

_ROOT = Path(__file__).resolve().parents[1]

_OUTSIDE = {"benchmarks", "docker", "docs", "landscapes", "tests", "tools"}
"""Folders of a checkout that no distribution contains."""

_NAMED = re.compile(r"\btilewise(?:-[a-z]+)*[-:](\d+\.\d+\.\d+\w*)")
"""A file or image of a certain version, such as `tilewise-0.1.0-py3-none-any.whl` or `tilewise-serve:0.1.0`."""


def faults(root: Path, wheel: Path, sdist: Path) -> Iterator[str]:
    """Yield the faults of the release that the two files would be, one line each."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    for file, members, metadata in ((wheel, *_of_wheel(wheel)), (sdist, *_of_sdist(sdist))):
        yield from (f"{file.name}: {fault}" for fault in _faults_of_metadata(root, project, metadata))
        yield from (f"{file.name} contains {name}" for name in members if _is_outside(name))
    yield from _faults_of_versions(root, project["version"])
    yield from _faults_of_changelog(root, project["version"])


def _of_wheel(file: Path) -> tuple[list[str], bytes]:
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        return names, archive.read(next(name for name in names if name.endswith(".dist-info/METADATA")))


def _of_sdist(file: Path) -> tuple[list[str], bytes]:
    """Return the members' paths below the archive's one folder, and the metadata there."""
    with tarfile.open(file) as archive:
        folder = archive.getnames()[0].partition("/")[0]
        member = archive.extractfile(f"{folder}/PKG-INFO")
        assert member is not None
        names = [one.name.removeprefix(f"{folder}/") for one in archive.getmembers() if one.isfile()]
        return names, member.read()


def _is_outside(name: str) -> bool:
    below = name.removeprefix("src/").removeprefix("tilewise/")
    return below.partition("/")[0] in _OUTSIDE or Path(name).name.startswith(("conftest.", "test_"))


def _faults_of_metadata(root: Path, project: Mapping[str, Any], raw: bytes) -> Iterator[str]:
    try:
        metadata = Metadata.from_email(raw, validate=True)  # the rules of PyPI
    except ExceptionGroup as error:
        yield from (f"its metadata is invalid: {one}" for one in error.exceptions)
        return
    declared = {
        "name": project["name"],
        "version": project["version"],
        "requires_python": project["requires-python"],
        "license_expression": project["license"],
        "extras": sorted(canonicalize_name(extra) for extra in project["optional-dependencies"]),
        "description": (root / "README.md").read_text().strip(),
        "description_content_type": "text/markdown",
    }
    found = {
        "name": metadata.name,
        "version": str(metadata.version),
        "requires_python": str(metadata.requires_python),
        "license_expression": metadata.license_expression,
        "extras": sorted(metadata.provides_extra or ()),
        "description": (metadata.description or "").strip(),
        "description_content_type": metadata.description_content_type,
    }
    for name, expected in declared.items():
        if found[name] != expected:
            label = name.replace("_", " ")
            yield f"its metadata and the project disagree on {label}: {str(found[name])[:60]!r}"
    if not metadata.license_files:
        yield "its metadata names no license file"


def _faults_of_versions(root: Path, version: str) -> Iterator[str]:
    pages = [*root.glob("*.md"), root / "Makefile", *(root / "docs").glob("*.md"), *(root / "docker").rglob("*")]
    for file in sorted(filter(Path.is_file, pages)):
        others = set(_NAMED.findall(file.read_text())) - {version}
        yield from (f"{file.relative_to(root)} names version {other}; pyproject.toml has {version}" for other in others)


def _faults_of_changelog(root: Path, version: str) -> Iterator[str]:
    text = (root / "CHANGELOG.md").read_text()
    entry = re.search(rf"^## \[{re.escape(version)}\] - (\S+)\n(.*?)(?=^## \[|\Z)", text, re.MULTILINE | re.DOTALL)
    if entry is None:
        yield f"CHANGELOG.md has no entry for {version}; expected ## [{version}] - DATE"
    elif not re.fullmatch(r"\d{4}-\d\d-\d\d|unreleased", entry[1]):
        yield f"CHANGELOG.md dates {version} {entry[1]!r}; expected a day, such as 2026-11-30, or unreleased"
    elif not re.search(r"^- ", entry[2], re.MULTILINE):
        yield f"CHANGELOG.md lists nothing for {version}"


def _build(folder: Path) -> tuple[Path, Path, list[str]]:
    """Return a wheel and a source distribution that are built into an empty folder, and the builders' warnings."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(_ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"the release cannot be built:\n{done.stdout}{done.stderr}")
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    warned = [line.strip() for line in (done.stdout + done.stderr).splitlines() if "Warning" in line]
    return wheel, sdist, warned


def main() -> None:
    folder = Path(sys.argv[1])
    if any(folder.iterdir()):
        sys.exit(f"{folder} is not empty; give an empty folder")
    wheel, sdist, warned = _build(folder)
    found = [f"the build warns: {line}" for line in warned] + list(faults(_ROOT, wheel, sdist))
    for fault in found:
        print(fault, file=sys.stderr)
    print(f"{wheel}\n{sdist}" if not found else f"{len(found)} faults: not ready for a release")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
