"""The Ascend compiler, run on a machine without an NPU.

Triton's front end lowers a kernel to Linalg. The open Ascend compiler turns that into scheduled HIVM code and stops
where the closed one (`hivmc`, part of CANN) would continue: after all memory planning and scheduling. The flags are
those that triton-ascend's own backend passes.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from tilewise.db.records import L2State
from tilewise.errors import BadSpec, Unavailable
from tilewise.kernels.spec import Buffer, Config, KernelSpec, Launch, Problem, Target, Value
from tilewise.settings import read_settings
from tilewise.tuner.devices.ascend_model.ir.values import UnknownOperation
from tilewise.tuner.hardware.ascend_parts import ON_CHIP_NAMES, Part
from tilewise.tuner.hardware.calibrated_costs import model_fingerprint
from tilewise.tuner.hardware.cube_costs import cube_fingerprint
from tilewise.tuner.measure.launch import arguments_of, options_of, resolve_function
from tilewise.tuner.workers.artefacts import shared_artefacts
from tilewise.tuner.workers.farm import Order, from_farm
from tilewise.tuner.workers.worker import crash

__all__ = [
    "Compiled",
    "arguments",
    "compile_linalg",
    "fingerprint",
    "identity",
    "install_advice",
    "lower",
    "made_for_farm",
    "missing_packages",
    "target",
    "tool",
    "triton_ir",
    "unavailable_reason",
    "with_cube",
]

_MODULES = {"triton-ascend": "triton", "ascendnpu-ir": "ascendnpuir", "xdsl": "xdsl"}
_PYTHON, _NEWEST_PYTHON = sys.version_info[:2], (3, 11)
"""The Python that runs this, and the newest that triton-ascend is released for; its marker in pyproject.toml is the
same."""

_SECONDS = 120
_SCHEDULED = "hivm-graph-sync-solver"
_LOCATIONS = "--mlir-print-debuginfo"
_ALL_BLOCKS = "--enable-auto-blockify-loop"
_TYPES = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "int32": "i32",
    "int64": "i64",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "i1",
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """The compiler's result for one config: scheduled code in MLIR's generic form, or the reason why there is none.

    `required_bits` is the on-chip memory that a refused config needs, `available_bits` what that memory has. `dropped`
    names the options that the compiler turned off by itself because on-chip memory overflowed with them. `overflowed`
    is the memory that overflowed in either case, as `ON_CHIP_NAMES` calls it. `timed_out` is set if it exceeded its
    time limit.
    """

    code: str = ""
    refusal: str = ""
    required_bits: int | None = None
    available_bits: int | None = None
    dropped: tuple[str, ...] = ()
    overflowed: str = ""
    timed_out: bool = False


def unavailable_reason() -> str:
    """Return an empty string if the toolchain is installed, else one line that names what is missing."""
    if missing := missing_packages():
        return f"needs the Ascend compiler: {install_advice('ascend', missing)} (missing: {', '.join(missing)})"
    return ""


def missing_packages() -> list[str]:
    """Return the toolchain's packages that are not installed."""
    return [package for package, module in _MODULES.items() if not _installed(package, module)]


def install_advice(extra: str, missing: Sequence[str] = ("triton-ascend",)) -> str:
    """Return how to install missing packages. pip leaves triton-ascend out of its extra where it has no release."""
    if "triton-ascend" in missing and _PYTHON > _NEWEST_PYTHON:
        here, newest = (".".join(map(str, version)) for version in (_PYTHON, _NEWEST_PYTHON))
        return f"use Python {newest}, as triton-ascend has no release for Python {here}"
    return f"pip install 'tilewise[{extra}]'"


def fingerprint() -> str:
    """Return the compilers' names and versions."""
    return ", ".join(f"{name} {version(name)}" for name in ("triton-ascend", "ascendnpu-ir"))


def identity(part: Part, *, l2: L2State = L2State.WARM) -> str:
    """Return what identifies the results of a modelled part: the compilers, and the model with its figures."""
    state = "" if l2 is L2State.WARM else f", {l2} L2"
    return f"{fingerprint()}, model {model_fingerprint(part)}{state}"


def with_cube(identity: str) -> str:
    """Add the figures of the cube core, on which the results of matrix products depend too."""
    return f"{identity}, cube {cube_fingerprint()}"


