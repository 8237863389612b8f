"""Single-token mistakes in the source of the project's Triton functions."""

from __future__ import annotations

import ast
import hashlib
import io
import random
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice, zip_longest
from pathlib import Path

__all__ = ["MODULES", "Mutant", "all_mutants", "drawn", "mutated_text", "sample"]

MODULES = ("batch_norm", "elementwise", "layer_norm", "reduce", "row_reduce", "softmax")
"""Modules of `tilewise.kernels.jit` whose functions are changed."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of a module's text: characters `start` to `end` are replaced."""

    module: str
    function: str
    kind: str
    line: int
    start: int
    end: int
    replacement: str
    change: str

    @property
    def name(self) -> str:
        """A name that is the same as long as the source is."""
        key = f"{self.module} {self.start} {self.end} {self.replacement} {text_of(self.module)}"
        return f"{self.module}-{hashlib.sha256(key.encode()).hexdigest()[:10]}"


def text_of(module: str) -> str:
    return path_of(module).read_text()


def path_of(module: str) -> Path:
    found = find_spec(f"tilewise.kernels.jit.{module}")
    assert found is not None and found.origin is not None, "the module is the project's own"
    return Path(found.origin)


def mutated_text(mutant: Mutant) -> str:
    text = text_of(mutant.module)
    return text[: mutant.start] + mutant.replacement + text[mutant.end :]


def sample(count: int, seed: int) -> list[Mutant]:
    """Return the first `count` mutants that `drawn` yields, or all."""
    return list(islice(drawn(seed), count))


def drawn(seed: int) -> Iterator[Mutant]:
    """Yield all mutants, kinds in turn, so that frequent tokens do not drown rare ones."""
    by_kind: dict[str, list[Mutant]] = {}
    for mutant in {mutant.name: mutant for mutant in all_mutants()}.values():  # some changes arise in two ways
        by_kind.setdefault(mutant.kind, []).append(mutant)
    for kind, mutants in by_kind.items():
        random.Random(f"{seed} {kind}").shuffle(mutants)
    turns = zip_longest(*(filter(_is_python, reversed(mutants)) for mutants in by_kind.values()))
    yield from (mutant for turn in turns for mutant in turn if mutant is not None)


def _is_python(mutant: Mutant) -> bool:
    """Return whether the changed text compiles: a number in place of a name that is assigned to does not."""
    try:
        compile(mutated_text(mutant), mutant.module, "exec")
    except SyntaxError:
        return False
    return True


def all_mutants() -> Iterator[Mutant]:
    """Yield every change of every `triton.jit` function, in the order of the text."""
    for module in MODULES:
        text = text_of(module)
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in node.decorator_list):
                yield from _of_function(module, text, node)


_OPERATORS: Mapping[str, tuple[str, Sequence[str]]] = {
    "<": ("bound", ("<=", ">")),
    ">": ("bound", (">=", "<")),
    "<=": ("bound", ("<",)),
    ">=": ("bound", (">",)),
    "==": ("bound", ("!=",)),
    "!=": ("bound", ("==",)),
    "&": ("mask", ("|",)),
    "+": ("arithmetic", ("-",)),
    "-": ("arithmetic", ("+",)),
    "*": ("arithmetic", ("+",)),
    "/": ("arithmetic", ("*",)),
    "//": ("arithmetic", ("*",)),
    "%": ("arithmetic", ("//",)),
    "+=": ("arithmetic", ("-=", "=")),
    "-=": ("arithmetic", ("+=", "=")),
}

_NAMES: Mapping[str, tuple[str, Sequence[str]]] = {
    "M": ("bound", ("N",)),
    "N": ("bound", ("M",)),
    "HW": ("bound", ("C",)),
    "end": ("bound", ("M",)),
    "end_n": ("bound", ("N",)),
    "rows": ("index", ("cols",)),
    "cols": ("index", ("rows",)),
    "minimum": ("operation", ("maximum",)),
    "maximum": ("operation", ("minimum",)),
    "max": ("operation", ("min",)),
    "sum": ("operation", ("max",)),
    "exp": ("operation", ("abs",)),
    "rsqrt": ("operation", ("sqrt",)),
    "float32": ("dtype", ("float16",)),
    "int64": ("dtype", ("int16",)),
    "not": ("mask", ("",)),
    "NEUTRAL": ("other", ("0.0", "1.0")),
    "first": ("index", ("0",)),
    "start": ("index", ("0",)),
    "left": ("index", ("0",)),
    "part": ("index", ("0",)),
}

