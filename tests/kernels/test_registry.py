"""Loading of kernels by name and by file, with a one-line error for every file without a spec."""

import pytest

from tilewise.errors import BadSpec, UnknownKernel
from tilewise.kernels import registry
from tilewise.kernels.spec import KernelSpec

SPEC_TEXT = """
from tilewise.kernels.spec import KernelSpec, Tiling

def function(x_ptr):
    pass

def _spec(name):
    return KernelSpec(
        name=name, summary="{summary}", function=function, dims=("M",), dtypes=("float32",), parameters=(),
        buffers=lambda problem: {{}}, scalars=lambda problem: {{}}, grid=lambda config, problem: (1,),
        tiling=lambda config, problem: Tiling((), 0, 0), reference=lambda inputs: {{}}, flops=lambda problem: 1,
        default=lambda problem, target: {{}},
    )

SPEC = _spec("mine")
OTHER = _spec("other")
NUMBER = 3
"""


@pytest.fixture
def user_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(SPEC_TEXT.format(summary="a user's"))
    return file


def refused(text: str, error: type[Exception] = BadSpec) -> str:
    with pytest.raises(error) as caught:
        registry.load(text)
    message = str(caught.value)
    assert "\n" not in message
    assert message == message.strip()
    return message


@pytest.mark.parametrize("name", registry.names())
def test_a_registered_kernel_says_how_to_find_it_again(name):
    spec = registry.load(name)
    assert isinstance(spec, KernelSpec)
    assert (spec.name, spec.origin) == (name, name)


def test_an_unknown_name_lists_the_known_ones_and_the_way_to_ones_own():
    message = refused("row_redouce", UnknownKernel)
    assert (
        message == f"unknown kernel 'row_redouce'; did you mean row_reduce? registered: {', '.join(registry.names())}, "
        "or path/to/file.py:SPEC for your own"
    )


@pytest.mark.parametrize("name", ["row_reduce:SPEC", "mine.txt:SPEC", ":SPEC"])
def test_a_name_with_an_attribute_that_is_no_python_file_is_an_unknown_kernel(name):
    assert refused(name, UnknownKernel).startswith(f"unknown kernel {name!r}")


def test_a_users_spec_is_loaded_and_found_again_from_anywhere(user_file, monkeypatch):
    monkeypatch.chdir(user_file.parent)
    spec = registry.load("mine.py:OTHER")
    assert spec.name == "other"
    assert spec.origin == f"{user_file}:OTHER"
    monkeypatch.chdir("/")
    assert registry.load(spec.origin).function is spec.function


def test_two_files_of_one_name_do_not_meet(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(SPEC_TEXT.format(summary=folder))
    loaded = {folder: registry.load(f"{tmp_path / folder / 'mine.py'}:SPEC") for folder in ("a", "b")}
    assert {folder: spec.summary for folder, spec in loaded.items()} == {"a": "a", "b": "b"}


def test_no_file(tmp_path):
    file = tmp_path / "none.py"
    assert refused(f"{file}:SPEC") == f"no file {file}; expected a Python file that holds a KernelSpec"


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "folder.py").mkdir()
    assert refused(f"{tmp_path / 'folder.py'}:SPEC").startswith("no file ")


def test_a_file_of_several_specs_without_the_name_of_one(user_file):
    assert refused(str(user_file)) == (
        f"{user_file} names a file but no spec; write {user_file}:SPEC; it holds OTHER, SPEC"
    )


def test_a_file_of_one_spec_needs_no_name(user_file, tmp_path):
    file = tmp_path / "single.py"
    file.write_text(user_file.read_text() + "\ndel OTHER\n")
    assert registry.load(str(file)).origin == f"{file}:SPEC"


@pytest.mark.parametrize("name", ["NUMBER", "MISSING", "", "function"])
def test_a_name_that_is_no_spec_lists_those_that_are(user_file, name):
    message = refused(f"{user_file}:{name}")
    assert message == f"{user_file} has no KernelSpec called {name!r}; it holds OTHER, SPEC"


def test_a_file_that_holds_no_spec(tmp_path):
    file = tmp_path / "empty.py"
    file.write_text("")
    assert refused(f"{file}:SPEC") == f"{file} has no KernelSpec called 'SPEC'; it holds none"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def broken(:\n", "SyntaxError: invalid syntax"),
        ("import no_such_package\n", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("raise RuntimeError('first line\\nsecond line')\n", "RuntimeError: first line"),
        ("raise RuntimeError\n", "RuntimeError"),
        ("raise SystemExit('bye')\n", "SystemExit: bye"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("raise SystemExit\n", "SystemExit"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("\0", "SyntaxError: source code string cannot contain null bytes"),
    ],
)
def test_a_file_that_does_not_import_says_why_in_one_line(tmp_path, text, reason):
    file = tmp_path / "bad.py"
    file.write_text(text)
    message = refused(f"{file}:SPEC")
    assert message.startswith(f"{file} does not import: {reason}")


def test_a_file_that_was_put_right_imports(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("raise RuntimeError\n")
    refused(f"{file}:SPEC")
    file.write_text(SPEC_TEXT.format(summary="put right"))
    assert registry.load(f"{file}:SPEC").summary == "put right"


def test_ctrl_c_while_a_file_imports_is_no_error_of_the_file(tmp_path):
    file = tmp_path / "slow.py"
    file.write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        registry.load(f"{file}:SPEC")


@pytest.fixture
def registering(monkeypatch):
    """Forget kernels that the test registers."""
    monkeypatch.setattr(registry, "_own", {})


def test_a_users_kernel_can_be_made_known_by_its_name(user_file, registering):
    assert registry.register(f"{user_file}:SPEC") == "mine"
    assert "mine" in registry.names()
    assert registry.load("mine").origin == registry.place("mine") == f"{user_file}:SPEC"
    assert registry.register(f"{user_file}:SPEC") == "mine"
    assert registry.register("softmax") == "softmax"
    assert registry.place("softmax") == "softmax"


def test_two_kernels_cannot_have_one_name(user_file, registering, tmp_path):
    registry.register(f"{user_file}:SPEC")
    same = tmp_path / "same.py"
    same.write_text(SPEC_TEXT.format(summary="another"))
    with pytest.raises(BadSpec, match=r"names its kernel mine, but .*mine\.py:SPEC already has that name"):
        registry.register(f"{same}:SPEC")
    ours = tmp_path / "ours.py"
    ours.write_text(SPEC_TEXT.format(summary="another").replace('"other"', '"softmax"'))
    with pytest.raises(BadSpec, match="names its kernel softmax, but softmax already has that name"):
        registry.register(f"{ours}:OTHER")
