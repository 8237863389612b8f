"""tilewise's own export file: every best with all of its evidence.

    {"format": "tilewise", "version": 1, "created": ISO 8601, "sha256": hex, "entries": [entry, ...]}

An entry is a result object (`Result.to_json`) with `source_hash`, `cores` and `evidence`, which is the scope's current
trials in recorded order. Everything but the scope and its evidence follows from these, and an import recomputes it.
`sha256` is over the entries in canonical JSON. A file with a wrong checksum is refused as a whole. In a sound file, an
impossible entry is refused and the others are read.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, BinaryIO

import msgspec

from tilewise.db.evidence import summarize, winner
from tilewise.db.exchange.format import Format, Written
from tilewise.db.exchange.import_file import ImportFile, Offer, Refusal
from tilewise.db.exchange.jsonfile import one_line, parse, text_of
from tilewise.db.exchange.native.entry_stream import stream_entries
from tilewise.db.exchange.selection import Selection
from tilewise.db.exchange.trials import result_from_json, scope_from_json, trial_from_json, trial_to_json
from tilewise.db.exchange.typed import Config, Count, Number, Object, typed
from tilewise.db.records import Scope, Trial, canonical_json, digest
from tilewise.db.store import Store
from tilewise.errors import BadImport

__all__ = [
    "FORMAT",
    "JSON",
    "VERSION",
    "checked_entries",
    "document_of",
    "encode",
    "export_native",
    "read_native",
    "stream_native",
    "stream_native_offers",
]

FORMAT = "tilewise"
VERSION = 1
_PIECE = 1 << 16


def export_native(store: Store, scopes: Iterable[Scope], *, created: datetime | None = None) -> dict[str, Any]:
    """Return the export document of the bests of these scopes; `encode` turns it into a file's bytes."""
    entries = list(_entries(store, scopes))
    return {
        "format": FORMAT,
        "version": VERSION,
        "created": (created or datetime.now(UTC)).isoformat(),
        "sha256": digest(entries),
        "entries": entries,
    }


