"""Tests of the atomic writing of files."""

from __future__ import annotations

import os

import pytest

from tilewise.db.exchange.files import write_file
from tilewise.errors import StoreError


def test_a_file_is_written_and_replaced_whole(tmp_path):
    path = tmp_path / "configs.json"
    write_file(path, b"old and long")
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["configs.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "configs.json"
    write_file(path, b"old")

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(StoreError, match="No space left on device"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["configs.json"]


def test_the_old_mode_is_kept_or_the_umask_applies(tmp_path):
    path = tmp_path / "configs.json"
    umask = os.umask(0o027)
    try:
        write_file(path, b"1")
    finally:
        os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o640
    path.chmod(0o604)
    write_file(path, b"2")
    assert path.stat().st_mode & 0o777 == 0o604


def test_a_link_is_followed_not_replaced(tmp_path):
    target, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(target)
    write_file(link, b"1")
    assert link.is_symlink()
    assert target.read_bytes() == b"1"


@pytest.mark.parametrize("place", ["missing/configs.json", "."])
def test_a_path_that_cannot_be_written_is_named(tmp_path, place):
    with pytest.raises(StoreError, match="cannot write") as caught:
        write_file(tmp_path / place, b"1")
    assert "None" not in str(caught.value)


KILLED = """
import os, sys
from pathlib import Path
from tilewise.db.exchange.files import write_file

def pieces():
    yield b"new " * 100_000
    print("half", flush=True)
    sys.stdin.readline()  # killed here, with half of the new file on the disk
    yield b"end"

write_file(Path(sys.argv[1]), pieces())
"""


def test_a_writer_killed_in_the_middle_leaves_the_old_file(tmp_path, python):
    path = tmp_path / "configs.json"
    write_file(path, b"old")
    writer = python(KILLED, str(path), stdin=-1)
    assert writer.stdout.readline() == "half\n"
    writer.kill()
    writer.wait()
    assert path.read_bytes() == b"old"
    write_file(path, b"next")  # the draft that the killed writer left does not matter
    assert path.read_bytes() == b"next"
