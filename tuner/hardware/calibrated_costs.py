"""Figures fitted to one user's chip, stored in one file per part. They replace figures of the shipped table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from tilewise.errors import Unavailable
from tilewise.settings import read_settings
from tilewise.tuner.hardware.ascend_costs import FIGURES, HBM_CORE_GB_S, REPEAT_CYCLES, Figure
from tilewise.tuner.hardware.ascend_parts import Part
from tilewise.tuner.hardware.cube_costs import CUBE_FIGURES

__all__ = ["Calibration", "calibrated", "calibration", "calibration_file", "forget", "keep", "model_fingerprint"]


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted `figures` by name, of either table, with the `device` and `toolchain` they were fitted on, and when."""

    part: str
    device: str
    toolchain: str
    created: str
    figures: Mapping[str, Figure]


def calibration_file(part: str) -> Path:
    return read_settings().data_folder / "calibrations" / f"{part}.json"


def keep(made: Calibration) -> Path:
    """Store a calibration in place of the part's earlier one. Raises `Unavailable` if the folder is not writable."""
    file = calibration_file(made.part)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(made), indent=1))
    except OSError as error:
        raise Unavailable(f"cannot write {file}: {error.strerror}; set TILEWISE_DATA to another folder") from error
    return file


def forget(part: str) -> bool:
    """Go back to the shipped figures; return False if there was no calibration."""
    file = calibration_file(part)
    existed = file.is_file()
    file.unlink(missing_ok=True)
    return existed


def calibration(part: str) -> Calibration | None:
    """Return the part's calibration, if it has one. Raises `Unavailable` if its file is not valid."""
    file = calibration_file(part)
    try:
        changed = file.stat().st_mtime_ns
    except OSError:
        return None
    return _read(file, changed)


def calibrated(part: str) -> Mapping[str, Figure]:
    """Return the figures that replace the shipped ones; empty if the part was not calibrated."""
    found = calibration(part)
    return found.figures if found else {}


@lru_cache(maxsize=8)
def _read(file: Path, changed: int) -> Calibration:
    """Read a calibration. `changed` is the file's modification time, so that a new file is read again."""
    try:
        body = json.loads(file.read_text())
        figures = {name: Figure(**fields) for name, fields in body.pop("figures").items()}
        made = Calibration(**body, figures=figures)
        unknown = figures.keys() - FIGURES.keys() - CUBE_FIGURES.keys() - REPEAT_CYCLES.keys()
        wrong = [name for name, figure in figures.items() if not 0 < figure.low <= figure.value <= figure.high]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        advice = "delete it or run tilewise calibrate again"
        raise Unavailable(f"{file} is not a valid calibration ({error}); {advice}") from error
    if unknown or wrong:
        names = ", ".join(sorted([*unknown, *wrong]))
        raise Unavailable(f"{file} does not fit this version of the model ({names}); run tilewise calibrate again")
    return made


_MODEL_VERSION = 9
"""Number of model changes that moved its times; part of the toolchain, as the compilers' versions are."""


def model_fingerprint(part: Part) -> str:
    """Return the model's version and a digest of all its figures for a part: a modelled time's inputs besides code."""
    fitted = calibrated(part.name)
    figures = {name: asdict(figure) for name, figure in {**FIGURES, **REPEAT_CYCLES, **fitted}.items()}
    table = [figures, HBM_CORE_GB_S, asdict(part)]
    digest = hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:8]
    return f"{_MODEL_VERSION}.{digest}" + (" calibrated" if fitted else "")
