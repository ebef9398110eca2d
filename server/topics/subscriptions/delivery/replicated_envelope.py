"""Messages from other instances, in the form that matching, framing and conflation use."""

from __future__ import annotations

from amperage.wire.header import json_text
from server.expressions.message_context import MessageContext
from server.topics.subscriptions.delivery.envelope import Envelope


class ReplicatedEnvelope(Envelope):
    """The properties of messages that another instance has recorded and sent.

    Of their publisher only the user is known, and a hash of its name, which is in their bookmarks.

    Args:
        user: the authenticated user of their publisher, empty for none.
        received_s: when they were recorded here, in seconds since 1970.
        correlation_id: the publisher's correlation id.
    """

    __slots__ = ("_user",)

    is_replicated = True

    def __init__(self, user: str, received_s: float, correlation_id: str | None = None) -> None:
        super().__init__(None, received_s, correlation_id)
        self._user = user
        if user:
            self.header_keys += b',"user_id":' + json_text(user)

    def describe_publisher(self, context: MessageContext) -> None:
        """See `Envelope.describe_publisher`."""
        context.user = self._user or None
