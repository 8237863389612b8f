"""The registry and every spec work without torch and triton."""

import subprocess
import sys

from tilewise.kernels import registry

BLOCK = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "triton", "torch_npu", "numpy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCK + script, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_every_spec_answers_everything_without_torch_and_triton():
    done = run("""
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.kernels.spec import Problem, Target

targets = [Target("ascend", "a", 40, 196608, 32, 65535), Target("nvidia", "n", 132, 233472, 16, 2**31 - 1)]
for name in registry.names():
    spec = registry.load(name)
    problem = Problem(name, {dimension: 100 for dimension in spec.dims}, spec.dtypes[0])
    for target in targets:
        config = spec.default(problem, target)
        assert spec.plan(config, problem) and spec.tiling(config, problem).programs > 0
        assert config.keys() == {parameter.name for parameter in spec.parameters if parameter.values(problem, target)}
    assert spec.bytes(problem) > 0 and spec.flops(problem) > 0
    print(name, source_hash(spec))
assert not {"torch", "triton", "numpy"} & sys.modules.keys()
""")
    assert done.returncode == 0, done.stderr
    lines = dict(line.split() for line in done.stdout.splitlines())
    assert sorted(lines) == registry.names()
    assert all(len(text) == 16 for text in lines.values())


def test_a_users_kernel_without_triton_is_one_clear_line(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("import triton\n")
    done = run(
        """
from tilewise.errors import BadSpec
from tilewise.kernels import registry
try:
    registry.load(sys.argv[1] + ":SPEC")
except BadSpec as error:
    print(error)
""",
        str(file),
    )
    assert (
        done.stdout == f"{file} does not import: ModuleNotFoundError: No module named 'triton' (mine.py, line 1)\n"
    ), done.stderr
