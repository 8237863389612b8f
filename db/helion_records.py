"""Records of Helion's autotuner, which it reads and writes by its own hash over a remote cache.

A record is Helion's text: its config has lists, and its key hides the sizes. So it is no trial, and no answer of a
look-up. The table is bounded: the records that were written first go first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime

from sqlalchemy import delete, func, insert, select

from tilewise.db.sql import models
from tilewise.db.sql.database import Database
from tilewise.errors import NotFound, UsageError

__all__ = ["LONGEST_TEXT", "HelionRecord", "HelionRecords"]

LONGEST_TEXT = 64 << 10
"""Most bytes of a record as UTF-8; helion 1.5.1 writes about 1,000."""

_MOST = 4096
"""Records kept, and so at most 256 MiB."""

_KEY, _START = re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{1,64}")


@dataclass(frozen=True, slots=True)
class HelionRecord:
    """A record of Helion's under its hash, `key`.

    `kernel` is empty where Helion did not tell it. `search_us` is the shortest time that Helion's search saw, in
    microseconds, with Helion's own timer; not every writer tells it. `id` numbers the records as they were written.
    """

    key: str
    kernel: str
    device: str
    text: str
    search_us: float | None = None
    stored: datetime = field(default_factory=lambda: datetime.now(UTC))
    id: int = 0

    def check(self) -> None:
        """Raise `UsageError` if the key or the size is not one of Helion's."""
        if not _KEY.fullmatch(self.key):
            raise UsageError(f"{self.key[:40]!r} is not a key of Helion's; expected a SHA-256 in 64 lower-case digits")
        if (size := len(self.text.encode())) > LONGEST_TEXT:
            raise UsageError(f"the record has {size} bytes; at most {LONGEST_TEXT} are kept")


_R = models.helion_records.c
_ALL = select(*(_R[name] for name in HelionRecord.__dataclass_fields__))


class HelionRecords:
    """The records in a database, one of each key. All methods raise `StoreError`."""

    def __init__(self, database: Database, most: int = _MOST) -> None:
        self._database, self._most = database, most

    def put(self, record: HelionRecord) -> None:
        """Add a record, or replace the one of its key, and drop the oldest beyond the limit. Raises `UsageError`."""
        record.check()
        values = {name: value for name, value in asdict(record).items() if name != "id"}
        oldest = select(_R.id).order_by(_R.id.desc()).offset(self._most).limit(1).scalar_subquery()
        with self._database.write() as connection:
            connection.execute(delete(models.helion_records).where(_R.key == record.key))
            connection.execute(insert(models.helion_records).values(values))
            connection.execute(delete(models.helion_records).where(_R.id <= oldest))

    def get(self, key: str) -> HelionRecord:
        """Return the record of a key. Raises `NotFound`."""
        rows = self._database.fetch(_ALL.where(_R.key == key))
        if not rows:
            raise NotFound(f"no record of Helion's has the key {key[:64]!r}")
        return HelionRecord(*rows[0])

    def page(
        self, *, kernel: str | None = None, device: str | None = None, before: int | None = None, most: int
    ) -> Sequence[HelionRecord]:
        """Return the records written before the one of this number, the newest first."""
        query = _ALL.order_by(_R.id.desc()).limit(most)
        for column, wanted in ((_R.kernel, kernel), (_R.device, device)):
            if wanted is not None:
                query = query.where(column == wanted)
        if before is not None:
            query = query.where(_R.id < before)
        return [HelionRecord(*row) for row in self._database.fetch(query)]

    def remove(self, start: str) -> str:
        """Remove the one record whose key starts so, and return its key. Raises `NotFound` and `UsageError`."""
        if not _START.fullmatch(start):
            raise UsageError(f"{start[:40]!r} starts no key of Helion's; expected up to 64 digits from 0 to f")
        with self._database.write() as connection:
            begins = func.substr(_R.key, 1, len(start)) == start
            keys = connection.execute(select(_R.key).where(begins).limit(2)).scalars().all()
            if not keys:
                raise NotFound(f"no record of Helion's has a key that starts with {start!r}")
            if len(keys) > 1:
                raise UsageError(f"several records have keys that start with {start!r}; give more of the key")
            connection.execute(delete(models.helion_records).where(_R.key == keys[0]))
        return str(keys[0])
