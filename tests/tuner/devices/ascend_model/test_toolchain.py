"""The real compiler: its parts, its refusals, the options it drops, and the cache of its results."""

import gzip
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewise.errors import BadSpec, Unavailable, UnknownDevice
from tilewise.tuner.cluster.farm_socket import FarmSocket
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.ir.hivm import MemRef, parse
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation
from tilewise.tuner.hardware.ascend_parts import PARTS, part
from tilewise.tuner.measure.launch import load_function
from tilewise.tuner.workers.farm import make

MORE_CORES = {
    *("Ascend910B1", "Ascend910B2", "Ascend910B2C"),
    *("Ascend910_9381", "Ascend910_9382", "Ascend910_9391", "Ascend910_9392"),
}


def kept_files(folder):
    return sorted(folder.glob("hivm/*/*.json.gz"))


@pytest.fixture
def no_compiler(monkeypatch):
    """Make running any tool a failure."""

    def refuse(command, **_):
        raise AssertionError(f"ran {command[0]}")

    monkeypatch.setattr(toolchain.subprocess, "run", refuse)


def with_tool(monkeypatch, folder, name, text):
    """Put a script in place of one tool; the other one is real."""
    script, genuine = folder / name, toolchain.tool
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    monkeypatch.setattr(toolchain, "tool", lambda wanted: str(script) if wanted == name else genuine(wanted))


def test_the_parts_are_those_of_the_compiler_in_both_families():
    tool = toolchain.tool("bishengir-compile")
    text = subprocess.run([tool, "--help"], capture_output=True, text=True, check=False).stdout
    listed = set(re.findall(r"^ +=(Ascend910(?:B\d\w*(?:-\d)?|_93\d\d)) +-", text, re.MULTILINE))
    assert "Ascend910B4" in listed
    assert set(PARTS) == listed


@pytest.mark.parametrize("name", PARTS)
def test_every_part_is_read_from_a_compiled_module(name, cache_folder):
    target = toolchain.target(name, cache_folder)
    assert target.cores == (48 if name in MORE_CORES else 40)
    assert target.on_chip_bytes * 8 == 1572864
    assert (target.family, target.name, target.align_bytes, target.max_programs) == ("ascend", name, 32, 65535)


def test_a_part_is_asked_for_once(cache_folder, target, no_compiler):
    assert toolchain.target("Ascend910B4", cache_folder) == target


@pytest.mark.parametrize("damage", ["", "{", "null", "[1]"])
def test_a_damaged_description_of_a_part_is_asked_for_again(damage, tmp_path, target):
    toolchain.target("Ascend910B4", tmp_path)
    (file,) = tmp_path.glob("parts/*.json")
    file.write_text(damage)
    assert toolchain.target("Ascend910B4", tmp_path) == target


def test_an_unmodelled_part_is_unknown():
    with pytest.raises(UnknownDevice, match="'Ascend310'; modelled: Ascend910B1"):
        part("Ascend310")


def test_a_part_that_the_compiler_lacks_is_unavailable(tmp_path):
    with pytest.raises(Unavailable, match="has no description of part Ascend1B9: "):
        toolchain.target("Ascend1B9", tmp_path)


def test_an_overflowing_tile_is_refused_with_both_sizes(row_reduce, problem, rows, compiled):
    made = compiled(row_reduce, problem(1000, 8192), rows(25, 25, 2048))
    assert made.code == ""
    assert made.required_bits > 1572864
    assert made.refusal == f"UB overflow: {made.required_bits} bits required, 1572864 available"
    assert not made.timed_out


def test_dropped_options_are_reported(row_reduce, problem, rows, compiled):
    made = compiled(row_reduce, problem(1000, 8192), rows(25, 5, 2048))
    assert made.dropped == ("code-motion", "auto-multi-buffer")
    assert not parse(made.code).multi_buffered()


def test_double_buffering_is_what_was_asked_for(row_reduce, problem, rows, compiled):
    double = compiled(row_reduce, problem(1000, 8192), rows(25, 25, 256))
    single = compiled(row_reduce, problem(1000, 8192), rows(25, 25, 256, multibuffer=False))
    assert double.dropped == single.dropped == ()
    assert parse(double.code).multi_buffered()
    assert not parse(single.code).multi_buffered()
    assert parse(single.code).planned_bytes("ub") < parse(double.code).planned_bytes("ub")


