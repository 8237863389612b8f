"""`tilewise export`."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from tilewise.db.records import Result, Scope
from tilewise.db.store import Store
from tilewise.errors import NotFound, UsageError
from tilewise.tuner.cli.options import common, database, open_existing, print_json

__all__ = ["export"]

_FORMATS = ("json", "runtime", "python", "triton", "vllm", "flaggems", "t4", "kernel-tuner", "csv", "parquet")


@click.command()
@click.option("--format", "kind", type=click.Choice(_FORMATS), default="json", show_default=True)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    help="Where to write; - is stdout, .gz is compressed; vllm: a folder.",
)
@click.option("--kernel", help="Only this kernel.")
@click.option("--device", help="Only this device name.")
@click.option("-s", "--shape", metavar="M=1000,N=8192", help="Only this shape.")
@click.option("--dtype", help="Only this dtype.")
@click.option("--unverified", is_flag=True, help="triton, vllm, flaggems: also the fastest where nobody verified any.")
@click.option("--rung", default="M", show_default=True, help="vllm: the dimension that a table goes by.")
@click.option("--sizes", metavar="1,16,64", help="vllm: the sizes that each table must have (default: vLLM's own 18).")
@database
@common
def export(
    kind: str,
    output: str,
    kernel: str | None,
    device: str | None,
    shape: str | None,
    dtype: str | None,
    unverified: bool,
    rung: str,
    sizes: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Write what is stored to a file that others can use offline.

    \b
    json          every best with its evidence, for tilewise import
    runtime       bests alone and portfolios, for programs that only launch
    python        the portfolios' rules as functions that need nothing
    triton        bests as a Python module of triton.Config
    vllm          bests of one kernel as tables of vLLM and SGLang: a folder
    flaggems      bests as FlagGems' tune_configs.yaml
    t4            all trials of one problem as a landscape in the T4 format
    kernel-tuner  the same as a cache for Kernel Tuner's simulation mode
    csv           all trials, a row each
    parquet       the same in Parquet
    """
    from tilewise.tuner.problem import parse_dims

    dims = parse_dims(shape) if shape else None
    with open_existing(url) as opened, opened.snapshot() as store:
        wanted = [
            s for s in store.scopes(kernel, device) if (not dims or s.dims == dims) and (not dtype or s.dtype == dtype)
        ]
        if not wanted:
            raise NotFound("nothing that is stored fits; see what is there without the filters")
        if kind == "vllm":
            files, count = _tables(store, wanted, rung, _sizes(sizes), unverified=unverified)
            _write_folder(output, files)
            data = b"".join(files.values())
        else:
            data, count = _encoded(kind, store, wanted, unverified=unverified)
            if output.endswith(".gz"):
                data = gzip.compress(data, mtime=0)
            _write(output, data)
    if as_json and output != "-":
        print_json({"file": output, "format": kind, "entries": count})
    elif output != "-":
        what = "problem" if count == 1 else "problems"
        click.echo(f"{output}: {count} {what} as {kind}, {len(data) / 1024:.1f} KiB")


def _encoded(kind: str, store: Store, scopes: list[Scope], *, unverified: bool) -> tuple[bytes, int]:
    """The file, and of how many problems it is."""
    if kind == "json":
        from tilewise.db.exchange.native import encode, export_native

        document = export_native(store, scopes)
        return encode(document), len(document["entries"])
    if kind in ("runtime", "python"):
        return _portfolios(kind, store, scopes)
    if kind == "t4":
        from tilewise.db.exchange.t4 import export_t4

        return json.dumps(export_t4(store, _only(store, scopes, kind)), allow_nan=False).encode(), 1
    if kind == "kernel-tuner":
        from tilewise.db.exchange.kernel_tuner_cache import encode_cache

        return encode_cache(store, _only(store, scopes, kind)), 1
    if kind in ("csv", "parquet"):
        from tilewise.db.exchange.flat import encode_csv, encode_parquet

        data = b"".join(encode_csv(store, scopes)) if kind == "csv" else encode_parquet(store, scopes)
        return data, len(scopes)
    results = _bests(store, scopes, unverified=unverified)
    if kind == "triton":
        from tilewise.db.exchange.triton_module import encode_module

        return encode_module(results), len(results)
    from tilewise.db.exchange.flaggems import encode_flaggems

    return encode_flaggems(results), len(results)


