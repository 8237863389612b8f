"""The contract of the NPU code with packages that cannot run here: their releases have every name that it uses.

torch_npu is read from the wheels in `build/wheels`; `make wheels` fetches the oldest and the newest that the code
supports, and other wheels there are read too. triton-ascend is read from its installation, MSPTI from the names in its
published source. For every place that spells a name, a test shows that a misspelling is noticed.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import npu_names
import npu_releases
import pytest
from npu_names import Call, Use, all_uses, misspelt, sources, spellings, uses
from npu_releases import Package, installed, missing, wheel
from places import HELPERS, ROOT

from tilewise.tuner.devices.npu.compile import MEMORY_OPTION
from tilewise.tuner.devices.npu.faults import _COMPILING, FAULTS, MAX_PROGRAMS
from tilewise.tuner.devices.npu.records import DURATION, NAME, NAME_LENGTH, START
from tilewise.tuner.devices.npu.timer import EVICTION_BYTES
from tilewise.tuner.devices.npu.toolchain import _SWITCHES, COMPILER

WHEELS = sorted(
    (ROOT / "build" / "wheels").rglob("torch_npu-*.whl"),
    key=lambda file: tuple(int(number) for number in file.name.split("-")[1].split(".")[:3]),
)
PUBLISHED = HELPERS / "published" / "mspti"

if "ascend" not in os.listdir(Path(importlib.util.find_spec("triton").origin).parent / "backends"):
    pytest.skip("needs triton-ascend's sources", allow_module_level=True)


@pytest.fixture(scope="module")
def triton():
    return installed()["triton"]


@pytest.fixture(scope="module", params=WHEELS, ids=lambda file: file.name.split("-cp")[0])
def torch_npu(request):
    return wheel("torch_npu", request.param)


@pytest.fixture(scope="module")
def newest():
    if not WHEELS:
        pytest.skip(f"no torch_npu wheel in {ROOT / 'build' / 'wheels'}: make wheels")
    return wheel("torch_npu", WHEELS[-1])


@pytest.fixture(scope="module")
def mspti():
    return installed().get("mspti") or Package("mspti", PUBLISHED)


def used(package):
    return [use for _, use in all_uses() if use.path[0] == package]


# --- every name is there --------------------------------------------------------------------------------------------


@pytest.mark.in_part(1)
@pytest.mark.skipif(not WHEELS, reason="no torch_npu wheel in build/wheels: make wheels")
def test_every_name_of_torch_npu_stands_in_the_wheel(torch_npu):
    assert len(used("torch_npu")) > 30
    assert missing(used("torch_npu"), {"torch_npu": torch_npu}) == []


def test_every_name_of_triton_stands_in_triton_ascends_sources(triton):
    assert len(used("triton")) > 15
    assert missing(used("triton"), {"triton": triton}) == []


def test_every_name_of_mspti_stands_in_its_published_interface(mspti):
    assert len(used("mspti")) > 10
    assert missing(used("mspti"), {"mspti": mspti}) == []


def test_nothing_is_used_of_a_package_that_is_not_looked_up():
    assert {use.path[0] for _, use in all_uses()} == set(npu_names.PACKAGES)


@pytest.mark.full
def test_few_names_rest_on_their_spelling_alone(newest, triton, mspti):
    """The parameters of names defined in C++ or at run time cannot be read. They are listed so that none slips in."""
    packages = {"torch_npu": newest, "triton": triton, "mspti": mspti}
    spelt = {str(use) for _, use in all_uses() if packages[use.path[0]].require(use) == "spelling"}
    assert spelt == {
        "torch_npu.npu.get_device_properties().vector_core_num",
        "torch_npu.profiler.ProfilerActivity",
        "torch_npu.profiler.ProfilerActivity.NPU",
        "triton.compiler.CompiledKernel().metadata.required_ub_bits",
    }


# --- and a misspelt one is not --------------------------------------------------------------------------------------


@pytest.mark.full
def test_every_name_misspelt_is_found_missing(newest, triton, mspti):
    packages = {"torch_npu": newest, "triton": triton, "mspti": mspti}
    tried, unnoticed = 0, []
    for file in sources():
        text = file.read_text(encoding="utf-8")
        right = set(uses(text))
        for spelling in spellings(text):
            changed = [use for use in uses(misspelt(text, spelling)) if use not in right]
            tried += 1
            if not missing(changed, packages):
                unnoticed.append(f"{file.name}:{spelling.line}: {spelling.text}")
    assert unnoticed == []
    assert tried > 60


def test_every_attribute_parameter_item_and_import_of_theirs_is_among_the_spellings():
    """The mutations miss no kind of name: all kinds in this module are found."""
    text = """
import mspti
from triton.runtime.driver import driver as active
def f(kernels: list[mspti.KernelData]):
    import torch_npu
    one, two = torch_npu.npu.Event(enable_timing=True), mspti.KernelMonitor()
    two.start(cb=one.record)
    active.set_active(None)
    for data in kernels:
        print(data.name, getattr(data, "end", 0), torch_npu.npu.get_device_limit(0)["vector_core_num"])
    return [data.start for data in kernels]
