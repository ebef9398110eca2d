"""Messages from other instances as those see them who match, frame and conflate messages."""

from __future__ import annotations

from amperage.wire.header import json_text
from server.expressions.context import MessageContext
from server.subscriptions.envelope import Envelope


class ReplicatedEnvelope(Envelope):
    """What another instance said about messages that it has recorded.

    Of their publisher the user is known, and of its name a hash, which is in their bookmarks.

    Args:
        user: as whom their publisher was authenticated, empty for nobody.
        received: when they were recorded here, in seconds since 1970.
        correlation_id: the publisher's mark on them.
    """

    __slots__ = ("_user",)

    is_replicated = True

    def __init__(self, user: str, received: float, correlation_id: str | None = None) -> None:
        super().__init__(None, received, correlation_id)
        self._user = user
        if user:
            self.keys += b',"user_id":' + json_text(user)

    def describe_publisher(self, context: MessageContext) -> None:
        """See `Envelope.describe_publisher`."""
        context.user = self._user or None
