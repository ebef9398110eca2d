"""Records of many entries at once.

A run of publishes to one topic by one publisher differs in sequence numbers and bodies only, and
what comes from another instance is in columns already. What the records have in common is packed
once and repeated, and the rest is filled in as columns, which costs a fraction of what packing them
one by one does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat, starmap
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from server.journal.errors import JournalUnavailable
from server.journal.layout import CHECKSUM, HEAD, LAG_UNKNOWN, crc32c
from server.journal.records import RECORD_TYPE

_HEAD: Final = Struct(f"{HEAD.size}s{CHECKSUM.size}x")
_NO_CHECKSUM: Final = bytes(CHECKSUM.size)

_FEW: Final = 8
"""Records that are made one by one: columns are not worth their while."""

Field: TypeAlias = int | Sequence[int]
"""What entries have in one field: all the same, or each its own."""


def each(field: Field, count: int) -> Iterable[int]:
    """A field of each of some entries."""
    return repeat(field, count) if isinstance(field, int) else field


def of_one(field: Field, place: int) -> int:
    """A field of one of some entries."""
    return field if isinstance(field, int) else field[place]


class Content(NamedTuple):
    """What entries of one topic and one origin say. See `Entry` for the fields.

    Attributes:
        clients: as the records have them.
        sequences: likewise.
        source_txids: likewise.
        source: likewise, of all.
        kinds: what the entries stand for.
        sow_keys: SOW keys as numbers, 0 for none.
        expirations: lifetimes in seconds, 0 for none.
        extras_length: bytes of extras behind each body.
        checksums: of bodies with extras.
        data: the bodies with extras.
    """

    clients: Field
    sequences: Field
    source_txids: Field
    source: int
    kinds: Field
    sow_keys: Field
    expirations: Field
    extras_length: int
    checksums: Sequence[int]
    data: Sequence[bytes]

    def part(self, start: int, stop: int) -> Content:
        """Some of the entries, in a row."""
        if not start and stop == len(self.data):
            return self

        def of(field: Field) -> Field:
            return field if isinstance(field, int) else field[start:stop]

        return Content(
            of(self.clients),
            of(self.sequences),
            of(self.source_txids),
            self.source,
            of(self.kinds),
            of(self.sow_keys),
            of(self.expirations),
            self.extras_length,
            self.checksums[start:stop],
            self.data[start:stop],
        )

    def keys(self, part: slice) -> Sequence[int]:
        """The SOW keys of some entries in a row; empty if the first has none."""
        sow_keys = self.sow_keys
        if isinstance(sow_keys, int):
            return [sow_keys] * len(self.data[part]) if sow_keys else ()
        return sow_keys[part] if sow_keys[part.start] else ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where entries go that are appended together.

    Attributes:
        first_txid: of the first entry.
        timestamp: of all of them, in microseconds since the Unix epoch.
        bodies_end: offset in bytes of the first body in the file.
        topic: the topic's number in the file.
        origin: the origin's number in the file.
        durable: the last txid on stable storage.
    """

    first_txid: int
    timestamp: int
    bodies_end: int
    topic: int
    origin: int
    durable: int


class AppendedRun(NamedTuple):
    """How far a run has been appended in one step: its entries have one moment.

    Attributes:
        end: the position of the first entry that has not been appended; their number if all have.
        txids: of those that have been.
        timestamp: of these, in microseconds since the Unix epoch.
        problem: why that first one cannot be appended; None if it has not been tried.
        flags: as the records have them.
    """

    end: int
    txids: Sequence[int]
    timestamp: int
    problem: JournalUnavailable | None
    flags: Field = 0


def make_records(place: Place, content: Content, flags: Field = 0) -> tuple[bytes, int]:
    """The records of a run.

    Args:
        place: where it goes.
        content: what its entries say.
        flags: as the records have them.

    Returns:
        The records as they lie in the file, the last one first; the offset behind the last body.
    """
    count = len(content.data)
    if count <= _FEW:
        return _make_few(place, content, flags)
    data = bytearray((_pack_common(place, content, flags) + _NO_CHECKSUM) * count)
    rows = np.frombuffer(data, RECORD_TYPE)[::-1]
    numbers = np.arange(count, dtype=np.uint64)
    lengths = np.fromiter(map(len, content.data), np.uint64, count)
    ends = lengths.cumsum() + np.uint64(place.bodies_end)
    rows["txid"] = numbers + np.uint64(place.first_txid)
    for name, field in (
        ("client", content.clients),
        ("sequence", content.sequences),
        ("source_txid", content.source_txids),
        ("sow_key", content.sow_keys),
        ("expiration", content.expirations),
        ("kind", content.kinds),
        ("flags", flags),
    ):
        if not isinstance(field, int):
            rows[name] = _values(field)
    rows["body_start"] = ends - lengths
    rows["body_length"] = lengths - np.uint64(content.extras_length)
    rows["body_crc"] = np.array(content.checksums, np.uint32)
    lag = np.uint64(place.first_txid - place.durable)
    rows["lag"] = np.minimum(numbers + lag, LAG_UNKNOWN)
    checksums = np.fromiter(starmap(crc32c, _HEAD.iter_unpack(data)), np.uint32, count)
    rows["crc"] = checksums[::-1]
    return bytes(data), int(ends[-1])


def _make_few(place: Place, content: Content, flags: Field) -> tuple[bytes, int]:
    """The same for records that are made sooner one by one."""
    records: list[bytes] = []
    end, extras_length = place.bodies_end, content.extras_length
    for at, data in enumerate(content.data):
        txid = place.first_txid + at
        head = HEAD.pack(
            txid,
            place.timestamp,
            of_one(content.clients, at),
            of_one(content.sequences, at),
            of_one(content.source_txids, at),
            content.source,
            of_one(content.sow_keys, at),
            end,
            len(data) - extras_length,
            extras_length,
            place.topic,
            place.origin,
            of_one(content.expirations, at),
            content.checksums[at],
            of_one(content.kinds, at),
            of_one(flags, at),
            min(txid - place.durable, LAG_UNKNOWN),
        )
        records.append(head + CHECKSUM.pack(crc32c(head)))
        end += len(data)
    return b"".join(reversed(records)), end


def _pack_common(place: Place, content: Content, flags: Field) -> bytes:
    """What is the same in all records, and nothing where they differ."""
    return HEAD.pack(
        0,
        place.timestamp,
        _common(content.clients),
        _common(content.sequences),
        _common(content.source_txids),
        content.source,
        _common(content.sow_keys),
        0,
        0,
        content.extras_length,
        place.topic,
        place.origin,
        _common(content.expirations),
        0,
        _common(content.kinds),
        _common(flags),
        0,
    )


def _common(field: Field) -> int:
    return field if isinstance(field, int) else 0


def _values(field: Sequence[int]) -> npt.NDArray[np.uint64]:
    """A field as NumPy takes it."""
    if isinstance(field, range):
        return np.arange(field.start, field.stop, field.step, dtype=np.uint64)
    return np.array(field, np.uint64)
