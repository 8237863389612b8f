"""All errors that tilewise raises on purpose.

    TilewiseError
    ├── UsageError            an invalid request: correct the call
    │   ├── UnknownKernel, UnknownDevice, UnknownDtype, BadDimension, BadConfig
    │   ├── BadSpec           a user's kernel file that does not import or holds no spec
    │   └── BadImport         an exchange file that is corrupt or of an unknown version
    ├── Forbidden             a token that does not allow this
    │   └── Unauthorized      no token, or one that is unknown or revoked
    ├── Busy                  a server that gets too many requests or has too much to do
    ├── NotFound              a valid question without an answer (yet)
    ├── Unavailable           a device, package or compiler that this machine lacks
    │   └── InUse             a device that another process holds
    ├── NothingFeasible       a space in which no config compiles or gives correct results
    └── StoreError            a database that cannot be read or written
        ├── LeaseLost         a write for a job that its process no longer owns
        ├── NoSpace           a disk that is full
        └── ReadOnly          a database that may only be read

A message is one line: what is wrong, what was expected, what to do. The command line maps each class to an exit
code, the HTTP service to a status; nothing else does.
"""

from __future__ import annotations

__all__ = [
    "BadConfig",
    "BadDimension",
    "BadImport",
    "BadSpec",
    "Busy",
    "Forbidden",
    "InUse",
    "LeaseLost",
    "NoSpace",
    "NotFound",
    "NothingFeasible",
    "ReadOnly",
    "StoreError",
    "TilewiseError",
    "Unauthorized",
    "Unavailable",
    "UnknownDevice",
    "UnknownDtype",
    "UnknownKernel",
    "UsageError",
]


class TilewiseError(Exception):
    """Base of all errors raised on purpose; `str(error)` is one line for a person."""


class UsageError(TilewiseError):
    """An invalid request."""


class UnknownKernel(UsageError):
    """A kernel name that is not registered."""


class UnknownDevice(UsageError):
    """A device or part name that does not exist."""


class UnknownDtype(UsageError):
    """A dtype that the kernel does not take."""


class BadDimension(UsageError):
    """A dimension that is missing, unknown, not a positive integer, or too large."""


class BadConfig(UsageError):
    """A config with unknown parameters or values outside the kernel's space."""


class BadSpec(UsageError):
    """A user's kernel file that does not import, or holds no usable KernelSpec."""


class BadImport(UsageError):
    """An exchange file that is corrupt, of another format, or of a newer version."""


class Forbidden(TilewiseError):
    """A token that does not allow this."""


class Unauthorized(Forbidden):
    """A token that is missing, unknown or revoked."""


class Busy(TilewiseError):
    """Too many requests; `retry_seconds` says when to retry."""

    def __init__(self, message: str, retry_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class NotFound(TilewiseError):
    """A question that nothing stored answers."""


class Unavailable(TilewiseError):
    """A device, package or compiler that this machine lacks."""


class InUse(Unavailable):
    """A device that another process holds."""


class NothingFeasible(TilewiseError):
    """A space in which no config runs correctly on the device."""


class StoreError(TilewiseError):
    """A database that is missing, not a database, read-only, full, locked for too long, or newer than this program."""


class LeaseLost(StoreError):
    """A write for a job that its process no longer owns. Nothing was written."""


class NoSpace(StoreError):
    """A disk without room for what is to be stored."""


class ReadOnly(StoreError):
    """A database that this process may not write to."""
