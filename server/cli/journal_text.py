"""Renders journal entries as text and as JSON, for the tools that read journals."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from amperage.wire.bookmarks import client_hash
from server.cli.read_errors import reason
from server.queues.core import decode
from server.storage.journal.format.entry import JournalEntry, JournalEntryKind
from server.storage.journal.format.layout import (
    BODY_LENGTH,
    BODY_START,
    CRC,
    EXTRAS_LENGTH,
    PAGE,
    RECORD_SIZE,
    TIMESTAMP,
    TXID,
    VERSION,
    EntryRow,
    JournalFormatError,
    encode_text,
)
from server.storage.journal.format.times import iso_timestamp, raw_timestamp
from server.storage.journal.inspection import EntrySlot, JournalReader
from server.storage.journal.sequence_gaps import decode_note
from server.util.json_lines import json_line

RULE: Final = b"_" * 62 + b"\n"

_INTERNAL_KINDS: Final = frozenset(
    (
        JournalEntryKind.NO_OP,
        JournalEntryKind.DEFINE_TOPIC,
        JournalEntryKind.DEFINE_ORIGIN,
        JournalEntryKind.RUNS,
    )
)
_IDENTIFIERS: Final = (
    "local txid",
    "previous local txid",
    "source txid",
    "source name hash",
    "client name hash",
    "client seq",
    "topic hash",
    "sow key",
    "timestamp",
)
_KINDS: Final[dict[int, str]] = {
    JournalEntryKind.PUBLISH: "publish",
    JournalEntryKind.DELTA_PUBLISH: "delta_publish",
    JournalEntryKind.SOW_DELETE: "sow_delete",
    JournalEntryKind.QUEUE_EVENT: "queue_event",
    JournalEntryKind.NO_OP: "noop",
    JournalEntryKind.DEFINE_TOPIC: "noop (topic definition)",
    JournalEntryKind.DEFINE_ORIGIN: "noop (origin definition)",
    JournalEntryKind.MISSING: "missing",
    JournalEntryKind.RUNS: "noop (runs)",
}


def is_noop(slot: EntrySlot) -> bool:
    """Return True for an entry of the log's own, such as a topic definition; False if damaged."""
    return slot.entry is not None and slot.entry.kind in _INTERNAL_KINDS


def open_reader(path: Path) -> JournalReader:
    """Open a journal file.

    Raises:
        ValueError: it cannot be read, or is no journal; the text has the reason.
    """
    try:
        return JournalReader(path)
    except (OSError, JournalFormatError) as problem:
        raise ValueError(reason(path, problem)) from problem


def header_text(reader: JournalReader, *, local: bool = False) -> bytes:
    """Return the header of a file as text, for output before its entries."""
    lines = (f"{name:<16}: {value}\n" for name, value in _header(reader, local=local))
    return b"".join(map(encode_text, lines)) + RULE


def header_json(reader: JournalReader, *, local: bool = False) -> bytes:
    """Return the header of a file as a line of JSON."""
    fields: dict[str, object] = {"record": "journal", "file": str(reader.path)}
    fields |= {name.lower(): value for name, value in _header(reader, local=local)}
    return json_line(fields | {"file size": reader.size})


def _header(reader: JournalReader, *, local: bool) -> Iterator[tuple[str, str]]:
    first_txid = last = 0
    if reader.header is not None:
        first_txid = reader.header.first_txid
        last = first_txid + reader.count - 1
    times = _times(reader)
    yield "File Name", reader.path.name
    yield "File Size", str(reader.size)
    yield "Version", f"amperage::txlog/v{VERSION}"
    yield "Instance", "" if reader.header is None else reader.header.instance
    yield "Extents", f"[{first_txid}:{last}]" if reader.count else "[]"
    yield "First Timestamp", iso_timestamp(times[0], local=local) if times else ""
    yield "Last Timestamp", iso_timestamp(times[1], local=local) if times else ""


def footer_text(reader: JournalReader) -> bytes:
    """Return the usage of a file's space as text, for output after its entries."""
    return b"".join(f"{name:<16}: {value}\n".encode() for name, value in _footer(reader))


def footer_json(reader: JournalReader) -> bytes:
    """Return the usage of a file's space as a line of JSON."""
    fields: dict[str, object] = {"record": "end", "file": str(reader.path)}
    return json_line(fields | {name.lower(): value for name, value in _footer(reader)})


def _footer(reader: JournalReader) -> Iterator[tuple[str, int]]:
    used = remaining = 0
    if reader.header is not None:
        used = reader.size - (remaining := _remaining(reader))
    yield "Total Entries", reader.count
    yield "Total Bytes", used
    yield "Remaining Bytes", remaining


def entry_text(slot: EntrySlot, *, local: bool = False, with_data: bool = True) -> bytes:
    """Return one entry with all its fields as text."""
    entry, row = slot.entry, slot.row
    if entry is None or row is None:
        subject = "entry" if row is None else f"entry with local txid {row[TXID]}"
        return f"{_line('entry', slot.number)}*** this {subject} is damaged ***\n".encode() + RULE
    numbers = [("entry", slot.number), *_numbers(slot, entry, row, local=local)]
    text = encode_text("".join(_line(name, value) for name, value in numbers))
    for name, value, is_counted in _texts(entry, with_data=with_data):
        if is_counted:
            text += _line(f"{name} byte count", len(value)).encode()
        text += _bracketed(name, value)
    return text + RULE


