"""A report on a winner, as a compiler and a model might give it."""

from __future__ import annotations

import json

from tilewise.tuner.explain.listing import SourceLine
from tilewise.tuner.explain.report import Report


def _slice(name: str, start: float, length: float, lane: int, line: str) -> dict[str, object]:
    about = {"operation": 0, "critical": lane == 1, "line": "k.py:3", "source": line}
    return {"ph": "X", "name": name, "cat": "V", "pid": 0, "tid": lane, "ts": start, "dur": length, "args": about}


TRACE = {
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "k: one program"}},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "inward transfers (MTE2)"}},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 1, "args": {"name": "vector pipe (V)"}},
        _slice("load", 0, 40, 0, "x = tl.load(p)"),
        _slice("vadd", 40, 60, 1, "x + 1"),
    ]
}

REPORT = Report(
    {
        "modelled_us": 30.0,
        "modelled_between_us": [25.0, 36.0],
        "rows_us": {"V": 27.0, "MTE2": 1.0, "waiting": 2.0},
        "pipes_us": {"V": 27.0, "MTE2": 9.0},
        "bound_by": "V",
        "options": [
            {"option": "multibuffer", "value": True, "other": False, "ratio": 1.354},
            {"option": "code_motion", "value": True, "other": False, "reason": "UB overflow"},
        ],
        "variants": [{"says": "stable is fastest here"}],
        "suggestions": [{"parameter": "A", "value": 8, "instead_of": 4, "time_us": 20.0, "ratio": 0.9, "why": "less"}],
        "findings": [
            {"rule": "masked-refill", "line": "k.py:2", "message": "it fills", "remedy": "cut <it>", "share": 0.1}
            | {"modelled_cost_us": 3.0},
            {"rule": "idle-cores", "message": "4 wait", "remedy": "use more programs"},
        ],
        "traffic": {"bytes": 34e6, "ratio": 1.5, "reasons": ["w_ptr is read 40 times"]},
    },
    [SourceLine("k.py", 1, "def k():"), SourceLine("k.py", 2, "    x = load(<p>)", 24.0, {"V": 23.0, "S": 0.001})],
    "<svg/>",
    json.dumps(TRACE),
)
