"""Missing sequence numbers: refused, though higher ones of the publisher are in the log.

A publisher takes a number for stored when a higher one is acknowledged to it, or named at its
logon. On one connection that is right, since the server has sent the refusal before. But the
refusal may have been lost with the connection. So the server keeps refused numbers:

    refused   on the current connection; no higher number has been recorded yet
    missing   a higher number has been recorded; before that, the log has recorded the gap

At its next logon the server sends the publisher its missing numbers, before its last sequence. When
the publisher goes on after that, it knows them, and the log records that, too. A number that
arrives later by way of another instance is missing no longer.

In the log these are entries of their own (`JournalEntryKind.MISSING`), under the identity that the
server makes for the publisher. So they are recovered and replicated like others. They add and
remove ranges of numbers.

Missing numbers are never dropped because of a limit. Above the limit the server refuses a
publisher's messages until its missing numbers have been reported to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from server.util.ranges import Ranges

MAX_GAP_RANGES: Final = 1024
"""Limit of ranges of one publisher."""
MAX_GAP_SEQUENCES: Final = 131_072
"""Limit of numbers of one publisher: each is sent by itself."""

SequenceRanges: TypeAlias = Sequence[tuple[int, int]]
"""The first and the last number of ranges."""


class GapRecord(msgspec.Struct, frozen=True, array_like=True):
    """The content of an entry about missing numbers.

    Attributes:
        missing: ranges of numbers that are missing from now on.
        announced: ranges of numbers that have been reported to the publisher.
        present_here: ranges of numbers that are not missing in the log of the instance that
            recorded it.
    """

    missing: list[tuple[int, int]] = []
    announced: list[tuple[int, int]] = []
    present_here: list[tuple[int, int]] = []


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(GapRecord)


def encode_note(record: GapRecord) -> bytes:
    """Encode a record of gaps as the body of an entry."""
    return _ENCODER.encode(record)


def decode_note(body: bytes) -> GapRecord:
    """Decode the body of an entry.

    Raises:
        msgspec.MsgspecError: it is no record of gaps.
    """
    return _DECODER.decode(body)


class SequenceGaps:
    """The missing numbers of each publisher.

    Args:
        rows: the stored missing ranges; see `rows`.
        max_ranges: limit of ranges of one publisher; see `is_over_limit`.
        max_sequences: limit of single numbers of one publisher.

    Attributes:
        refused_ranges: ranges that are not in the log yet. Empty most of the time, so that callers
            check it first.
        missing_ranges: ranges that the log has recorded.
    """

    def __init__(
        self,
        rows: Iterable[tuple[int, int, int]] = (),
        max_ranges: int = MAX_GAP_RANGES,
        max_sequences: int = MAX_GAP_SEQUENCES,
    ) -> None:
        self.refused_ranges: dict[int, Ranges] = {}
        self.missing_ranges: dict[int, Ranges] = {}
        self._max_ranges = max_ranges
        self._max_sequences = max_sequences
        for client, first, last in rows:
            self.apply_record(client, GapRecord([(first, last)]))

    # Before the log has recorded them.

    def add_refused(self, client: int, sequence: int) -> None:
        """Note a refused number.

        Above the limit it is not kept: no higher number of the publisher will be recorded.
        """
        if not self.is_over_limit(client):
            self.refused_ranges.setdefault(client, Ranges()).add(sequence, sequence)

    def is_over_limit(self, client: int) -> bool:
        """Return whether a publisher's messages are refused until it logs on again."""
        publisher_ranges = [
            ranges_by_client[client]
            for ranges_by_client in (self.refused_ranges, self.missing_ranges)
            if client in ranges_by_client
        ]
        return len(publisher_ranges) > 0 and (
            sum(map(len, publisher_ranges)) >= self._max_ranges
            or sum(map(_count_sequences, publisher_ranges)) >= self._max_sequences
        )

    def refused_before(self, client: int, sequence: int) -> SequenceRanges:
        """Return the refused ranges to record in the log before a number."""
        refused = self.refused_ranges.get(client)
        if refused is None:
            return ()
        return [(first, min(last, sequence - 1)) for first, last in refused if first < sequence]

    def drop_refused(self, client: int) -> None:
        """Drop a publisher's refused numbers when it connects or leaves: it sends them again."""
        self.refused_ranges.pop(client, None)

    # After the log has recorded them.

    def apply_record(self, client: int, record: GapRecord, *, is_own: bool = True) -> None:
        """Apply an entry about missing numbers, of this instance or another one."""
        for first, last in record.missing:
            self.missing_ranges.setdefault(client, Ranges()).add(first, last)
            self._remove_range(self.refused_ranges, client, first, last)
        for first, last in (*record.announced, *(record.present_here if is_own else ())):
            self._remove_range(self.missing_ranges, client, first, last)

    def remove_recorded(self, client: int, first: int, last: int) -> None:
        """Remove recorded numbers, `first` to `last`; gaps between them are not reported."""
        self._remove_range(self.refused_ranges, client, first, last)
        self._remove_range(self.missing_ranges, client, first, last)

    def is_missing(self, client: int, sequence: int) -> bool:
        """Return whether a number is missing."""
        return client in self.missing_ranges and sequence in self.missing_ranges[client]

    def missing_up_to(self, client: int, sequence: int) -> SequenceRanges:
        """Return the missing ranges of a publisher, up to a number."""
        ranges = self.missing_ranges.get(client, ())
        return [(first, min(last, sequence)) for first, last in ranges if first <= sequence]

    def drop_publishers(self, clients: Iterable[int]) -> None:
        """Drop the missing numbers of forgotten publishers."""
        for client in clients:
            self.missing_ranges.pop(client, None)

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """Yield all missing ranges: client hash, first and last number."""
        for client, ranges in self.missing_ranges.items():
            for first, last in ranges:
                yield client, first, last

    @staticmethod
    def _remove_range(
        ranges_by_client: dict[int, Ranges], client: int, first: int, last: int
    ) -> None:
        ranges = ranges_by_client.get(client)
        if ranges is not None:
            ranges.remove(first, last)
            if not ranges:
                del ranges_by_client[client]


def _count_sequences(ranges: Ranges) -> int:
    return sum(last - first + 1 for first, last in ranges)
