"""The code by which vLLM, SGLang, FLA and FlagGems find and read configs, taken out of their wheels and run here.

Imported whole, the packages need a GPU, CUDA builds of torch and dozens of other packages. Their functions run as they
stand; only the answers of the machine are given: the device's name, and settings. `make wheels` fetches the wheels, and
`make test-full` that of vLLM, which is large. Run as a script, this file records the names that vLLM gives its files.
"""

from __future__ import annotations

import ast
import copy
import functools
import json
import logging
import math
import os
import re
import sys
import types
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from places import ROOT

READERS = ROOT / "build" / "readers"
RECORDED = ROOT / "tests" / "golden" / "vllm_names.json"

CASES = [
    {"E": e, "N": n, "dtype": dtype, "block_shape": block, "device": device}
    for e, n in ((8, 14336), (128, 768))
    for dtype, block in (
        *((None, None), ("float32", None), ("fp8_w8a8", None), ("fp8_w8a8", [128, 128]), ("fp8_w8a16", None)),
        *(("int8_w8a16", None), ("int4_w4a16", [0, 128])),
    )
    for device in (
        "NVIDIA H200",
        "NVIDIA H200 NVL",
        "NVIDIA H100 80GB HBM3",
        "AMD Instinct MI300X / OAM",
        "Ascend910B4",
    )
]
"""Questions to vLLM's `get_config_file_name` for the record."""


def wheel(package: str) -> Path | None:
    """Return the newest wheel of a package in `build/readers`, or None."""
    found = [*READERS.rglob(f"{package}-*.whl")]
    return max(found, key=lambda file: [int(number) for number in release(file).split(".")], default=None)


def release(file: Path) -> str:
    return file.name.split("-")[1]


