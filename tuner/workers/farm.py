"""Compilation on other hosts: what a process asks of its fleet's farm, through a socket of this host.

The process on the other side of the socket is an actor of the fleet. It has the artefact made on a node that has
processors to spare, and tells the operator where that fails: then the asking process compiles here.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from typing import Any

from tilewise.settings import read_settings

__all__ = ["FAMILY", "VARIABLE", "WAIT_SECONDS", "Order", "from_farm", "key_of", "make", "name_of"]

VARIABLE = "TILEWISE_FARM"
"""The variable that names the socket, in the environment of an actor's jobs."""

FAMILY = "AF_UNIX"
WAIT_SECONDS = 180.0
"""Longest wait for the farm: a compiler's time limit, and some time in the queue. After it, a process compiles by
itself."""


@dataclass(frozen=True, slots=True)
class Order:
    """An artefact to be made: the hash of all that it depends on, and by which function any host makes it.

    `maker` (`"package.module:function"`) is called with the key and the arguments. It returns the artefact, None if
    there is none, and whether it was compiled for this. It raises `Unavailable` on a host that would make another one.
    Makers of one `compiler` may share a process.
    """

    key: str
    compiler: str
    maker: str
    arguments: tuple[Any, ...]


def make(order: Order) -> tuple[bytes | None, bool]:
    """Make the artefact of an order in this process."""
    module, _, name = order.maker.partition(":")
    made: tuple[bytes | None, bool] = getattr(importlib.import_module(module), name)(order.key, *order.arguments)
    return made


def from_farm(order: Order) -> bytes | None:
    """Return an artefact that the farm has or makes. None if there is no farm, or if it gives none: then this process
    has to compile. The farm's actor on this host tells why."""
    if (farm := read_settings().farm) is None:
        return None
    try:
        with Client(name_of(farm), FAMILY, authkey=key_of(farm)) as connection:
            connection.send(order)
            content: bytes | None = connection.recv() if connection.poll(WAIT_SECONDS) else None
            return content
    except (OSError, EOFError, AuthenticationError):  # the actor has ended, and this process's job ends with it
        return None


def name_of(farm: str) -> str:
    """Return the abstract name of the socket that `TILEWISE_FARM` names."""
    return f"\0tilewise-farm-{farm.partition(':')[0]}"


def key_of(farm: str) -> bytes:
    """Return the key that a process has to know to use the socket."""
    return farm.partition(":")[2].encode()
