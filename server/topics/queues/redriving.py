"""Brings dead letters back into the queues that their messages have left.

What a letter says is written by whoever may publish where letters are. So it counts only as far as
the configuration bears it out: the queue that it names has its letters in this topic, and takes
messages of the topic that it names. What does not is no letter.

A queue over the topic of dead letters holds them. Redriving one publishes its message again where
that came from, and then acknowledges the letter: both are in the log, in this order, so that the
message is never nowhere. Other queues that the same topic feeds have had the message already. They
know it by its author, which is another one for each queue, and do not take it (`Entrance`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from server.replication import hops
from server.subscriptions.envelope import Envelope
from server.topics.queues.letters import Author, Letter

if TYPE_CHECKING:
    from server.expressions.context import MessageContext
    from server.queues import Queue
    from server.topics.queues.acknowledging import Acknowledging, Said
    from server.topics.queues.shelf import Shelved
    from server.topics.queues.surroundings import Surroundings


MayPublish: TypeAlias = "Callable[[str, bytes, MessageContext], bool]"
"""Whether somebody may publish a message to a topic."""

_MOST_PATHS: Final = 4096


def redriver(message_type: str, queue: str) -> Author:
    """Whoever publishes what comes back into a queue."""
    return Author(f"redriven to {message_type} queue {queue}", message_type)


class Strangers:
    """Knows whose messages are for other queues that the same topics feed.

    Args:
        authors: whoever publishes what comes back into these queues.
        instance: the name of this instance.
    """

    def __init__(self, authors: Iterable[Author], instance: str) -> None:
        self._authors: Final = tuple(authors)
        self._instance: Final = instance
        self._parts: Final[dict[str, frozenset[int]]] = {}

    def on(self, path: str) -> frozenset[int]:
        """Return their parts of the bookmarks of messages published at one instance.

        See `publisher_part`.

        Args:
            path: the instances that the messages have been through, as in the log.
        """
        found = self._parts.get(path)
        if found is None:
            if len(self._parts) >= _MOST_PATHS:
                self._parts.clear()
            publisher = hops(path)[0].name if path else self._instance
            found = frozenset(author.part(publisher) for author in self._authors)
            self._parts[path] = found
        return found


class Redriving:
    """Redrives the dead letters in one queue.

    Args:
        core: the queue, which holds the letters.
        message_type: the name of its message type.
        read: reads messages by their numbers in the log; None for one that is damaged there.
        acknowledging: takes acknowledgements for the queue.
        surroundings: what the queue needs of the server.
    """

    def __init__(
        self,
        core: Queue,
        message_type: str,
        read: Callable[[Sequence[int]], list[Shelved | None]],
        acknowledging: Acknowledging,
        surroundings: Surroundings,
    ) -> None:
        self._core: Final = core
        self._message_type: Final = message_type
        self._read: Final = read
        self._acknowledging: Final = acknowledging
        self._surroundings: Final = surroundings

    def redrive(self, places: Sequence[int], said: Said, may_publish: MayPublish) -> int:
        """Redrive letters.

        What is none, or cannot go where it came from, stays.

        Args:
            places: where in the queue they are.
            said: who wants it.
            may_publish: whether they may publish a message to a topic.

        Returns:
            How many have been redriven.

        Raises:
            JournalUnreadable: the log cannot be read at the moment.
            JournalUnavailable: as for `Acknowledging.acknowledge`.
        """
        there = [place for place in places if self._core.refusal(place, said.client) is None]
        txids = self._core.ledger.entries.txids(there)
        back = [
            place
            for place, message in zip(there, self._read(txids), strict=True)
            if message is not None and self._bring_back(message, may_publish)
        ]
        return self._acknowledging.acknowledge_places(back, said)

    def _bring_back(self, message: Shelved, may_publish: MayPublish) -> bool:
        """Publish a letter's message again; whether that was done."""
        context = message.context
        letter = Letter.from_text(context.correlation_id or "")
        if letter is None:
            return False
        topics, message_type = self._surroundings.topics, self._message_type
        home, stood = letter.topic, context.topic_name
        if stood is None or not topics.has_lost(message_type, letter.queue, home, stood):
            return False
        if not may_publish(home, message.body, context):
            return False
        author = replace(redriver(message_type, letter.queue), user=context.user or "")
        envelope = Envelope(author, self._surroundings.clock.now(), letter.correlation_id or None)
        return not topics.find(message_type, home).publish((message.body,), envelope)
