"""The bodies of a queue's messages: recent ones at hand, all others in the log.

A queue keeps numbers, and the log keeps messages. What has just come is most often what is
delivered next, so that it stays on a shelf for as long as there is room. Whoever delivers what is
not there any more has it read from the log, with what comes after it: a queue that has fallen
behind is delivered in the order of the log.

What is not on stable storage yet cannot be read back, and so stays whatever the room.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple

from server.journal import MESSAGES, Span
from server.topics.feed import Recorded, recorded_of
from server.topics.queue_entrance import context_of

if TYPE_CHECKING:
    from server.expressions.context import MessageContext
    from server.journal import Entry
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
    def context(self) -> MessageContext:
        """What filters may ask about it besides its fields."""
        return context_of(self.origin, self.body, (self.origin.client, self.sequence))


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
        self._messages: dict[int, tuple[bytes, Recorded, int]] = {}
        self._size = 0
        self._cursor: Cursor | None = None

    def put(self, recorded: Recorded) -> None:
        """Keep messages that have just been recorded."""
        bodies = recorded.bodies
        origin = recorded._replace(bodies=(), txids=(), sequences=())
        self._messages.update(
            zip(recorded.txids, zip(bodies, repeat(origin), recorded.sequences), strict=False)
        )
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
            self._size = 0
            return
        messages = self._messages
        while messages and (txid := next(iter(messages))) < first:
            self._size -= len(messages.pop(txid)[0])

    def get(self, txids: Sequence[int]) -> list[Shelved | None]:
        """Messages by their numbers in the log.

        Returns:
            For each of them the message; None for one that is damaged in the log.

        Raises:
            JournalUnreadable: the log cannot be read at the moment.
        """
        found = list(map(self._messages.get, txids))
        if None in found:
            for position, message in enumerate(found):
                if message is None:
                    found[position] = self._read_back(txids[position])
        return [None if one is None else Shelved(*one) for one in found]

    def _make_room(self) -> None:
        """Let go of the oldest that can be read back."""
        messages, durable = self._messages, self._log.durable
        while self._size > self._room and messages:
            txid = next(iter(messages))
            if txid > durable:
                break
            self._size -= len(messages.pop(txid)[0])

    def _read_back(self, txid: int) -> tuple[bytes, Recorded, int] | None:
        message = self._messages.get(txid)  # it may have come with another one
        if message is not None:
            return message
        cursor = self._cursor
        if cursor is None or not txid - _SHORT_WAY <= cursor.position + 1 <= txid:
            cursor = self._log.journal.replay(Span(txid - 1), self._wanted, MESSAGES)
            self._cursor = cursor
        while cursor.position < txid and not cursor.is_caught_up:
            for entry in cursor.read(_AT_ONCE):
                self._messages[entry.txid] = entry.body, _origin(entry), entry.sequence
                self._size += len(entry.body)
        message = self._messages.get(txid)
        if self._size > self._room:
            self._make_room()
        return message


def _origin(entry: Entry) -> Recorded:
    return recorded_of(entry)._replace(bodies=(), txids=(), sequences=())
