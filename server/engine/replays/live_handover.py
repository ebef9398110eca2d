"""The transition from the log to messages that are not durable yet, for the option `live`.

    the log:     ... 5 6 7 | 8 9         the last entry when the subscription is placed is 9
    the topic:             |     10 11   these wait until 8 and 9 have been read from the log

Source: AMPS User Guide, Using the 'live' Option for Bookmark Subscriptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from server.topics.subscriptions.delivery.outbox import Outbox

if TYPE_CHECKING:
    from server.topics.subscriptions.subscription import Subscription
    from server.topics.topic_table import TopicTable

_MAX_HELD_BYTES: Final = 1 << 20
"""Bytes that may be held back before the subscription goes back to reading the log."""


class LiveHandover:
    """A subscription that gets messages from their topics; at first they are held back.

    Args:
        subscription: the subscription.
        topics: the topics, which send the messages.
        last_txid: of the last entry that it gets from the log.

    Attributes:
        last_txid: of the last entry that it gets from the log.
    """

    def __init__(self, subscription: Subscription, topics: TopicTable, last_txid: int) -> None:
        self.last_txid = last_txid
        self._subscription = subscription
        self._topics = topics
        outbox = subscription.subscriber.outbox
        self._held_output: Outbox = Outbox(
            [],
            outbox.traffic,
            lambda data: outbox.write_batch(data, self._held_output.messages_out),
        )
        self._active_subscription = structs.replace(
            subscription, terms=structs.replace(subscription.terms, held_in=self._held_output)
        )
        self._topics.subscribe(self._active_subscription)

    @property
    def is_over_limit(self) -> bool:
        """True if the messages held back exceed the limit."""
        return self._held_output.size > _MAX_HELD_BYTES

    def release(self) -> None:
        """Release the messages held back to the client, and send further ones directly."""
        self.unsubscribe()
        if self._held_output.size:
            self._held_output.flush()
        self._active_subscription = self._subscription
        self._topics.subscribe(self._active_subscription)

    def unsubscribe(self) -> None:
        """Stop taking messages from the topics."""
        self._topics.unsubscribe(self._active_subscription)
