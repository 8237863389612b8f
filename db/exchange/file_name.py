"""Names of exported files from a template: `E={E},N={N},device_name={device}{dtype:,dtype=}.json`.

`{FIELD}` stands for a field's text. `{FIELD:PREFIX}` stands for the prefix and the text, or for nothing if the field is
empty or unknown; of a flag that is true it is the prefix alone, unless the prefix ends in `=`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tilewise.db.records import Scope
from tilewise.errors import UsageError

__all__ = ["file_name", "plain", "scope_fields"]

_FIELD = re.compile(r"\{(?P<name>\w+)(?::(?P<prefix>[^{}]*))?\}")
_TRUE = "True"
_TRITON = re.compile(r"\btriton (\d+(?:\.\d+)+)")


def scope_fields(scope: Scope, rung: str) -> dict[str, str]:
    """Return the fields that every template may use: kernel, device, dtype, dims, triton, each dimension, each flag.

    `dims` are all dimensions but the rung, as `N=8192,K=4096`. `triton` is the version of the toolchain's Triton, as
    `3_6_0`, or empty.
    """
    version = _TRITON.search(scope.toolchain)
    flags = {name: str(value) if value else "" for name, value in scope.problem.flags.items()}
    others = {name: str(size) for name, size in scope.dims.items() if name != rung}
    named = {
        "kernel": scope.kernel,
        "device": scope.device,
        "dtype": scope.dtype,
        "dims": ",".join(f"{name}={size}" for name, size in others.items()),
        "triton": version[1].replace(".", "_") if version else "",
    }
    return {name: plain(text) for name, text in (flags | others | named).items()}


def plain(text: str) -> str:
    """Return the text with everything that may not be in a part of a path, or is awkward there, as `_`."""
    return re.sub(r"[^\w=,.()\[\]+-]+", "_", text)


def file_name(template: str, fields: Mapping[str, str]) -> str:
    """Return the name. Raises `UsageError` for an unknown or empty field, and for a name outside of the folder."""

    def text(match: re.Match[str]) -> str:
        name, prefix = match["name"], match["prefix"]
        if prefix is None:
            if not fields.get(name):
                known = ", ".join(field for field, value in fields.items() if value)
                raise UsageError(
                    f"the name {template!r} needs {name}, which this problem does not have; it has {known}"
                )
            return fields[name]
        value = fields.get(name, "")
        return prefix + ("" if value == _TRUE and not prefix.endswith("=") else value) if value else ""

    found = _FIELD.sub(text, template)
    if re.search(r"[{}\\\0\n]", found) or {"", ".", ".."} & set(found.split("/")):
        raise UsageError(
            f"the name {template!r} is not a file's name; expected for example N={{N}},device_name={{device}}.json"
        )
    return found
