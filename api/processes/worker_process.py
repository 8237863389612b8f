"""Runs in the processes of the service, which are forks of one that has imported this."""

from __future__ import annotations

from typing import Any

from tilewise.api.processes import import_process, lookup_process

__all__ = ["serve"]


def serve(url: str, own: tuple[str, ...], task: str, *arguments: Any) -> Any:
    """Return the result of a task of imports or of look-ups, or the error that it raised.

    `url` is that of the store, and `own` holds the places of the users' kernels that the server knows.
    """
    if task in import_process.TASKS:
        return import_process.serve(url, own, task, *arguments)
    return lookup_process.serve(url, own, task, *arguments)
