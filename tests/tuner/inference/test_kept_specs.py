"""Inferred specs in the user's data folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tilewise.errors import StoreError
from tilewise.tuner.inference.kept_specs import keep_spec, kept_spec, only_kept_spec


def test_the_newest_spec_of_a_kernel_is_found_by_its_name_alone(tmp_path):
    first, second = (
        keep_spec(f'FUNCTION = "/a/program.py:scale"\n# {text}\n', "scale", tmp_path) for text in ("one", "two")
    )
    os.utime(second, (1, 1))
    assert only_kept_spec("scale", tmp_path) == first
    assert only_kept_spec("scal", tmp_path) is None and only_kept_spec("cale", tmp_path) is None


def test_kernels_of_one_name_in_two_programs_are_not_mixed_up(tmp_path):
    kept = {
        program: keep_spec(f'FUNCTION = "{program}:scale"\n', "scale", tmp_path)
        for program in ("/a/program.py", "/b/program.py")
    }
    assert only_kept_spec("scale", tmp_path) is None
    assert kept_spec(Path("/b/program.py"), "scale", tmp_path) == kept["/b/program.py"]


def test_a_spec_that_cannot_be_written_names_the_folder_to_set(tmp_path):
    folder = tmp_path / "taken"
    folder.write_text("")
    reason = rf"^cannot write {folder}/specs/scale-\w{{12}}\.py: Not a directory; set TILEWISE_DATA to another folder$"
    with pytest.raises(StoreError, match=reason):
        keep_spec("SPEC = None\n", "scale", folder)
