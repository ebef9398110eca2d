"""Dead letters: messages that leave a queue unacknowledged are published to another topic.

Theory of operation. The expiry of a message is an entry of the log, and so is its dead letter,
which comes after it: the unchanged message, with a correlation id that identifies the original.
A message without its letter is pending. A later time slice reads the body and publishes the letter.

A crash may happen in between. So recovery folds letters like the queue itself: an expired message
is pending until the fold reads its letter, which names the message by its bookmark and has an
author that is not a client. Messages that are pending at the end of the fold are published then,
and no letter is published twice. As long as a message is pending, the log is retained from this
message on, and the fold begins no later than the entry of its expiry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Self
from urllib.parse import parse_qsl, quote, urlencode

from amperage.wire.bookmarks import client_hash
from server.storage.journal import JournalUnreadableError
from server.storage.journal.format.layout import CLIENT
from server.storage.journal.publisher_table import publisher_part, server_made_identity
from server.topics.subscriptions.delivery.envelope import Envelope

if TYPE_CHECKING:
    from config_schema.spec import QueueSpec
    from server.queues.core import Expired, PublisherSequence, RemovalDetails
    from server.queues.topic.context import QueueServices
    from server.queues.topic.message_cache import CachedMessage
    from server.storage.journal import EntryBatch

_BATCH_SIZE: Final = 32
"""Letters published per time slice."""
_RETRY_INTERVAL_S: Final = 1.0
"""Delay before a failed read or write of the log is retried."""
_LAST_TXID: Final = (1 << 63) - 1
_TEMPORARY_REASON: Final = "not stored"
"""The refusal reason of a temporary failure, which is retried."""
_MAX_CORRELATION_ID_BYTES: Final = 65_535
"""Maximum bytes of a correlation id in the log."""
_MAX_FIELDS: Final = 16
_UNESCAPED: Final = "|,/:"
"""Characters that are not escaped, for readability."""


class DeadLetter(NamedTuple):
    """The description of the original message in a dead letter: its correlation id, parsed.

    Attributes:
        queue: the queue of the message.
        topic: the topic that the message was published to.
        reasons: the reasons for its removal; see `RemovalDetails`.
        deliveries: the number of its deliveries.
        cancels: the number of times that consumers returned it.
        last_consumer: the last consumer that leased it, empty for none.
        bookmark: its bookmark.
        correlation_id: its own correlation id, empty for none.
    """

    queue: str
    topic: str
    reasons: Sequence[str]
    deliveries: int
    cancels: int
    last_consumer: str
    bookmark: PublisherSequence
    correlation_id: str

    def to_text(self) -> str:
        """Return the letter in URL query syntax, for which every language has a parser."""
        client, sequence = self.bookmark
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
        present = {name: value for name, value in fields.items() if value}
        text = _encode(present)
        if len(text) > _MAX_CORRELATION_ID_BYTES:
            text = _encode({name: present[name] for name in present if name != "correlation_id"})
        return text

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """Parse a correlation id; return None if it is not that of a dead letter."""
        try:
            fields = dict(
                parse_qsl(text, errors="surrogateescape", max_num_fields=_MAX_FIELDS),
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
    return urlencode(fields, safe=_UNESCAPED, quote_via=quote, errors="surrogateescape")


@dataclass(frozen=True)
class ServerPublisher:
    """The server as a publisher. See `ClientIdentity`.

    Attributes:
        client_name: its name, which no client should log on with.
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
        """See `ClientIdentity`."""
        return client_hash(self.client_name)

    def publisher_part(self, instance: str) -> int:
        """Return the publisher part of its messages' bookmarks; it is the same in all runs.

        See `publisher_part`.
        """
        return publisher_part(server_made_identity(self.client_hash, instance))


