"""The bodies of a queue's messages: recent ones at hand, all others in the log.

A queue keeps numbers, and the log keeps messages. What has just come is most often what is
delivered next, so that it stays on a shelf for as long as there is room. Whoever delivers what is
not there any more has it read from the log, with what comes after it: a queue that has fallen
behind is delivered in the order of the log.

What is not on stable storage yet cannot be read back, and so stays whatever the room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple

from server.journal import MESSAGES, Span
from server.topics.feed import Recorded, recorded_of
from server.topics.queue_entrance import context_of

if TYPE_CHECKING:
    from server.expressions.context import MessageContext
    from server.journal import Topic as TopicName
    from server.journal.cursor import Cursor
    from server.topics.transaction_log import TransactionLog

_ROOM: Final = 32 * 1024 * 1024
"""Bytes of bodies that a queue keeps at hand."""

_AT_ONCE: Final = 128
"""Entries that are read back together."""

_SHORT_WAY: Final = 4096
"""Entries; what lies no further ahead is read up to, and what lies further is looked for."""


class Shelved(NamedTuple):
    """One message.

    Attributes:
        body: what was recorded.
        origin: what else is known of it, and of those that came with it; without bodies.
        sequence: the number in its bookmark.
    """

    body: bytes
    origin: Recorded
    sequence: int

    @property
    def mark(self) -> tuple[int, int]:
        """Its bookmark as numbers."""
        return self.origin.client, self.sequence

    @property
    def context(self) -> MessageContext:
        """What filters may ask about it besides its fields."""
        return context_of(self.origin, self.body, self.mark)


class Shelf:
    """The messages of one queue.

    Args:
        log: where all of them are.
        wanted: which topics the queue takes its messages from.
        room: bytes of bodies that are kept.
    """

    def __init__(
        self, log: TransactionLog, wanted: Callable[[TopicName], bool], room: int = _ROOM
    ) -> None:
        self._log = log
        self._wanted = wanted
        self._room = room
        self._messages: dict[int, Shelved] = {}
        self._order: deque[int] = deque()  # as they came: the first of a dict takes a search
        self._size = 0
        self._cursor: Cursor | None = None

    def sibling(self, room: int) -> Shelf:
        """Another shelf of the same queue, for what others than consumers read."""
        return Shelf(self._log, self._wanted, room)

    def at_hand(self, txid: int) -> Shelved | None:
        """A message, if it need not be read from the log."""
        return self._messages.get(txid)

    def put(self, recorded: Recorded) -> None:
        """Keep messages that have just been recorded."""
        bodies = recorded.bodies
        messages = map(Shelved, bodies, repeat(_without_bodies(recorded)), recorded.sequences)
        self._messages.update(zip(recorded.txids, messages, strict=False))
        self._order += recorded.txids
        self._size += sum(map(len, bodies))
        if self._size > self._room:
            self._make_room()

    def clear_up(self, first: int | None) -> None:
        """Let go of messages that have left the queue.

        Args:
            first: the txid of the oldest one that has not; None if all have.
        """
        if first is None:
            self._messages.clear()
            self._order.clear()
            self._size = 0
            return
        messages, order = self._messages, self._order
        while order and order[0] < first:
            self._size -= len(messages.pop(order.popleft())[0])

    def get(self, txids: Sequence[int]) -> list[Shelved | None]:
        """Messages by their numbers in the log.

        Returns:
            For each of them the message; None for one that is damaged in the log.

        Raises:
            JournalUnreadable: the log cannot be read at the moment.
        """
        found = [*map(self._messages.get, txids)]
        if None in found:
            for position, message in enumerate(found):
                if message is None:
                    found[position] = self._read_back(txids[position])
        return found

    def _make_room(self) -> None:
        """Let go of the oldest that can be read back."""
        messages, order, durable = self._messages, self._order, self._log.durable
        while self._size > self._room and order and order[0] <= durable:
            self._size -= len(messages.pop(order.popleft())[0])

    def _read_back(self, txid: int) -> Shelved | None:
        message = self._messages.get(txid)  # it may have come with another one
        if message is not None:
            return message
        cursor = self._cursor
        if cursor is None or not txid - _SHORT_WAY <= cursor.position + 1 <= txid:
            cursor = self._log.journal.replay(Span(txid - 1), self._wanted, MESSAGES)
            self._cursor = cursor
        while cursor.position < txid and not cursor.is_caught_up:
            for entry in cursor.read(_AT_ONCE):
                if entry.txid not in self._messages:
                    origin = _without_bodies(recorded_of(entry))
                    self._messages[entry.txid] = Shelved(entry.body, origin, entry.sequence)
                    self._order.append(entry.txid)
                    self._size += len(entry.body)
        message = self._messages.get(txid)
        if self._size > self._room:
            self._make_room()
        return message


def _without_bodies(recorded: Recorded) -> Recorded:
    topic, _, envelope, _, moment, client, _, sow_keys, lifetime = recorded
    return Recorded(topic, (), envelope, (), moment, client, (), sow_keys, lifetime)
