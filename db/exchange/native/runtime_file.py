"""The export file as read at run time: winners only, one entry per line, each parsed when it is needed.

It is the document of `export_file`, laid out so that a look-up parses only the entries it needs:

    {"created":..,"format":"tilewise","portfolios":[..],"portfolios_sha256":..,"sha256":..,"version":1,"entries":[
    {"clock":"measured","config":{..},..},
    {"clock":"measured","config":{..},..}
    ]}

Each entry is in canonical JSON, without `evidence`, `default` and `trials`, so the checksum of the entries is taken
over the file's bytes. A file in any other layout (with evidence, indented, edited) is parsed once as a whole and laid
out like this in memory.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilewise.db.exchange.jsonfile import one_line, text_of
from tilewise.db.exchange.native.export_file import FORMAT, VERSION, checked_entries, document_of
from tilewise.db.exchange.trials import result_from_json
from tilewise.db.exchange.typed import Shape as ShapeJson
from tilewise.db.exchange.typed import typed
from tilewise.db.records import Clock, Question, Result, Shape, canonical_json, digest
from tilewise.errors import BadImport

__all__ = ["WinnersFile", "encode_winners"]

_OPENING, _CLOSING = b',"entries":[\n', b"\n]}\n"
_DIMS = re.compile(rb'"dims":(\{[^{}]*\})')
_LEFT_OUT = ("default", "trials", "evidence")

_LARGEST_HEADER = 1 << 24


def encode_winners(
    entries: Iterable[Mapping[str, Any]],
    portfolios: Sequence[Mapping[str, Any]] = (),
    *,
    created: datetime | None = None,
) -> bytes:
    """Return the file of these result objects (`Result.to_json`) and portfolios."""
    lines = [
        canonical_json({name: value for name, value in entry.items() if name not in _LEFT_OUT}).encode()
        for entry in entries
    ]
    header = {
        "format": FORMAT,
        "version": VERSION,
        "created": (created or datetime.now(UTC)).isoformat(),
        "portfolios": list(portfolios),
        "portfolios_sha256": digest(list(portfolios)),
        "sha256": _checksum(lines),
    }
    return canonical_json(header).encode()[:-1] + _OPENING + b",\n".join(lines) + _CLOSING


class WinnersFile:
    """A file's entries. Raises `BadImport` if the file is unusable; an unusable entry is ignored.

    Loading checks every byte and parses no entry: 10^5 entries take about 0.3 s, and 15 MB beside the file itself.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self._data, self._start, self.portfolios = _load(self.path)
        except (ValueError, RecursionError) as error:
            reason = "it is nested too deep" if isinstance(error, RecursionError) else one_line(error)
            raise BadImport(f"{self.path} is not a usable tilewise export: {reason}") from error
        except OSError as error:
            raise BadImport(f"cannot read {self.path}: {error.strerror}") from error
        self._index = _indexed(self._data, self._start)

    def answers(self, question: Question, source_hash: str | None = None) -> list[Result]:
        """Return all winners of exactly this question: measured before modelled, then the newest first."""
        found = (result for result, _ in self.entries(question.problem.shape))
        fitting = (result for result in found if result.scope.question == question)
        return sorted((r for r in fitting if source_hash in (None, r.scope.source_hash)), key=_rank)

    def shapes(self, kernel: str, dtype: str, device: str) -> Iterator[tuple[str, Shape]]:
        """Yield the source hash and shape of each entry of that kernel, dtype and device.

        Parses the whole file, in a second for 10^5 entries. An entry yielded here may still be unusable.
        """
        for line in _lines(self._data, self._start):
            try:
                body = json.loads(line)
                if (body["kernel"], body["dtype"], body["device"]) == (kernel, dtype, device):
                    yield str(body["source_hash"]), typed(body["dims"], ShapeJson)
            except (ValueError, KeyError, TypeError, RecursionError):
                continue

    def results(self) -> Iterator[Result]:
        """Return every readable entry, in the order of the file, all of which is parsed."""
        return (result for line in _lines(self._data, self._start) for result, _ in _entry(line))

    def cores(self, device: str) -> int | None:
        """Return the core count of some entry of the device, or None if it has no entry."""
        wanted = f'"device":{json.dumps(device, ensure_ascii=False)}'.encode()
        offset = self._data.find(wanted, self._start)
        if offset < 0:
            return None
        start, end = self._data.rfind(b"\n", 0, offset) + 1, self._data.find(b"\n", offset)
        return next((result.scope.cores for result, _ in _entry(self._data[start:end].rstrip(b","))), None)

    def entries(self, shape: Shape) -> Iterator[tuple[Result, list[Any]]]:
        """Yield the entries of a shape, each with its trials in JSON (none unless it was exported with evidence)."""
        offsets = self._index.get(_key(shape), ())
        for offset in [offsets] if isinstance(offsets, int) else offsets:
            start, end = self._data.rfind(b"\n", 0, offset) + 1, self._data.find(b"\n", offset)
            yield from _entry(self._data[start:end].rstrip(b","))


