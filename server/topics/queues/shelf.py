"""The bodies of a queue's messages: recent ones at hand, all others in the log.

A queue keeps numbers, and the log keeps messages. What has just come is most often what is
delivered next, so that it stays on a shelf for as long as there is room. Whoever delivers what is
not there any more has it read from the log, with what comes after it: a queue that has fallen
behind is delivered in the order of the log.

What is not on stable storage yet cannot be read back, and so stays whatever the room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from server.journal import MESSAGES, Span
from server.journal.layout import TXID
from server.topics.queues.tray import Part, Tray, TrayIndex, tray_of, trays_of

if TYPE_CHECKING:
    from server.expressions.context import MessageContext
    from server.journal import Topic as TopicName
    from server.journal.cursor import Cursor
    from server.topics.feed import Recorded
    from server.topics.transaction_log import TransactionLog

_ROOM: Final = 32 * 1024 * 1024
"""Bytes of memory for the messages that a queue keeps at hand."""

_AT_ONCE: Final = 512
"""Entries that are read back together."""

_SHORT_WAY: Final = 4096
"""Entries; what lies no further ahead is read up to, and what lies further is looked for."""


class Shelved(NamedTuple):
    """One message.

    Attributes:
        tray: where it is kept.
        position: where it is there.
    """

    tray: Tray
    position: int

    @property
    def body(self) -> bytes:
        """What was recorded."""
        return self.tray.bodies[self.position]

    @property
    def moment(self) -> int:
        """When it was, in microseconds since 1970."""
        return self.tray.moments[self.position]

    @property
    def mark(self) -> tuple[int, int]:
        """Its bookmark as numbers."""
        return self.tray.mark(self.position)

    @property
    def context(self) -> MessageContext:
        """What filters may ask about it besides its fields."""
        return self.tray.context(self.position)


class Shelf:
    """The messages of one queue.

    Args:
        log: where all of them are.
        wanted: which topics the queue takes its messages from.
        room: bytes of memory for what is kept.

    Attributes:
        bytes_put: bytes of messages that have been put here when they were recorded.
        size: bytes of those that are kept.
    """

    def __init__(
        self, log: TransactionLog, wanted: Callable[[TopicName], bool], room: int = _ROOM
    ) -> None:
        self._log = log
        self._wanted = wanted
        self._room = room
        self._index = TrayIndex()
        self._order: deque[Tray] = deque()  # as they came
        self.bytes_put = 0
        self.size = 0
        self._cursor: Cursor | None = None

    def sibling(self, room: int) -> Shelf:
        """Another shelf of the same queue, for what others than consumers read."""
        return Shelf(self._log, self._wanted, room)

    def at_hand(self, txid: int) -> Shelved | None:
        """A message, if it need not be read from the log."""
        tray = self._index.find(txid)
        return None if tray is None else Shelved(tray, tray.positions((txid,))[0])

    def put(self, recorded: Recorded) -> None:
        """Keep messages that have just been recorded."""
        tray = tray_of(recorded)
        self.bytes_put += tray.size
        self._keep(tray)
        if self.size > self._room:
            self._make_room()

    def clear_up(self, first: int | None) -> None:
        """Let go of messages that have left the queue, when all have that came together.

        Args:
            first: the txid of the oldest one that has not; None if all have.
        """
        if first is None:
            self._index.clear()
            self._order.clear()
            self.size = 0
            return
        order = self._order
        while order and order[0].txids[-1] < first:
            self._drop(order.popleft())

    def find(self, txids: Sequence[int]) -> Iterator[Part | None]:
        """Messages by their numbers in the log, in that order.

        Returns:
            Those next to each other in one tray together; None for each that is damaged in the
            log.

        Raises:
            JournalUnreadable: the log cannot be read at the moment.
        """
        start = 0
        while start < len(txids):
            tray = self._index.find(txids[start]) or self._read_back(txids[start])
            if tray is None:
                yield None
                start += 1
            else:
                positions = tray.positions(txids, start)
                yield Part(tray, positions)
                start += len(positions)

    def get(self, txids: Sequence[int]) -> list[Shelved | None]:
        """Messages one by one. See `find`."""
        messages: list[Shelved | None] = []
        for part in self.find(txids):
            if part is None:
                messages.append(None)
            else:
                messages += [Shelved(part.tray, position) for position in part.positions]
        return messages

    def _keep(self, tray: Tray) -> None:
        self._index.add(tray)
        self._order.append(tray)
        self.size += tray.size

    def _drop(self, tray: Tray) -> None:
        self._index.discard(tray)
        self.size -= tray.size

    def _make_room(self) -> None:
        """Let go of the oldest that can be read back."""
        order, durable = self._order, self._log.durable
        while self.size > self._room and order and order[0].txids[-1] <= durable:
            self._drop(order.popleft())

    def _read_back(self, txid: int) -> Tray | None:
        """The tray of a message that is not at hand; None if it is damaged in the log."""
        cursor = self._cursor
        if cursor is None or not txid - _SHORT_WAY <= cursor.position + 1 <= txid:
            cursor = self._log.journal.replay(Span(txid - 1), self._wanted, MESSAGES)
            self._cursor = cursor
        while cursor.position < txid and not cursor.is_caught_up:
            for run in cursor.read_on(_AT_ONCE).runs():
                known = self._index.between(run.rows[0][TXID], run.rows[-1][TXID])
                for read in trays_of(run, known):
                    self._keep(read)
        tray = self._index.find(txid)
        if self.size > self._room:
            self._make_room()
        return tray