def test_a_kept_result_is_identical_and_runs_no_compiler(
    row_reduce, problem, rows, linalg, target, tmp_path, monkeypatch
):
    text = linalg(row_reduce, problem(1000, 8192), rows(25, 25, 256))
    first = toolchain.compile_linalg(text, target.name, {}, cache_folder=tmp_path)
    monkeypatch.setattr(toolchain, "tool", lambda name: "/nowhere/" + name)
    assert toolchain.compile_linalg(text, target.name, {}, cache_folder=tmp_path) == first
    for other in (
        {"config": {"multibuffer": False}},
        {"config": {"set_workspace_multibuffer": 2}},
        {"part": "Ascend910B3"},
        {"linalg": text + "\n"},
        {"all_blocks_parallel": True},
    ):
        arguments = {"linalg": text, "part": target.name, "config": {}} | other
        with pytest.raises(FileNotFoundError):
            toolchain.compile_linalg(**arguments, cache_folder=tmp_path)


@pytest.mark.parametrize("wanted", ["code", "refusal"])
def test_a_host_that_shares_artefacts_compiles_nothing_that_another_has(
    wanted, row_reduce, problem, rows, linalg, target, tmp_path, monkeypatch
):
    config = rows(25, 25, 256) if wanted == "code" else rows(25, 25, 2048)
    text = linalg(row_reduce, problem(1000, 8192), config)
    key = tmp_path / "kernel.key"
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    monkeypatch.setenv("TILEWISE_ARTEFACTS", f"sqlite:///{tmp_path / 'shared.db'}")
    monkeypatch.setenv("TILEWISE_KERNEL_KEY", str(key))
    first = toolchain.compile_linalg(text, target.name, {}, cache_folder=tmp_path / "one")
    assert getattr(first, wanted)
    monkeypatch.setattr(toolchain, "tool", lambda name: "/nowhere/" + name)
    assert toolchain.compile_linalg(text, target.name, {}, cache_folder=tmp_path / "other") == first
    assert [file.name for file in kept_files(tmp_path / "other")] == [
        file.name for file in kept_files(tmp_path / "one")
    ]
    with pytest.raises(FileNotFoundError):
        toolchain.compile_linalg(text + "\n", target.name, {}, cache_folder=tmp_path / "other")


@pytest.mark.parametrize("wanted", ["code", "refusal"])
def test_a_host_of_a_farm_compiles_nothing_that_the_farm_makes(
    wanted, row_reduce, problem, rows, linalg, target, tmp_path, monkeypatch
):
    config = rows(25, 25, 256) if wanted == "code" else rows(25, 25, 2048)
    text, orders = linalg(row_reduce, problem(1000, 8192), config), []
    monkeypatch.setenv("TILEWISE_CACHE", str(tmp_path / "farm"))

    def answer(order):
        orders.append((order.key, *make(order)))
        return orders[-1][1]

    with FarmSocket(answer) as socket:
        monkeypatch.setenv("TILEWISE_FARM", socket.address)
        found = [toolchain.compile_linalg(text, target.name, {}, cache_folder=tmp_path / name) for name in "ab"]
        monkeypatch.setattr(toolchain, "tool", lambda name: "/nowhere/" + name)
        found.append(toolchain.compile_linalg(text, target.name, {}, cache_folder=tmp_path / "b"))
        assert getattr(found[0], wanted)
        assert found[1:] == [found[0]] * 2
        [(key, content, compiled), again] = orders
        assert (compiled, again) == (True, (key, content, False))
        with pytest.raises(FileNotFoundError):  # what the farm cannot make is compiled here
            toolchain.compile_linalg(text + "\n", target.name, {}, cache_folder=tmp_path / "b")
        assert "No such file or directory" in socket.why


def test_a_farm_of_another_compiler_makes_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWISE_CACHE", str(tmp_path))
    with pytest.raises(Unavailable, match="this host has another compiler: triton-ascend"):
        toolchain.made_for_farm("a key of another version", "module {}", [])