def _entry(line: bytes) -> Iterator[tuple[Result, list[Any]]]:
    """Yield the entry on a line, or nothing if it is not a result with a verified winner."""
    try:
        body = json.loads(line)
        result = result_from_json(body)
    except (ValueError, RecursionError):
        return
    if result.winner is not None and result.winner.time_us is not None and result.winner.verified:
        evidence = body.get("evidence", [])
        yield result, evidence if isinstance(evidence, list) else []


def _load(path: Path) -> tuple[bytes, int, list[Any]]:
    """Return the bytes with one entry per line, the offset of the first line, and the portfolios.

    The file is read, not mapped: overwriting a mapped file in place would crash this process.
    """
    data = path.read_bytes()
    opening = data.find(_OPENING, 0, _LARGEST_HEADER)
    if opening < 0 or not data.endswith(_CLOSING):
        return _laid_out(data)
    header = document_of(text_of(data[:opening] + b',"entries":[]}'))
    start = opening + len(_OPENING)
    if _checksum(_lines(data, start)) != header.get("sha256"):
        return _laid_out(data)  # perhaps edited: the checksum is over the parsed entries
    return data, start, _portfolios(header)


def _laid_out(data: bytes) -> tuple[bytes, int, list[Any]]:
    """Parse a file of any layout, and lay it out anew."""
    document = document_of(text_of(data))
    lines = [canonical_json(entry).encode() for entry in checked_entries(document)]
    return b",\n".join(lines) + b"\n", 0, _portfolios(document)


def _lines(data: bytes, start: int) -> Iterator[bytes]:
    while (end := data.find(b"\n", start)) > start:
        yield data[start:end].rstrip(b",")
        start = end + 1
        if data[start : start + 2] == b"]}":
            return


def _checksum(lines: Iterable[bytes]) -> str:
    """Return the digest of the list that these canonical lines make up."""
    sha = hashlib.sha256(b"[")
    for index, line in enumerate(lines):
        sha.update(b"," + line if index else line)
    sha.update(b"]")
    return sha.hexdigest()


def _portfolios(header: Mapping[str, Any]) -> list[Any]:
    found = header.get("portfolios", [])
    if not isinstance(found, list) or (found and header.get("portfolios_sha256") != digest(found)):
        raise ValueError("its portfolios do not match their checksum: it was damaged or edited; export it again")
    return found


def _indexed(data: bytes, start: int) -> dict[bytes, int | list[int]]:
    """Return the offsets of each shape's entries, by the shape's canonical JSON."""
    index: dict[bytes, int | list[int]] = {}
    for match in _DIMS.finditer(data, start):
        known = index.setdefault(match[1], match.start())
        if isinstance(known, list):
            known.append(match.start())
        elif known != match.start():
            index[match[1]] = [known, match.start()]
    return index


def _key(shape: Shape) -> bytes:
    return canonical_json(dict(shape)).encode()


def _rank(result: Result) -> tuple[bool, float]:
    assert result.winner is not None
    return result.scope.clock is not Clock.MEASURED, -result.winner.created.timestamp()