def _installed(package: str, module: str) -> bool:
    """Return whether package and module are both there: `triton` may be upstream's, and metadata may outlive files."""
    try:
        return bool(version(package)) and importlib.util.find_spec(module) is not None
    except (PackageNotFoundError, ImportError, ValueError):
        return False


_FLAGS = {
    "enable_hivm_auto_cv_balance": "enable-hivm-auto-cv-balance",
    "limit_auto_multi_buffer_of_local_buffer": "limit-auto-multi-buffer-of-local-buffer",
    "limit_auto_multi_buffer_only_for_local_buffer": "limit-auto-multi-buffer-only-for-local-buffer",
    "set_workspace_multibuffer": "set-workspace-multibuffer",
    "tile_mix_cube_loop": "tile-mix-cube-loop",
    "tile_mix_vector_loop": "tile-mix-vector-loop",
}
"""The compiler's flags by triton-ascend's options, which it passes on only if they are given."""

_OPTIONS = {"multibuffer", *_FLAGS, "num_warps", "num_ctas", "num_stages"}
"""Compile options that a modelled config may have; the last three change nothing on Ascend."""


# From Triton to Linalg ------------------------------------------------------------------------------------------


_LOWERED: dict[tuple[object, ...], tuple[Any, str]] = {}
"""Functions and their Linalg text, by everything that it depends on. A config is often lowered again for a problem of
another size, to verify it, which takes 0.15 s. The function is kept so that its id stays its own."""

_MOST_LOWERED = 256

_UNDECLARED = "the kernel multiplies matrices; give its spec a `matrix_dtype`, so that it is modelled on cube cores"

_MODE = re.compile(r', mix_mode = "(\w+)"')


class _Pointer:
    """A stand-in for an aligned tensor when Triton decides how to specialise a kernel."""

    def data_ptr(self) -> int:
        return 0


def arguments(
    spec: KernelSpec, problem: Problem, config: Config, launch: Launch
) -> tuple[dict[str, int], list[int | float]]:
    """Return buffers (bytes by name) and scalars as a launch's compiled function takes them: in order, without the
    scalars that Triton turns into constants because they are 1."""
    buffers, scalars = _buffers(spec, problem, config), spec.scalars(problem)
    parameters = [p for p in resolve_function(spec, launch.function).params if not p.is_constexpr]
    sizes = {p.name: buffers[p.name].span_bytes for p in parameters if p.name in buffers}
    kept = [p.name for p in parameters if p.name in scalars and not _becomes_constant(p, scalars[p.name])]
    return sizes, [scalars[name] for name in kept]


def _becomes_constant(parameter: Any, value: int | float) -> bool:
    """Return whether Triton makes the value a constant: an integer 1, not 1.0 or True, unless the kernel forbids it."""
    return type(value) is int and value == 1 and not parameter.do_not_specialize


def lower(
    spec: KernelSpec,
    problem: Problem,
    config: Config,
    launch: Launch,
    part: str,
    *,
    locations: bool = False,
    seconds: float | None = None,
) -> str:
    """Return the Linalg text of one launch's function under `config`, specialised as a launch with these arguments
    would be. With `locations`, it keeps the lines of the Triton source.

    Raises `BadSpec` if spec and function do not match, `UnknownOperation` for an option or kernel that is not modelled,
    `TimeoutError` if a program that the front end runs exceeds `seconds` (default: the compiler's limit), and whatever
    it raises for a kernel or config that it cannot compile.
    """
    from triton.backends.ascend.compiler import ttir_to_linalg

    source = _specialised(spec, problem, config, launch, part)
    key = (*source.key, locations)
    if key in _LOWERED:
        return _LOWERED[key][1]
    with _line_info(locations), _time_limit(_SECONDS if seconds is None else seconds):
        linalg: str = ttir_to_linalg(source.ttir(), source.metadata, source.options, named_ops=True)
    if spec.matrix_dtype is None and _MODE.findall(linalg) != ["aiv"]:
        raise UnknownOperation(_UNDECLARED)
    if len(_LOWERED) >= _MOST_LOWERED:
        _LOWERED.clear()
    _LOWERED[key] = (source.function, _MODE.sub("", linalg))
    return _LOWERED[key][1]


