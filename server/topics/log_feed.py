"""Feeds of recorded messages: queues get their messages from the log through them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from server.topics.subscriptions.delivery.logged_batch import LoggedEnvelope

if TYPE_CHECKING:
    from server.storage.journal import JournalEntry
    from server.topics.subscriptions.delivery.envelope import Envelope


class RecordedBatch(NamedTuple):
    """Messages of one publisher that the log has just recorded, in its order.

    Attributes:
        topic: the topic that they were published to.
        bodies: the recorded bodies.
        envelope: the publisher's metadata of the messages.
        txids: their txids.
        timestamp_us: the time of recording, in microseconds since 1970.
        client: the publisher's identity in their bookmarks.
        sequences: the numbers in their bookmarks.
        sow_keys: the SOW keys of their records as numbers; empty if they have none.
        lifetime_s: their lifetime in seconds, 0 for no limit.
        path: the instances that they have passed through, as in the log; empty if they were
            published here.
    """

    topic: str
    bodies: Sequence[bytes]
    envelope: Envelope
    txids: Sequence[int]
    timestamp_us: int
    client: int
    sequences: Sequence[int]
    sow_keys: Sequence[int]
    lifetime_s: int
    path: str = ""


class LogFeed(Protocol):
    """Processes recorded messages of a topic."""

    def receive_batch(self, recorded: RecordedBatch) -> None:
        """Process messages that have not been applied or delivered yet."""

    def report_double_publish(
        self, bookmarks: Sequence[tuple[int, int]], publishers: tuple[str, str]
    ) -> None:
        """Note messages that were published at two instances, by their bookmarks."""


def make_recorded_messages(entry: JournalEntry) -> RecordedBatch:
    """Return an entry of the log in the form that feeds got when it was recorded."""
    return RecordedBatch(
        entry.topic.name,
        (entry.body,),
        LoggedEnvelope(entry),
        (entry.txid,),
        entry.timestamp,
        entry.client,
        (entry.sequence,),
        (entry.sow_key,) if entry.sow_key else (),
        entry.expiration,
        entry.origin.path,
    )
