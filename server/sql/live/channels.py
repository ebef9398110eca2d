"""The channels of LISTEN: each message of a topic becomes a notification."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from server.sql.postgres import messages

if TYPE_CHECKING:
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.delivery.record_delivery import RecordMessage
    from server.util.clock import Clock

MAX_CHANNELS: Final = 1000
"""Channels of a connection."""

MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Notifications that wait for the end of a statement or a transaction: beyond, the client is
disconnected as a slow one."""

_NOTIFICATION_BYTES: Final = 100
"""Approximate memory of a notification, apart from its bytes."""


class ChannelSink:
    """Passes the messages of a channel to a client; see `MessageSink`.

    Args:
        channel: the name of the channel.
        is_text: whether bodies are texts; others are sent as PostgreSQL writes `bytea`.
        notify: takes notifications as messages of the protocol.
    """

    def __init__(self, channel: str, notify: Callable[[bytes], None], *, is_text: bool) -> None:
        self._channel: Final = channel
        self._notify: Final = notify
        self._is_text: Final = is_text

    def on_message(self, topic: str, body: bytes, envelope: Envelope) -> None:  # noqa: ARG002 - see `MessageSink`
        """See `MessageSink.on_message`."""
        self._send(bytes(body))

    def on_record(self, topic: str, body: bytes, message: RecordMessage) -> None:  # noqa: ARG002 - see `MessageSink`
        """See `MessageSink.on_record`."""
        self._send(body)

    def on_oof(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """See `MessageSink.on_oof`; a channel has none."""

    def _send(self, body: bytes) -> None:
        text = body.decode(errors="replace") if self._is_text else f"\\x{body.hex()}"
        payload = text.replace("\0", "\ufffd")  # texts of the protocol end with it
        self._notify(messages.notification_response(0, self._channel, payload))


class NotificationQueue:
    """The notifications of a connection, which wait while a statement or a transaction runs.

    All calls come from the engine's thread.

    Args:
        clock: the engine's clock.
        may_send: returns whether they can be sent now.
        write: takes bytes for the client.
        charge_memory: charges bytes to the client, negative to release.
        on_overflow: disconnects the client.
    """

    def __init__(
        self,
        clock: Clock,
        may_send: Callable[[], bool],
        write: Callable[[bytes, int], None],
        charge_memory: Callable[[int], None],
        on_overflow: Callable[[], None],
    ) -> None:
        self._clock: Final = clock
        self._may_send: Final = may_send
        self._write: Final = write
        self._charge_memory: Final = charge_memory
        self._on_overflow: Final = on_overflow
        self._waiting: list[bytes] = []
        self._size = 0
        self._is_scheduled = False

    def add(self, notification: bytes) -> None:
        """Send a notification with others of this moment, or when it is possible."""
        size = len(notification) + _NOTIFICATION_BYTES
        self._waiting.append(notification)
        self._size += size
        self._charge_memory(size)
        if self._size > MAX_WAITING_BYTES:
            self._drop()
            # later: the caller may be iterating over the topic's subscriptions
            self._clock.call_later(0, self._on_overflow)
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._clock.call_later(0, self.flush)

    def flush(self) -> None:
        """Send the notifications that wait, if possible."""
        self._is_scheduled = False
        if self._waiting and self._may_send():
            waiting = self._waiting
            self._drop()
            self._write(b"".join(waiting), len(waiting))

    def _drop(self) -> None:
        self._charge_memory(-self._size)
        self._waiting, self._size = [], 0