def test_a_refusal_is_kept_too(row_reduce, problem, rows, compiled, tmp_path):
    first = compiled(row_reduce, problem(1000, 8192), rows(25, 25, 2048), tmp_path)
    (file,) = kept_files(tmp_path)
    changed = file.stat().st_mtime_ns
    assert compiled(row_reduce, problem(1000, 8192), rows(25, 25, 2048), tmp_path) == first
    assert file.stat().st_mtime_ns == changed


def cut(content):
    return content[: len(content) // 2]


def garbled(content):
    middle = len(content) // 2
    return content[:middle] + b"\0" * 64 + content[middle + 64 :]


def empty(content):
    return b""


def other_form(content):
    return gzip.compress(b'{"answer": 42}')


def no_object(content):
    return gzip.compress(b"[]")


@pytest.mark.parametrize("damage", [cut, garbled, empty, other_form, no_object])
def test_a_damaged_file_is_compiled_again(damage, row_reduce, problem, rows, compiled, tmp_path):
    config = rows(8, 8, 64)
    first = compiled(row_reduce, problem(16, 64), config, tmp_path)
    (file,) = kept_files(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert compiled(row_reduce, problem(16, 64), config, tmp_path) == first
    assert file.read_bytes() == whole


def test_processes_share_one_folder(row_reduce, problem, rows, linalg, tmp_path):
    """Two threads here, each with its own compiler, and another process all compile the same text."""
    text = linalg(row_reduce, problem(16, 64), rows(8, 8, 64))
    (tmp_path / "kernel.mlir").write_text(text)
    code = """
import sys
from pathlib import Path
from tilewise.tuner.devices.ascend_model.toolchain import compile_linalg
folder = Path(sys.argv[1])
text = (folder / "kernel.mlir").read_text()
print(compile_linalg(text, "Ascend910B4", {}, cache_folder=folder / "cache").code)
"""
    child = subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True)
    results = []

    def compile_here():
        made = toolchain.compile_linalg(text, "Ascend910B4", {}, cache_folder=tmp_path / "cache")
        results.append(made.code.strip())

    threads = [threading.Thread(target=compile_here) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    printed, _ = child.communicate(timeout=60)
    assert results == [printed.strip()] * 2
    assert "hacc.entry" in printed
    (kept,) = kept_files(tmp_path / "cache")
    assert [file for file in (tmp_path / "cache").rglob("*") if file.is_file()] == [kept]  # no partial files


@pytest.mark.parametrize("slow", ["bishengir-compile", "bishengir-opt"])
def test_a_compile_that_takes_too_long_is_a_timeout_and_not_kept(
    slow, row_reduce, problem, rows, compiled, tmp_path, monkeypatch
):
    """The slow tool is a script that sleeps; the other one is real."""
    with_tool(monkeypatch, tmp_path, slow, "exec sleep 30")
    genuine_run = toolchain._run

    def impatient_run(command, folder):
        monkeypatch.setattr(toolchain, "_SECONDS", 0.2 if command[0] == str(tmp_path / slow) else 120)
        return genuine_run(command, folder)

    monkeypatch.setattr(toolchain, "_run", impatient_run)
    made = compiled(row_reduce, problem(16, 64), rows(8, 8, 64), tmp_path)
    assert made.timed_out
    assert "did not finish within" in made.refusal
    assert made.code == ""
    assert kept_files(tmp_path) == []


def test_a_compiler_that_the_host_kills_is_no_refusal_of_the_config(
    row_reduce, problem, rows, compiled, tmp_path, monkeypatch
):
    with_tool(monkeypatch, tmp_path, "bishengir-compile", "kill -9 $$")
    with pytest.raises(Unavailable, match=r"was killed; is the machine out of memory\? try a lower TILEWISE_JOBS$"):
        compiled(row_reduce, problem(16, 64), rows(8, 8, 64), tmp_path)
    assert kept_files(tmp_path) == []


@pytest.mark.parametrize(("code", "refusal"), [(1, "bishengir-opt: no such dialect"), (0, "")])
def test_scheduled_code_that_the_second_tool_refuses_is_a_refusal_of_its_own(
    row_reduce, problem, rows, compiled, tmp_path, monkeypatch, code, refusal
):
    script = f"echo 'the code'; echo 'k.mlir:1:1: error: no such dialect' >&2; exit {code}"
    with_tool(monkeypatch, tmp_path, "bishengir-opt", script)
    made = compiled(row_reduce, problem(16, 64), rows(8, 8, 64), tmp_path)
    assert (made.code, made.refusal) == ("" if code else "the code\n", refusal)


def test_a_cache_folder_that_cannot_be_written_is_one_clear_line(row_reduce, problem, rows, compiled, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        Unavailable, match=r"^cannot write to the cache folder .*; set TILEWISE_CACHE to another folder$"
    ):
        compiled(row_reduce, problem(16, 64), rows(8, 8, 64), tmp_path / "file")


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 640), (70, 1)])
def test_a_dimension_of_one_is_a_constant_as_triton_makes_it(m, n, row_reduce, problem, rows, function, run):
    code, arguments = function(row_reduce, problem(m, n), rows(8, 4, 64))
    scalars = [kind for _, kind in code.arguments[1:] if not isinstance(kind, MemRef)]
    assert len(scalars) == (m > 1) + (n > 1) + 3
    assert arguments == [size for size in (m, n) if size > 1] + [-(-m // 8), 1, 1]
    timed = run(code, arguments=arguments)
    assert timed.bytes_out == 4 * min(m, 8)
    assert timed.bytes_in == 4 * n * (min(m, 8) + 2)  # each of the two sub-tiles reads w


@pytest.mark.parametrize(("dtype", "item"), [("float32", 4), ("float16", 2), ("bfloat16", 2)])
def test_every_dtype_compiles_and_moves_its_own_bytes(dtype, item, row_reduce, problem, rows, function, run):
    code, arguments = function(row_reduce, problem(1000, 8192, dtype), rows(25, 25, 256))
    timed = run(code, arguments=arguments)
    assert timed.bytes_in == (25 + 1) * 8192 * item
    assert timed.bytes_out == 25 * item


def test_the_fingerprint_names_both_compilers_and_their_versions():
    assert re.fullmatch(r"triton-ascend \d\S*, ascendnpu-ir \d\S*", toolchain.fingerprint())


def test_what_is_missing_is_named(monkeypatch):
    assert toolchain.unavailable_reason() == ""
    monkeypatch.setattr(toolchain, "_MODULES", {"xdsl": "xdsl", "no-such-compiler": "xdsl", "numpy": "no_module"})
    assert toolchain.unavailable_reason() == (
        "needs the Ascend compiler: pip install 'tilewise[ascend]' (missing: no-such-compiler, numpy)"
    )


def test_a_tool_of_a_compiler_that_is_not_there_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "ascendnpuir", None)
    with pytest.raises(Unavailable, match=r"^needs the Ascend compiler: .*missing: \S*ascendnpu-ir"):
        toolchain.tool.__wrapped__("bishengir-opt")


@pytest.mark.parametrize(
    ("python", "missing", "advice"),
    [
        ((3, 11), ["triton-ascend"], "pip install 'tilewise[npu]'"),
        ((3, 12), ["triton-ascend", "xdsl"], "use Python 3.11, as triton-ascend has no release for Python 3.12"),
        ((3, 12), ["xdsl"], "pip install 'tilewise[npu]'"),
    ],
)
def test_pip_is_advised_only_where_it_would_help(monkeypatch, python, missing, advice):
    monkeypatch.setattr(toolchain, "_PYTHON", python)
    assert toolchain.install_advice("npu", missing) == advice


def test_compiling_leaves_nothing_in_the_working_folder(row_reduce, problem, rows, compiled, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    compiled(row_reduce, problem(16, 64), rows(8, 8, 64), tmp_path / "cache")
    assert list(Path.cwd().iterdir()) == []


def test_a_refusal_names_the_error_that_explains_the_others():
    output = (
        "[ERROR] Cannot find hivmc under $PATH\n"
        'loc("k.mlir":1:1): error: Failed to run BiShengHIR pipeline\n'
        "loc(\"k.mlir\":35:13): error: 'scf.for' op 0-th region iter_arg and 0-th yielded value have different type\n"
    )
    assert toolchain._refused(output).refusal.startswith("'scf.for' op 0-th region iter_arg")
    (first, *_) = output.splitlines()[1:]
    assert toolchain._refused(first).refusal == "Failed to run BiShengHIR pipeline"
    assert toolchain._refused("").refusal == "the compiler failed without an error message"
    assert toolchain._refused("LLVM ERROR: not implemented\nStack dump:", -6).refusal.endswith(
        "crashed: not implemented"
    )


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (0, "i32"),
        (2**31 - 1, "i32"),
        (2**31, "i64"),
        (-(2**31), "i32"),
        (-(2**31) - 1, "i64"),
        (-100, "i32"),
        (1.0, "fp32"),
        (True, "i1"),
    ],
)
def test_a_scalar_has_the_type_that_triton_would_give_it(value, kind):
    assert toolchain._signature("n", {}, {"n": value}) == kind


