"""`tilewise export`."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import click

from tilewise.cli.options import common, database, open_existing, print_json
from tilewise.db.exchange import registry
from tilewise.db.exchange.files import write_file
from tilewise.db.exchange.format import Format
from tilewise.db.exchange.selection import Selection
from tilewise.db.records import Flags
from tilewise.errors import NotFound, UsageError
from tilewise.tuner.portfolio import formats

__all__ = ["export"]

_ORDER = (
    *("json", "runtime", "python", "triton", "vllm", "sglang", "fla", "flaggems", "inductor"),
    *("t4", "kernel-tuner", "csv", "parquet"),
)


def _formats() -> dict[str, Format]:
    """Return every format that can be written, the most common first."""
    known = {**registry.FORMATS, **formats.FORMATS}
    writable = {name: one for name, one in known.items() if one.write is not None}
    return dict(sorted(writable.items(), key=lambda item: (*_ORDER, item[0]).index(item[0])))


_FORMATS = _formats()
_HELP = "\n".join(f"{name:13} {one.summary}" for name, one in _FORMATS.items())


@click.command(help=f"Export stored results to a file for offline use.\n\n\b\n{_HELP}")
@click.option("--format", "kind", type=click.Choice(list(_FORMATS)), default="json", show_default=True)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    help="File to write; - is stdout, .gz is compressed; vllm, sglang, fla: a folder.",
)
@click.option("--kernel", help="Only this kernel.")
@click.option("--device", help="Only this device name.")
@click.option("-s", "--shape", metavar="M=1000,N=8192", help="Only shapes with these sizes.")
@click.option("--dtype", help="Only this dtype.")
@click.option(
    "--verified-by",
    "proof",
    type=click.Choice(["reference", "self"]),
    help="Only winners whose output agreed with this: the float64 reference, or the kernel's own default config.",
)
@click.option("--unverified", is_flag=True, help="All but json, t4, csv: fall back to unverified configs.")
@click.option("--rung", default="M", show_default=True, help="vllm, sglang: the dimension that indexes a table.")
@click.option("--sizes", metavar="1,16,64", help="vllm, sglang: the sizes required in each table (default: their 18).")
@click.option(
    "--name",
    default="",
    metavar="TEMPLATE",
    help="vllm, sglang, fla: the files' names, such as 'N={N},device_name={device}{dtype:,dtype=}.json'; flaggems: the "
    "operation.",
)
@click.option(
    "--key",
    default="",
    metavar="M,N,dtype",
    help="fla: what the kernel is keyed on, then its tensors' dtypes, in order.",
)
@database
@common
def export(
    kind: str,
    output: str,
    kernel: str | None,
    device: str | None,
    shape: str | None,
    dtype: str | None,
    proof: str | None,
    unverified: bool,
    rung: str,
    sizes: str | None,
    name: str,
    key: str,
    url: str | None,
    as_json: bool,
) -> None:
    from tilewise.tuner.space.problem_checks import parse_dims

    if proof and unverified:
        raise UsageError("--verified-by and --unverified exclude each other; leave one out")
    dims = parse_dims(shape) if shape else {}
    with open_existing(url) as opened, opened.snapshot() as store:
        scopes = [
            s
            for s in store.scopes(kernel, device)
            if dims.items() <= dict(s.shape).items()
            and (not dtype or s.dtype == dtype)
            and (not proof or ((winner := store.result(s).winner) is not None and winner.verified_by == proof))
        ]
        if not scopes:
            raise NotFound("no stored result matches; export without the filters to see all")
        write = _FORMATS[kind].write
        assert write is not None, "only formats that can be written are offered"
        words = tuple(word.strip() for word in key.split(",") if word.strip())
        defaults = _defaults({scope.kernel for scope in scopes})
        written = write(Selection(store, scopes, unverified, rung, _sizes(sizes), name, words, defaults))
    if written.is_folder:
        files = written.files
        _write_folder(output, files)
    else:
        data = written.files[""]
        files = {"": gzip.compress(data, mtime=0) if output.endswith(".gz") else data}
        _write(output, files[""])
    if as_json and output != "-":
        print_json({"file": output, "format": kind, "entries": written.problems})
    elif output != "-":
        noun = "problem" if written.problems == 1 else "problems"
        click.echo(f"{output}: {written.problems} {noun} as {kind}, {sum(map(len, files.values())) / 1024:.1f} KiB")


def _defaults(names: Collection[str]) -> dict[str, Flags]:
    """Return the default values of the flags of those kernels that are registered here."""
    from tilewise.kernels import registry as kernels

    specs = [kernels.load(name) for name in kernels.names() if name in names]
    return {spec.name: {flag.name: flag.values[0] for flag in spec.flags} for spec in specs}


def _sizes(text: str | None) -> tuple[int, ...]:
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    if not all(word.isdecimal() and len(word) < 12 and int(word) > 0 for word in words):
        raise UsageError(f"--sizes is {text!r}; expected whole numbers, as in --sizes 1,16,64")
    return tuple(int(word) for word in words)


def _write(output: str, data: bytes) -> None:
    if output == "-":
        sys.stdout.buffer.write(data)
    else:
        write_file(Path(output), data)


def _write_folder(output: str, files: Mapping[str, bytes]) -> None:
    """Write each file as a whole; create the folder if it is missing."""
    folder = Path(output)
    if output == "-" or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"-o {output} is not a folder; this format is several files, so name a folder")
    for name, data in files.items():
        try:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"cannot make a folder for {folder / name}: {error.strerror}; choose another -o"
            ) from error
        write_file(folder / name, data)
