"""Deletions in replays with the option `deletions`, as the log has them.

An entry of the log has the SOW keys of the records that a sow_delete removed. It becomes one
message, so that it has one bookmark and counts as one, like any other entry:

    {"c":"oof","t":"orders","reason":"deleted","l":17,"bm":"77|3|","sids":"1"}["123","456"]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from amperage.wire.frame_slices import framed
from amperage.wire.header import json_text
from server.storage.journal import MESSAGES, JournalEntryKind
from server.storage.journal.format.records import RECORD_TYPE
from server.topics.subscriptions.delivery.record_delivery import DELETED

if TYPE_CHECKING:
    from server.storage.journal import RawEntryBatch
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.subscription import Subscription

WITH_DELETIONS: Final = MESSAGES | {JournalEntryKind.SOW_DELETE}
"""The kinds of entries that such a replay reads."""


class DeletionDelivery:
    """Sends deletions to one subscription.

    Args:
        subscription: the subscription.
        topic: the topic of the deleted records.
    """

    __slots__ = ("_subscription", "_topic")

    def __init__(self, subscription: Subscription, topic: str) -> None:
        self._subscription = subscription
        self._topic = topic

    def deliver(self, bodies: Sequence[bytes], envelope: Envelope) -> None:
        """See `Delivery.deliver`; each body is a list of SOW keys, in JSON."""
        subscription = self._subscription
        if subscription.sink is not None:
            for body in bodies:
                subscription.sink.on_message(self._topic, body, envelope)
            return
        presentation = subscription.presentation
        prefix = b'{"c":"oof","t":%b,"reason":"%b"' % (json_text(self._topic), DELETED.encode())
        keys = envelope.header_keys + presentation.optional_keys(envelope)
        suffix = keys + presentation.header_end([subscription.sub_id])
        outbox = subscription.outbox
        outbox.counting_writer(outbox.traffic.bookmark).write_batch(
            framed(bodies, prefix, suffix), len(bodies)
        )


def is_plain(batch: RawEntryBatch) -> bool:
    """Return whether a batch has only messages without a lifetime: no deletions, no extra keys."""
    rows = np.frombuffer(batch.records, RECORD_TYPE)
    return not ((rows["kind"] == JournalEntryKind.SOW_DELETE) | (rows["expiration"] != 0)).any()


def lifetime_key(seconds: int) -> bytes:
    """Return the header key of a message with a lifetime, its own or its topic's.

    Args:
        seconds: the lifetime; 0 for none.
    """
    return b',"e":%d' % seconds if seconds else b""