def test_only_constants_have_the_default_of_the_function(tmp_path):
    file = tmp_path / "shifted.py"
    file.write_text(
        "import triton\nimport triton.language as tl\n\n@triton.jit\n"
        "def shifted(x, shift=3, BLOCK: tl.constexpr = 8):\n    tl.store(x, shift + BLOCK)\n"
    )
    _, shift, block = load_function(file, "shifted").params
    assert toolchain._value(block, {}, {}, {}) == 8 and toolchain._value(block, {"BLOCK": 16}, {}, {}) == 16
    assert toolchain._value(shift, {}, {}, {"shift": 4}) == 4
    with pytest.raises(BadSpec, match=r"^the spec does not pass shift; the model does not use defaults of run-time"):
        toolchain._value(shift, {}, {}, {})


def test_a_type_that_the_front_end_lacks_is_named(row_reduce, problem, rows, linalg):
    def buffers(problem):
        return {name: replace(found, dtype="float64") for name, found in row_reduce.buffers(problem).items()}

    with pytest.raises(UnknownOperation, match=r"^dtype not modelled: float64$"):
        linalg(replace(row_reduce, buffers=buffers), problem(16, 64), rows(8, 8, 64))


def test_what_was_lowered_is_forgotten_once_it_is_too_much(row_reduce, problem, rows, linalg, monkeypatch):
    kept = {}
    monkeypatch.setattr(toolchain, "_LOWERED", kept)
    monkeypatch.setattr(toolchain, "_MOST_LOWERED", 2)
    texts = [linalg(row_reduce, problem(16, 64), rows(8, sub, 64)) for sub in (8, 4, 2)]
    assert [text for _, text in kept.values()] == texts[2:]


