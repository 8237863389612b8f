"""The compile farm of a fleet: tasks on nodes with processors, and an actor that knows who makes which artefact.

An order's key is the hash of all that its artefact depends on: source, config, specialisation, architecture and
toolchain. Whoever orders a key that is being made, or was, gets a reference to the same object, so that nothing is
compiled twice at once. A task looks in its host's cache, and in the database of artefacts if its host shares one,
before it compiles; there it leaves what it has made.
"""

from __future__ import annotations

import socket
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tilewise import errors
from tilewise.errors import Unavailable
from tilewise.tuner.cluster.ray_engine import NAMESPACE, import_ray
from tilewise.tuner.workers.artefacts import waiting_seconds
from tilewise.tuner.workers.farm import VARIABLE, WAIT_SECONDS, Order
from tilewise.tuner.workers.worker import Worker, WorkerError, WorkerFailed

__all__ = ["NAME", "Farm", "FarmReport", "farm_report", "fetched", "start_farm"]

NAME = "farm"
"""The name of the actor; those of devices have a `#`."""

_MOST = 512
"""Artefacts that are kept by reference, of some 60 KB each. Older ones are in the caches of the hosts that made them.
"""

_TRIES = 1
"""Times that Ray runs a task again whose node or process ended."""

_COMPILE_SECONDS = 150.0
"""Time limit of a task, beside waiting for another host: a little more than the compilers' own."""
_COMPILE_BYTES = 8 << 30
_ANSWER_SECONDS = 30.0
_REPORT_SECONDS = 10.0
_ENTRY = "tilewise.tuner.workers.farm:make"
_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": None, VARIABLE: None}
"""No compile process opens a GPU, and none of a farm asks a farm."""


@dataclass(frozen=True, slots=True)
class FarmReport:
    """Orders since the farm's start: by node, those that were compiled there and those that its caches had; those
    answered with the object of an earlier order; those that failed, and those that are not done."""

    compiled: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[str, int] = field(default_factory=dict)
    again: int = 0
    failed: int = 0
    waiting: int = 0

    def __str__(self) -> str:
        made = "; ".join(
            f"{node}: {self.compiled.get(node, 0)} compiled, {self.kept.get(node, 0)} from its caches"
            for node in sorted(self.compiled.keys() | self.kept.keys())
        )
        rest = f"{self.again} by reference, {self.failed} failed, {self.waiting} wait"
        return f"compile farm: {f'{made}; ' if made else ''}{rest}"


class Farm:
    """The actor that orders are sent to. There is one in a cluster."""

    def __init__(self) -> None:
        self._ray = import_ray()
        self._task = self._ray.remote(_made).options(num_cpus=1, max_retries=_TRIES, num_returns=2)
        self._objects: OrderedDict[str, tuple[Any, Any]] = OrderedDict()
        self._open: dict[str, Any] = {}
        self._compiled, self._kept = Counter[str](), Counter[str]()
        self._again = self._failed = 0

    def made(self, order: Order) -> list[Any]:
        """Return a reference to the artefact of an order, in a list so that Ray passes it on as one.

        Raises `Unavailable` if no node has a processor for it.
        """
        self._settle()
        if order.key in self._objects:
            self._again += 1
            self._objects.move_to_end(order.key)
        else:
            if self._ray.cluster_resources().get("CPU", 0) < 1:
                raise Unavailable("no node of the cluster has a CPU for compile tasks")
            content, where = self._task.remote(order)
            self._objects[order.key], self._open[order.key] = (content, where), where
            while len(self._objects) > _MOST:
                self._objects.popitem(last=False)
        return [self._objects[order.key][0]]

    def report(self) -> FarmReport:
        self._settle()
        return FarmReport(dict(self._compiled), dict(self._kept), self._again, self._failed, len(self._open))

    def _settle(self) -> None:
        """Count the tasks that are done, and forget those that failed: the next order tries again."""
        if not self._open:
            return
        keys = {where: key for key, where in self._open.items()}
        done, _ = self._ray.wait(list(keys), num_returns=len(keys), timeout=0)
        for where in done:
            key = keys[where]
            del self._open[key]
            try:
                node, compiled = self._ray.get(where)
            except Exception:  # whoever ordered it gets the error
                self._failed += 1
                self._objects.pop(key, None)
                continue
            (self._compiled if compiled else self._kept)[node] += 1


def start_farm(ray: Any) -> Any:
    """Return the cluster's farm, which outlives this process; start it if there is none."""
    options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 1}
    named = {"name": NAME, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True}
    return ray.remote(Farm).options(**options, **named).remote()


def farm_report(ray: Any) -> FarmReport | None:
    """Return the report of the cluster's farm, None if it has none or does not answer."""
    try:
        farm = ray.get_actor(NAME, namespace=NAMESPACE)
        report: FarmReport = ray.get(farm.report.remote(), timeout=_REPORT_SECONDS)
    except (ValueError, ray.exceptions.RayError):
        return None
    return report


def fetched(farm: Any, order: Order) -> bytes | None:
    """Return the artefact of an order, None if it does not compile there. Raises `Unavailable`, and what Ray raises."""
    ray = import_ray()
    try:
        [content] = ray.get(farm.made.remote(order), timeout=_ANSWER_SECONDS)
        found: bytes | None = ray.get(content, timeout=WAIT_SECONDS)
    except ray.exceptions.RayTaskError as error:  # its message is a whole traceback
        raise Unavailable(str(error.cause)) from error
    return found


def _made(order: Order) -> tuple[bytes | None, tuple[str, bool]]:
    """Make an artefact on this node, in a process that may crash. Return it, and the node and whether it compiled.

    A config that does not compile gives no artefact. Raises `Unavailable` if the fault is this node's.
    """
    node = f"{socket.gethostname()}/{import_ray().get_runtime_context().get_node_id()[:8]}"
    limits = {"timeout": _COMPILE_SECONDS + waiting_seconds(), "memory_bytes": _COMPILE_BYTES}
    try:
        content, compiled = _worker(order.compiler).call(order, **limits)
    except WorkerFailed as error:
        if error.kind in errors.__all__:
            raise Unavailable(f"{node}: {error.message}") from error
        return None, (node, True)
    except WorkerError:
        return None, (node, True)
    return content, (node, compiled)


@cache
def _worker(compiler: str) -> Worker:
    """Return this process's worker for a compiler: two might disturb each other in one."""
    return Worker(_ENTRY, env=_ENVIRONMENT)
