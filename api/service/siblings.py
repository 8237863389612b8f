"""The processes of one server, which share its limits and tell each other their metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from tilewise.api.service.limits import Limits

__all__ = ["Siblings"]

_SECONDS = 2.0
"""Time that a sibling has to tell its metrics."""


class Siblings:
    """One of `count` processes of a server, by `number`. Made once, before the processes are forked.

    They meet at sockets in `folder`, which no other user may enter.
    """

    def __init__(self, writes_a_minute: int, count: int = 1, folder: Path | None = None) -> None:
        self.limits, self.count, self.number = Limits(writes_a_minute), count, 0
        self._folder = folder
        self._server: asyncio.Server | None = None

    @property
    def is_first(self) -> bool:
        """Return whether this process does what only one of them must do: it runs the jobs, and looks after them."""
        return self.number == 0

    async def open(self, tell: Callable[[], bytes]) -> None:
        """Answer siblings with what `tell` returns."""
        if self._folder is None:
            return

        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(tell())
            writer.close()
            await writer.wait_closed()

        place = self._place(self.number)
        place.unlink(missing_ok=True)  # of a process that was killed
        self._server = await asyncio.start_unix_server(answer, place)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def texts(self, own: bytes) -> dict[int, bytes | None]:
        """Return what the processes tell by their numbers, this one `own`; None for one that does not answer."""
        others = [number for number in range(self.count) if number != self.number]
        told = await asyncio.gather(*(self._ask(number) for number in others))
        return dict(sorted({self.number: own, **dict(zip(others, told, strict=True))}.items()))

    async def _ask(self, number: int) -> bytes | None:
        try:
            async with asyncio.timeout(_SECONDS):
                reader, writer = await asyncio.open_unix_connection(self._place(number))
                try:
                    return await reader.read(-1) or None
                finally:
                    writer.close()
        except OSError:  # it is being started again; a timeout is one too
            return None

    def _place(self, number: int) -> Path:
        assert self._folder is not None, "only processes with siblings ask them"
        return self._folder / f"{number}.sock"