def triton_ir(spec: KernelSpec, problem: Problem, config: Config, launch: Launch, part: str) -> str:
    """Return the text of Triton's own IR of one launch's function; raises like `lower`."""
    with _line_info(False):
        return str(_specialised(spec, problem, config, launch, part).ttir())


@dataclass(frozen=True, slots=True)
class _Specialised:
    """A function with the constants, types and options of a launch. `key` is all that its IR depends on."""

    function: Any
    source: Any
    backend: Any
    options: Any
    metadata: dict[str, Any]
    key: tuple[object, ...]

    def ttir(self) -> Any:
        from triton._C.libtriton import ir
        from triton.backends.ascend.compiler import make_ttir

        context = ir.context()
        ir.load_dialects(context)
        implementation = self.backend.get_codegen_implementation()
        modules = {"triton.language.extra.libdevice": _libdevice(), **self.backend.get_module_map()}
        with _named_float8(self.metadata["target"].arch):
            module = self.source.make_ir(self.options, implementation, modules, context)
        return make_ttir(module, self.metadata, self.options)


def _without_float8(part: str) -> str:
    """Return the reason why no 8-bit float compiles for a part. Of the families that are modelled, none has them: the
    front end refuses the type, and the compiler ends with "unsupported datatype" where it is in the Linalg text."""
    return f"{part} has no 8-bit floats (fp8)"


@contextmanager
def _named_float8(part: str) -> Iterator[None]:
    """Let the front end's refusal of an 8-bit float in a kernel's body name the part."""
    try:
        yield
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        if cause.args == ("unexpected type fp8.",):
            cause.args = (_without_float8(part),)
        raise


@cache
def _libdevice() -> ModuleType:
    """Return the functions that kernels import from `triton.language.extra.libdevice`, where Triton keeps names alone:
    Ascend's, and those of `tl.math` that Ascend does not define anew. triton-ascend 3.2 leaves all names empty; those
    that stay so raise an error that tells their name."""
    from triton.language import math
    from triton.language.extra import libdevice as names
    from triton.language.extra.ascend import libdevice as ascend

    module = ModuleType(names.__name__)
    missing = {name: _missing(name) for name, value in vars(names).items() if inspect.isfunction(value)}
    for known in (vars(names), missing, vars(math), vars(ascend)):
        vars(module).update({name: value for name, value in known.items() if not name.startswith("_")})
    return module


def _missing(name: str) -> Callable[..., object]:
    def missing(*args: object, **kwargs: object) -> object:
        raise NotImplementedError(f"triton-ascend's libdevice has no {name}")

    missing.__module__ = "triton.language.extra.libdevice"  # kernels may use no other functions of Python
    return missing


def _specialised(spec: KernelSpec, problem: Problem, config: Config, launch: Launch, part: str) -> _Specialised:
    from triton.backends.ascend.compiler import AscendBackend
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = resolve_function(spec, launch.function)
    gpu = GPUTarget("npu", part, 0)
    backend = AscendBackend(gpu)
    requested = options_of(spec, config)
    if unknown := sorted(requested.keys() - _OPTIONS):
        raise UnknownOperation(
            f"option not modelled: {', '.join(unknown)}; expected one of {', '.join(sorted(_OPTIONS))}"
        )
    options = backend.parse_options(requested)
    buffers, scalars = _buffers(spec, problem, config), spec.scalars(problem)
    arguments_of(spec, problem, config, launch, buffers, function)  # raises if they do not match the function's
    if float8 := [f"{name} is {buffer.dtype}" for name, buffer in buffers.items() if buffer.dtype.startswith("float8")]:
        raise ValueError(f"{_without_float8(part)}; {', '.join(float8)}")
    if unknown := sorted({buffer.dtype for buffer in buffers.values()} - _TYPES.keys()):
        raise UnknownOperation(f"dtype not modelled: {', '.join(unknown)}")
    constexprs = {**spec.constants(problem), **config, **launch.constants}
    values = [_value(p, constexprs, buffers, scalars) for p in function.params]
    attributes = backend.get_attrs_descriptor(function.params, values)
    fixed = attributes.get_constants()
    constants = {
        p.name: v
        for p, v in zip(function.params, values, strict=True)
        if p.is_constexpr or p.num in fixed or p.name in constexprs
    }
    signature = {
        p.name: "*i8" if p.name in constexprs else _signature(p.name, buffers, scalars)  # a pointer that is None
        for p in function.params
        if not p.is_constexpr
    }
    source = ASTSource(function, signature, constants, attributes)
    key = (id(function), str(constants), str(signature), attributes.hash(), options.hash(), part)
    return _Specialised(function, source, backend, options, {"target": gpu, **options.__dict__}, key)


