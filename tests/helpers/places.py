"""Folders that tests read from."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HELPERS = ROOT / "tests" / "helpers"
DOCS = ROOT / "docs"
RESULTS = DOCS / "results"
LANDSCAPES = ROOT / "landscapes"