def entry_json(
    reader: JournalReader, slot: EntrySlot, *, local: bool = False, with_data: bool = True
) -> bytes:
    """Return one entry as a line of JSON."""
    entry, row = slot.entry, slot.row
    start = {"record": "entry", "file": str(reader.path), "entry": slot.number}
    if entry is None or row is None:
        txid = None if row is None else str(row[TXID])
        position = {"local txid": txid, "file offset": slot.offset}
        return json_line(start | {"record": "damaged entry"} | position)
    numbers: dict[str, object] = dict(_numbers(slot, entry, row, local=local))
    numbers |= {name: str(numbers[name]) for name in _IDENTIFIERS}
    texts = {name: value for name, value, _ in _texts(entry, with_data=with_data)}
    return json_line(start | numbers | texts)


def _numbers(
    slot: EntrySlot, entry: JournalEntry, row: EntryRow, *, local: bool
) -> Iterator[tuple[str, str | int]]:
    yield "crc32", row[CRC]
    yield "type", _KINDS.get(entry.kind, f"unknown ({entry.kind})")
    yield "flags", "late" if entry.is_late else "none"
    yield "file offset", slot.offset
    yield "tx byte count", size_of(slot)
    yield "msg byte count", len(entry.body)
    yield "msg type", entry.topic.message_type
    yield "local txid", entry.txid
    yield "previous local txid", entry.txid - 1 if slot.number else 0
    yield "source txid", entry.source_txid
    yield "source name hash", entry.source
    yield "client name hash", entry.client
    yield "client seq", entry.sequence
    yield "topic hash", client_hash(entry.topic.name)
    yield "sow key", entry.sow_key
    yield "sow expiration time", entry.expiration
    yield "iso8601 timestamp", iso_timestamp(entry.timestamp, local=local)
    yield "timestamp", raw_timestamp(entry.timestamp)
    yield "previous byte count", RECORD_SIZE if slot.number else 0
    yield "topic byte count", len(encode_text(entry.topic.name))


def _texts(entry: JournalEntry, *, with_data: bool) -> Iterator[tuple[str, bytes, bool]]:
    """Yield names, values, and whether the text form includes the length."""
    yield "topic", encode_text(entry.topic.name), False
    if with_data:
        yield "data", _data(entry), False
    yield "correlation id", entry.correlation_id, True
    yield "auth id", encode_text(entry.origin.auth_id), True
    yield "rep path", encode_text(entry.origin.path), True
    if entry.given_key:
        yield "given sow key", entry.given_key, False


def _data(entry: JournalEntry) -> bytes:
    """Return the data of an entry; queue events and missing messages are put into words."""
    if entry.kind == JournalEntryKind.MISSING:
        return _missing(entry)
    if entry.kind != JournalEntryKind.QUEUE_EVENT:
        return entry.body
    try:
        event = decode(entry.body)
    except msgspec.MsgspecError:
        return entry.body
    fields = msgspec.structs.asdict(event) | {"at": iso_timestamp(event.at)}
    del fields["bookmarks"]
    words = [type(event).__name__.lower(), *(f"{name}={value}" for name, value in fields.items())]
    words += [f"{client}|{sequence}|" for client, sequence in event.bookmarks]
    return encode_text(" ".join(words))


def _missing(entry: JournalEntry) -> bytes:
    try:
        note = decode_note(entry.body)
    except msgspec.MsgspecError:
        return entry.body
    words = [f"publisher={entry.source_txid}"]
    for name, ranges in (
        ("missing", note.missing),
        ("heard", note.announced),
        ("here", note.present_here),
    ):
        words += [f"{name}={first}-{last}" for first, last in ranges]
    return encode_text(" ".join(words))


def size_of(slot: EntrySlot) -> int:
    """Return the bytes that an entry takes, as far as that is known."""
    row = slot.row
    return RECORD_SIZE + (0 if row is None else row[BODY_LENGTH] + row[EXTRAS_LENGTH])


def write_out(pieces: Iterable[bytes]) -> None:
    """Write pieces to standard output, and flush it."""
    for chunk in pieces:
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def _line(name: str, value: object) -> str:
    return f"{name:<30}: {value!s:>30}\n"


def _bracketed(name: str, value: bytes) -> bytes:
    return f"{name:<30}: [".encode() + value + b"]\n"


def _times(reader: JournalReader) -> tuple[int, int] | None:
    """Return the timestamps of the first and the last entry, as far as they can be read."""
    rows = [
        slot.row for number in (0, reader.count - 1) for slot in reader.slots(number, number + 1)
    ]
    times = [row[TIMESTAMP] for row in rows if row is not None]
    return (times[0], times[-1]) if times else None


def _remaining(reader: JournalReader) -> int:
    end = PAGE
    for slot in reader.slots(max(reader.count - 1, 0)):
        if slot.row is not None:
            end = slot.row[BODY_START] + slot.row[BODY_LENGTH] + slot.row[EXTRAS_LENGTH]
    return max(reader.size - RECORD_SIZE * reader.count - end, 0)