@contextmanager
def _line_info(wanted: bool) -> Iterator[None]:
    """Tell the front end, through its environment variable, whether to keep source lines."""
    before = os.environ.get("TRITON_DISABLE_LINE_INFO")
    os.environ["TRITON_DISABLE_LINE_INFO"] = "0" if wanted else "1"
    try:
        yield
    finally:
        del os.environ["TRITON_DISABLE_LINE_INFO"]
        if before is not None:
            os.environ["TRITON_DISABLE_LINE_INFO"] = before


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Give the programs that the front end runs a limit: they have none of their own."""
    from triton.backends.ascend import compiler

    before = compiler.subprocess
    compiler.subprocess = SimpleNamespace(**vars(subprocess) | {"run": partial(subprocess.run, timeout=seconds)})
    try:
        yield
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{Path(error.cmd[0]).name} did not finish within {seconds:g} s") from error
    finally:
        compiler.subprocess = before


def _buffers(spec: KernelSpec, problem: Problem, config: Config) -> dict[str, Buffer]:
    return {**spec.buffers(problem), **spec.scratch(config, problem)}


def _value(
    parameter: Any,
    constexprs: Mapping[str, Value | None],
    buffers: Mapping[str, Buffer],
    scalars: Mapping[str, int | float],
) -> object:
    """Return the value that a launch passes for one parameter of the function."""
    name = parameter.name
    if name in buffers:
        return _Pointer()
    given: Mapping[str, object] = constexprs if parameter.is_constexpr or name in constexprs else scalars
    if name not in given and not (parameter.is_constexpr and parameter.has_default):
        raise BadSpec(f"the spec does not pass {name}; the model does not use defaults of run-time arguments")
    return given.get(name, parameter.default)


def _signature(name: str, buffers: Mapping[str, Buffer], scalars: Mapping[str, int | float]) -> str:
    if name in buffers:
        return "*" + _TYPES[buffers[name].dtype]
    if isinstance(scalars[name], (float, bool)):
        return "fp32" if isinstance(scalars[name], float) else "i1"
    return "i32" if -(2**31) <= scalars[name] < 2**31 else "i64"


# From Linalg to scheduled HIVM ----------------------------------------------------------------------------------


def compile_linalg(
    linalg: str,
    part: str,
    config: Config,
    *,
    cache_folder: Path,
    locations: bool = False,
    all_blocks_parallel: bool = False,
) -> Compiled:
    """Return a kernel's scheduled code under a config's compile options, with source lines if `locations` is set. With
    `all_blocks_parallel` a launch has no more programs than cores, and each one takes blocks of the grid in a loop.
    Results are cached on disk under a hash of everything that they depend on. A fleet's farm makes them, if there is
    one; otherwise they are shared with other hosts if this one shares artefacts."""
    flags = [
        f"--target={part}",
        f"--enable-auto-multi-buffer={bool(config.get('multibuffer', True))}",
        "--enable-auto-bind-sub-block=True",
        "--enable-hfusion-compile=true",
        "--enable-hivm-compile=true",
        "--enable-triton-kernel-compile=true",
        *(f"--{flag}={value}" for name, flag in _FLAGS.items() if (value := config.get(name, 0)) or value is False),
        *([_LOCATIONS] if locations else []),
        *([_ALL_BLOCKS] if all_blocks_parallel else []),
    ]
    file = _file(cache_folder, key := _key(linalg, flags))
    if (kept := _read(file)) is not None:
        return kept
    if (content := from_farm(Order(_shared_key(key), "ascend", _MAKER, (linalg, flags)))) is not None:
        _write(file, content)
        if (kept := _read(file)) is not None:
            return kept
    return _made(linalg, flags, file)[0]


_MAKER = f"{__name__}:made_for_farm"


def made_for_farm(key: str, linalg: str, flags: list[str]) -> tuple[bytes | None, bool]:
    """Return the artefact of a key for another host, None if the compiler took too long, and whether it was compiled
    for this. Raises `Unavailable` if this host has another compiler."""
    if key != _shared_key(here := _key(linalg, flags)):
        raise Unavailable(f"this host has another compiler: {fingerprint()}")
    file = _file(read_settings().cache_folder, here)
    is_new = _read(file) is None and _made(linalg, flags, file)[1]
    return (file.read_bytes() if _read(file) is not None else None), is_new


def _made(linalg: str, flags: list[str], file: Path) -> tuple[Compiled, bool]:
    """Return a kernel's scheduled code from the hosts' shared artefacts or the compiler, and whether it is the latter;
    keep it in `file`."""
    made: list[Compiled] = []

    def make() -> bytes | None:
        made.append(_compile(linalg, flags))
        return None if made[0].timed_out else gzip.compress(json.dumps(asdict(made[0])).encode(), mtime=0)

    shared = shared_artefacts()
    content = make() if shared is None else shared.made(_shared_key(_key(linalg, flags)), make)
    if content is not None:
        _write(file, content)
    if not made and (kept := _read(file)) is not None:
        return kept, False
    return made[0] if made else _compile(linalg, flags), True


def _key(linalg: str, flags: list[str]) -> str:
    return hashlib.sha256("\0".join([fingerprint(), *flags, linalg]).encode()).hexdigest()


def _file(cache_folder: Path, key: str) -> Path:
    return cache_folder / "hivm" / key[:2] / f"{key}.json.gz"


def _shared_key(key: str) -> str:
    """Return the key of an artefact among those that hosts of other versions share too."""
    return hashlib.sha256("\0".join(["hivm", *(field.name for field in fields(Compiled)), key]).encode()).hexdigest()


def _read(file: Path) -> Compiled | None:
    try:
        stored = json.loads(gzip.decompress(file.read_bytes()))
        values = {field.name: stored[field.name] for field in fields(Compiled)}
        return Compiled(**values | {"dropped": tuple(values["dropped"])})
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError):  # absent, damaged or another format
        return None


def _write(file: Path, content: bytes) -> None:
    """Write the whole file or nothing, as other processes read and write the same folder."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as temporary:
            temporary.write(content)
        os.replace(temporary.name, file)
    except OSError as error:
        message = (
            f"cannot write to the cache folder {file.parent}: {error.strerror}; set TILEWISE_CACHE to another folder"
        )
        raise Unavailable(message) from error