def test_a_program_of_the_front_end_that_does_not_end_is_named_with_its_limit():
    from triton.backends.ascend import compiler

    before = compiler.subprocess
    with pytest.raises(TimeoutError, match=r"^sleep did not finish within 0\.05 s$"), toolchain._time_limit(0.05):
        compiler.subprocess.run(["/bin/sleep", "5"])
    assert compiler.subprocess is before


def test_a_module_of_another_kind_under_the_name_is_not_there(monkeypatch):
    assert toolchain._installed("numpy", "numpy")
    monkeypatch.setitem(sys.modules, "made_by_hand", SimpleNamespace(__spec__=None))
    assert not toolchain._installed("numpy", "made_by_hand")
    assert not toolchain._installed("numpy", "no_such.module")
    assert not toolchain._installed("no-such-package", "numpy")


def test_functions_that_kernels_import_from_the_library_are_those_of_the_part_or_else_of_triton():
    from triton.language import math
    from triton.language.extra import libdevice as names
    from triton.language.extra.ascend import libdevice as ascend

    library = vars(toolchain._libdevice())
    assert {name for name in vars(names) if not name.startswith("_")} <= library.keys()
    assert math.atan2 is not ascend.atan2 and library["atan2"] is ascend.atan2
    assert not hasattr(ascend, "rint") and library["rint"] is math.rint
    with pytest.raises(NotImplementedError, match="triton-ascend's libdevice has no brev"):
        library["brev"](1)
    assert library["brev"].__module__ == names.__name__  # Triton lets kernels call it
