"""Programs that do not match the cores: idle ones, and more starts than needed."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tilewise.tuner.devices.ascend_model.lint.finding import RULES, Finding
from tilewise.tuner.devices.ascend_model.report.analysis import LaunchCourse
from tilewise.tuner.devices.ascend_model.report.located_launch import LocatedLaunch

__all__ = ["idle_cores", "program_starts"]


def idle_cores(launch: LocatedLaunch, course: LaunchCourse, cores: int, spare_us: float) -> Iterator[Finding]:
    """Yield a finding if the last wave leaves cores idle.

    Even work would take the share of the launch's time that cores are busy, but `spare_us` less than now at most: the
    time above the memory's floor.
    """
    programs = math.prod(launch.grid)
    waves = -(-programs // cores)
    running = course.time.time_us - sum(course.time.overhead_us.values())
    idle = 1 - programs / (waves * cores)
    if not idle:
        return
    last = programs - (waves - 1) * cores
    where = f"the last of {waves} waves has {last}" if waves > 1 else f"there are {programs}"
    message = f"{launch.name} keeps {idle:.0%} of {cores} cores' time idle: {programs} programs, and {where}"
    if waves == 1:
        message = f"{launch.name} has {programs} programs for {cores} cores: {idle:.0%} of the cores stay idle"
    remedy = f"choose tiles that make a multiple of {cores} programs, or launch {cores} that take tiles in turns"
    yield Finding(RULES["idle-cores"], message, remedy, launch.place, None, min(running * idle, spare_us))


def program_starts(launch: LocatedLaunch, course: LaunchCourse, cores: int) -> Iterator[Finding]:
    """Yield a finding about the time in which programs beyond the first wave are handed out and started."""
    programs = math.prod(launch.grid)
    waves = -(-programs // cores)
    if waves == 1:
        return
    starts, dispatch = (course.time.overhead_us[name] for name in ("start", "dispatch"))
    cost = starts * (waves - 1) / waves + dispatch * (programs - cores) / programs
    message = f"{launch.name} starts {programs} programs on {cores} cores"
    remedy = f"launch {cores} programs that take tiles in turns, or choose larger tiles"
    yield Finding(RULES["program-starts"], message, remedy, launch.place, None, cost)
