"""Import of tables of configs by size, of vLLM, SGLang and Hugging Face kernels."""

from __future__ import annotations

import re

from tilewise.db.exchange.import_file import About, ImportFile, Refusal
from tilewise.db.exchange.jsonfile import one_line, parse, text_of
from tilewise.db.exchange.typed import Config, Object, typed
from tilewise.db.records import ITEM_BYTES, Problem, Shape, Suggestion
from tilewise.errors import BadImport

__all__ = ["read_table"]

_NOT_CONFIGS = ("triton_version",)
_DOWN = "_down"
_BLOCK = re.compile(r"\[([0-9]+), ?([0-9]+)\]")


def read_table(data: bytes, name: str, about: About) -> ImportFile:
    """Read a table as suggestions, since it shows neither that its configs are fast nor that they are correct.

    The dtype and device in the file's name take precedence over `about`, the dims of `about` over those in the name. A
    quantisation becomes the flag `quant`, `_down` and `per_channel_quant=True` flags of these names. Raises
    `BadImport`.
    """
    try:
        document = typed(parse(text_of(data)), Object)
        named = _read_name(name)
        kernel, dtype = about.kernel, named.pop("dtype") if named.get("dtype") in ITEM_BYTES else about.dtype
        device = named.pop("device_name", "").replace("_", " ") or about.device
        if missing := [o for o, v in {"--kernel": kernel, "--dtype": dtype, "--device": device}.items() if not v]:
            raise ValueError(f"neither the file nor its name identifies its problems; give {', '.join(missing)}")
        shape = {**_shape(named), **about.dims}
    except (ValueError, RecursionError) as error:
        raise BadImport(f"not a usable table of configs: {one_line(error)}") from error
    suggestions, refusals = [], []
    for size, config in document.items():
        if size in _NOT_CONFIGS:
            continue
        try:
            problem = Problem.of(kernel, {**shape, about.rung: _rung(size)}, dtype)
            suggestions.append(Suggestion(problem, device, typed(config, Config), f"table {name}"))
        except ValueError as error:
            refusals.append(Refusal(f"size {size[:20]}", one_line(error)))
    return ImportFile(suggestions=tuple(suggestions), refusals=tuple(refusals))


def _read_name(name: str) -> dict[str, str]:
    """Split `E=8,N=14336,device_name=NVIDIA_H200,dtype=fp8_w8a8.json` by name, ignoring parts without a value."""
    stem = name.removesuffix(".json")
    parts = re.split(r",(?![^\[]*\])", stem.removesuffix(_DOWN))
    found = {key: value for key, equals, value in (part.partition("=") for part in parts) if equals}
    return found | ({"down": "True"} if stem.endswith(_DOWN) else {})


def _shape(named: dict[str, str]) -> Shape:
    """Return the dimensions and flags in a file's name."""
    dims = {name: int(text) for name, text in named.items() if re.fullmatch("[0-9]{1,18}", text)}
    flags: dict[str, bool | str] = {name: True for name, text in named.items() if text == "True"}
    if quant := named.get("dtype"):
        block = _BLOCK.fullmatch(named.get("block_shape", ""))
        flags["quant"] = f"{quant}_{block[1]}x{block[2]}" if block else quant
    return {**dims, **flags}


def _rung(text: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", text) or int(text) < 1:
        raise ValueError(f"its size is {text[:20]!r}; expected a whole number of 1 or more")
    return int(text)
