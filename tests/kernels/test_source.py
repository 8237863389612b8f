"""The source hash changes with a kernel's computation and with nothing else."""

import dataclasses
import io
import keyword
import tokenize
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewise.errors import BadSpec
from tilewise.kernels import registry
from tilewise.kernels.source import locate, source_hash

TEXT = '''\
"""A kernel's file."""

from tilewise.kernels import registry


def jit(**options):
    return lambda function: function


SCALE = 2
LOW, HIGH = 1, 9
UNUSED = 5
if SCALE > 1:
    STEP = 4
else:
    STEP = 8


def helper(x):
    """What it does."""
    return x * SCALE


def unrelated(x):
    return x - 1


@jit(stages=HIGH)
def kernel(x, y="text", *, z: int = 3):
    """Adds up.

    And more.
    """
    total = 0
    for i in range(0, x, STEP):
        if i < LOW:
            total += helper(i) + z  # a comment
        else:
            total -= 1
    return total, y
'''


class Edited:
    """A kernel's file that can be rewritten, with a spec that refers to it."""

    def __init__(self, file: Path, text: str, name: str = "kernel") -> None:
        self.file = file
        file.write_text(text)
        module = registry._import_file(file)
        self.spec = dataclasses.replace(registry.load("row_reduce"), function=getattr(module, name))

    def hash(self, text: str) -> str:
        self.file.write_text(text)
        return source_hash(self.spec)


@pytest.fixture
def edited(tmp_path):
    return Edited(tmp_path / "mine.py", TEXT)


def replaced(old: str, new: str) -> str:
    assert TEXT.count(old) == 1
    return TEXT.replace(old, new)


@pytest.mark.parametrize(
    "text",
    [
        replaced("  # a comment", ""),
        replaced("  # a comment", "  # another"),
        replaced("    total = 0\n", "    # first\n    total = 0\n"),
        replaced("    total = 0\n", "\n\n    total = 0\n\n"),
        replaced('    """What it does."""\n', ""),
        replaced('    """What it does."""\n', "    'In other words.'  # really\n"),
        replaced('    """What it does."""\n    return', '    """What it does."""; return'),
        replaced("And more.", "And less.\n\n\n    Much less."),
        replaced('"""A kernel\'s file."""', ""),
        replaced("UNUSED = 5", "UNUSED = 6"),
        replaced("x - 1", "x - 2"),
        replaced("return x * SCALE", "return x  *  SCALE"),
        TEXT.replace("    ", "  "),
        TEXT.replace("    ", "\t"),
        "\n" * 20 + TEXT,
        TEXT + "\n\ndef later():\n    pass\n",
        TEXT.replace("SCALE = 2\nLOW, HIGH = 1, 9\n", "LOW, HIGH = 1, 9\nSCALE = 2\n"),
        TEXT.rstrip("\n"),
    ],
)
def test_what_does_not_count(edited, text):
    assert text != TEXT
    assert edited.hash(text) == edited.hash(TEXT)


SCRIPT = """\
WIDTH = 4


def kernel(x, out, n):
    y = [x + each for each in range(WIDTH)]
    total = lambda x: x + STEP

    def inner(y):
        return y, total(n)

    return inner(y), out


n = 20000
if __name__ == "__main__":
    STEP = 2
    x = [0] * n
    y, each = x, 1
    out, inner, total = kernel(x, [], n), 1, 2
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("n = 20000", "n = 30000"),
        ("x = [0] * n", "x = [1] * n"),
        ("y, each = x, 1", "y, each = x, 2"),
        ("1, 2\n", "1, 3\n"),
        ("    out, inner, total = kernel(x, [], n), 1, 2\n", ""),
        ("    STEP = 2\n", "    print(x)\n    STEP = 2\n"),
    ],
)
def test_what_a_script_binds_under_a_local_name_of_the_kernel_does_not_count(tmp_path, old, new):
    edited = Edited(tmp_path / "script.py", SCRIPT)
    assert SCRIPT.count(old) == 1
    assert edited.hash(SCRIPT.replace(old, new)) == edited.hash(SCRIPT)


@pytest.mark.parametrize(("old", "new"), [("WIDTH = 4", "WIDTH = 8"), ("STEP = 2", "STEP = 3")])
def test_what_a_script_binds_for_the_kernel_counts(tmp_path, old, new):
    edited = Edited(tmp_path / "script.py", SCRIPT)
    assert edited.hash(SCRIPT.replace(old, new)) != edited.hash(SCRIPT)


def test_where_a_kernel_stands_does_not_count(tmp_path, edited):
    (tmp_path / "elsewhere").mkdir()
    moved = Edited(tmp_path / "elsewhere" / "renamed.py", TEXT)
    assert moved.hash(TEXT) == edited.hash(TEXT)


def test_line_ends_and_a_byte_order_mark_do_not_count(edited):
    before = edited.hash(TEXT)
    edited.file.write_bytes(TEXT.replace("\n", "\r\n").encode())
    assert source_hash(edited.spec) == before
    edited.file.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert source_hash(edited.spec) == before


def mutations() -> list[str]:
    """Return copies of the file with one token changed, for each token of the kernel and its dependencies."""
    swaps = {"+": "-", "*": "/", "<": "<=", ">": ">=", "+=": "-=", "-=": "+="}
    lines = TEXT.splitlines(keepends=True)
    unused = {i for i, line in enumerate(lines, 1) if line.startswith(("from", "UNUSED")) or "x - 1" in line}
    unused |= {i for i, line in enumerate(lines, 1) if line.startswith("def unrelated")}
    texts = []
    for token in tokenize.generate_tokens(io.StringIO(TEXT).readline):
        (row, start), (last, end) = token.start, token.end
        if row in unused or row != last or token.string in ("kernel", '"""A kernel\'s file."""', '"""What it does."""'):
            continue
        if token.type == tokenize.NUMBER:
            new = f"{token.string}0"
        elif token.type == tokenize.STRING:
            new = '"other"'
        elif token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            new = f"{token.string}_"
        elif token.string in swaps:
            new = swaps[token.string]
        else:
            continue
        line = lines[row - 1]
        texts.append("".join([*lines[: row - 1], line[:start] + new + line[end:], *lines[row:]]))
    return texts