def _compile(linalg: str, flags: list[str]) -> Compiled:
    with tempfile.TemporaryDirectory(prefix="tilewise-") as folder:
        source, scheduled = Path(folder, "kernel.mlir"), Path(folder, "scheduled.mlir")
        source.write_text(linalg)
        command = [
            tool("bishengir-compile"),
            str(source),
            *flags,
            f"--bishengir-print-ir-after={_SCHEDULED}",
            "-o",
            "kernel.o",
        ]
        if (run := _run(command, folder)) is None:
            return _timed_out()
        if run.returncode == -signal.SIGKILL:  # not the config's fault, so not cached
            raise Unavailable("the Ascend compiler was killed; is the machine out of memory? try a lower TILEWISE_JOBS")
        output = run.stdout + run.stderr
        functions = _functions(output)
        if "compilation still failed" in output or not functions:
            return _refused(output, run.returncode)
        scheduled.write_text("".join(functions))
        command = [tool("bishengir-opt"), str(scheduled), "--lower-affine", "--mlir-print-op-generic"]
        command += [flag for flag in flags if flag == _LOCATIONS]
        if (generic := _run(command, folder)) is None:
            return _timed_out()
        if generic.returncode != 0:
            return Compiled(refusal=f"bishengir-opt: {_first_error(generic.stderr)}")
        dropped, memory = _dropped(output)
        return Compiled(code=generic.stdout, dropped=dropped, overflowed=memory)


def _functions(output: str) -> list[str]:
    """Return the scheduled functions of the last attempt, by name; the compiler prints them again when it retries, and
    those of a mixed kernel in any order."""
    dumps = re.split(r"// -----// IR Dump After .*\n", output)[1:]
    functions = [found.group() if (found := _FUNCTION.match(dump)) else dump for dump in dumps]
    named = {found.group(1) if (found := _NAME.search(text)) else "": text for text in functions}
    return [named[name] for name in sorted(named)]


