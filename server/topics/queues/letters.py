"""Dead letters: what leaves a queue without having been acknowledged is published to a topic.

Theory of operation. That a message has expired is an entry of the log, and so is its dead letter,
which comes after it: the message as it was, with a correlation id that says what it is a letter of.
What has no letter yet is pending. The body is read, and the letter is published, in a later slice.

A crash may come in between. So letters are folded like the queue itself: an expired message is
pending until its letter is met, which names it by its bookmark and has an author that no client is.
What is pending at the end is published then, and nothing is published twice. As long as something
is pending, the log is kept from its message on, and the fold does not begin behind its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Self
from urllib.parse import parse_qsl, quote, urlencode

from amperage.wire.bookmarks import client_hash
from server.journal import JournalUnreadable
from server.journal.clients import publisher_part, server_made_identity
from server.journal.layout import CLIENT
from server.subscriptions.envelope import Envelope

if TYPE_CHECKING:
    from config_schema.spec import QueueSpec
    from server.journal import Run
    from server.queues import Departure, Expired, Mark
    from server.topics.queues.shelf import Shelved
    from server.topics.queues.surroundings import Surroundings

_AT_ONCE: Final = 32
"""Letters that are published in a slice."""
_RETRY_SECONDS: Final = 1.0
"""Until it is tried again to read from, or to write to, a log that refuses."""
_LAST_TXID: Final = (1 << 63) - 1
_PASSING: Final = "not stored"
"""The reason of a rejection that may not be repeated the next time."""
_LONGEST: Final = 65_535
"""Bytes that a correlation id may have in the log."""
_MOST_FIELDS: Final = 16
_PLAIN: Final = "|,/:"
"""What is left as it is, so that people can read it."""


class Letter(NamedTuple):
    """What a dead letter says of its message, as its correlation id.

    Attributes:
        queue: the queue that the message was in.
        topic: where it had been published.
        reasons: why it has left; see `Departure`.
        deliveries: how often it had been delivered.
        cancels: how often it had been given back.
        last_consumer: who had it last, empty if nobody has had it.
        mark: its bookmark.
        correlation_id: its own correlation id, empty for none.
    """

    queue: str
    topic: str
    reasons: Sequence[str]
    deliveries: int
    cancels: int
    last_consumer: str
    mark: Mark
    correlation_id: str

    def to_text(self) -> str:
        """As the query of a URL is written: every language has something that reads it."""
        client, sequence = self.mark
        fields = {
            "queue": self.queue,
            "topic": self.topic,
            "reason": ",".join(self.reasons),
            "deliveries": str(self.deliveries),
            "cancels": str(self.cancels),
            "last_consumer": self.last_consumer,
            "bookmark": f"{client}|{sequence}|",
            "correlation_id": self.correlation_id,
        }
        there = {name: value for name, value in fields.items() if value}
        text = _encode(there)
        if len(text) > _LONGEST:
            text = _encode({name: there[name] for name in there if name != "correlation_id"})
        return text

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """What a correlation id says; None if it is none of a dead letter."""
        try:
            fields = dict(
                parse_qsl(text, errors="surrogateescape", max_num_fields=_MOST_FIELDS),
            )
            client, sequence, _ = fields["bookmark"].split("|")
            return cls(
                fields["queue"],
                fields["topic"],
                fields["reason"].split(","),
                int(fields["deliveries"]),
                int(fields["cancels"]),
                fields.get("last_consumer", ""),
                (int(client), int(sequence)),
                fields.get("correlation_id", ""),
            )
        except (ValueError, KeyError):
            return None


def _encode(fields: dict[str, str]) -> str:
    return urlencode(fields, safe=_PLAIN, quote_via=quote, errors="surrogateescape")


@dataclass(frozen=True)
class Author:
    """The server as somebody who publishes. See `Client`.

    Attributes:
        client_name: its name, which nobody who logs on should have.
        message_type: the name of its message type.
    """

    client_name: str
    message_type: str
    number: int = -1
    client_version: str = ""
    connection_name: str = ""
    address: str = ""
    user: str = ""

    @property
    def client_hash(self) -> int:
        """See `Client`."""
        return client_hash(self.client_name)

    def part(self, instance: str) -> int:
        """Return its part of the bookmarks of the messages that it publishes, in all runs.

        See `publisher_part`.
        """
        return publisher_part(server_made_identity(self.client_hash, instance))


class DeadLetters:
    """The dead letters of one queue.

    Args:
        spec: the queue.
        read: reads messages by their numbers in the log; None for one that is damaged there.
        surroundings: what the queue needs of the server.

    Attributes:
        part: the part of the author in the bookmarks of letters, in all runs.
    """

    def __init__(
        self,
        spec: QueueSpec,
        read: Callable[[Sequence[int]], list[Shelved | None]],
        surroundings: Surroundings,
    ) -> None:
        self._queue: Final = spec.name
        self._topic: Final = spec.dead_letter_topic
        self._read: Final = read
        self._surroundings: Final = surroundings
        name = f"dead letters of {spec.message_type} queue {spec.name}"
        self._author: Final = Author(name, spec.message_type)
        self.part: Final = self._author.part(surroundings.log.instance)
        # of messages that have no letter, the entry that says of their end, and how it came to that
        self._pending: dict[Mark, tuple[int, Departure]] = {}
        self._oldest = _LAST_TXID  # of these messages, or one before that
        self._has_begun = False
        self._is_awake = False
        self._is_failing = False

    # what is pending

    def take(self, event: Expired, txid: int) -> None:
        """Messages have expired, and that has been recorded.

        Args:
            event: what has been recorded.
            txid: of the entry.
        """
        if self._topic is None or not event.has_letters:
            return
        for mark, departure in zip(event.marks, event.departures, strict=True):
            self._pending[mark] = txid, departure
            self._oldest = min(self._oldest, departure.txid)
        self._wake()

    def recover(self, run: Run) -> None:
        """Take in letters that were in the log before the start, if there are any among entries."""
        for position, row in enumerate(run.rows):
            if publisher_part(row[CLIENT]) != self.part:
                continue
            letter = Letter.from_text(run.entry(position).correlation_id.decode(errors="replace"))
            if letter is not None:
                self._pending.pop(letter.mark, None)
        self._forget_oldest()

    def begin(self) -> None:
        """Everything in the log has been taken in: publish what is pending."""
        self._has_begun = True
        self._wake()

    @property
    def needed_from(self) -> int | None:
        """The txid from which on messages have to be read yet, None if there are none."""
        return self._oldest if self._pending else None

    @property
    def ends_from(self) -> int | None:
        """The first entry that speaks of the end of a pending message, None if there is none."""
        for txid, _ in self._pending.values():
            return txid
        return None

    def _forget_oldest(self) -> None:
        if not self._pending:
            self._oldest = _LAST_TXID

    # publishing

    def _wake(self) -> None:
        if self._has_begun and self._pending and not self._is_awake:
            self._is_awake = True
            self._surroundings.queue(self)

    @property
    def doing(self) -> tuple[str, str]:
        """See `Sliced.doing`; it is for whoever the letters are for."""
        return "", "dead letters"

    def step(self) -> bool:
        """Publish some letters. See `Sliced.step`."""
        some = list(islice(self._pending.items(), _AT_ONCE))
        try:
            messages = self._read([departure.txid for _, (_, departure) in some])
        except JournalUnreadable as problem:
            self._try_later(str(problem))
            return False
        for (mark, (_, departure)), message in zip(some, messages, strict=True):
            if message is None:
                self._complain(mark, "the message is damaged in the transaction log")
            elif (refusal := self._publish(mark, departure, message)) is not None:
                self._try_later(refusal)
                return False
            del self._pending[mark]
        self._is_failing = False
        self._forget_oldest()
        self._is_awake = bool(self._pending)
        return self._is_awake

    def _publish(self, mark: Mark, departure: Departure, message: Shelved) -> str | None:
        """Publish a letter; returns what is wrong if it has to be tried again."""
        letter = Letter(
            self._queue,
            message.tray.topic,
            departure.reasons,
            departure.deliveries,
            departure.cancels,
            departure.last_consumer,
            mark,
            message.context.correlation_id or "",
        )
        surroundings = self._surroundings
        author = replace(self._author, user=message.context.user or "")
        envelope = Envelope(author, surroundings.clock.now(), letter.to_text())
        topic = surroundings.topics.find(self._author.message_type, self._topic or "")
        for rejection in topic.publish((message.body,), envelope):
            if rejection.reason == _PASSING:
                return rejection.detail
            self._complain(mark, f"{rejection.reason}: {rejection.detail}")
        return None

    def _complain(self, mark: Mark, problem: str) -> None:
        client, sequence = mark
        self._surroundings.events.emit(
            "1D-0020",
            queue=self._queue,
            bookmark=f"{client}|{sequence}|",
            topic=self._topic,
            problem=problem,
        )

    def _try_later(self, problem: str) -> None:
        if not self._is_failing:
            self._is_failing = True
            self._surroundings.events.emit(
                "1D-0019", queue=self._queue, topic=self._topic, problem=problem
            )
        self._is_awake = False
        self._surroundings.clock.call_later(_RETRY_SECONDS, self._wake)
