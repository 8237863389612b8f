"""Kernels of users that travel in the database, by content hash, each with an operator's signature.

The key never is in the database: whoever can write there can add a kernel, but none that a worker accepts.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime

from sqlalchemy import delete, insert, select

from tilewise.db.records import canonical_json
from tilewise.db.sql import models
from tilewise.db.sql.database import Database
from tilewise.errors import NotFound

__all__ = ["SignedKernel", "SignedKernels"]

_PURPOSE = b"tilewise kernel 1:"
"""What the key signs begins so: a signature made for anything else is none of a kernel."""


@dataclass(frozen=True, slots=True)
class SignedKernel:
    """A file's `text`, and the name of the kernel whose `spec` it holds."""

    name: str
    file: str
    spec: str
    text: str
    signature: str = ""
    signed: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def digest(self) -> str:
        """The content hash, of all but the signature and its time."""
        content = {"name": self.name, "file": self.file, "spec": self.spec, "text": self.text}
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()

    def signature_by(self, key: bytes) -> str:
        return hmac.new(key, _PURPOSE + self.digest.encode(), hashlib.sha256).hexdigest()

    def is_signed_by(self, key: bytes) -> bool:
        return hmac.compare_digest(self.signature_by(key).encode(), self.signature.encode())


_K = models.signed_kernels.c


class SignedKernels:
    """The signed kernels in a database, one of each name. All methods raise `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, kernel: SignedKernel) -> None:
        """Add a kernel, or replace the one of that name."""
        with self._database.write() as connection:
            connection.execute(delete(models.signed_kernels).where(_K.name == kernel.name))
            connection.execute(insert(models.signed_kernels).values(asdict(kernel) | {"digest": kernel.digest}))

    def digests(self) -> Mapping[str, str]:
        """Return what the database says the content hash of each name is."""
        return dict(map(tuple, self._database.fetch(select(_K.name, _K.digest).order_by(_K.name))))

    def get(self, name: str) -> SignedKernel:
        """Return a kernel, whoever signed it. Raises `NotFound`."""
        columns = [_K[one] for one in SignedKernel.__dataclass_fields__]
        rows = self._database.fetch(select(*columns).where(_K.name == name))
        if not rows:
            raise NotFound(f"no kernel {name!r} is signed; tilewise kernels sign FILE.py:SPEC signs one")
        return SignedKernel(*rows[0])

    def remove(self, name: str) -> None:
        """Remove a kernel. Workers that have it keep it until they end. Raises `NotFound`."""
        self.get(name)
        with self._database.write() as connection:
            connection.execute(delete(models.signed_kernels).where(_K.name == name))
