"""Drawing of a timeline: one lane per pipe of each core, one bar per operation, and a strong colour on the path."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from tilewise.tuner.devices.ascend_model.clock.core import PIPES, core_name
from tilewise.tuner.devices.ascend_model.clock.recording import Event
from tilewise.tuner.devices.ascend_model.report.analysis import Analysis, LaunchCourse
from tilewise.tuner.devices.ascend_model.report.trace import LANES

__all__ = ["drawing"]

_WIDTH, _LEFT, _LANE, _BAR, _HEAD = 1200, 150, 34, 24, 44
_COLOURS = {
    "S": "#8a8f98",
    "V": "#3b7dd8",
    "MTE2": "#2a9d6f",
    "MTE3": "#d98a1f",
    "MTE1": "#8e6bd1",
    "M": "#3b7dd8",
    "FIX": "#d98a1f",
}
"""One colour per pipe; readable on white and on black."""

_FAINT = 0.35
"""Opacity of work off the critical path."""

_TICKS = 8


def drawing(analysis: Analysis) -> str:
    """Return an SVG with one timeline per launch, each below the last, of the program that represents the launch."""
    body: list[str] = []
    total = 0
    for launch in analysis.launches:
        body += _launch(launch, total)
        total += _HEAD + len(launch.recording.lanes) * _LANE + 30
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {total}" font-family="sans-serif">',
            f'<rect width="{_WIDTH}" height="{total}" fill="#ffffff"/>',
            *body,
            "</svg>",
            "",
        ]
    )


def _launch(launch: LaunchCourse, top: int) -> Iterator[str]:
    cycles = launch.recording.time.cycles
    scale = (_WIDTH - _LEFT - 10) / cycles
    us = cycles / launch.clock_ghz / 1e3
    title = f"{launch.name}: one program, {us:.2f} us of {launch.time.time_us:.2f}; solid: critical path"
    yield f'<text x="10" y="{top + 20}" font-size="15">{escape(title)}</text>'
    critical = {id(event) for event, _ in launch.recording.critical_path()}
    lanes = launch.recording.lanes
    for lane, (core, pipe) in enumerate(lanes):
        y = top + _HEAD + lane * _LANE
        label = LANES[pipe] if len(launch.recording.cores) == 1 else f"{core_name(core)} {pipe}"
        yield f'<text x="10" y="{y + 17}" font-size="13">{label}</text>'
        yield f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{y + _BAR}" y2="{y + _BAR}" stroke="#d0d4da"/>'
        place = (core, PIPES.index(pipe))
        events = [event for event in launch.recording.events if event.work and (event.core, event.pipe) == place]
        for strong in (False, True):
            bars = _merged([event for event in events if (id(event) in critical) is strong], scale)
            opacity = 1 if strong else _FAINT
            path = "".join(f"M{x:.1f} {y}h{width:.1f}v{_BAR}h-{width:.1f}z" for x, width in bars)
            yield f'<path d="{path}" fill="{_COLOURS[pipe]}" opacity="{opacity}"/>' if path else ""
    foot = top + _HEAD + len(lanes) * _LANE
    for tick in range(_TICKS + 1):
        x = _LEFT + tick / _TICKS * cycles * scale
        anchor = "end" if tick == _TICKS else "middle"
        label = f"{tick / _TICKS * us:.1f}" + (" us" if tick == _TICKS else "")
        yield f'<text x="{x:.1f}" y="{foot + 16}" font-size="12" text-anchor="{anchor}">{label}</text>'


def _merged(events: list[Event], scale: float) -> Iterator[tuple[float, float]]:
    """Yield bars from left to right; bars less than half a unit of the drawing apart are merged."""
    begin = end = -1.0
    for event in sorted(events, key=lambda event: event.start):
        left, right = _LEFT + event.start * scale, _LEFT + event.end * scale
        if begin >= 0 and left - end < 0.5:
            end = max(end, right)
            continue
        if begin >= 0:
            yield begin, max(end - begin, 0.3)
        begin, end = left, right
    if begin >= 0:
        yield begin, max(end - begin, 0.3)