"""
    assert [s.text for s in sorted(spellings(text), key=lambda s: (s.line, s.end))] == [
        "mspti", "triton.runtime.driver", "driver", "KernelData", "torch_npu", "npu", "Event", "enable_timing",
        "KernelMonitor", "start", "cb", "record", "set_active", "name", "end", "npu", "get_device_limit",
        "vector_core_num", "start",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("use", "complaint"),
    [
        (Use(("torch_npu", "npu", "syncronize")), "torch_npu.npu has no syncronize"),
        (Use(("torch_npu", "npu", "Event"), Call(0, ("timing",))), "__new__ takes no timing"),
        (Use(("torch_npu", "npu", "get_device_limit"), Call(0, ())), "is not given device"),
        (Use(("torch_npu", "npu", "get_device_limit", "()", "[aiv]")), "it returns cube_core_num, vector_core_num"),
        (Use(("torch_npu", "npu", "synchronize"), Call(2, ())), "takes 1 arguments, 2 are given"),
        (Use(("torch_npu", "npu", "Event", "()", "elapsed_tyme")), "class Event defines none"),
        (Use(("torch_npu", "npu", "get_device_properties", "()", "vector_core_nums")), "has no vector_core_nums"),
        (Use(("torch_npu", "profiler", "ProfilerLevel", "Level9")), "class ProfilerLevel defines none"),
        (Use(("torch_npy", "npu")), "its package is not known"),
    ],
)  # fmt: skip
def test_what_is_wrong_about_a_use_is_said_in_one_line(newest, use, complaint):
    (line,) = missing([use], {"torch_npu": newest})
    assert complaint in line
    assert "\n" not in line


# --- texts that our code expects, word for word ---------------------------------------------------------------------


def header(package):
    return next(f for f in package._files if f.name == "rt_error_codes.h").read_text()


@pytest.mark.parametrize("code", FAULTS)
def test_fault_codes_are_those_of_canns_header(newest, code):
    named = rf"#define\s+ACL_ERROR_RT_{FAULTS[code]}\s+{code}\b"
    assert re.search(named, header(newest))
    assert not re.search(named.replace(FAULTS[code], FAULTS[code] + "X"), header(newest))
    assert not re.search(named.replace(str(code), str(code + 100)), header(newest))


@pytest.mark.parametrize("column", [NAME, START, DURATION])
@pytest.mark.skipif(not WHEELS, reason="no torch_npu wheel in build/wheels: make wheels")
def test_columns_are_those_that_the_profiler_writes(torch_npu, column):
    headers = next(f for f in torch_npu._files if f.name == "_csv_headers.py").read_text()
    written = headers.partition("OP_SUMMARY_KERNEL_BASE_HEADERS")[2]
    assert f'"{column}"' in written
    assert f'"{column}x"' not in written


TRITON_TEXTS = [
    f"KERNEL_NAME_MAX_LEN = {NAME_LENGTH}\n",
    "cache_size = 192 * 1024 * 1024\n",
    "grid should be less than 65536",
    'shutil.which("' + COMPILER + '")',
    "hasattr(cls, 'instance')",
    "multibuffer: bool",
    f"--{MEMORY_OPTION}",
    "class MLIRCompilationError",
    "class CompileTimeAssertionFailure",
    "class UnsupportedLanguageConstruct",
]
"""Texts of triton-ascend on which our code depends: limits, messages, the compiler's location, names of errors."""


@pytest.mark.parametrize("text", TRITON_TEXTS)
def test_triton_ascend_says_what_is_expected_of_it(triton, text):
    assert triton.mentions(text)
    middle = len(text) // 2
    assert not triton.mentions(text[:middle] + "_" + text[middle:])


def test_our_numbers_are_theirs():
    assert MAX_PROGRAMS + 1 == 65536
    assert EVICTION_BYTES == 192 * 1024 * 1024


def test_the_backend_asks_npuutils_for_the_part_and_nothing_else():
    """So a stand-in that knows only the part is enough for compiling."""
    compiler = Path(importlib.util.find_spec("triton").origin).parent / "backends" / "ascend" / "compiler.py"
    used_names = re.findall(r"NPUUtils\(\)\.(\w+)", compiler.read_text())
    assert set(used_names) == {"get_arch"}


def environment_variables():
    """Return the variables of CANN and triton-ascend, as our modules spell them."""
    text = "".join(file.read_text() for file in sources())
    return sorted(set(re.findall(r'"((?:TRITON|ASCEND|ENABLE)_[A-Z_]+)"', text)))


ELSEWHERE = {"ASCEND_RT_VISIBLE_DEVICES", "TRITON_INTERPRET", "TRITON_CACHE_DIR"}
"""Variables read by CANN itself (torch_npu names the first too) and by every Triton."""


def test_the_environment_variables_are_triton_ascends_with_its_defaults(triton):
    names = environment_variables()
    assert set(_SWITCHES) < set(names)
    for name in set(names) - ELSEWHERE:
        assert triton.mentions(f'"{name}"'), name
        assert not triton.mentions(f'"{name}X"'), name
    for name, default in _SWITCHES.items():
        assert triton.mentions(f'os.getenv("{name}", "{default}")'), name


def test_the_other_environment_variables_stand_where_they_are_read(newest, triton):
    assert newest.mentions("ASCEND_RT_VISIBLE_DEVICES")
    assert triton.mentions("TRITON_INTERPRET")
    assert triton.mentions("TRITON_CACHE_DIR")


def test_every_kind_of_error_that_is_known_by_name_stands_in_triton(triton):
    for name in _COMPILING:
        assert triton.mentions(f"class {name}("), name
        assert not triton.mentions(f"class {name}x("), name


def test_a_package_is_found_without_being_imported():
    code = "import sys; from npu_releases import installed; installed();print('triton' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=HELPERS, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert npu_releases.installed()["triton"].name == "triton"