def _portfolios(kind: str, store: Store, scopes: list[Scope]) -> tuple[bytes, int]:
    """Portfolios are made a kernel at a time, with its spec where that is at hand."""
    from tilewise.db.exchange.winners import encode_winners
    from tilewise.kernels import registry
    from tilewise.tuner.assembly import portfolios
    from tilewise.tuner.rule_module import rule_module

    made = []
    for kernel in sorted({scope.kernel for scope in scopes}):
        spec = registry.load(kernel) if kernel in registry.names() else None
        made += portfolios(((s, store.trials(s)) for s in scopes if s.kernel == kernel), spec)
    if not made:
        raise NotFound("of what fits nothing is verified; tune it")
    if kind == "python":
        return rule_module(made).encode(), len(made)
    results = [result for scope in scopes if (result := store.result(scope)).winner is not None]
    return encode_winners((r.to_json() for r in results), [p.to_json() for p in made]), len(results)


def _bests(store: Store, scopes: list[Scope], *, unverified: bool) -> list[Result]:
    from tilewise.db.exchange.bests import bests

    if results := bests(store, scopes, unverified=unverified):
        return results
    raise NotFound("of what fits nothing is verified; tune it, or add --unverified to take the fastest as it is")


def _tables(
    store: Store, scopes: list[Scope], rung: str, ladder: tuple[int, ...], *, unverified: bool
) -> tuple[Mapping[str, bytes], int]:
    from tilewise.db.exchange.tables import LADDER, encode_tables

    kernels = sorted({scope.kernel for scope in scopes})
    if len(kernels) > 1:
        raise UsageError(
            f"tables are of one kernel, and {len(kernels)} fit: {', '.join(kernels)}; choose with --kernel"
        )
    if any(rung not in scope.dims for scope in scopes):
        raise UsageError(f"{kernels[0]} has no dimension {rung}; --rung says which one a table goes by")
    results = _bests(store, scopes, unverified=unverified)
    return encode_tables(results, rung, ladder or LADDER), len(results)


def _sizes(text: str | None) -> tuple[int, ...]:
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    if not all(word.isdecimal() and len(word) < 12 and int(word) > 0 for word in words):
        raise UsageError(f"--sizes is {text!r}; expected whole numbers, as in --sizes 1,16,64")
    return tuple(int(word) for word in words)


def _only(store: Store, scopes: list[Scope], kind: str) -> Scope:
    """Of one problem's toolchains and sources that which a look-up answers from, or the last."""
    from tilewise.tuner.problem import sizes_text

    questions = {scope.question.key: scope.question for scope in scopes}
    if len(questions) > 1:
        asked = list(questions.values())
        named = "; ".join(f"{one.kernel} {sizes_text(one.dims)} {one.dtype} on {one.device}" for one in asked[:4])
        more = f" and {len(asked) - 4} more" if len(asked) > 4 else ""
        raise UsageError(
            f"a {kind} file holds one problem, and {len(asked)} fit: {named}{more}; choose with --kernel, --device, -s"
        )
    found = store.lookup(scopes[0].question)
    return found.scope if found else scopes[-1]


def _write(output: str, data: bytes) -> None:
    from tilewise.db.exchange.files import write_file

    if output == "-":
        sys.stdout.buffer.write(data)
    else:
        write_file(Path(output), data)


def _write_folder(output: str, files: Mapping[str, bytes]) -> None:
    """Each file is replaced as a whole; the folder is made where it is missing."""
    from tilewise.db.exchange.files import write_file

    folder = Path(output)
    if output == "-" or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"tables are several files; -o {output} is no folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_file(folder / name, data)