class DeadLetterPublisher:
    """The dead letters of one queue.

    Args:
        spec: the queue.
        read: reads messages by their txids; None for a message that is damaged in the log.
        services: the server's services for the queue.

    Attributes:
        publisher_part: the publisher part of the letters' bookmarks; it is the same in all runs.
    """

    def __init__(
        self,
        spec: QueueSpec,
        read: Callable[[Sequence[int]], list[CachedMessage | None]],
        services: QueueServices,
    ) -> None:
        self._queue: Final = spec.name
        self._topic: Final = spec.dead_letter_topic
        self._read: Final = read
        self._services: Final = services
        name = f"dead letters of {spec.message_type} queue {spec.name}"
        self._author: Final = ServerPublisher(name, spec.message_type)
        self.publisher_part: Final = self._author.publisher_part(services.log.instance)
        # by message without a letter: the txid of the entry of its expiry, and its removal
        self._pending: dict[PublisherSequence, tuple[int, RemovalDetails]] = {}
        self._oldest_txid = _LAST_TXID  # of these messages, or an older txid
        self._has_begun = False
        self._is_awake = False
        self._is_failing = False

    # pending messages

    def add_expired(self, event: Expired, txid: int) -> None:
        """Add expired messages after their expiry has been recorded.

        Args:
            event: the recorded event.
            txid: the txid of its entry.
        """
        if self._topic is None or not event.has_letters:
            return
        for bookmark, removal in zip(event.bookmarks, event.departures, strict=True):
            self._pending[bookmark] = txid, removal
            self._oldest_txid = min(self._oldest_txid, removal.txid)
        self._wake()

    def recover_letters(self, batch: EntryBatch) -> None:
        """Remove the pending messages that have letters among log entries of an earlier run."""
        for position, row in enumerate(batch.rows):
            if publisher_part(row[CLIENT]) != self.publisher_part:
                continue
            letter = DeadLetter.from_text(
                batch.entry_at(position).correlation_id.decode(errors="replace")
            )
            if letter is not None:
                self._pending.pop(letter.bookmark, None)
        self._reset_oldest_txid()

    def begin(self) -> None:
        """Publish the pending letters; called when recovery is complete."""
        self._has_begun = True
        self._wake()

    @property
    def first_needed_txid(self) -> int | None:
        """The lowest txid of the messages still to be read, None if there are none."""
        return self._oldest_txid if self._pending else None

    @property
    def oldest_expiry_txid(self) -> int | None:
        """The txid of the first entry of a pending message's expiry, None if there is none."""
        for txid, _ in self._pending.values():
            return txid
        return None

    def _reset_oldest_txid(self) -> None:
        if not self._pending:
            self._oldest_txid = _LAST_TXID

    # publishing

    def _wake(self) -> None:
        if self._has_begun and self._pending and not self._is_awake:
            self._is_awake = True
            self._services.schedule(self)

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`; the work is not for a particular client."""
        return "", "dead letters"

    def step(self) -> bool:
        """Publish some letters. See `EngineTask.step`."""
        batch = list(islice(self._pending.items(), _BATCH_SIZE))
        try:
            messages = self._read([removal.txid for _, (_, removal) in batch])
        except JournalUnreadableError as problem:
            self._retry_later(str(problem))
            return False
        for (bookmark, (_, removal)), message in zip(batch, messages, strict=True):
            if message is None:
                self._log_lost_letter(bookmark, "the message is damaged in the transaction log")
            elif (refusal := self._publish(bookmark, removal, message)) is not None:
                self._retry_later(refusal)
                return False
            del self._pending[bookmark]
        self._is_failing = False
        self._reset_oldest_txid()
        self._is_awake = bool(self._pending)
        return self._is_awake

    def _publish(
        self, bookmark: PublisherSequence, removal: RemovalDetails, message: CachedMessage
    ) -> str | None:
        """Publish a letter; return the problem if it is to be retried, else None."""
        letter = DeadLetter(
            self._queue,
            message.batch.topic,
            removal.reasons,
            removal.deliveries,
            removal.cancels,
            removal.last_consumer,
            bookmark,
            message.context.correlation_id or "",
        )
        services = self._services
        author = replace(self._author, user=message.context.user or "")
        envelope = Envelope(author, services.clock.now(), letter.to_text())
        topic = services.topics.find(self._author.message_type, self._topic or "")
        for refusal in topic.publish((message.body,), envelope):
            if refusal.reason == _TEMPORARY_REASON:
                return refusal.detail
            self._log_lost_letter(bookmark, f"{refusal.reason}: {refusal.detail}")
        return None

    def _log_lost_letter(self, bookmark: PublisherSequence, problem: str) -> None:
        client, sequence = bookmark
        self._services.events.emit(
            "1D-0020",
            queue=self._queue,
            bookmark=f"{client}|{sequence}|",
            topic=self._topic,
            problem=problem,
        )

    def _retry_later(self, problem: str) -> None:
        if not self._is_failing:
            self._is_failing = True
            self._services.events.emit(
                "1D-0019", queue=self._queue, topic=self._topic, problem=problem
            )
        self._is_awake = False
        self._services.clock.call_later(_RETRY_INTERVAL_S, self._wake)
