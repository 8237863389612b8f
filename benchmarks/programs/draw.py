"""A seeded draw of kernels of libraries that no list and no result has named: `python draw.py SITE SEED COUNT`.

SITE is the folder in which the libraries are installed. The kernels are those of FlagGems' `ops`, `fused` and
`modules`, of FLA's `ops` and `modules`, and of Liger's `ops` that are under `triton.jit` and launched by name. Those of
each library, in this order, are sorted by name and file and shuffled by one `random.Random(SEED)`; the first COUNT of
each are drawn, and the ones behind them take the place of those that no public call launches on this host: code that
nothing calls, and code for another vendor's device alone.
"""

from __future__ import annotations

import ast
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["drawn", "kernels", "named"]

_FOLDERS = {
    "flaggems": ("flag_gems/ops", "flag_gems/fused", "flag_gems/modules"),
    "fla": ("fla/ops", "fla/modules"),
    "liger": ("liger_kernel/ops",),
}
"""The folders of each library, by the first word of a call's name."""


def drawn(site: Path, seed: int, known: frozenset[str]) -> dict[str, list[tuple[str, str]]]:
    """Return the kernels of each library that are not `known`, each with its file, in the order of the draw."""
    chooser = random.Random(seed)
    found = {}
    for library in _FOLDERS:
        found[library] = sorted(kernel for kernel in kernels(site, library) if kernel[0] not in known)
        chooser.shuffle(found[library])
    return found


def kernels(site: Path, library: str) -> set[tuple[str, str]]:
    """Return the kernels of a library that some file of it launches by name, each with the file that defines it."""
    files = [file for folder in _FOLDERS[library] for file in (site / folder).rglob("*.py")]
    texts = {file: file.read_text() for file in files}
    launched = {name for text in texts.values() for name in re.findall(r"(\w+)\s*\[", text)}
    return {
        (name, str(file.relative_to(site)))
        for file, text in texts.items()
        for name in _jitted(ast.parse(text))
        if name in launched
    }


def _jitted(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            words = [ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list]
            if {"triton.jit", "jit"} & set(words):
                yield node.name


def named(checkout: Path) -> frozenset[str]:
    """Return all words of the lists of calls and kernels, and of the results so far."""
    files = [*checkout.glob("docs/results/programs-*.json"), *checkout.glob("benchmarks/programs/*.py")]
    return frozenset(word for file in files for word in re.findall(r"\w+", file.read_text()))


if __name__ == "__main__":
    folder, number, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for library, chosen in drawn(folder, number, named(Path(__file__).parents[2])).items():
        for name, file in chosen[:count]:
            print(library, name, file)
