"""Feeds of recorded messages: queues get their messages from the log through them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING, NamedTuple, Protocol

from server.storage.journal.write.blocks import each
from server.topics.subscriptions.delivery.logged_batch import LoggedEnvelope

if TYPE_CHECKING:
    from server.storage.journal import FieldColumn, JournalEntry
    from server.topics.subscriptions.delivery.envelope import Envelope


class RecordedBatch(NamedTuple):
    """Messages of one publisher that the log has just recorded, in its order.

    Attributes:
        topic: the topic that they were published to.
        bodies: the recorded bodies.
        envelope: the publisher's metadata of the messages.
        txids: their txids.
        timestamps_us: the times of recording, in microseconds since 1970.
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
    timestamps_us: FieldColumn
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


def join_batches(batches: Sequence[RecordedBatch]) -> Iterator[RecordedBatch]:
    """Join consecutive batches that differ in nothing but their messages.

    Args:
        batches: batches in the order of the log, of messages without metadata of their own.
    """
    if len(batches) == 1:
        yield batches[0]
        return
    for _, group in groupby(batches, _common_properties):
        parts = list(group)
        if len(parts) == 1:
            yield parts[0]
            continue
        yield parts[0]._replace(
            bodies=[*chain.from_iterable(part.bodies for part in parts)],
            txids=[*chain.from_iterable(part.txids for part in parts)],
            timestamps_us=[
                *chain.from_iterable(each(part.timestamps_us, len(part.txids)) for part in parts)
            ],
            sequences=[*chain.from_iterable(part.sequences for part in parts)],
            sow_keys=[*chain.from_iterable(part.sow_keys for part in parts)],
        )


def _common_properties(batch: RecordedBatch) -> tuple[object, ...]:
    """Return the properties that all messages of a batch have, as far as feeds can see them."""
    envelope = batch.envelope
    return (
        batch.topic,
        batch.client,
        batch.path,
        batch.lifetime_s,
        not batch.sow_keys,
        envelope.header_keys,
        envelope.publisher,
        envelope.is_replicated,
    )
