"""Python packages of CANN, Ascend's toolkit, by which programs ask for the chip and for functions of kernels."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from tilewise.tuner.stand_in.driver import is_ascend, properties

__all__ = ["PART", "cann_stand_in"]

PART = "Ascend910B4"
"""The chip that the stand-in is."""

_EXTRA = "triton.language.extra.cann"
"""The package of Ascend's functions in later releases of triton-ascend, by which libraries import it; 3.2.0 calls it
`ascend`."""

_BYTES = {"UB_SIZE": 192 << 10, "L1_SIZE": 512 << 10, "L0A_SIZE": 64 << 10, "L0B_SIZE": 64 << 10, "L0C_SIZE": 128 << 10}
"""Memories of one core, by CANN's names."""


@contextmanager
def cann_stand_in() -> Iterator[None]:
    """Have the packages while the block runs, those that are missing, where Triton compiles for Ascend NPUs."""
    if not is_ascend():
        yield
        return
    language = importlib.import_module("triton.language")
    added = {
        name: module
        for package in (_extra(language), _tbe())
        if importlib.util.find_spec(next(iter(package))) is None
        for name, module in package.items()
    }
    sys.modules |= added
    if _EXTRA in added:
        language.extra.cann = added[_EXTRA]
    try:
        yield
    finally:
        for name in added:
            sys.modules.pop(name, None)
        if _EXTRA in added:
            del language.extra.cann


def _extra(language: ModuleType) -> dict[str, ModuleType]:
    """Return Ascend's functions by their later names, as kernels use them.

    What later releases have in `extension`, such as `extract_slice`, 3.2.0 has in `triton.language` itself.
    """
    older = importlib.import_module("triton.language.extra.ascend")
    libdevice = importlib.import_module(f"{older.__name__}.libdevice")
    extension = _module(f"{_EXTRA}.extension", __getattr__=lambda name: getattr(language, name))
    package = _module(_EXTRA, **{**vars(older), "libdevice": libdevice, "extension": extension})
    return {_EXTRA: package, f"{_EXTRA}.libdevice": libdevice, f"{_EXTRA}.extension": extension}


def _tbe() -> dict[str, ModuleType]:
    """Return the package that tells the chip's figures, from which programs compute their tiles."""
    cores = {"CORE_NUM": properties()["num_aicore"], "VECTOR_CORE_CNT": properties()["num_vectorcore"]}
    figures = {**_BYTES, **cores, "SOC_VERSION": PART, "SHORT_SOC_VERSION": "Ascend910B"}
    platform = _module(
        "tbe.common.platform", get_soc_spec=figures.__getitem__, set_current_compile_soc_info=lambda *named: "success"
    )
    common = _module("tbe.common", platform=platform)
    return {"tbe": _module("tbe", common=common), common.__name__: common, platform.__name__: platform}


def _module(name: str, **names: object) -> ModuleType:
    module = ModuleType(name)
    spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
    vars(module).update({**names, "__name__": name, "__path__": [], "__spec__": spec})
    return module
