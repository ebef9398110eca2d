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
        names: the topics and origins that the numbers stand for.
        way: decides which entries go.
        all_go: all entries go: they have been selected before.

    Attributes:
        names: see above.
        all_go: see above.
    """

    __slots__ = ("_way", "all_go", "names")

    def __init__(self, names: FileDefinitions, way: LinkRoute, *, all_go: bool) -> None:
        super().__init__()
        self.names = names
        self.all_go = all_go
        self._way = way

    def __missing__(self, number: int) -> int:
        topic, origin = self.meaning(number)
        goes = self.all_go or self._way.goes(topic, origin.path) is not None
        answer = _STAYS if not goes else _IS_PASSED_ON if origin.path else _IS_OURS
        self[number] = answer
        return answer

    def meaning(self, number: int) -> tuple[JournalTopic, JournalOrigin]:
        """Return the topic and origin of a key."""
        return self.names.topics[number >> _BITS], self.names.origins[number & _LOWER]


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
    data = passage.bodies
    if pieces != [(0, len(data))]:  # do not retain skipped bodies until the others are sent
        view = memoryview(data)
        data = b"".join([view[start:end] for start, end in pieces])
    names = [ways.meaning(number) for number in numbers]
    return PackedBatch(after, upto, count, names, columns, data)
