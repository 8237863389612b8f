"""Ray: its import, a connection to a cluster, and a cluster of this machine alone."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tilewise.errors import Unavailable, UsageError
from tilewise.settings import read_settings

__all__ = ["NAMESPACE", "OBJECT_STORE_BYTES", "SETTINGS", "answers", "check_answers", "connected", "import_ray"]

NAMESPACE = "tilewise"
"""The namespace of all actors that tilewise starts."""

OBJECT_STORE_BYTES = 80_000_000
"""Memory for artefacts on a machine's own cluster; one is some 60 KB."""

SETTINGS = {
    "RAY_raylet_liveness_self_check_interval_ms": "1000",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
    "RAY_gcs_server_request_timeout_seconds": "5",
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_kill_child_processes_on_worker_exit": "false",
}
"""Variables of the environment with which Ray notices a lost head or node within some ten seconds, and spares jobs.

By the first, a node asks the head each second whether it belongs to its cluster, and ends when a head that was started
again says no. By the second, a node or process ends that cannot reach the head for so long; the default is a minute.
By those of health checks, the head finds that a node is away. By the last, the process of a job outlives its actor.
"""

_ANSWER_SECONDS = 5.0


def import_ray() -> Any:
    """Return the module. Raises `Unavailable` if it is not installed."""
    for name, value in {"RAY_USAGE_STATS_ENABLED": "0", **SETTINGS}.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise Unavailable("a fleet on several hosts needs Ray: pip install 'tilewise[fleet]'") from error
    return ray


def check_answers(address: str) -> None:
    """Raise `Unavailable` if no cluster answers, at which Ray would end this process; and `UsageError`."""
    if address != "auto" and not answers(address, _ANSWER_SECONDS):
        raise Unavailable(f"no Ray cluster answers at {address}")


def answers(address: str, seconds: float) -> bool:
    """Return whether a cluster's head takes a connection at `HOST:PORT` in that time. Raises `UsageError`."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"{address!r} is not the address of a Ray cluster; expected HOST:PORT, such as head:6379")
    try:
        socket.create_connection((host, int(port)), seconds).close()
    except (OSError, OverflowError):
        return False
    return True


@contextmanager
def connected(address: str | None, resources: Mapping[str, int] | None = None) -> Iterator[Any]:
    """Connect to the cluster at `address`, on which this machine has to be a node, or start one that offers
    `resources` and ends with the block; yield the module `ray`. Raises `Unavailable`."""
    ray = import_ray()
    options: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        options |= {"address": "local", "include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
        options |= {"num_cpus": read_settings().jobs, "resources": dict(resources or {})}
    else:
        options["address"] = address
        check_answers(address)
    try:
        ray.init(**options)
    except Exception as error:  # of many types, none of which says more than its message
        where = "could not start on this machine" if address is None else f"does not answer at {address}"
        raise Unavailable(f"Ray {where}: {' '.join(str(error).split())[:200]}") from error
    try:
        yield ray
    finally:
        ray.shutdown()
