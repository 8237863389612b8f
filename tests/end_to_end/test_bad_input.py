"""Each mistake gets one clear line on stderr, nothing on stdout, and the right exit code."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest
from places import HELPERS

from tilewise.cli import main

MODEL = ("--device", "model:Ascend910B4")
SHAPE = ("-s", "M=1000,N=8192")
CONFIG = ("-c", "BLOCK_SIZE_M=25,SUB_BLOCK_SIZE_M=25,BLOCK_SIZE_N=256")

MISTAKES = {
    "unknown kernel": (("tune", "no_such_kernel", *SHAPE, *MODEL), 2, "unknown kernel 'no_such_kernel'"),
    "unknown device": (("tune", "row_reduce", *SHAPE, "--device", "gpu"), 2, "unknown device 'gpu'"),
    "unknown part": (("tune", "row_reduce", *SHAPE, "--device", "model:Ascend1"), 2, "unknown Ascend part 'Ascend1'"),
    "unknown dtype": (("tune", "row_reduce", *SHAPE, "--dtype", "int4", *MODEL), 2, "does not take 'int4'"),
    "dimension in small letters": (
        ("tune", "row_reduce", "-s", "m=1,n=1", *MODEL),
        2,
        "no dimension m, n; it has M, N",
    ),
    "missing dimension": (("tune", "row_reduce", "-s", "M=1000", *MODEL), 2, "N is missing"),
    "unknown dimension": (("tune", "row_reduce", "-s", "M=1,N=1,K=1", *MODEL), 2, "no dimension K"),
    "zero dimension": (("tune", "row_reduce", "-s", "M=0,N=8192", *MODEL), 2, "M is 0"),
    "negative dimension": (("tune", "row_reduce", "-s", "M=-5,N=8192", *MODEL), 2, "M is -5"),
    "huge dimension": (("tune", "row_reduce", "-s", "M=99999999999,N=8192", *MODEL), 2, "M is 99999999999"),
    "too much memory": (("tune", "row_reduce", "-s", "M=2000000,N=2000000", *MODEL), 2, "GiB of buffers"),
    "dimension in words": (("tune", "row_reduce", "-s", "M=ten,N=8192", *MODEL), 2, "M is 'ten'"),
    "repeated dimension": (("tune", "row_reduce", "-s", "M=1,M=2,N=3", *MODEL), 2, "given twice"),
    "unknown table": (
        ("tune", "row_reduce", "-s", "N=8", "--rungs", "tgi", *MODEL),
        2,
        "unknown table 'tgi'; expected",
    ),
    "table without sizes": (("tune", "row_reduce", "-s", "N=8", "--rungs", "fla", *MODEL), 2, "list those you need"),
    "rung and shape": (("tune", "row_reduce", *SHAPE, "--rungs", "vllm", *MODEL), 2, "in the shape and in the rungs"),
    "rungs of no dimension": (
        ("tune", "vector_add", "-s", "N=8", "--rungs", "vllm", *MODEL),
        2,
        "vector_add has no dimension M for the rungs; it has N",
    ),
    "rungs and too few dimensions": (("tune", "row_reduce", "--rungs", "M=1", *MODEL), 2, "N is missing"),
    "rung in words": (("tune", "row_reduce", "-s", "N=8", "--rungs", "M=1,two", *MODEL), 2, "rung 'two' of M"),
    "rungs of a recording": (("tune", "replay:nowhere.json", "--rungs", "vllm"), 2, "records one shape, and --rungs"),
    "rungs and misses": (("tune", "row_reduce", "--rungs", "vllm", "--misses", *MODEL), 2, "both choose shapes"),
    "no time": (("tune", "row_reduce", *SHAPE, "--total-timeout", "0", *MODEL), 2, "--total-timeout"),
    "no shape": (("tune", "row_reduce", *MODEL), 2, "--shape"),
    "no trials": (("tune", "row_reduce", *SHAPE, "--trials", "0", *MODEL), 2, "--trials"),
    "unknown search": (("tune", "row_reduce", *SHAPE, "--search", "magic", *MODEL), 2, "magic"),
    "tuning a function without a spec": (
        ("tune", f"{HELPERS / 'programs' / 'vector_add.py'}:add_kernel", *MODEL),
        2,
        "but a Triton kernel; tilewise tune ",
    ),
    "widening without a program": (("tune", "row_reduce", *SHAPE, "--widen"), 2, "--widen needs --program"),
    "program of no kernel": (("tune", "absent.py:kernel", "--program", *MODEL), 2, "no file absent.py"),
    "spec of a program without kernels": (("spec", "keyword"), 4, "keyword launches no Triton kernel"),
    "capture of no program": (("capture", "absent.py:kernel"), 2, "no file absent.py; expected a Python program"),
    "capture of a kernel": (("capture", "folder/softmax:kernel"), 2, "is not a program; expected path/to/file.py"),
    "capture of nothing": (("capture", "keyword"), 4, "keyword launches no Triton kernel"),
    "budget of a listing": (("retune", "--budget", "3", *MODEL), 2, "--budget limits what is timed; give --stale too"),
    "retuning a recording": (("retune", "--device", "replay:nowhere.json"), 2, "has no newer toolchain"),
    "unknown verb": (("tine",), 2, "unknown command 'tine'; did you mean tune?; see tilewise --help"),
    "unknown option": (
        ("tune", "row_reduce", *SHAPE, "--devise", "npu"),
        2,
        "'--device', '--devices', '--noise'?); see tilewise tune --help",
    ),
    "no device": (("lookup", "row_reduce", *SHAPE), 2, "Missing option '--device'; see tilewise lookup --help"),
    "list in two words": (
        ("tune", "row_reduce", "-s", "M=1000,", "N=8192"),
        2,
        "extra argument (N=8192); write the value of -s or -c as one word, such as -s M=1000,N=8192; see",
    ),
    "config outside the space": (
        ("explain", "row_reduce", *SHAPE, "-c", "BLOCK_SIZE_M=26,SUB_BLOCK_SIZE_M=25,BLOCK_SIZE_N=256", *MODEL),
        2,
        "BLOCK_SIZE_M=26 is outside the space",
    ),
    "config of unknown parameters": (("explain", "row_reduce", *SHAPE, "-c", "TILE=3", *MODEL), 2, "lacks"),
    "config in words": (("explain", "row_reduce", *SHAPE, "-c", "fast", *MODEL), 2, "cannot read 'fast'"),
    "lint without a shape": (
        ("lint", "row_reduce"),
        2,
        "row_reduce is compiled for a shape; give one with -s, such as -s M=1024,N=1024",
    ),
    "lint of a config outside the space": (
        ("lint", "row_reduce", *SHAPE, "-c", "BLOCK_SIZE_M=26,SUB_BLOCK_SIZE_M=25,BLOCK_SIZE_N=256"),
        2,
        "BLOCK_SIZE_M=26 is outside the space",
    ),
    "lint of a default that breaks a rule": (
        ("lint", "block_fp8_gemm", "-s", "M=256,N=256,K=256", "--dtype", "float8_e4m3fn"),
        2,
        "8-bit floats need an NVIDIA GPU of compute capability 8.9 or later; give another config with -c",
    ),
    "lint for a GPU": (("lint", "row_reduce", *SHAPE, "--device", "gpu"), 2, "unknown device 'gpu'"),
    "user file that is not there": (("tune", "nowhere.py:SPEC", *SHAPE, *MODEL), 2, "no file nowhere.py"),
    "look-up of an unknown device": (
        ("lookup", "row_reduce", *SHAPE, "--device", "Ascend1"),
        2,
        "unknown device 'Ascend1'",
    ),
    "look-up in no database": (
        ("lookup", "row_reduce", *SHAPE, "--device", "Ascend910B4"),
        4,
        "nothing is stored yet",
    ),
    "import of nothing": (("import", "nowhere.json"), 2, "cannot read nowhere.json"),
    "server on a bad port": (("serve", "--port", "99999"), 2, "99999"),
    "worker on an unknown device": (("worker", "--devices", "tpu"), 2, "unknown device 'tpu'"),
    "worker without a chip": (("worker",), 1, "no accelerator that works"),
    "replay of nothing": (("tune", "replay:nowhere.json"), 2, "nowhere.json"),
    "noise of a device": (("tune", "row_reduce", *SHAPE, *MODEL, "--noise"), 2, "--noise is only for recorded"),
    "doctor of something": (("doctor", "npu"), 2, "extra argument (npu); see tilewise doctor --help"),
    "landscape that is not there": (("bench", "search", "nowhere.json"), 2, "nowhere.json"),
}


def assert_one_line(done, code: int, text: str) -> None:
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("tilewise: ")
    assert text in lines[0]


@pytest.fixture
def inside(tmp_path, monkeypatch, capfd) -> Callable[..., CompletedProcess[str]]:
    """A function that runs the command line in this process, to save the start of an interpreter for each case."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWISE_DB", f"sqlite:///{tmp_path / 'tiles.db'}")
    monkeypatch.setenv("TILEWISE_CACHE", str(tmp_path / "cache"))

    def run(*words: str) -> CompletedProcess[str]:
        on_sigterm = signal.getsignal(signal.SIGTERM)
        try:
            with pytest.raises(SystemExit) as ended:
                main(words)
        finally:
            signal.signal(signal.SIGTERM, on_sigterm)
        out, err = capfd.readouterr()
        return CompletedProcess(words, ended.value.code, out, err)

    return run


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_line_and_its_exit_code(mistake, inside):
    words, code, text = MISTAKES[mistake]
    assert_one_line(inside(*words), code, text)


