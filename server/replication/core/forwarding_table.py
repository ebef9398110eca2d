"""Entries of the log as they are sent: topic and origin decide which go, not the entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.replication.core.columns import PackedBatch
from server.replication.core.entry_packer import pack

if TYPE_CHECKING:
    from server.replication.core.routes import LinkRoute
    from server.storage.journal import JournalOrigin, JournalTopic, RawEntryRange
    from server.storage.journal.format.records import FileDefinitions

_STAYS, _IS_OURS, _IS_PASSED_ON = range(3)
_BITS: Final = 32
_LOWER: Final = (1 << _BITS) - 1


class ForwardingTable(dict[int, int]):
    """Routing of entries by topic and origin, in the form that `pack` reads.

    Args:
        definitions: the topics and origins that the numbers stand for.
        route: decides which entries go.
        sends_all: all entries go: they have been selected before.

    Attributes:
        definitions: see above.
        sends_all: see above.
    """

    __slots__ = ("_route", "definitions", "sends_all")

    def __init__(self, definitions: FileDefinitions, route: LinkRoute, *, sends_all: bool) -> None:
        super().__init__()
        self.definitions = definitions
        self.sends_all = sends_all
        self._route = route

    def __missing__(self, number: int) -> int:
        topic, origin = self.topic_and_origin(number)
        goes = self.sends_all or self._route.filters_for(topic, origin.path) is not None
        answer = _STAYS if not goes else _IS_PASSED_ON if origin.path else _IS_OURS
        self[number] = answer
        return answer

    def topic_and_origin(self, number: int) -> tuple[JournalTopic, JournalOrigin]:
        """Return the topic and origin of a key."""
        return self.definitions.topics[number >> _BITS], self.definitions.origins[number & _LOWER]


def pack_passage(
    after: int, upto: int, passage: RawEntryRange, ways: ForwardingTable, now: int
) -> PackedBatch:
    """Return the entries of a passage that go, ready to be sent.

    Args:
        after: the txid before its first.
        upto: the txid up to which the log has been read.
        passage: the entries.
        ways: which of them go.
        now: microseconds since the Unix epoch.
    """
    count, numbers, columns, pieces = pack(passage.records, ways, now)
    bodies = passage.bodies
    if pieces != [(0, len(bodies))]:  # do not retain skipped bodies until the others are sent
        view = memoryview(bodies)
        bodies = b"".join([view[start:end] for start, end in pieces])
    names = [ways.topic_and_origin(number) for number in numbers]
    return PackedBatch(after, upto, count, names, columns, bodies)
