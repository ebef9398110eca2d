"""Entries of the log as they are sent: topic and origin decide which are sent, not the entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.replication.core.columns import PackedBatch
from server.replication.core.entry_packer import pack

if TYPE_CHECKING:
    from server.replication.core.routes import LinkRoute
    from server.storage.journal import JournalOrigin, JournalTopic, RawEntryRange
    from server.storage.journal.format.records import FileDefinitions

_NOT_SENT, _PUBLISHED_HERE, _FORWARDED = range(3)
_BITS: Final = 32
_LOWER: Final = (1 << _BITS) - 1


class ForwardingTable(dict[int, int]):
    """Routing of entries by topic and origin, in the form that `pack` reads.

    Args:
        definitions: the topics and origins that the numbers refer to.
        route: decides which entries are sent.
        sends_all: whether all entries are sent: they have been selected before.
    """

    __slots__ = ("_route", "definitions", "sends_all")

    def __init__(self, definitions: FileDefinitions, route: LinkRoute, *, sends_all: bool) -> None:
        super().__init__()
        self.definitions = definitions
        self.sends_all = sends_all
        self._route = route

    def __missing__(self, number: int) -> int:
        topic, origin = self.topic_and_origin(number)
        is_sent = self.sends_all or self._route.filters_for(topic, origin.path) is not None
        decision = _NOT_SENT if not is_sent else _FORWARDED if origin.path else _PUBLISHED_HERE
        self[number] = decision
        return decision

    def topic_and_origin(self, number: int) -> tuple[JournalTopic, JournalOrigin]:
        """Return the topic and origin of a key."""
        return self.definitions.topics[number >> _BITS], self.definitions.origins[number & _LOWER]


def pack_range(
    after_txid: int, last_txid: int, raw_range: RawEntryRange, table: ForwardingTable, now: int
) -> PackedBatch:
    """Return the entries of a range that the table selects, packed to be sent.

    Args:
        after_txid: the txid before its first.
        last_txid: the txid up to which the log has been read.
        raw_range: the entries.
        table: decides which of them are sent.
        now: microseconds since the Unix epoch.
    """
    count, numbers, columns, body_ranges = pack(raw_range.records, table, now)
    bodies = raw_range.bodies
    if body_ranges != [(0, len(bodies))]:  # do not retain skipped bodies until the others are sent
        view = memoryview(bodies)
        bodies = b"".join([view[start:end] for start, end in body_ranges])
    names = [table.topic_and_origin(number) for number in numbers]
    return PackedBatch(after_txid, last_txid, count, names, columns, bodies)