@pytest.mark.parametrize("mistake", ["unknown device", "unknown verb", "look-up in no database"])
def test_a_process_ends_with_the_code_of_its_mistake(mistake, tilewise):
    words, code, text = MISTAKES[mistake]
    assert_one_line(tilewise(*words), code, text)


FILES = {
    "does not import": ("import nowhere_to_be_found\n", "does not import: ModuleNotFoundError"),
    "syntax error": ("def f(:\n", "does not import: SyntaxError"),
    "no spec": ("x = 1\n", "has no KernelSpec called 'SPEC'; it holds none"),
}


@pytest.mark.parametrize("fault", FILES)
def test_a_user_file_without_a_usable_spec_is_named(fault, tilewise):
    text, message = FILES[fault]
    (tilewise.folder / "mine.py").write_text(text)
    assert_one_line(tilewise("tune", "mine.py:SPEC", *SHAPE, *MODEL), 2, message)


def test_a_look_up_that_finds_nothing_exits_with_4_and_names_the_nearest(tuned):
    done = tuned("lookup", "row_reduce", "-s", "M=201,N=1000", "--device", "Ascend910B4")
    assert_one_line(done, 4, "nearest tuned shapes: M=200,N=1000")


def test_a_look_up_where_nothing_was_ever_stored_has_a_document_without_a_config(tilewise):
    done = tilewise("lookup", "row_reduce", *SHAPE, "--device", "Ascend910B4", "--match", "nearest", "--json")
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    [result] = json.loads(done.stdout)["results"]
    assert (result["config"], result["match"]) == (None, "nearest")
    assert not (tilewise.folder / "tiles.db").exists()