@dataclass(frozen=True, slots=True)
class Vllm:
    """vLLM's readers on a machine with this device. `folder` is `VLLM_TUNED_CONFIG_FOLDER`, or for tables of GEMMs
    the folder `configs` beside the module that reads them."""

    file: Path
    folder: Path
    device: str

    def name(self, e: int, n: int, dtype: str | None, block: list[int] | None) -> str:
        return str(self._moe()["get_config_file_name"](e, n, dtype, block))

    def moe(self, e: int, n: int, k: int, dtype: str | None, m: int, block: list[int] | None = None) -> dict[str, Any]:
        """Return the config that vLLM launches with. Raises `LookupError` if it finds no table."""
        functions = self._moe()
        if functions["get_moe_configs"](e, n, dtype, *(block or (0, 0))) is None:
            raise LookupError(functions["get_config_file_name"](e, n, dtype, block))
        package = "vllm.model_executor.layers.fused_moe"
        packed = 2 if dtype == "int4_w4a16" else 1
        with given({package: {"get_config": lambda: None}}):
            found = functions["try_get_optimal_moe_config"]((e, 2 * n, k), (e, k, n // packed), 2, dtype, m, block)
        return dict(found)

    def default(self, e: int, n: int, k: int, dtype: str | None, m: int, block: list[int] | None) -> dict[str, Any]:
        """Return the config that vLLM launches with if it finds no table."""
        return dict(self._moe()["get_default_config"](m, e, n, k, 2, dtype, block))

    def gemm(self, n: int, k: int, m: int) -> dict[str, Any]:
        """Return the config for a product of blocks of 128x128 in fp8, as `w8a8_triton_block_scaled_mm` chooses it."""
        names = ("get_w8a8_block_fp8_configs",)
        functions = self._functions("model_executor/layers/quantization/utils/fp8_utils", names)
        return _nearest(functions["get_w8a8_block_fp8_configs"](n, k, 128, 128), m)

    def _moe(self) -> dict[str, Any]:
        names = ("get_config_file_name", "get_moe_configs", "get_default_config", "try_get_optimal_moe_config")
        return self._functions("model_executor/layers/fused_moe/fused_moe", names)

    def _functions(self, module: str, names: tuple[str, ...]) -> dict[str, Any]:
        platform = SimpleNamespace(get_device_name=lambda index=0: self.device, is_rocm=lambda: False)
        settings = SimpleNamespace(VLLM_BATCH_INVARIANT=False, VLLM_TUNED_CONFIG_FOLDER=str(self.folder))
        known = {
            "envs": settings,
            "current_platform": platform,
            "logger": _Logger(),
            "__file__": str(self.folder / "_"),
        }
        utils = source(self.file, "vllm/utils/platform_utils.py")
        named = taken(utils, ("get_device_name_as_file_name",), {})["get_device_name_as_file_name"]

        def device() -> str:
            with given({"vllm.platforms": {"current_platform": platform}}):
                return str(named())

        return taken(source(self.file, f"vllm/{module}.py"), names, known | {"get_device_name_as_file_name": device})


@dataclass(frozen=True, slots=True)
class Sglang:
    """SGLang's readers on a machine with this device and version of Triton. `folder` is `SGLANG_MOE_CONFIG_DIR`."""

    file: Path
    folder: Path
    device: str
    triton: str

    def moe(
        self,
        e: int,
        n: int,
        k: int,
        dtype: str | None,
        m: int,
        block: list[int] | None = None,
        per_channel: bool = False,
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return the configs of both projections. Raises `LookupError` if SGLang finds no table for the first."""
        place = "sglang.srt.layers.moe.moe_runner.triton_utils"
        stubs = {
            "triton": {"__version__": self.triton},
            "sglang.srt.runtime_context": {
                "get_exec": lambda: SimpleNamespace(deterministic=SimpleNamespace(enable_deterministic_inference=False))
            },
            "sglang.srt.utils": {"get_device_name": lambda: self.device, "is_hip": lambda: False},
            place: {"get_config": lambda: None},
        }
        before = os.environ.get("SGLANG_MOE_CONFIG_DIR")
        os.environ["SGLANG_MOE_CONFIG_DIR"] = str(self.folder)
        try:
            with given(stubs):
                module = executed(source(self.file, f"{place.replace('.', '/')}/fused_moe_triton_config.py"))
                module["logger"] = _Logger()
                if module["get_moe_configs"](e, n, dtype, *(block or (0, 0)), per_channel) is None:
                    raise LookupError(module["get_config_file_name"](e, n, dtype, block, per_channel))
                shapes = ((e, 2 * n, k), (e, k, n))
                config, (down, _) = module["try_get_optimal_moe_config"](
                    *shapes, 2, dtype, m, False, block, per_channel, True
                )
        finally:
            os.environ.pop("SGLANG_MOE_CONFIG_DIR")
            if before is not None:
                os.environ["SGLANG_MOE_CONFIG_DIR"] = before
        return config, down

    def gemm(self, n: int, k: int, m: int) -> dict[str, Any]:
        """Return the config for a product of blocks of 128x128 in fp8, of a table in `folder`/configs."""
        known = {
            "get_device_name": lambda: self.device,
            "torch": SimpleNamespace(_dynamo=SimpleNamespace(is_compiling=lambda: False)),
            "log_info_on_rank0": lambda *words: None,
            "logger": _Logger(),
            "_is_cuda": True,
            "__file__": str(self.folder / "_"),
        }
        text = source(self.file, "sglang/kernels/ops/gemm/fp8_kernel.py")
        functions = taken(text, ("get_w8a8_block_fp8_configs",), known)
        return _nearest(functions["get_w8a8_block_fp8_configs"](n, k, 128, 128), m)


def fla(file: Path) -> dict[str, Any]:
    """Return the names of FLA's module of cached configs; it takes `FLA_CACHE_MODE` now, and `FLA_CONFIG_DIR` at calls.

    It needs a triton that can be imported.
    """
    return executed(source(file, "fla/ops/utils/cache.py"))


def flaggems(file: Path, loaded: Mapping[str, Any], operation: str, triton: Any) -> list[Any]:
    """Return the `triton.Config`s that FlagGems' loader makes of an operation's entry in a loaded file."""
    text = source(file, "flag_gems/runtime/configloader.py")
    loader = SimpleNamespace(
        loaded_triton_config={},
        arch_specialized_yaml_config=None,
        vendor_primitive_yaml_config=loaded,
        gen_key="gen",
        triton_config_default={"num_stages": 2, "num_warps": 4, "num_ctas": 1},
        device=SimpleNamespace(vendor_name="nvidia"),
    )
    get = taken(text, ("get_tuned_config",), {"copy": copy, "triton": triton})["get_tuned_config"]
    return list(get(loader, operation))


def _nearest(table: Mapping[int, dict[str, Any]] | None, m: int) -> dict[str, Any]:
    """Choose as both projects' GEMMs do, in the middle of functions that launch."""
    if table is None:
        raise LookupError("no table")
    return dict(table[min(table, key=lambda size: abs(size - m))])


# Running a part of a package ---------------------------------------------------------------------------------------


class _Logger(logging.Logger):
    """A logger with the methods that the projects add, which says nothing."""

    def __init__(self) -> None:
        super().__init__("silent", logging.CRITICAL)

    def info_once(self, *words: Any, **options: Any) -> None: ...

    def warning_once(self, *words: Any, **options: Any) -> None: ...


@functools.cache
def source(file: Path, name: str) -> str:
    with zipfile.ZipFile(file) as archive:
        return archive.read(name).decode()


def executed(text: str) -> dict[str, Any]:
    """Run a whole module, and return its names."""
    module = types.ModuleType(f"_reader_{abs(hash(text))}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    module.__dict__["__file__"] = os.devnull
    exec(compile(text, "<a wheel>", "exec"), module.__dict__)
    return module.__dict__


def taken(text: str, names: tuple[str, ...], known: Mapping[str, Any]) -> dict[str, Any]:
    """Run these functions of a module, or methods, with the standard library and `known` as all that they see."""
    space = {"functools": functools, "cache": functools.cache, "json": json, "math": math, "os": os, "re": re, **known}
    exec(_compiled(text, names), space)
    return space


@functools.cache
def _compiled(text: str, names: tuple[str, ...]) -> types.CodeType:
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef) and node.name in names]
    if missing := sorted({*names} - {node.name for node in functions}):
        raise LookupError(f"the module defines no {', '.join(missing)}")
    body = ast.Module(functions, type_ignores=[])
    return compile(body, "<a wheel>", "exec", flags=annotations.compiler_flag, dont_inherit=True)


@contextmanager
def given(modules: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Let these modules be imported with these names, and their packages without any."""
    before = dict(sys.modules)
    for name, members in modules.items():
        for end in range(1, name.count(".") + 1):
            sys.modules.setdefault(".".join(name.split(".")[:end]), types.ModuleType("a package"))
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(members)
    try:
        yield
    finally:
        for name in {part for module in modules for part in _parents(module)} - before.keys():
            del sys.modules[name]
        sys.modules.update({name: before[name] for name in modules if name in before})


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def names(file: Path) -> list[dict[str, Any]]:
    """Return the cases with the name that vLLM's wheel gives each."""
    return [
        case
        | {"name": Vllm(file, READERS, case["device"]).name(case["E"], case["N"], case["dtype"], case["block_shape"])}
        for case in CASES
    ]


if __name__ == "__main__":
    vllm = wheel("vllm")
    assert vllm is not None, "make build/readers/vllm/VERSION"
    record = {"vllm": release(vllm), "recorded": f"{datetime.now(UTC):%Y-%m-%d}", "names": names(vllm)}
    RECORDED.write_text(json.dumps(record, indent=1) + "\n")
