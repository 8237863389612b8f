"""Fixtures for the tests of the modelled device: one cache of compiled kernels, and small hand-written programs."""

import functools
import math

import pytest
from places import HELPERS

from tilewise.kernels import registry
from tilewise.kernels.spec import Problem
from tilewise.settings import read_settings
from tilewise.tuner.devices.ascend_model import toolchain
from tilewise.tuner.devices.ascend_model.clock.program_clock import Memory, ProgramClock, Rate
from tilewise.tuner.devices.ascend_model.ir.hivm import parse
from tilewise.tuner.hardware.ascend_costs import costs

PART = "Ascend910B4"

GM = "memref<4096xf32, strided<[1]>, #hivm.address_space<gm>>"
UB = "memref<4096xf32, #hivm.address_space<ub>>"

MODULE = """
"builtin.module"() ({
  "func.func"() <{function_type = () -> (), sym_name = "by_hand"}> ({
  ^bb0(%ffts: i64, %lock: memref<?xi8, #hivm.address_space<gm>>, %workspace: memref<?xi8, #hivm.address_space<gm>>,
       %arg: memref<?xf32, #hivm.address_space<gm>>, %n: i32, %gx: i32, %gy: i32, %gz: i32):
    %zero = "arith.constant"() <{value = 0 : i64}> : () -> i64
    %c0 = "arith.constant"() <{value = 0 : index}> : () -> index
    %c1 = "arith.constant"() <{value = 1 : index}> : () -> index
    %x = "memref.reinterpret_cast"(%arg) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>,
      static_offsets = array<i64: 0>, static_sizes = array<i64: 4096>, static_strides = array<i64: 1>}>
      : (memref<?xf32, #hivm.address_space<gm>>) -> GM
    %a = "hivm.hir.pointer_cast"(%zero) <{operandSegmentSizes = array<i32: 1, 0>}> : (i64) -> UB
    BODY
    "func.return"() : () -> ()
  }) {hacc.entry} : () -> ()
}) : () -> ()
"""

STATEMENTS = {
    "load": '"hivm.hir.load"(%x, %a) : (GM, UB) -> ()',
    "store": '"hivm.hir.store"(%a, %x) : (UB, GM) -> ()',
    "add": '"hivm.hir.vadd"(%a, %a, %a) <{operandSegmentSizes = array<i32: 2, 1, 0>}> : (UB, UB, UB) -> ()',
    "exp": '"hivm.hir.vexp"(%a, %a) <{operandSegmentSizes = array<i32: 1, 1, 0>}> : (UB, UB) -> ()',
}


def statement(text):
    """Return the MLIR of one line: `load`, `exp`, `set MTE2 V 0`, `wait MTE2 V 0`, `barrier V`, or MLIR itself."""
    match text.split():
        case ["set" | "wait" as verb, source, target, event]:
            pipes = f"set_pipe = #hivm.pipe<PIPE_{source}>, wait_pipe = #hivm.pipe<PIPE_{target}>"
            return f'"hivm.hir.{verb}_flag"() <{{{pipes}, static_event_id = #hivm.event<EVENT_ID{event}>}}> : () -> ()'
        case ["barrier", pipe]:
            return f'"hivm.hir.pipe_barrier"() <{{pipe = #hivm.pipe<PIPE_{pipe}>}}> : () -> ()'
        case [word] if word in STATEMENTS:
            return STATEMENTS[word]
    return text


LATENCY = 260.0
"""Cycles until the first byte of a transfer arrives, in programs timed by `run`."""


def by_hand(*lines):
    """Return the parsed function of a program of these lines; it takes one buffer of 4096 float32 and one number."""
    body = "\n".join(statement(line) for line in lines)
    return parse(MODULE.replace("BODY", body).replace("GM", GM).replace("UB", UB))


@pytest.fixture(autouse=True, scope="session")
def cache_folder():
    """The folder of compiled kernels, which all tests of a run share."""
    if reason := toolchain.unavailable_reason():
        pytest.skip(reason)
    return read_settings().cache_folder


@pytest.fixture(scope="session")
def target(cache_folder):
    return toolchain.target(PART, cache_folder)


@pytest.fixture(scope="session")
def row_reduce():
    return registry.load("row_reduce")


@pytest.fixture(scope="session")
def kernel_file():
    """A user's file of small kernels, one spec per kind of operation."""
    return HELPERS / "operation_kernels.py"


@pytest.fixture(scope="session")
def rows():
    """A config of row_reduce by its three tile sizes."""

    def make(rows, sub_rows, cols, *, multibuffer=True):
        tile = {"BLOCK_SIZE_M": rows, "SUB_BLOCK_SIZE_M": sub_rows, "BLOCK_SIZE_N": cols}
        return tile | {"multibuffer": multibuffer}

    return make


@pytest.fixture(scope="session")
def problem():
    def make(m, n, dtype="float32"):
        return Problem("row_reduce", {"M": m, "N": n}, dtype)

    return make


@pytest.fixture(scope="session")
def linalg():
    """Triton's output for a config's only launch."""

    def lower(spec, problem, config):
        (launch,) = spec.plan(config, problem)
        return toolchain.lower(spec, problem, config, launch, PART)

    return lower


@pytest.fixture(scope="session")
def compiled(cache_folder, linalg):
    """The compiler's result for a config's only launch."""

    def compile_config(spec, problem, config, folder=cache_folder):
        return toolchain.compile_linalg(linalg(spec, problem, config), PART, config, cache_folder=folder)

    return compile_config


@pytest.fixture(scope="session")
def function(compiled):
    """The scheduled code of a config's only launch, parsed once, and the scalars that it is called with."""
    parse_once = functools.cache(parse)

    def make(spec, problem, config):
        (launch,) = spec.plan(config, problem)
        _, scalars = toolchain.arguments(spec, problem, config, launch)
        return parse_once(compiled(spec, problem, config).code), [*scalars, *[*launch.grid, 1, 1][:3]]

    return make


@pytest.fixture(scope="session")
def program():
    return by_hand


@pytest.fixture(scope="session")
def run():
    """Time one program, given as a function or as lines; `rate` and `share` are in bytes per cycle, both ways."""

    def time(function, *more, arguments=(1, 1, 1, 1), program=0, rate=32.0, share=math.inf, end="value"):
        if isinstance(function, str):
            function = by_hand(function, *more)
        rates = dict.fromkeys(range(len(function.arguments)), Rate(rate, share, LATENCY))
        memory = Memory(rates, rates)
        return ProgramClock(function, costs(end)).run(arguments, program, memory)

    return time