def test_every_token_counts_in_the_kernel_its_decorator_its_helpers_and_its_constants(edited):
    before = edited.hash(TEXT)
    changed = mutations()
    assert len(changed) > 45
    same = [text for text in changed if edited.hash(text) == before]
    assert not same


@pytest.mark.parametrize(
    "text",
    [
        replaced("            total -= 1\n", "        total -= 1\n").replace(
            "        else:\n", ""
        ),  # changes only indentation
        replaced("@jit(stages=HIGH)\n", ""),
        replaced("@jit(stages=HIGH)\n", "@jit(stages=HIGH, warps=4)\n"),
        replaced("@jit(stages=HIGH)\n", "@jit(stages=HIGH)\n@jit()\n"),
        replaced("LOW, HIGH = 1, 9", "LOW, HIGH = 1, 8"),
        replaced("    STEP = 4", "    STEP = 5"),
        replaced("UNUSED = 5", "UNUSED = 5\nSCALE += 1"),
        replaced("UNUSED = 5", "UNUSED = 5\nSCALE: int = 7"),
        replaced('*, z: int = 3):\n    """Adds up.', '*, z: int = 3):\n    y = """Adds up.'),  # no longer a docstring
    ],
)
def test_what_counts(edited, text):
    assert edited.hash(text) != edited.hash(TEXT)


def test_a_body_beside_its_docstring_on_one_line_counts(tmp_path):
    text = 'def kernel(x): "What it does."; return x + 1\n'
    edited = Edited(tmp_path / "mine.py", text)
    before = edited.hash(text)
    assert edited.hash(text.replace("+ 1", "+ 2")) != before
    assert edited.hash(text.replace("What it", "What else it")) == before


def test_the_headline_kernels_hash_follows_its_file(tmp_path):
    spec = registry.load("row_reduce")
    [(path, name)] = locate(spec)
    text = path.read_text()
    stand_in = f"def {name}():\n    pass\n"  # imported instead: needs no triton
    copy = Edited(tmp_path / "copy.py", stand_in, name)
    assert copy.hash(text) == source_hash(spec)
    assert copy.hash(text.replace("2.0 * x", "2.5 * x")) != source_hash(spec)
    assert copy.hash(text.replace("@triton.jit", "@triton.jit(do_not_specialize=['M'])")) != source_hash(spec)


@pytest.mark.parametrize("text", ["no_such_package.module:k", "tilewise.no_such_module:k", ":k", "sys:k", "tilewise"])
def test_a_function_in_no_module_is_one_clear_line(text):
    spec = dataclasses.replace(registry.load("row_reduce"), function=text)
    with pytest.raises(BadSpec) as caught:
        source_hash(spec)
    assert "no such module was found" in str(caught.value) or "has no function ''" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_function_without_a_file_is_refused():
    names = {}
    exec("def kernel(x): pass", names)
    wrapped = SimpleNamespace(fn=SimpleNamespace(fn=names["kernel"]))
    for function in (names["kernel"], wrapped):
        spec = dataclasses.replace(registry.load("row_reduce"), function=function)
        with pytest.raises(BadSpec, match=r"row_reduce has a function without a source file; define it in a .py file"):
            source_hash(spec)


def test_a_function_that_the_file_does_not_define(edited):
    with pytest.raises(BadSpec, match="has no function 'kernel' at its top level"):
        edited.hash("def other():\n    pass\n")


def test_what_a_function_around_the_kernel_was_given_counts_by_its_place(tmp_path):
    file = tmp_path / "made.py"
    file.write_text("def make(helper):\n    def kernel(x):\n        return helper(x)\n    return kernel\n")
    spec = dataclasses.replace(registry.load("row_reduce"), function=f"{file}:make.kernel")
    with pytest.raises(BadSpec, match="uses helper, given to a function around it"):
        source_hash(spec)
    one, other = (dataclasses.replace(spec, imported={"helper": f"math:{name}"}) for name in ("sin", "cos"))
    assert source_hash(one) == source_hash(dataclasses.replace(one)) != source_hash(other)
