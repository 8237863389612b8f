"""Configs of flash-linear-attention (FLA): `{kernel}.json`, which its autotuner reads instead of timing configs.

A file holds the configs of one Triton function and GPU, by the key of `triton.autotune`: the values of the arguments
that the function is keyed on, then the dtypes of all its tensors. `FLA_CONFIG_DIR` names the folder, and
`FLA_CACHE_MODE` how keys are compared (`fla/ops/utils/cache.py` of FLA 0.6.0). There are no times in it.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from tilewise.db.exchange.file_name import file_name, plain, scope_fields
from tilewise.db.exchange.foreign.caches.triton_cache import config_of, shape_of, split_key
from tilewise.db.exchange.format import Format, Written
from tilewise.db.exchange.import_file import About, ImportFile, Refusal
from tilewise.db.exchange.jsonfile import one_line, parse, text_of
from tilewise.db.exchange.launchable import DEFAULTS, launch_of, refuse_choices
from tilewise.db.exchange.selection import Selection
from tilewise.db.exchange.typed import Object, typed
from tilewise.db.records import Config, Flags, Problem, Result, Scope, Suggestion
from tilewise.errors import BadImport, UsageError

__all__ = ["FLA", "encode_fla", "read_fla"]

_NAME = "{kernel}.json"
_DTYPE = "torch."


class _File(msgspec.Struct):
    kernel_name: str | None = None
    autotune_entries: dict[str, Object] = {}


class _Entry(msgspec.Struct):
    autotune_key: list[Any]
    config: Object


# Writing


def encode_fla(
    results: Sequence[Result],
    key: Sequence[str],
    template: str = "",
    defaults: Mapping[str, Flags] = MappingProxyType({}),
) -> dict[str, bytes]:
    """Return files by name. `key` names the values of the functions' keys in order, and their tensors' dtypes.

    A word of `key` is a dimension, a flag, a dtype such as `torch.float32`, or `dtype` for the problem's own. A flag
    that a problem leaves out has the value in `defaults`, by kernel. Raises `UsageError` for an unknown word, and if
    two results have the same key but different configs.
    """
    refuse_choices(results, "a file of FLA")
    files: dict[str, dict[str, dict[str, Any]]] = {}
    devices: dict[str, str] = {}
    for result in results:
        scope, winner = result.scope, result.winner
        assert winner is not None, "every best has a winner"
        kernel, fixed = _kernel(scope.kernel)
        name = file_name(template or _NAME, scope_fields(scope, rung="") | {"kernel": plain(kernel)})
        if devices.setdefault(name, scope.device) != scope.device:
            raise UsageError(
                f"{name} would mix {devices[name]} and {scope.device}; choose one with --device, or give a folder for "
                "each with --name '{device}/{kernel}.json'"
            )
        values = _key(scope, key, {**defaults.get(scope.kernel, {}), **scope.shape, **fixed})
        entry = {"autotune_key": values, "config": _config(winner.config)}
        known = files.setdefault(name, {}).setdefault(_digest(values), entry)
        if known != entry:
            raise UsageError(
                f"{name} would hold two configs for the key {json.dumps(values)}; name all of the key with --key"
            )
    return {name: _encode(name, entries) for name, entries in files.items()}


def _kernel(name: str) -> tuple[str, dict[str, Any]]:
    """Split a harvested kernel's name, as in `gemm[TRANS=True]`, into the function's and the fixed arguments."""
    function, _, rest = name.removesuffix("]").partition("[")
    return function, {word: _literal(text) for word, _, text in (item.partition("=") for item in rest.split(","))}


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _key(scope: Scope, words: Sequence[str], values: Mapping[str, Any]) -> list[Any]:
    known = {**values} | ({} if "," in scope.dtype else {"dtype": f"{_DTYPE}{scope.dtype}"})
    for word in words:
        if word not in known and not word.startswith(_DTYPE):
            raise UsageError(
                f"--key names {word}, which {scope.problem} does not have; "
                f"expected {', '.join(filter(None, known))}, torch.float32, ..."
            )
    return [known.get(word, word) for word in words]


def _digest(key: list[Any]) -> str:
    """Return the text by which FLA finds an entry."""
    return hashlib.md5(
        json.dumps(key, separators=(",", ":"), sort_keys=True).encode(), usedforsecurity=False
    ).hexdigest()


def _config(config: Config) -> dict[str, Any]:
    arguments, options = launch_of(config)
    return {"kwargs": arguments, **DEFAULTS, "num_ctas": 1, **options}


def _encode(name: str, entries: Mapping[str, dict[str, Any]]) -> bytes:
    """Return a file whose default is the config of most keys, the first of equals."""
    configs = Counter(json.dumps(entry["config"], allow_nan=False) for entry in entries.values())
    [(default, _)] = configs.most_common(1)
    stem = name.rpartition("/")[2].removesuffix(".json")
    body = {"kernel_name": stem, "default_config": json.loads(default), "autotune_entries": entries}
    return (json.dumps(body, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _write(selection: Selection) -> Written:
    results = selection.best_results()
    if not selection.key:
        raise UsageError(
            "FLA finds configs by the key of triton.autotune; name its values and the tensors' dtypes in order with "
            "--key, as in --key T,D,dtype,dtype,torch.float32"
        )
    return Written(encode_fla(results, selection.key, selection.name, selection.defaults), len(results))


# Reading


def read_fla(data: bytes, name: str, about: About) -> ImportFile:
    """Read a file as suggestions. `about.key` names the values of its keys in order. Raises `BadImport`."""
    try:
        document = typed(parse(text_of(data)), _File)
        kernel = about.kernel or document.kernel_name or name.removesuffix(".json")
        if not about.device:
            raise ValueError("it does not name its device; give --device")
    except (ValueError, RecursionError) as error:
        raise BadImport(f"not a usable file of FLA: {one_line(error)}") from error
    suggestions, refusals = [], []
    for place, entry in document.autotune_entries.items():
        try:
            suggestions.append(_suggestion(typed(entry, _Entry), kernel, name, about))
        except ValueError as error:
            refusals.append(Refusal(f"entry {place[:40]}", one_line(error)))
    return ImportFile(suggestions=tuple(suggestions), refusals=tuple(refusals))


def _suggestion(entry: _Entry, kernel: str, name: str, about: About) -> Suggestion:
    key = split_key(entry.autotune_key, about.key)
    problem = Problem.of(kernel, {**shape_of(key), **about.dims}, about.dtype or key.dtype)
    return Suggestion(problem, about.device, config_of(entry.config), f"FLA file {name}")


FLA = Format(
    "fla",
    "bests by kernel for flash-linear-attention, in a folder",
    write=_write,
    read=lambda data, name, about, written: read_fla(data, name, about),
    mark=r'"autotune_entries"\s*:',
)