_LEFT_ALONE = frozenset({"eviction_policy", "num_stages", "PropagateNan", "sem"})
"""Words of arguments that change no result."""


def _of_function(module: str, text: str, function: ast.FunctionDef) -> Iterator[Mutant]:
    lines = text.splitlines(keepends=True)
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line))

    def at(line: int, column: int) -> int:
        return begins[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def mutant(kind: str, line: int, start: int, end: int, replacement: str) -> Mutant:
        before = " ".join(text[start:end].split())
        change = f"{before} -> {replacement or 'nothing'}"
        return Mutant(module, function.name, kind, line, start, end, replacement, change)

    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    statements = [node for outer in body for node in ast.walk(outer) if isinstance(node, ast.stmt)]
    for node in statements:
        if _is_droppable(node):
            assert node.end_lineno is not None and node.end_col_offset is not None
            start, end = at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)
            yield mutant("dropped statement", node.lineno, start, end, "pass")
    for call in (node for outer in body for node in ast.walk(outer) if isinstance(node, ast.Call)):
        yield from _of_call(call, at, mutant)
    yield from _of_tokens(body, text, begins, mutant)


def _is_droppable(node: ast.stmt) -> bool:
    """Return whether a program without the statement may still compile: stores, and names that are bound again."""
    return isinstance(node, ast.AugAssign | ast.Expr) or (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and any(isinstance(inner, ast.Name) and inner.id == node.targets[0].id for inner in ast.walk(node.value))
    )


def _of_call(call: ast.Call, at, mutant) -> Iterator[Mutant]:  # type: ignore[no-untyped-def]
    """Yield changes of `other` and of a mask: another value, or none."""
    for keyword in call.keywords:
        value = keyword.value
        if keyword.arg not in ("other", "mask", "axis"):
            continue
        assert value.end_lineno is not None and value.end_col_offset is not None
        start, end = at(value.lineno, value.col_offset), at(value.end_lineno, value.end_col_offset)
        if keyword.arg == "axis":
            yield mutant("index", value.lineno, start, end, "0")
            continue
        if keyword.arg == "other":
            for replacement in ("0.0", "1.0", 'float("inf")'):
                if ast.unparse(value).replace("'", '"') != replacement:
                    yield mutant("other", value.lineno, start, end, replacement)
        yield mutant(keyword.arg, value.lineno, start, end, "None")


def _of_tokens(body, text, begins, mutant) -> Iterator[Mutant]:  # type: ignore[no-untyped-def]
    first, last = body[0].lineno, body[-1].end_lineno
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for index, token in enumerate(tokens):
        line = token.start[0]
        if not first <= line <= last or _is_left_alone(tokens, index):
            continue
        start, end = begins[line - 1] + token.start[1], begins[line - 1] + token.end[1]
        for kind, replacement in _replacements(token, tokens[index - 1]):
            yield mutant(kind, line, start, end, replacement)


def _is_left_alone(tokens: Sequence[tokenize.TokenInfo], index: int) -> bool:
    """Return whether a token is part of an argument that changes no result, or names one (`axis=`)."""
    line = tokens[index].start[0]
    before = [token.string for token in tokens[max(0, index - 4) : index] if token.start[0] == line]
    return bool(_LEFT_ALONE.intersection(before)) or tokens[index + 1].string == "=" or before[-1:] == ["axis"]


def _replacements(token: tokenize.TokenInfo, before: tokenize.TokenInfo) -> Iterator[tuple[str, str]]:
    if token.type == tokenize.NUMBER:
        yield from _other_numbers(token.string)
    elif token.type == tokenize.OP and token.string in _OPERATORS:
        if token.string != "-" or before.type != tokenize.OP or before.string in ")]":
            kind, others = _OPERATORS[token.string]
            yield from ((kind, other) for other in others)
    elif token.type == tokenize.NAME and token.string in _NAMES:
        kind, others = _NAMES[token.string]
        yield from ((kind, other) for other in others)
    elif token.type == tokenize.STRING and token.string in ('"-inf"', "'-inf'"):
        yield from (("initial value", other) for other in ('"inf"', "0.0"))


def _other_numbers(number: str) -> Iterator[tuple[str, str]]:
    if "." in number or "e" in number:
        yield "initial value", repr(float(number) + 1)
        if float(number):
            yield "initial value", "0.0"
            yield "initial value", repr(float(number) * 1.02)
        return
    yield "number", str(int(number) + 1)
    if int(number):
        yield "number", str(int(number) - 1)