_FUNCTION = re.compile(r".*?\n}[^\n]*\n", flags=re.DOTALL)
_NAME = re.compile(r"func\.func @(\w+)")


def _run(command: list[str], folder: str) -> subprocess.CompletedProcess[str] | None:
    """Run a command; return the finished process, or None if it exceeded the time limit."""
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return None


def _timed_out() -> Compiled:
    return Compiled(refusal=f"the compiler did not finish within {_SECONDS} s", timed_out=True)


def _refused(output: str, code: int = 0) -> Compiled:
    overflow = re.search(r"(\w+) overflow, requires (\d+) bits while (\d+) bits available", output)
    if overflow:
        memory, required, available = _named(overflow.group(1)), int(overflow.group(2)), int(overflow.group(3))
        reason = f"{memory} overflow: {required} bits required, {available} available"
        return Compiled(refusal=reason, required_bits=required, available_bits=available, overflowed=memory)
    return Compiled(refusal=_first_error(output, crash("bishengir-compile", code, output)))


def _first_error(output: str, crashed: str = "") -> str:
    """Return the first error that explains others; where none is told, how the compiler `crashed`."""
    errors = [line.partition("error:")[2].strip() for line in output.splitlines() if "error:" in line]
    told = [error for error in errors if "hivmc" not in error]
    told.sort(key=lambda error: error.startswith("Failed to run"))  # which the errors behind it explain
    return told[0] if told else crashed or "the compiler failed without an error message"


def _dropped(output: str) -> tuple[tuple[str, ...], str]:
    """Return the options that were turned off so that the config fits, and the memory that overflowed with them."""
    note = re.search(r"Due to (\w+) overflow, automatically (.*); compilation then succeeded", output)
    if note is None:
        return (), ""
    return tuple(re.findall(r"set enable-([\w-]+) to false", note.group(2))), _named(note.group(1))


def _named(memory: str) -> str:
    """Return the vendor's name of an on-chip memory that the compiler names."""
    return ON_CHIP_NAMES.get(memory.lower(), memory)


@cache
def tool(name: str) -> str:
    """Return the path of a program of the open Ascend compiler; raises `Unavailable` if it is not installed."""
    found = importlib.util.find_spec("ascendnpuir")
    if found is None or found.origin is None:
        raise Unavailable(unavailable_reason())
    return str(Path(found.origin).parent / "bin" / name)


# The compiler's description of a part ----------------------------------------------------------------------------


def target(part: str, cache_folder: Path) -> Target:
    """Return the part as the compiler describes it in every module that it compiles for that part."""
    entries = _device_spec(part, cache_folder)
    return Target(
        family="ascend",
        name=part,
        cores=entries["VECTOR_CORE_COUNT"],
        on_chip_bytes=entries["UB_SIZE"] // 8,
        align_bytes=entries["UB_ALIGN_SIZE"] // 8,
        max_programs=65535,  # triton-ascend's launcher refuses more
    )


def _device_spec(part: str, cache_folder: Path) -> dict[str, int]:
    file = cache_folder / "parts" / f"{part}-{hashlib.sha256(fingerprint().encode()).hexdigest()[:12]}.json"
    try:
        return dict(json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):  # absent, damaged or another format
        entries = _query_device_spec(part)
    _write(file, json.dumps(entries).encode())
    return entries


def _query_device_spec(part: str) -> dict[str, int]:
    with tempfile.TemporaryDirectory(prefix="tilewise-") as folder:
        source = Path(folder, "empty.mlir")
        source.write_text("module {}")
        command = [tool("bishengir-compile"), str(source), f"--target={part}", "--enable-hivm-compile=true"]
        command += [
            "--enable-triton-kernel-compile=true",
            "--mlir-print-ir-after=hacc-append-device-spec",
            "-o",
            "empty.o",
        ]
        run = _run(command, folder)
    output = run.stdout + run.stderr if run is not None else f"error: it did not finish within {_SECONDS} s"
    entries = re.findall(r'#dlti\.dl_entry<"(\w+)", (\d+) : i32>', output)
    if not entries:
        raise Unavailable(f"the Ascend compiler has no description of part {part}: {_first_error(output)}")
    return {name: int(value) for name, value in entries}
