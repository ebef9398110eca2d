"""Entries of the log as they are sent: what goes is decided by topic and origin, not by entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.replication.columns import Packed
from server.replication.packing import pack

if TYPE_CHECKING:
    from server.journal import Origin, Passage, Topic
    from server.journal.records import Names
    from server.replication.routes import Way

_STAYS, _IS_OURS, _IS_PASSED_ON = range(3)
_BITS: Final = 32
_LOWER: Final = (1 << _BITS) - 1


class Ways(dict[int, int]):
    """Whether entries of a topic and an origin go to a destination, as `pack` asks for it.

    Args:
        names: what the numbers of topics and origins stand for.
        way: says what goes.
        all_go: everything does: it has been asked for before.

    Attributes:
        names: see above.
        all_go: see above.
    """

    __slots__ = ("_way", "all_go", "names")

    def __init__(self, names: Names, way: Way, *, all_go: bool) -> None:
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

    def meaning(self, number: int) -> tuple[Topic, Origin]:
        """What a key stands for."""
        return self.names.topics[number >> _BITS], self.names.origins[number & _LOWER]


def packed(after: int, upto: int, passage: Passage, ways: Ways, now: int) -> Packed:
    """What goes of a passage, ready to be sent.

    Args:
        after: the txid before its first.
        upto: the txid up to which the log has been read.
        passage: the entries.
        ways: which of them go.
        now: microseconds since the Unix epoch.
    """
    count, numbers, columns, pieces = pack(passage.records, ways, now)
    data = passage.bodies
    if pieces != [(0, len(data))]:  # what does not go is not kept until the rest has left
        view = memoryview(data)
        data = b"".join([view[start:end] for start, end in pieces])
    names = [ways.meaning(number) for number in numbers]
    return Packed(after, upto, count, names, columns, data)
