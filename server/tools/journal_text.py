"""Journal entries as text: what the tools that read journals print."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from server.journal.entry import Entry, Kind
from server.journal.inspection import JournalReader, Slot
from server.journal.layout import (
    BODY_LENGTH,
    BODY_START,
    CRC,
    EXTRAS_LENGTH,
    PAGE,
    RECORD_SIZE,
    TIMESTAMP,
    TXID,
    VERSION,
    FormatError,
    encode_text,
)
from server.journal.times import iso_timestamp, raw_timestamp
from server.queues import decode
from server.wire.bookmarks import client_hash

RULE: Final = b"_" * 62 + b"\n"

_HOUSEKEEPING: Final = frozenset((Kind.NO_OP, Kind.DEFINE_TOPIC, Kind.DEFINE_ORIGIN))
_KINDS: Final[dict[int, str]] = {
    Kind.PUBLISH: "publish",
    Kind.DELTA_PUBLISH: "delta_publish",
    Kind.SOW_DELETE: "sow_delete",
    Kind.QUEUE_EVENT: "queue_event",
    Kind.NO_OP: "noop",
    Kind.DEFINE_TOPIC: "noop (topic definition)",
    Kind.DEFINE_ORIGIN: "noop (origin definition)",
}


def is_noop(slot: Slot) -> bool:
    """Whether an entry is the log's own business; a damaged one is not."""
    return slot.entry is not None and slot.entry.kind in _HOUSEKEEPING


def open_reader(path: Path) -> JournalReader:
    """Open a journal file.

    Raises:
        ValueError: it cannot be read, or is no journal; the text says so.
    """
    try:
        return JournalReader(path)
    except OSError as problem:
        raise ValueError(f"{path}: {problem.strerror or problem}") from problem
    except FormatError as problem:
        raise ValueError(f"{path}: {problem}") from problem


def header_text(reader: JournalReader, *, local: bool = False) -> bytes:
    """What a file is, before its entries."""
    first = last = 0
    if reader.header is not None:
        first = reader.header.first_txid
        last = first + reader.count - 1
    times = _times(reader)
    lines = [
        ("File Name", reader.path.name),
        ("File Size", str(reader.size)),
        ("Version", f"amperage::txlog/v{VERSION}"),
        ("Instance", "" if reader.header is None else reader.header.instance),
        ("Extents", f"[{first}:{last}]" if reader.count else "[]"),
        ("First Timestamp", iso_timestamp(times[0], local=local) if times else ""),
        ("Last Timestamp", iso_timestamp(times[1], local=local) if times else ""),
    ]
    return b"".join(encode_text(f"{name:<16}: {value}\n") for name, value in lines) + RULE


def footer_text(reader: JournalReader) -> bytes:
    """How full a file is, after its entries."""
    used = remaining = 0
    if reader.header is not None:
        used = reader.size - (remaining := _remaining(reader))
    lines = [("Total Entries", reader.count), ("Total Bytes", used), ("Remaining Bytes", remaining)]
    return b"".join(f"{name:<16}: {value}\n".encode() for name, value in lines)


def entry_text(slot: Slot, *, local: bool = False, with_data: bool = True) -> bytes:
    """One entry with everything that is known about it."""
    entry, row = slot.entry, slot.row
    if entry is None or row is None:
        what = "entry" if row is None else f"entry with local txid {row[TXID]}"
        return f"{_line('entry', slot.number)}*** this {what} is damaged ***\n".encode() + RULE
    extras = row[EXTRAS_LENGTH]
    auth_id, path = encode_text(entry.origin.auth_id), encode_text(entry.origin.path)
    topic = encode_text(entry.topic.name)
    numbers = [
        ("crc32", row[CRC]),
        ("type", _KINDS.get(entry.kind, f"unknown ({entry.kind})")),
        ("flags", "late" if entry.is_late else "none"),
        ("file offset", slot.offset),
        ("tx byte count", RECORD_SIZE + len(entry.body) + extras),
        ("msg byte count", len(entry.body)),
        ("msg type", entry.topic.message_type),
        ("local txid", entry.txid),
        ("previous local txid", entry.txid - 1 if slot.number else 0),
        ("source txid", entry.source_txid),
        ("source name hash", entry.source),
        ("client name hash", entry.client),
        ("client seq", entry.sequence),
        ("topic hash", client_hash(entry.topic.name)),
        ("sow key", entry.sow_key),
        ("sow expiration time", entry.expiration),
        ("iso8601 timestamp", iso_timestamp(entry.timestamp, local=local)),
        ("timestamp", raw_timestamp(entry.timestamp)),
        ("previous byte count", RECORD_SIZE if slot.number else 0),
        ("topic byte count", len(topic)),
    ]
    text = encode_text(_line("entry", slot.number) + "".join(_line(*one) for one in numbers))
    text += _bracketed("topic", topic)
    if with_data:
        text += _bracketed("data", _data(entry))
    for name, value in (
        ("correlation id", entry.correlation_id),
        ("auth id", auth_id),
        ("rep path", path),
    ):
        text += _line(f"{name} byte count", len(value)).encode() + _bracketed(name, value)
    if entry.given_key:
        text += _bracketed("given sow key", entry.given_key)
    return text + RULE


def _data(entry: Entry) -> bytes:
    """What an entry says; for what happened to a queue, in words."""
    if entry.kind != Kind.QUEUE_EVENT:
        return entry.body
    try:
        event = decode(entry.body)
    except msgspec.MsgspecError:
        return entry.body
    fields = msgspec.structs.asdict(event) | {"at": iso_timestamp(event.at)}
    del fields["marks"]
    words = [type(event).__name__.lower(), *(f"{name}={value}" for name, value in fields.items())]
    words += [f"{client}|{sequence}|" for client, sequence in event.marks]
    return encode_text(" ".join(words))


def write_out(pieces: Iterable[bytes]) -> None:
    """Print pieces of text."""
    for piece in pieces:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _line(name: str, value: object) -> str:
    return f"{name:<30}: {value!s:>30}\n"


def _bracketed(name: str, value: bytes) -> bytes:
    return f"{name:<30}: [".encode() + value + b"]\n"


def _times(reader: JournalReader) -> tuple[int, int] | None:
    """Of the first and the last entry that can be read."""
    rows = [
        slot.row for number in (0, reader.count - 1) for slot in reader.slots(number, number + 1)
    ]
    known = [row[TIMESTAMP] for row in rows if row is not None]
    return (known[0], known[-1]) if known else None


def _remaining(reader: JournalReader) -> int:
    end = PAGE
    for slot in reader.slots(max(reader.count - 1, 0)):
        if slot.row is not None:
            end = slot.row[BODY_START] + slot.row[BODY_LENGTH] + slot.row[EXTRAS_LENGTH]
    return max(reader.size - RECORD_SIZE * reader.count - end, 0)