def encode(document: dict[str, Any]) -> bytes:
    """Return the document as a UTF-8 file with one value per line, so that version control shows what changed."""
    return (json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def stream_native(store: Store, scopes: Iterable[Scope], *, created: datetime | None = None) -> Iterator[bytes]:
    """Yield the export file in pieces of about 64 KiB with one entry per line, holding only one piece in memory.

    The checksum is known only at the end, so it comes last.
    """
    about = {"format": FORMAT, "version": VERSION, "created": (created or datetime.now(UTC)).isoformat()}
    checksum = hashlib.sha256(b"[")
    piece = bytearray(json.dumps(about)[:-1].encode() + b', "entries": [')
    separator = b""
    for entry in _entries(store, scopes):
        checksum.update(separator + canonical_json(entry).encode())
        piece += separator + b"\n" + json.dumps(entry, ensure_ascii=False, allow_nan=False).encode()
        separator = b","
        if len(piece) > _PIECE:
            yield bytes(piece)
            piece.clear()
    checksum.update(b"]")
    yield bytes(piece) + f'\n], "sha256": "{checksum.hexdigest()}"}}\n'.encode()


def read_native(data: bytes) -> ImportFile:
    """Read an export file, plain or gzipped. Raises `BadImport` if it is damaged or of another version."""
    try:
        document = document_of(text_of(data))
        entries = checked_entries(document)
    except (ValueError, RecursionError) as error:
        raise BadImport(f"not a usable tilewise export: {one_line(error)}") from error
    read = [_read_entry(f"entry {number}", entry) for number, entry in enumerate(entries, 1)]
    return ImportFile(
        offers=tuple(entry for entry in read if isinstance(entry, Offer)),
        refusals=tuple(entry for entry in read if isinstance(entry, Refusal)),
    )


def stream_native_offers(file: BinaryIO) -> Iterator[Offer | Refusal]:
    """Yield what `read_native` returns, entry by entry. Raises `BadImport` where the file turns out to be damaged."""
    header: dict[str, Any] = {}
    try:
        entries, number = stream_entries(file, header), itertools.count(1)
        while offer := _read_next(number, entries):
            yield offer
        _check_header(header)
    except ValueError as error:
        raise BadImport(f"not a usable tilewise export: {one_line(error)}") from error


def _entries(store: Store, scopes: Iterable[Scope]) -> Iterator[dict[str, Any]]:
    for scope in scopes:
        trials = store.trials(scope)  # read once, since another process may be tuning
        result = summarize(scope, trials)
        if result.winner is not None:
            evidence = [trial_to_json(trial) for trial in trials]
            yield result.to_json() | {"evidence": evidence}


def _read_next(number: Iterator[int], entries: Iterator[Any]) -> Offer | Refusal | None:
    """Return the next entry, read; None at the end. No variable keeps it while the one after it is parsed."""
    for entry in entries:
        return _read_entry(f"entry {next(number)}", entry)
    return None


class _Header(msgspec.Struct):
    version: Count


class _Document(msgspec.Struct):
    entries: list[Any]
    sha256: str


class _Evidence(msgspec.Struct):
    evidence: list[Any]


class _Best(msgspec.Struct):
    config: Config
    time_us: Number


def document_of(text: str) -> Object:
    """Return the document of an export file, its entries unread. Raises `ValueError` for another format or version."""
    document = typed(parse(text), Object)
    _check_header(document)
    return document


def _check_header(document: Object) -> None:
    if document.get("format") != FORMAT:
        raise ValueError(f"its format is {repr(document.get('format'))[:40]}; expected {FORMAT!r}")
    version = typed(document, _Header).version
    if version != VERSION:
        raise ValueError(f"its version is {version}; this tilewise reads {VERSION}: upgrade tilewise")


def checked_entries(document: Object) -> list[Any]:
    """Return the entries of a document, unread. Raises `ValueError` if its checksum does not match them."""
    known = typed(document, _Document)
    if known.sha256 != digest(known.entries):
        raise ValueError("its checksum does not match its entries: it was damaged or edited; export it again")
    return known.entries


def _read_entry(place: str, entry: Any) -> Offer | Refusal:
    try:
        scope = scope_from_json(entry)
        if "evidence" not in entry:  # winners only: the winner is the only evidence
            return _read_winner(place, entry)
        evidence = typed(entry, _Evidence).evidence
        trials = [_read_trial(number, body) for number, body in enumerate(evidence, 1)]
        _check_winner(typed(entry, _Best), trials)
    except ValueError as error:
        return Refusal(place, one_line(error))
    return Offer(place, scope, tuple(trials))


def _read_winner(place: str, entry: Any) -> Offer:
    result = result_from_json(entry)
    if result.winner is None or not result.winner.verified or result.winner.time_us is None:
        raise ValueError("it has neither evidence nor a verified winner with its time")
    return Offer(place, result.scope, (result.winner,))


def _read_trial(number: int, body: Any) -> Trial:
    try:
        return trial_from_json(body)
    except ValueError as error:
        raise ValueError(f"trial {number}: {error}") from error


def _check_winner(claimed: _Best, trials: list[Trial]) -> None:
    best = winner(trials)
    if best is None:
        raise ValueError("its evidence holds no correct and verified trial")
    if claimed.config != best.config or claimed.time_us != best.time_us:
        raise ValueError(
            f"its config is not the best of its evidence, which is {dict(best.config)} at {best.time_us} us"
        )


def _write(selection: Selection) -> Written:
    document = export_native(selection.store, selection.scopes)
    return Written.single(encode(document), len(document["entries"]))


JSON = Format(
    "json",
    "every best with its evidence, for tilewise import",
    write=_write,
    read=lambda data, name, about, written: read_native(data),
    mark=rf'"format"\s*:\s*"{FORMAT}"',
)
