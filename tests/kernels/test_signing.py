"""Kernels that travel: signed from a file, accepted with the same key only, and imported only then."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from tilewise.errors import BadSpec, NotFound, UsageError
from tilewise.kernels import registry, signing
from tilewise.kernels.signing import Arrivals, arrivals_here, read_key, sign

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
SPEC_TEXT = """
from tilewise.kernels.spec import KernelSpec, Tiling

def function(x_ptr):
    pass

SPEC = KernelSpec(
    name="mine", summary="{summary}", function=function, dims=("M",), dtypes=("float32",), parameters=(),
    buffers=lambda problem: {{}}, scalars=lambda problem: {{}}, grid=lambda config, problem: (1,),
    tiling=lambda config, problem: Tiling((), 0, 0), reference=lambda inputs: {{}}, flops=lambda problem: 1,
    default=lambda problem, target: {{}},
)
"""
TOUCH = "import pathlib; pathlib.Path(__file__).with_suffix('.imported').touch()\n"


class Shelf:
    """Signed kernels in memory. The digest that it tells may be wrong, as that of a database may be."""

    def __init__(self, *kernels):
        self.kernels = {kernel.name: kernel for kernel in kernels}

    def digests(self):
        return {name: kernel.digest for name, kernel in self.kernels.items()}

    def get(self, name):
        if self.kernels[name] is None:
            raise NotFound(f"no {name}")
        return self.kernels[name]


@pytest.fixture(autouse=True)
def registering(monkeypatch):
    """Forget kernels that the test registers."""
    monkeypatch.setattr(registry, "_own", {})


@pytest.fixture
def user_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(TOUCH + SPEC_TEXT.format(summary="a user's"))
    return file


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "kernels"


def imported(folder):
    return list(folder.rglob("*.imported"))


def test_a_signed_kernel_is_known_on_another_host_without_its_file(user_file, folder):
    signed = sign(f"{user_file}:SPEC", KEY)
    user_file.unlink()
    arrivals = Arrivals(Shelf(signed), KEY, folder)
    assert arrivals.receive() == []
    assert registry.load("mine").summary == "a user's"
    assert registry.place("mine") == f"{folder / signed.digest / 'mine.py'}:SPEC"
    assert len(imported(folder)) == 1
    assert arrivals.receive() == []


@pytest.mark.parametrize(
    "change",
    [
        {"signature": ""},
        {"text": TOUCH + SPEC_TEXT.format(summary="another")},
        {"file": "other.py"},
        {"spec": "OTHER"},
    ],
)
def test_what_is_not_signed_as_it_is_gets_refused_in_one_line_and_is_not_imported(user_file, folder, change):
    shelf = Shelf(replace(sign(f"{user_file}:SPEC", KEY), **change))
    arrivals = Arrivals(shelf, KEY, folder)
    assert arrivals.receive() == ["the kernel mine is refused: it is not signed with this worker's key"]
    assert arrivals.receive() == []  # it says so once
    assert (registry.place("mine"), imported(folder)) == ("", [])


def test_a_kernel_that_another_key_signed_is_refused_until_it_is_signed_again(user_file, folder):
    shelf = Shelf(sign(f"{user_file}:SPEC", OTHER_KEY))
    arrivals = Arrivals(shelf, KEY, folder)
    assert len(arrivals.receive()) == 1
    user_file.write_text(SPEC_TEXT.format(summary="the next version"))
    forget_module(user_file)
    shelf.kernels["mine"] = sign(f"{user_file}:SPEC", KEY)
    assert arrivals.receive() == []
    assert registry.load("mine").summary == "the next version"


def forget_module(file):
    """Have the file imported again, as a new process would."""
    for name in [name for name, module in sys.modules.items() if getattr(module, "__file__", None) == str(file)]:
        del sys.modules[name]


def test_a_signed_kernel_under_the_name_of_another_is_refused(user_file, folder):
    signed = sign(f"{user_file}:SPEC", KEY)
    shelf = Shelf(signed)
    shelf.kernels = {"softmax": signed}
    assert Arrivals(shelf, KEY, folder).receive() == [
        "the kernel softmax is refused: it is not signed with this worker's key"
    ]
    assert imported(folder) == []


def test_a_new_version_replaces_the_old_one_but_no_file_that_the_operator_named(user_file, folder):
    first = sign(f"{user_file}:SPEC", KEY)
    text = SPEC_TEXT.format(summary="the next version")
    second = replace(first, text=text)
    second = replace(second, signature=second.signature_by(KEY))
    shelf = Shelf(first)
    arrivals = Arrivals(shelf, KEY, folder)
    arrivals.receive()
    shelf.kernels["mine"] = second
    assert arrivals.receive() == []
    assert registry.load("mine").summary == "the next version"

    registry.forget("mine")
    registry.register(f"{user_file}:SPEC")
    [line] = Arrivals(shelf, KEY, folder).receive()
    assert line.startswith("the kernel mine is refused: ") and "already has that name" in line
    assert registry.place("mine") == f"{user_file}:SPEC"


def test_a_signed_file_that_does_not_import_is_refused_in_one_line(user_file, folder):
    broken = replace(sign(f"{user_file}:SPEC", KEY), text="raise RuntimeError('no such\\nmodule')\n")
    broken = replace(broken, signature=broken.signature_by(KEY))
    [line] = Arrivals(Shelf(broken), KEY, folder).receive()
    assert line.startswith("the kernel mine is refused: ") and "\n" not in line


@pytest.mark.parametrize("file", ["../mine.py", "/tmp/mine.py", "mine.txt", ""])
def test_a_signed_file_name_that_leads_elsewhere_is_refused(user_file, folder, file):
    odd = replace(sign(f"{user_file}:SPEC", KEY), file=file)
    odd = replace(odd, signature=odd.signature_by(KEY))
    [line] = Arrivals(Shelf(odd), KEY, folder).receive()
    assert "is not the name of a Python file" in line


def test_a_signed_file_that_holds_a_kernel_of_another_name_is_refused_and_forgotten(user_file, folder):
    other = replace(sign(f"{user_file}:SPEC", KEY), text=SPEC_TEXT.format(summary="").replace('"mine"', '"theirs"'))
    other = replace(other, signature=other.signature_by(KEY))
    [line] = Arrivals(Shelf(other), KEY, folder).receive()
    assert line == "the kernel mine is refused: its file holds the kernel theirs"
    assert not registry.place("theirs") and not registry.place("mine")


def test_a_kernel_that_was_withdrawn_meanwhile_is_passed_over(user_file, folder):
    class Withdrawn(Shelf):
        def digests(self):
            return {"mine": "abc"}

    shelf = Withdrawn()
    shelf.kernels["mine"] = None
    assert Arrivals(shelf, KEY, folder).receive() == []


def test_only_one_whole_file_can_be_signed(user_file, tmp_path):
    with pytest.raises(BadSpec, match="softmax is the project's own kernel, which every worker has"):
        sign("softmax", KEY)
    helper = tmp_path / "helper.py"
    helper.write_text("def function(x_ptr):\n    pass\n")
    text = SPEC_TEXT.format(summary="two files").replace("function=function", f'function="{helper}:function"')
    user_file.write_text(text)
    with pytest.raises(BadSpec, match=r"mine uses function of .*helper\.py; put all of it into .*mine\.py"):
        sign(f"{user_file}:SPEC", KEY)


def test_a_file_of_up_to_a_mebibyte_is_signed(user_file):
    text = user_file.read_text()
    filled = text + "#" * ((1 << 20) - len(text.encode()))
    user_file.write_text(filled)
    assert sign(f"{user_file}:SPEC", KEY).text == filled
    user_file.write_text(filled + "#")
    with pytest.raises(BadSpec, match=r"mine\.py has more than 1 MiB"):
        sign(f"{user_file}:SPEC", KEY)


def test_a_key_is_long_and_its_owners_alone(tmp_path):
    file = tmp_path / "key"
    with pytest.raises(UsageError, match=r"cannot read the kernel key .*: No such file"):
        read_key(file)
    file.write_bytes(KEY)
    file.chmod(0o640)
    with pytest.raises(UsageError, match=r"others may read the kernel key .*; chmod 600 it"):
        read_key(file)
    file.chmod(0o600)
    assert read_key(file) == KEY
    file.write_bytes(KEY[:31])
    with pytest.raises(UsageError, match="has 31 bytes; expected 32 random ones or more"):
        read_key(file)


def test_a_process_without_a_key_takes_no_kernel(tmp_path, monkeypatch):
    monkeypatch.delenv("TILEWISE_KERNEL_KEY", raising=False)
    assert arrivals_here(Shelf()) is None
    file = tmp_path / "key"
    file.write_bytes(KEY)
    file.chmod(0o600)
    monkeypatch.setenv("TILEWISE_KERNEL_KEY", str(file))
    assert isinstance(arrivals_here(Shelf()), signing.Arrivals)
