"""Everything tilewise raises on purpose.

    TilewiseError
    ├── UsageError            the caller asked for something that cannot be: correct the call
    │   ├── UnknownKernel, UnknownDevice, UnknownDtype, BadDimension, BadConfig
    │   ├── BadSpec           a user's kernel file that does not import or holds no spec
    │   └── BadImport         an exchange file that is corrupt or of an unknown version
    ├── Forbidden             a token that does not allow this
    │   └── Unauthorized      no token, or one that is unknown or revoked
    ├── Busy                  a server that was asked too often, or has too much to do
    ├── NotFound              a well-formed question with no answer (yet)
    ├── Unavailable           a device, package or compiler that this machine lacks
    ├── NothingFeasible       a space in which no config compiles or is right
    └── StoreError            a database that cannot be read or written

A message is one line: what is wrong, what was expected, what to do. The command line maps each class to an exit
code, the HTTP service to a status; nobody else does.
"""

from __future__ import annotations

__all__ = [
    "BadConfig",
    "BadDimension",
    "BadImport",
    "BadSpec",
    "Busy",
    "Forbidden",
    "NotFound",
    "NothingFeasible",
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
    """The request itself is wrong."""


class UnknownKernel(UsageError):
    """No kernel of that name is registered."""


class UnknownDevice(UsageError):
    """No device or part of that name exists."""


class UnknownDtype(UsageError):
    """The kernel does not take that dtype."""


class BadDimension(UsageError):
    """A dimension is missing, unknown, not a positive integer, or too large."""


class BadConfig(UsageError):
    """A config names unknown parameters or values outside the kernel's space."""


class BadSpec(UsageError):
    """A user's kernel file does not import, or holds no usable KernelSpec."""


class BadImport(UsageError):
    """An exchange file is corrupt, of another format, or of a newer version."""


class Forbidden(TilewiseError):
    """The token does not allow this."""


class Unauthorized(Forbidden):
    """There is no token, or it is unknown or revoked."""


class Busy(TilewiseError):
    """Too many requests; `retry_seconds` says when to try again."""

    def __init__(self, message: str, retry_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class NotFound(TilewiseError):
    """Nothing stored answers the question."""


class Unavailable(TilewiseError):
    """Something this machine lacks: a device, a package, a compiler."""


class NothingFeasible(TilewiseError):
    """No config of the space can run correctly on the device."""


class StoreError(TilewiseError):
    """The database is missing, no database, read-only, full, locked for too long, or newer than this program."""