def test_a_look_up_on_a_device_nobody_knows_is_bad_usage(tuned):
    done = tuned("lookup", "row_reduce", *SHAPE, "--device", "Ascend1")
    assert_one_line(done, 2, "results are stored for: Ascend910B4")


def test_a_file_that_is_no_database_is_left_alone(tilewise):
    file = tilewise.folder / "notes.txt"
    file.write_text("not a database\n" * 100)
    done = tilewise("lookup", "row_reduce", *SHAPE, "--device", "Ascend910B4", "--db", f"sqlite:///{file}")
    assert_one_line(done, 1, str(file))
    assert file.read_text() == "not a database\n" * 100


def test_a_database_of_a_newer_program_is_refused(tuned, tilewise):
    copy = tilewise.folder / "tiles.db"
    with sqlite3.connect(tuned.folder / "tiles.db") as source, sqlite3.connect(copy) as target:
        source.backup(target)
        target.execute("update alembic_version set version_num = 'from the future'")
    done = tilewise("lookup", "row_reduce", *SHAPE, "--device", "Ascend910B4")
    assert_one_line(done, 1, "newer")


def test_a_corrupt_export_changes_nothing(tuned, tilewise):
    file = tilewise.folder / "configs.json"
    assert tuned("export", "-o", str(file)).returncode == 0
    file.write_text(file.read_text().replace('"time_us": ', '"time_us": 1', 1))
    assert_one_line(tilewise("import", str(file)), 2, "checksum")
    assert tilewise("lookup", "row_reduce", *SHAPE, "--device", "Ascend910B4").returncode == 4


def test_a_full_disk_is_said_and_the_old_export_kept(tuned):
    done = tuned("export", "-o", "/dev/full/configs.json")
    assert_one_line(done, 1, "cannot write")
