"""Portfolios as a Python module without dependencies: one function per kernel, dtype and device, to read or copy."""

from __future__ import annotations

import keyword
import pprint
import re
from collections.abc import Iterator, Sequence

from tilewise.db.records import shape_text
from tilewise.tuner.portfolio.decision_tree import Leaf, Rule
from tilewise.tuner.portfolio.portfolio import Portfolio

__all__ = ["rule_module"]

_HEAD = '"""Rules that choose a config by the dimensions. Made by `tilewise export --format python`."""\n'


def rule_module(portfolios: Sequence[Portfolio]) -> str:
    """Return the module's text. Functions are named after the kernel, its flags, dtype and device."""
    functions: dict[str, str] = {}
    for portfolio in portfolios:
        name = _name(portfolio)
        while name in functions:
            name += "_older"
        functions[name] = _function(name, portfolio)
    return "\n\n".join([_HEAD, *functions.values()])


def _function(name: str, portfolio: Portfolio) -> str:
    scope, held = portfolio.scope, portfolio.rule_held_out
    cost = (
        f"{held.shapes} shapes, each left out in turn, took {held.mean:.3f}x their best on average, "
        f"{held.worst:.3f}x at worst."
        if held.mean is not None and held.worst is not None
        else "The cost at untuned shapes is unknown."
    )
    shapes, within = len(portfolio.shapes), f"{portfolio.factor - 1:.0%}"
    names = [_identifier(dim) for dim in scope.dims]
    flags = f" with {shape_text(scope.problem.flags)}" if scope.problem.flags else ""
    lines = [
        f"def {name}({', '.join(f'{dim}: int' for dim in names)}) -> dict:",
        f'    """{_plain(scope.kernel + flags)}, {_plain(scope.dtype)} on {_plain(scope.device)}; {scope.clock} times.',
        "",
        f"    {len(portfolio.configs)} configs keep {shapes} tuned shapes within {within} of their best.",
        f"    {cost}",
        f"    Source {_plain(scope.source_hash)}, {_plain(scope.toolchain)}.",
        "",
        f"    Tuned: {_plain('; '.join(shape_text(dims) for dims in portfolio.shapes[:6]))}"
        + (f" and {len(portfolio.shapes) - 6} more." if len(portfolio.shapes) > 6 else "."),
        '    """',
        *_branches(portfolio.rule, portfolio, 1),
    ]
    return "\n".join(lines) + "\n"


def _branches(rule: Rule, portfolio: Portfolio, depth: int) -> Iterator[str]:
    indent = "    " * depth
    if isinstance(rule, Leaf):
        config = pprint.pformat(dict(portfolio.configs[rule.choice]), width=10_000, sort_dicts=False)
        yield f"{indent}return {config}"
        return
    yield f"{indent}if {' * '.join(_identifier(name) for name in rule.names)} <= {rule.limit}:"
    yield from _branches(rule.below, portfolio, depth + 1)
    yield from _branches(rule.above, portfolio, depth)


def _name(portfolio: Portfolio) -> str:
    scope = portfolio.scope
    flags = "".join(f"_{name}_{value}" for name, value in scope.problem.flags.items())
    return _identifier(f"{scope.kernel}{flags}_{scope.dtype}_{scope.device}".lower())


def _identifier(text: str) -> str:
    """Turn any text into a valid Python name."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII)
    return f"_{name}" if not name or name[0].isdigit() or keyword.iskeyword(name) else name


def _plain(text: str) -> str:
    """Replace all characters that could end or escape from a docstring."""
    return re.sub(r"[^\w .,:;()=+/-]", "_", text, flags=re.ASCII)
